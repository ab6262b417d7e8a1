"""`ddswan analyze` as people run it, with a Java for tests. Used by the tests of the analysis and
by those whose traces are analysed.
"""

from __future__ import annotations

import subprocess
import sys

from tests.environment import environment
from tests.lab.namespaces import REPOSITORY

QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Compiles quickly and not well, and collects garbage with as few threads as it needs: what tests
run is over before more would pay."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "analyze", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(SPARK_LOCAL_IP="127.0.0.1", **QUICK_JAVA),
        cwd=REPOSITORY,
    )
