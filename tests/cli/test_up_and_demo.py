"""`up` and `demo` with everything real: data crosses, and nothing stays behind."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gateway.commands.up import check_fabric
from gateway.settings import load_settings
from gateway.up_file import Fabric
from tests.environment import environment

pytestmark = [pytest.mark.e2e, pytest.mark.dds, pytest.mark.zookeeper]

_ROOT = Path(__file__).parents[2]


def _start(*arguments: str, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", *arguments],
            env=environment(TMPDIR=str(output.parent)),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def _wait_for(condition: Callable[[], bool], why: Callable[[], str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def _assert_gone(processes: list[psutil.Process], timeout_s: float) -> None:
    """None of these lives on; one that nobody has waited for yet counts as gone."""

    def living() -> list[psutil.Process]:
        found = []
        for process in processes:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    _wait_for(lambda: not living(), lambda: f"left behind: {living()}", timeout_s)


@pytest.mark.parametrize("options", [(), ("--domains",)])
def test_demo_shows_data_crossing_both_ways(tmp_path: Path, options: tuple[str, ...]) -> None:
    output = tmp_path / "output"
    process = _start("demo", *options, output=output)
    try:
        assert process.wait(60) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    text = output.read_text()
    assert len(re.findall(r"LAN a to LAN b: truck-1 #\d+ at ", text)) == 20
    assert len(re.findall(r"LAN b to LAN a: crane-7 #\d+ at ", text)) == 20
    assert re.search(r"fleet/positions +routed +a:1 +b:1", text)
    assert "done: 20 samples crossed each way" in text
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "output"
    process = _start("demo", output=output)
    try:
        _wait_for(lambda: "LAN a to LAN b" in output.read_text(), output.read_text, 40)
        children = _descendants(process)
        assert len(children) >= 8, "ZooKeeper, 2 routers, 2 edges, 4 applications and more"
        process.send_signal(number)
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
    _assert_gone(children, 1)
    assert "interrupted, stopping everything" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert list(tmp_path.iterdir()) == [output]


def _free_port(taken: set[int] = set()) -> int:  # noqa: B006 - remembers across calls on purpose
    """Below the ports the kernel hands out, see demo.py."""
    port = random.choice([port for port in range(20_000, 30_000) if port not in taken])
    taken.add(port)
    return port


@pytest.fixture
def up_file(tmp_path: Path) -> Path:
    file = tmp_path / "up.yaml"
    settings = {
        "fabric": "up-test",
        "zookeeper": {"hosts": f"127.0.0.1:{_free_port()}", "session_timeout_s": 4},
        "routers": [{"id": "r1", "listen": f"127.0.0.1:{_free_port()}"}],
        "edges": [
            {"id": "e1", "lan": "a", "domain": 93, "interface": "lo"},
            {"id": "e2", "lan": "b", "domain": 94, "interface": "lo"},
        ],
    }
    file.write_text(json.dumps(settings))  # JSON is YAML
    return file


def _is_everybody_ready(text: str) -> bool:
    return all(
        re.search(rf"^{name} +\| .*{words}", text, re.MULTILINE)
        for name, words in (
            ("zookeeper", "zookeeper serving"),
            ("router r1", "router registered"),
            ("edge e1", "edge ready"),
            ("edge e2", "edge ready"),
        )
    )


def test_up_runs_everything_and_restarts_what_crashes(tmp_path: Path, up_file: Path) -> None:
    output = tmp_path / "output"
    process = _start("up", str(up_file), output=output)
    try:
        _wait_for(lambda: _is_everybody_ready(output.read_text()), output.read_text, 40)
        (edge,) = [p for p in _descendants(process) if "edge-e1.yaml" in " ".join(p.cmdline())]
        edge.kill()
        _wait_for(
            lambda: len(re.findall(r"edge e1 +\| .*edge ready", output.read_text())) == 2,
            output.read_text,
            40,
        )
        children = _descendants(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    _assert_gone(children, 1)
    text = output.read_text()
    stopped = [text.index(words) for words in ("edge stopped", "router stopped", "zookeeper stop")]
    assert stopped == sorted(stopped), text
    assert sorted(tmp_path.iterdir()) == [output, up_file]


def test_nothing_survives_up_when_it_is_killed(tmp_path: Path, up_file: Path) -> None:
    output = tmp_path / "output"
    process = _start("up", str(up_file), output=output)
    try:
        _wait_for(lambda: _is_everybody_ready(output.read_text()), output.read_text, 40)
        children = _descendants(process)
        assert len(children) >= 5, "the server of ZooKeeper, its command, a router, two edges"
    finally:
        process.kill()
        process.wait()
    _assert_gone(children, 15)


def test_up_gives_up_when_a_broker_cannot_run_as_configured(tmp_path: Path, up_file: Path) -> None:
    settings = json.loads(up_file.read_text())
    settings["routers"][0]["listen"] = f"0.0.0.0:{_free_port()}"  # and nothing to advertise
    up_file.write_text(json.dumps(settings))
    output = tmp_path / "output"
    process = _start("up", str(up_file), output=output)
    try:
        assert process.wait(60) == 2, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert "pass --advertise HOST:PORT" in output.read_text()
    last = output.read_text().splitlines()[-1]
    assert last.startswith("ddswan: router r1 cannot run as configured")


def test_the_example_is_a_file_up_accepts() -> None:
    example = str(_ROOT / "examples" / "two-lans.yaml")
    check_fabric(load_settings(Fabric, file=example), example)
