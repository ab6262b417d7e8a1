"""The development server starts, stops, dies with its owner, and complains clearly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.coordination.embedded import EmbeddedZooKeeper, find_java, free_port
from gateway.errors import ConfigError, CoordinationError

pytestmark = pytest.mark.zookeeper


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_start_and_stop(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(free_port(), tmp_path / "new" / "folder")
    server.start()
    pid = server.pid
    assert server.is_running
    assert pid is not None
    assert server.address == f"127.0.0.1:{server.port}"
    server.stop()
    server.stop()
    assert not server.is_running
    assert not Path(f"/proc/{pid}").exists()
    assert not _answers(server.port)


def test_a_paused_server_is_stopped_all_the_same(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(free_port(), tmp_path)
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    server.stop(timeout_s=0.2)
    assert not server.is_running


def test_the_server_dies_with_its_owner(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from gateway.coordination.embedded import EmbeddedZooKeeper, free_port\n"
        "server = EmbeddedZooKeeper(free_port(), sys.argv[1])\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, "the server outlived its owner"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_taken_port_is_told(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match=r"cannot listen on .*choose another --port"):
        EmbeddedZooKeeper(zookeeper.port, tmp_path).start()


def test_a_port_out_of_range_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="port 70000 is not between"):
        EmbeddedZooKeeper(70_000, tmp_path).start()


def test_an_unusable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoordinationError, match="choose another --data directory"):
        EmbeddedZooKeeper(free_port(), tmp_path / "file").start()


def test_a_folder_in_use_is_told(zookeeper: EmbeddedZooKeeper) -> None:
    with pytest.raises(CoordinationError, match="another ZooKeeper uses"):
        EmbeddedZooKeeper(free_port(), zookeeper.data_dir).start()


def test_a_server_that_ends_at_once_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit 0; }\n'
        "echo 'no room left'; exit 3\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CoordinationError, match="ended at once: no room left"):
        EmbeddedZooKeeper(free_port(), tmp_path / "data").start()


def test_no_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CoordinationError, match="needs Java; install a Java 17"):
        find_java()


@pytest.mark.parametrize("version", ['"1.8.0_402"', '"11.0.2"', "unknown"])
def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version {version}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CoordinationError, match=r"too old; install a Java 17"):
        find_java()
