"""The `ddswan` command as a user meets it: help, exit codes, and errors of one line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from gateway.coordination.embedded import EmbeddedZooKeeper, free_port
from gateway.coordination.zookeeper import ZooKeeper
from tests.environment import environment

_COMMANDS = ("config", "demo", "edge", "router", "status", "up", "zookeeper")


def _ddswan(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _is_one_line(text: str, expected: str) -> bool:
    lines = text.splitlines()
    return len(lines) == 1 and lines[0].startswith("ddswan: ") and expected in lines[0]


def test_help_names_every_command_and_shows_how_to_begin() -> None:
    done = _ddswan("--help")
    assert done.returncode == 0
    for command in _COMMANDS:
        assert f"\n    {command}" in done.stdout
    assert "ddswan demo" in done.stdout


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_help_and_the_common_options(command: str) -> None:
    done = _ddswan(command, "--help")
    assert done.returncode == 0, done.stderr
    for option in ("--config", "--fabric", "--log-level", "--log-format"):
        assert option in done.stdout


def test_version() -> None:
    done = _ddswan("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("ddswan 0.")


@pytest.mark.parametrize(
    "arguments",
    [(), ("frobnicate",), ("edge", "--frobnicate"), ("config",), ("edge", "--lo", "debug")],
)
def test_misuse_exits_with_2(arguments: tuple[str, ...]) -> None:
    done = _ddswan(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (("edge", "--id", "e", "--lan", "a", "--domain", "233"), {}, "equal to 232"),
        (("edge", "--id", "e 1", "--lan", "a"), {}, "'edge.id' on the command line is 'e 1'"),
        (("edge", "--lan", "a"), {}, "edge.id is needed: pass --id, set DDSWAN_EDGE_ID, or"),
        (("edge", "--id", "e"), {}, "edge.lan is needed"),
        (("router",), {}, "router.id is needed"),
        (("config", "show"), {"DDSWAN_EDGE_DOMIAN": "1"}, "did you mean 'DDSWAN_EDGE_DOMAIN'?"),
        (("config", "show", "--config", "/absent.yaml"), {}, "cannot read configuration"),
        (("config", "show"), {"DDSWAN_CONFIG": "/absent.yaml"}, "cannot read configuration"),
        (("config", "show", "--log-level", "loud"), {}, "'log.level' on the command line"),
        (("up", "/absent.yaml"), {}, "cannot read configuration /absent.yaml"),
        (("status", "--zookeeper", "nowhere"), {}, "must be host:port"),
        (("router", "--id", "r", "--listen", "a..b:1"), {}, "must be host:port"),
        (("edge", "--id", "e", "--express-listen", "a..b:1"), {}, "must be host:port"),
        (("zookeeper", "--host", "a..b"), {}, "'a..b' is no host; mend --host"),
        (("zookeeper", "--port", "70000"), {}, "port 70000 is not between 1 and 65535"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exits_with_2(
    arguments: tuple[str, ...], variables: dict[str, str], expected: str
) -> None:
    done = _ddswan(*arguments, **variables)
    assert done.returncode == 2
    assert _is_one_line(done.stderr, expected), done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("edges: []\n", "needs at least one entry under 'routers' and under 'edges'"),
        ("routers: [{}]\nedges: [{id: e, lan: a}]\n", "entry under 'routers' needs an 'id'"),
        ("routers: [{id: r}]\nedges: [{id: e}]\n", "every entry under 'edges' needs a 'lan'"),
        (
            "routers: [{id: r}]\nedges: [{id: e, lan: a}, {id: e, lan: b}]\n",
            "2 edges are called e; give each its own 'id'",
        ),
        ("routers: [{id: r, prot: 1}]\nedges: []\n", "unknown setting 'routers.0.prot'"),
        ("edges: [{id: e, lan: 2024-02-30}]\n", "line 1: '2024-02-30' is no timestamp"),
    ],
)
def test_up_refuses_a_file_that_cannot_run(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "up.yaml"
    file.write_text(text)
    done = _ddswan("up", str(file))
    assert done.returncode == 2
    assert _is_one_line(done.stderr, expected), done.stderr


def test_what_only_up_knows_may_stand_in_the_environment_of_every_command(tmp_path: Path) -> None:
    file = tmp_path / "up.yaml"
    file.write_text("routers: [{id: r}]\nedges: [{id: e, lan: a}]\n")
    variables = {"DDSWAN_ZOOKEEPER_DATA": str(tmp_path), "DDSWAN_ZOOKEEPER_EMBEDDED": "maybe"}
    done = _ddswan("up", str(file), **variables)
    assert done.returncode == 2
    told = "'zookeeper.embedded' in environment variable DDSWAN_ZOOKEEPER_EMBEDDED is 'maybe'"
    assert _is_one_line(done.stderr, told), done.stderr
    assert _ddswan("config", "show", **variables).returncode == 0


def test_a_traceback_is_shown_at_debug_only() -> None:
    arguments = ("status", "--zookeeper", f"127.0.0.1:{free_port()}", "--log-level")
    with ThreadPoolExecutor(2) as both:
        quiet, debug = both.map(lambda level: _ddswan(*arguments, level), ("info", "debug"))
    assert quiet.returncode == debug.returncode == 1
    assert "Traceback" not in quiet.stderr
    assert "no ZooKeeper answers at 127.0.0.1:" in quiet.stderr.splitlines()[-1]
    assert "Traceback" in debug.stderr


def test_config_schema_is_json_schema_with_descriptions() -> None:
    for arguments in (("config", "schema"), ("config", "schema", "--of", "up")):
        schema = json.loads(_ddswan(*arguments).stdout)
        assert schema["additionalProperties"] is False
        assert schema["$defs"]["Edge"]["properties"]["domain"]["maximum"] == 232


def test_config_show_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("edge:\n  lan: a\n  topics:\n    deny: [secret]\n")
    shown = _ddswan("config", "show", "--config", str(file), DDSWAN_EDGE_ID="e1").stdout
    settings = yaml.safe_load(shown)
    assert settings["edge"]["id"] == "e1"
    file.write_text(shown)
    assert _ddswan("config", "show", "--config", str(file)).stdout == shown


def test_output_into_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "gateway.cli", "config", "schema"],
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.zookeeper
def test_status_of_an_empty_fabric(zookeeper: EmbeddedZooKeeper, fabric: str) -> None:
    arguments = ("status", "--zookeeper", zookeeper.address, "--fabric", fabric)
    done = _ddswan(*arguments)
    assert done.returncode == 0
    assert "no broker is connected to this fabric" in done.stdout
    assert done.stderr == ""
    report = json.loads(_ddswan(*arguments, "--json").stdout)
    assert report == {
        "version": 1,
        "fabric": fabric,
        "leader": None,
        "routers": [],
        "edges": [],
        "topics": [],
        "unreadable_records": {},
        "express_links": [],
    }
    unknown = _ddswan(*arguments, "--topic", "no/such")
    assert unknown.returncode == 1
    assert _is_one_line(unknown.stderr, "has no topic no/such"), unknown.stderr


@pytest.mark.zookeeper
def test_recommendations_that_nobody_wrote_so_are_applied_as_far_as_they_make_sense(
    zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    """And what they say cannot steer a terminal."""
    entries: list[dict[str, object]] = [
        {"kind": "relieve", "router": "r1", "topics": None},
        {"kind": "relieve", "router": "r1", "topics": 5},
        {"kind": "promote", "topic": "red\x1b[31m\ud800", "evidence": {"huge": 10**400}},
    ]
    found = [{"fabric": fabric, "text": "why"} | each for each in entries]
    file = tmp_path / "recommendations.json"
    file.write_text(json.dumps({"version": 1, "recommendations": found}))
    where = ("--zookeeper", zookeeper.address, "--fabric", fabric)
    done = _ddswan("recommend", "apply", str(file), *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "applied: 'red\\x1b[31m\\ud800: express on (why)'\n"
    shown = _ddswan("recommend", "show", *where)
    assert (shown.returncode, "express on (why)" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.zookeeper
def test_only_what_changes_the_advice_leaves_a_trace_of_a_fabric(
    zookeeper: EmbeddedZooKeeper, fabric: str, tmp_path: Path
) -> None:
    """Its name may be mistyped."""
    found = [{"fabric": fabric, "kind": "promote", "topic": "T", "text": "why"}]
    file = tmp_path / "recommendations.json"
    file.write_text(json.dumps({"version": 1, "recommendations": found}))

    def recommend(*arguments: str) -> str:
        done = _ddswan(
            "recommend", *arguments, "--zookeeper", zookeeper.address, "--fabric", fabric
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def is_known() -> bool:
        zk = ZooKeeper(zookeeper.address, fabric)
        await zk.start(timeout_s=10.0)
        try:
            return await zk.get(zk.paths.root) is not None
        finally:
            await zk.stop()

    assert recommend("show") == "nothing is applied\n"
    assert recommend("clear") == "nothing of it is applied\n"
    assert recommend("apply", str(file), "--dry-run") == "would apply: T: express on (why)\n"
    assert not asyncio.run(is_known())
    assert recommend("apply", str(file)) == "applied: T: express on (why)\n"
    assert recommend("clear", "T") == "taken back: T: express on (why)\n"


@pytest.mark.dds
def test_an_interface_that_is_not_there_is_one_line() -> None:
    done = _ddswan("edge", "--id", "e", "--lan", "a", "--interface", "nowhere0")
    assert done.returncode in (1, 2)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ddswan: ") and "nowhere0" in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("router", "--id", "r", "--listen", "127.0.0.1:0"), ("edge", "--id", "e", "--lan", "a")],
)
def test_a_taken_metrics_port_is_one_line(arguments: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = _ddswan(*arguments, "--metrics-port", str(port))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ddswan: metrics address 0.0.0.0:{port} is taken; choose another --metrics-port"
    )
    assert "Traceback" not in done.stderr


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A command left running, and the file of what it says on standard error."""
    with tempfile.TemporaryDirectory() as directory:
        said = Path(directory) / "stderr"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", *arguments],
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        try:
            yield process, said
        finally:
            process.kill()
            process.wait()


def _wait_for(said: Path, expected: str) -> None:
    deadline = time.monotonic() + 20
    while expected not in said.read_text():
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.02)


@pytest.mark.parametrize(
    "arguments",
    [
        ("router", "--id", "r", "--listen", "127.0.0.1:0"),
        ("edge", "--id", "e", "--lan", "a", "--domain", "97", "--interface", "lo"),
    ],
)
def test_a_broker_waits_for_zookeeper_and_says_so_and_can_be_stopped(
    arguments: tuple[str, ...],
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with _running(*arguments, "--zookeeper", address) as (process, said):
        _wait_for(said, f"waiting for ZooKeeper; is it running and reachable? hosts={address}")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert "Traceback" not in said.read_text()


@pytest.mark.zookeeper
def test_the_embedded_zookeeper_serves_until_told_to_stop(tmp_path: Path) -> None:
    port = free_port()
    with _running("zookeeper", "--port", str(port), "--data", str(tmp_path)) as (process, said):
        _wait_for(said, "zookeeper serving")
        taken = _ddswan("zookeeper", "--port", str(port))
        assert taken.returncode == 1
        assert _is_one_line(taken.stderr, "choose another --port"), taken.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        pass
