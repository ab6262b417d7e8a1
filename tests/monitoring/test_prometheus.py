"""A real Prometheus watches a real `ddswan up` with traffic: dashboards have data, alerts fire when
something is broken and resolve when it is mended.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from gateway.coordination.embedded import free_port
from tests.environment import environment
from tests.lab.process import Process, wait_until
from tests.monitoring.server import RANGE, Prometheus
from tests.monitoring.test_dashboards import BOARDS, expressions

pytestmark = [pytest.mark.e2e, pytest.mark.dds, pytest.mark.zookeeper]

_DOMAINS = {"a": 95, "b": 96}
_DDS_ON_LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo'/></Interfaces>"
    "</General></Domain></CycloneDDS>"
)
_OTHER_CLOCK = """
import os, sys, time
real = time.time_ns
if "router" in sys.orig_argv:
    time.time_ns = lambda: real() + 300_000_000 * os.path.exists({!r})
"""
"""Python runs it in every process of the system before anything else."""
_ROOT = Path(__file__).parents[2]
_LATE = frozenset({"DdswanDeadlineMisses"})
_EMPTY_WHILE_ALL_IS_WELL = {
    "Frames given up by routers",
    "Input that cannot be understood",
    "Links lost",
    "Moves",
    "Pairs that do not match, by policy",
}


class _System:
    """Two LANs (DDS domains), a router, ZooKeeper, applications; all end with the stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.traces = folder / "traces"
        self._wrong_clock = folder / "the router's clock is wrong"
        (folder / "sitecustomize.py").write_text(_OTHER_CLOCK.format(str(self._wrong_clock)))
        self.targets: dict[str, list[str]] = {"ddswan-router": [], "ddswan-edge": []}
        settings = {
            "fabric": "watched",
            # Small, so that they are full soon.
            "stream": {"window_bytes": 2**21},
            "trace": {"directory": str(self.traces), "share": 1.0, "file_age_s": 1},
            "zookeeper": {"hosts": f"127.0.0.1:{free_port()}", "session_timeout_s": 3},
            "metrics": {"host": "127.0.0.1"},
            "routers": [
                {
                    "id": "r1",
                    "listen": f"127.0.0.1:{free_port()}",
                    "metrics_port": self._metrics_port("ddswan-router"),
                }
            ],
            "edges": [
                {
                    "id": f"e-{lan}",
                    "lan": lan,
                    "domain": domain,
                    "metrics_port": self._metrics_port("ddswan-edge"),
                }
                for lan, domain in _DOMAINS.items()
            ],
        }
        file = folder / "up.yaml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        self.up = self._start("up", "gateway.cli", "up", str(file))

    def _metrics_port(self, job: str) -> int:
        port = free_port()
        self.targets[job].append(f"127.0.0.1:{port}")
        return port

    def application(self, name: str, kind: str, lan: str, topic: str, *options: str) -> Process:
        where = (f"--domain={_DOMAINS[lan]}", f"--topic={topic}")
        return self._start(name, f"tests.apps.{kind}", *where, *options)

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Nobody can write a trace: their directory has become a file."""
        aside = self.traces.with_name("aside")
        self.traces.rename(aside)
        self.traces.touch()
        try:
            yield
        finally:
            self.traces.unlink()
            aside.rename(self.traces)

    @contextmanager
    def wrong_clock(self) -> Iterator[None]:
        """The router's clock is ahead of everybody else's."""
        self._wrong_clock.touch()
        try:
            yield
        finally:
            self._wrong_clock.unlink()

    def _start(self, name: str, module: str, *arguments: str) -> Process:
        process = Process(
            [sys.executable, "-m", module, *arguments],
            name=name,
            output=self._folder / name,
            env=environment(
                CYCLONEDDS_URI=_DDS_ON_LOOPBACK,
                TMPDIR=str(self._folder),
                PYTHONPATH=str(self._folder),
            ),
            cwd=_ROOT,
        )
        # `up` ends its children, also when it is killed.
        self._stack.callback(process.kill)
        return process

    def broker(self, words: str) -> psutil.Process:
        """The process of `up` with these words in its command line."""
        children = psutil.Process(self.up.pid).children(recursive=True)
        (found,) = [child for child in children if words in " ".join(child.cmdline())]
        return found


@contextmanager
def _stopped(*processes: psutil.Process | Process) -> Iterator[None]:
    """They do nothing for a while, and do not know it."""
    try:
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[_System]:
    with ExitStack() as stack:
        yield _System(tmp_path, stack)


def test_alerts_come_and_go_and_dashboards_have_data(system: _System, tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with Prometheus(folder, dict(system.targets)) as prometheus:
        forever = ("--count=1000000", "--quiet", "--wait-readers=1")
        flow, *others = [
            system.application("sub-flow", "sub", "b", "flow"),
            system.application("sub-late", "sub", "b", "late"),
            system.application("sub-loose", "sub", "b", "loose", "--best-effort"),
        ]
        # Enough bytes to fill what DDS keeps for a reader that does not read, and the way to a
        # router that does not.
        system.application("pub-flow", "pub", "a", "flow", "--rate=100", "--size=20000", *forever)
        loose = ("--rate=100", "--size=60000", "--best-effort")
        system.application("pub-loose", "pub", "a", "loose", *loose, *forever)
        late = system.application(
            *("pub-late", "pub", "a", "late", "--rate=50", *forever),
            *("--deadline-ms=50", "--age-ms=100"),
        )
        for subscriber in (flow, *others):
            subscriber.wait_for_line('"index": 100,', 40.0)

        # Nothing is wrong but that one topic is late.
        prometheus.wait_for_silence(20.0, except_for=_LATE)
        _assert_dashboards_have_data(prometheus)
        late.terminate()
        prometheus.wait_for_silence(20.0)

        with _stopped(system.broker("router-r1.yaml")):
            prometheus.wait_for_alerts(
                {"DdswanRouterDown", "DdswanNoLeader", "DdswanTopicUnassigned"}, 20.0
            )
            # Edges that had not given up the link would lose nothing.
            linked = partial(prometheus.query, 'ddswan_link_up{peer="r1"} == 1')
            wait_until(lambda: not linked(), 20.0, "edges lose their links")
        # What was sent meanwhile and nobody kept is missed when samples come again.
        prometheus.wait_for_alerts({"DdswanBestEffortDrops"}, 20.0)
        prometheus.wait_for_silence(30.0)

        zookeeper = system.broker("ZooKeeperServerMain")
        with _stopped(zookeeper), system.disk_full(), system.wrong_clock():
            prometheus.wait_for_alerts(
                {"DdswanZooKeeperSessionLost", "DdswanTraceDiskFull", "DdswanClockError"}, 20.0
            )
        prometheus.wait_for_silence(30.0)

        with _stopped(flow):
            prometheus.wait_for_alerts({"DdswanLaggardLan", "DdswanWindowFull"}, 20.0)
        prometheus.wait_for_silence(30.0)


def _assert_dashboards_have_data(prometheus: Prometheus) -> None:
    """Every query is understood; what has something to show now shows it."""
    values = {
        "$fabric": "watched",
        "$lan": "b",
        "$peer_lan": "a",
        "$topic": "late",
        "$__rate_interval": RANGE,
    }
    for board in BOARDS:
        for title, expression in expressions(board):
            for name, value in values.items():
                expression = re.sub(rf"{re.escape(name)}\b", value, expression)
            if title in _EMPTY_WHILE_ALL_IS_WELL:
                prometheus.query(expression)
            else:
                # A rate needs two scrapes, and a rule that is made of it another evaluation.
                query = partial(prometheus.query, expression)
                wait_until(query, 20.0, f"{title}: {expression}")
    leader = prometheus.query('ddswan_leader{fabric="watched"}')
    assert [(each["metric"]["broker"], each["value"][1]) for each in leader] == [("r1", "1")]
    assert wait_until(
        lambda: prometheus.query('ALERTS{alertstate="firing", topic="late"}'), 5.0, "it is told"
    )
