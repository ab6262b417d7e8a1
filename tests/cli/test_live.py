"""The live view of `status` on a pseudo terminal, with a real ZooKeeper and edges that are real
metrics ports with real exporters behind them, but carry nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway.coordination.embedded import EmbeddedZooKeeper, free_port
from gateway.coordination.nodes import Create, Operation
from gateway.coordination.records import (
    digest,
    encode_announcement,
    encode_assignment,
    encode_edge,
    encode_router,
)
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import (
    Announcement,
    Assignment,
    Direction,
    EdgeInfo,
    Profile,
    Qos,
    RouterInfo,
)
from gateway.observe.health import HealthServer
from gateway.observe.metrics import BrokerMetrics
from tests.cli.terminal import GIVEN_BACK, TAKEN, Terminal
from tests.coordination.parts import session

pytestmark = pytest.mark.zookeeper

_PROFILE = Profile("T", None, False, Qos())
_BATCHES_PER_S = 20
_UNKNOWN = ["-"] * 7


class _Edge:
    """The metrics port of LAN b's edge. While it runs, samples of LAN a come to it: of "fast" ten
    in a batch, of "slow" one; they are counted when it is asked, as if they had come meanwhile."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        metrics = BrokerMetrics("edge", "1", fabric="f", broker="e-b", lan="b")
        meter = metrics.deadline_meter("fast", "a", "express", 1_000_000)
        assert meter is not None
        begun_s = time.monotonic()
        batches = 0

        def page() -> bytes:
            nonlocal batches
            while batches < _BATCHES_PER_S * (time.monotonic() - begun_s):
                batches += 1
                for topic, count in (("fast", 10), ("slow", 1)):
                    metrics.samples_out.labels(topic, "a").inc(count)
                    metrics.bytes_out.labels(topic, "a").inc(100 * count)
                    metrics.end_to_end_latency.labels(topic, "a").observe(0.015)
                meter.count([0, 2_000_000], 2_000_000)
            return metrics.render()

        loop = asyncio.new_event_loop()  # nobody asks for what would run on it
        server = HealthServer(
            "127.0.0.1", self.port, loop=loop, metrics=page, readiness=list, status=dict
        )
        server.start()
        try:
            yield
        finally:
            server.stop()
            loop.close()


def _announced(topic: str, direction: Direction, lan: str) -> Announcement:
    return Announcement(f"e-{lan}", lan, 1, topic, direction, ((_PROFILE, ("0" * 32,)),))


def _change(
    server: EmbeddedZooKeeper, fabric: str, work: Callable[[ZooKeeper], Awaitable[None]]
) -> None:
    async def change() -> None:
        async with session(server, fabric) as zk:
            await work(zk)

    asyncio.run(change())


def _make_fabric(
    server: EmbeddedZooKeeper, fabric: str, topics: list[str], metrics: str | None
) -> None:
    """Publishers in LAN a, whose edge has no metrics port, and subscribers in LAN b."""

    async def make(zk: ZooKeeper) -> None:
        paths = zk.paths
        for path in paths.skeleton:
            await zk.create(path, parents=True)
        nodes: list[Operation] = [
            Create(paths.router("r1"), encode_router(RouterInfo("r1", "h:1"))),
            Create(paths.edge("e-a"), encode_edge(EdgeInfo("e-a", "a", 1))),
            Create(paths.edge("e-b"), encode_edge(EdgeInfo("e-b", "b", 1, metrics=metrics))),
        ]
        for topic in topics:
            assigned = encode_assignment(Assignment("r1", None, 1))
            nodes.append(Create(paths.topic(topic), assigned))
            for direction, lan in ((Direction.PUB, "a"), (Direction.SUB, "b")):
                record = encode_announcement(_announced(topic, direction, lan))
                place = paths.announcement(topic, direction, f"e-{lan}", digest(record))
                nodes += [Create(paths.direction(topic, direction)), Create(place, record)]
        for start in range(0, len(nodes), 500):
            await zk.transaction(nodes[start : start + 500])

    _change(server, fabric, make)


def _status(server: EmbeddedZooKeeper, fabric: str) -> tuple[str, ...]:
    return ("status", "--zookeeper", server.address, "--fabric", fabric)


