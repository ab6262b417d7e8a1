"""A real Prometheus for tests: it loads the scrape configuration and the rules people are given,
hurried, and answers questions about them.

Hurried means: what the rules average over minutes is averaged over `RANGE`, what must last before
an alert fires need not last, and scrapes and evaluations come twice a second. Expressions and
thresholds stay what they are.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from gateway.coordination.embedded import free_port
from tests.lab.process import Process, wait_until
from tests.monitoring.promql import MONITORING

RANGE = "3s"
_INTERVAL = "500ms"


class Prometheus:
    """Started by entering; scrapes these addresses (host:port) under the name of each job."""

    def __init__(self, folder: Path, targets: dict[str, list[str]]) -> None:
        self._folder = folder
        self._targets = targets
        self._address = f"127.0.0.1:{free_port()}"
        self._process: Process | None = None

    def __enter__(self) -> Prometheus:
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": self._targets.pop(job["job_name"])}]
        assert self._targets == {}, "jobs the configuration does not know"
        for name in config["rule_files"]:
            text = (MONITORING / name).read_text()
            text = re.sub(r"^( +for: ).*$", r"\g<1>0s", text, flags=re.MULTILINE)
            text = re.sub(r"\[\d+m\]", f"[{RANGE}]", text)
            text = re.sub(r"offset \d+m", f"offset {RANGE}", text)
            (self._folder / name).write_text(text)
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process = Process(
            [
                "prometheus",
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            name="prometheus",
            output=self._folder / "output",
            env={},
            cwd=self._folder,
        )
        self._process.wait_for_line("Server is ready to receive web requests", 20.0)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of the answer, now."""
        query = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self._ask(f"query?{query}")["result"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = self._ask("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def wait_for_alerts(self, wanted: set[str], deadline_s: float) -> None:
        """Until all of these fire."""
        wait_until(lambda: wanted <= self.firing(), deadline_s, f"{wanted} fire")

    def wait_for_silence(self, deadline_s: float, except_for: frozenset[str] = frozenset()) -> None:
        """Until no alert fires but these."""
        wait_until(lambda: self.firing() == except_for, deadline_s, f"only {set(except_for)} fires")

    def _ask(self, what: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{what}", timeout=10) as got:
                answer = json.load(got)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{what}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        return answer["data"]
