"""The wheel: complete, importable without the clone, and with a working command."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the unpacked wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=_ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (_ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((_ROOT / name).read_bytes())
    built = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
            *("--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder), str(sources)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def _run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "name",
    [
        "gateway/tunnel/tunnel_pb2.py",
        "gateway/tunnel/tunnel_pb2.pyi",
        "gateway/commands/samples/positions.py",
        "gateway/py.typed",
        "gateway/analysis/assets/report.js",
        "edge_broker/py.typed",
        "edge_broker/dds/__init__.py",
        "routing_broker/py.typed",
    ],
)
def test_the_wheel_contains(installed: Path, name: str) -> None:
    assert (installed / name).is_file()


def test_the_wheel_contains_the_compiled_loops(installed: Path) -> None:
    assert list((installed / "edge_broker/dds").glob("bulk.*.so"))


def test_the_wheel_contains_no_tests(installed: Path) -> None:
    packages = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"gateway", "edge_broker", "routing_broker"}


def test_the_generated_code_of_the_wheel_is_what_is_imported(installed: Path) -> None:
    program = "import gateway.tunnel.tunnel_pb2 as generated; print(generated.__file__)"
    done = _run(installed, "-c", program)
    assert done.stdout.strip() == str(installed / "gateway/tunnel/tunnel_pb2.py"), done.stderr


def test_the_command_of_the_wheel_knows_every_subcommand(installed: Path) -> None:
    done = _run(installed, "-m", "gateway.cli", "--help")
    assert done.returncode == 0, done.stderr
    for command in ("analyze", "config", "demo", "edge", "router", "status", "up", "zookeeper"):
        assert f"\n    {command}" in done.stdout
