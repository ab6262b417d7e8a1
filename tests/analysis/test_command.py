"""`ddswan analyze` as people run it, on a real Spark cluster: one master, two workers."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.coordination.embedded import free_port
from tests.analysis.command import QUICK_JAVA, analyze
from tests.analysis.generated import MS, Traffic, an_hour_ago_ns, make_batches, write_file
from tests.environment import environment
from tests.lab.process import Process, wait_until

pytestmark = pytest.mark.spark


def _pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its address, and the directory in which workers keep what they ran."""
    home, port = _pyspark(), free_port()
    address, work = f"spark://127.0.0.1:{port}", tmp_path / "work"
    variables = environment(
        SPARK_HOME=str(home),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SCALA_VERSION="2.13",  # workers look for a build of Spark's sources without it
        **QUICK_JAVA,
    )

    def start(name: str, *arguments: str) -> Process:
        java = ["java", "-Xmx256m", "-cp", f"{home / 'jars'}/*"]
        return Process(
            [*java, *arguments],
            name=name,
            output=tmp_path / f"{name}.log",
            env=variables,
            cwd=tmp_path,
        )

    with ExitStack() as stack:
        master = start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        )
        stack.callback(master.kill)
        for number in (1, 2):
            worker = start(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
                *("--work-dir", str(work / str(number)), address),
            )
            stack.callback(worker.terminate)
        wait_until(
            lambda: len(set(re.findall(r"Registering worker (\S+)", master.text()))) == 2,
            40.0,
            "both workers to register",
        )
        yield address, work


def test_a_cluster_does_the_work(cluster: tuple[str, Path], tmp_path: Path) -> None:
    address, work = cluster
    traffic = Traffic(deadline_ns=40 * MS)
    batches = list(make_batches(traffic, batches=400, begin_ns=an_hour_ago_ns()))
    for number in range(4):
        write_file(tmp_path / "in", f"{number}", batches[number::4])
    out = tmp_path / "out"
    done = analyze(str(tmp_path / "in"), "--out", str(out), "--master", address)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"open {out}/report.html\n"
    steps = done.stderr.splitlines()
    assert steps[0] == "starting Spark"
    assert [step.partition("]")[0] for step in steps[1:]] == [f"[{n}/7" for n in range(1, 8)]
    assert "measuring 1,600 rows of 4 files" in done.stderr
    assert (out / "report.html").stat().st_size > 10_000
    assert "promote" in (out / "recommendations.json").read_text()
    for number in (1, 2):
        assert list((work / str(number)).glob("app-*/*")), f"worker {number} had nothing to do"


def test_a_wrong_directory_is_one_line(tmp_path: Path) -> None:
    done = analyze(str(tmp_path), "--out", str(tmp_path / "out"), "--master", "local[1]")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ddswan: there are no traces in {tmp_path}")
    assert "Traceback" not in done.stderr
    wrong = analyze(str(tmp_path), "--out", "x", "--once")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
