"""The `dev` script and what it relies on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _dev(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(_ROOT / "dev"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_scripts_are_executable_and_parse(name: str) -> None:
    script = _ROOT / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in script.read_text()


def test_usage(tmp_path: Path) -> None:
    assert "usage: ./dev COMMAND" in _dev(cwd=tmp_path).stdout
    wrong = _dev("frobnicate", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "usage: ./dev COMMAND" in wrong.stderr


def test_the_command_runs_in_the_callers_directory_and_set_up_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("edge:\n  id: from-here\n")
    assert _dev("setup", cwd=tmp_path).returncode == 0
    done = _dev("ddswan", "config", "show", "--config", "x.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "id: from-here" in done.stdout


def test_the_lock_names_exact_versions_and_no_index() -> None:
    lines = (_ROOT / "requirements.lock").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line