def _carries(terminal: Terminal, topic: str, samples_per_s: float) -> bool:
    cells = terminal.row(topic)
    told = cells[3] if len(cells) > 3 else "-"
    return told != "-" and 0.8 * samples_per_s < float(told) < 1.25 * samples_per_s


def _assert_given_back(terminal: Terminal, times: int = 1) -> None:
    assert terminal.output.count(TAKEN) == terminal.output.count(GIVEN_BACK) == times
    assert terminal.output.startswith(TAKEN)
    assert terminal.current_modes == terminal.modes
    assert "Traceback" not in terminal.output


def test_a_fabric_is_watched(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    edge = _Edge()
    topics = ["fast", "idle", "slow"]
    _make_fabric(zookeeper, fabric, topics, edge.address)

    def shown() -> list[str]:
        return [name for name in (line.split(" ")[0] for line in terminal.screen) if name in topics]

    # What the environment says of the size was true once.
    told = {"COLUMNS": "33", "LINES": "7"}
    with edge.running(), Terminal(*_status(zookeeper, fabric), variables=told) as terminal:
        terminal.wait_for(
            lambda: (
                _carries(terminal, "fast", 10 * _BATCHES_PER_S)
                and _carries(terminal, "slow", _BATCHES_PER_S)
            )
        )
        _, lans, path, _, size, p50, p99, misses, duplicates, state = terminal.row("fast")
        assert (lans, path, duplicates, state) == ("a -> b", "express", "0", "routed")
        assert size.endswith("k") and 0.5 * _BATCHES_PER_S < float(misses) < 2 * _BATCHES_PER_S
        assert (p50, p99) == ("15.0ms", "19.9ms"), "of the bucket from 10 to 20 ms"
        assert terminal.row("slow")[2:3] == ["-"] and terminal.row("slow")[7] == "-"
        assert terminal.row("idle")[2:] == [*_UNKNOWN, "routed"]
        assert "routers 1  edges 2  routes 3" in terminal.screen[0]
        terminal.see("no rates from e-a: started without --metrics-port")
        # Order.
        assert shown() == ["fast", "idle", "slow"]
        terminal.type("sss")
        terminal.see("samples/s▼")
        assert shown() == ["fast", "slow", "idle"]
        terminal.type("r")
        terminal.see("samples/s▲")
        assert shown() == ["slow", "fast", "idle"], "what is not known comes last"
        # Which of them.
        terminal.type("/FAS")
        terminal.see("topics that contain: FAS_")
        assert shown() == ["fast"]
        terminal.type("\r")
        terminal.see("1 of 3 with 'FAS'")
        terminal.type("\x1b")
        terminal.wait_for(lambda: len(shown()) == 3)
        terminal.type("?")
        terminal.see("sort by the next column")
        terminal.type(" ")
        # A narrow terminal keeps what matters most, a low one scrolls.
        terminal.resize(40, 5)
        terminal.see("1-1 of 3")
        assert [len(terminal.row("slow")), *shown()] == [3, "slow"]
        terminal.type("\x1b[B")
        terminal.wait_for(lambda: shown() == ["fast"])
        terminal.resize(7, 1)
        terminal.wait_for(lambda: terminal.screen == ["fabric…"])
        terminal.resize(150, 20)
        terminal.wait_for(lambda: shown() == ["slow", "fast", "idle"])
        # The screen stands still, as long as is wanted.
        terminal.type("p")
        terminal.see("PAUSED")
        terminal.type("p")
        terminal.wait_for(lambda: not any("PAUSED" in line for line in terminal.screen))
        terminal.type("q")
        assert terminal.end() == 0
        _assert_given_back(terminal)


def test_brokers_that_die_are_shown(private_zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    edge = _Edge()
    _make_fabric(private_zookeeper, fabric, ["fast"], edge.address)

    async def expire(zk: ZooKeeper) -> None:
        await asyncio.gather(zk.delete(zk.paths.router("r1")), zk.delete(zk.paths.edge("e-b")))

    with Terminal(*_status(private_zookeeper, fabric)) as terminal:
        with edge.running():
            terminal.wait_for(lambda: _carries(terminal, "fast", 10 * _BATCHES_PER_S))
        # Its process is gone; its session is not yet.
        terminal.see(f"no rates from e-b: no answer at {edge.address}")
        terminal.wait_for(lambda: terminal.row("fast")[2:] == [*_UNKNOWN, "routed"])
        _change(private_zookeeper, fabric, expire)
        terminal.see("edge e-b (LAN b) left ")
        terminal.see("router r1 left ")
        assert terminal.row("fast")[-1] == "waiting"
        assert "routers 0  edges 1" in terminal.screen[0]
        # While ZooKeeper is away, what was known stays.
        private_zookeeper.stop()
        away = f"ZooKeeper at {private_zookeeper.address} does not answer; routes are as last known"
        terminal.see(away)
        assert terminal.row("fast")
        private_zookeeper.start()
        terminal.wait_for(lambda: away not in terminal.screen)
        terminal.type("q")
        assert terminal.end() == 0
        _assert_given_back(terminal)


@pytest.mark.parametrize("how", ["\x03", signal.SIGTERM])
def test_the_terminal_is_given_back_whatever_ends_the_view(how: str | signal.Signals) -> None:
    """Without a ZooKeeper, too, which is said and waited for."""
    nowhere = f"127.0.0.1:{free_port()}"
    with Terminal("status", "--zookeeper", nowhere) as terminal:
        terminal.see(f"waiting for ZooKeeper at {nowhere}; is --zookeeper right?")
        assert terminal.current_modes != terminal.modes, "keys come without Enter"
        if isinstance(how, str):
            terminal.type(how)
        else:
            terminal.process.send_signal(how)
        assert terminal.end() == 0
        _assert_given_back(terminal)


def test_it_ends_with_its_window() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with Terminal("status", "--zookeeper", nowhere) as terminal:
        terminal.see("waiting for ZooKeeper")
        terminal.hang_up()
        terminal.end()


def test_it_can_be_laid_aside(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    """Ctrl-Z: the shell has its terminal in the meantime."""
    with Terminal(*_status(zookeeper, fabric)) as terminal:
        terminal.see("no broker is connected to this fabric; is --fabric right?")
        terminal.type("\x1a")
        terminal.wait_until_stopped()
        terminal.wait_for(lambda: terminal.output.endswith(GIVEN_BACK))
        assert terminal.current_modes == terminal.modes
        terminal.resize(100, 10)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.see("no broker is connected")
        assert terminal.current_modes != terminal.modes
        terminal.type("q")
        assert terminal.end() == 0
        _assert_given_back(terminal, times=2)


def test_a_terminal_that_cannot_show_a_name_shows_the_rest(
    zookeeper: EmbeddedZooKeeper, fabric: str
) -> None:
    _make_fabric(zookeeper, fabric, ["größe"], None)
    ascii_only = {"PYTHONIOENCODING": "ascii:strict"}
    with Terminal(*_status(zookeeper, fabric), variables=ascii_only) as terminal:
        terminal.wait_for(lambda: terminal.row("gr??e")[-1:] == ["routed"])
        terminal.type("q")
        assert terminal.end() == 0
        _assert_given_back(terminal)


def test_who_wants_tables_or_json_gets_them_once(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    _make_fabric(zookeeper, fabric, ["t"], None)
    piped = subprocess.run(
        [sys.executable, "-m", "gateway.cli", *_status(zookeeper, fabric)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "t      routed  a:1         b:1" in piped
    for options, variables in ((["--once"], {}), ([], {"TERM": "dumb"})):
        with Terminal(*_status(zookeeper, fabric), *options, variables=variables) as terminal:
            assert terminal.end() == 0
            assert terminal.output.replace("\r", "") == piped
    with Terminal(*_status(zookeeper, fabric), "--json") as terminal:
        assert terminal.end() == 0
        assert json.loads(terminal.output)["topics"][0]["topic"] == "t"


def test_many_topics_are_scrolled_and_searched(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    _make_fabric(zookeeper, fabric, [f"t{number:03}" for number in range(200)], None)
    with Terminal(*_status(zookeeper, fabric), lines=30) as terminal:
        terminal.see("1-25 of 200")
        terminal.type("\x1b[F")
        terminal.see("176-200 of 200")
        terminal.type("/t17\r")
        terminal.see("10 of 200 with 't17'")
        terminal.type("q")
        assert terminal.end() == 0
