"""One analysis of all traces there are. Called by `ddswan analyze`; the stages are in source.py,
facts.py and conclude.py. The stream's counterpart is follow.py.
"""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import SparkSession

from gateway.analysis.conclude import STEPS as _CONCLUDING
from gateway.analysis.conclude import conclude
from gateway.analysis.facts import make_facts, measure
from gateway.analysis.output import Output
from gateway.analysis.progress import Progress
from gateway.analysis.report import Findings
from gateway.analysis.source import Survey, read_batch, survey

STEPS = 2 + _CONCLUDING
_MOST_BUCKETS = 60
_ROUND_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)


def analyse(
    spark: SparkSession, directory: str, place: str, progress: Progress, bucket_s: int | None = None
) -> Findings:
    """Tables, recommendations.json and report.html in `place`, from the traces in `directory`."""
    out = Output(spark, place)
    progress.watch(spark)
    with progress.step("looking at the traces"):
        traces = read_batch(spark, directory)
        found = survey(traces, directory)
        out.prepare()
    bucket_s = bucket_s or choose_bucket(found.span_s)
    with progress.step(f"measuring {found.rows:,} rows of {found.files:,} files"):
        out.write_table("facts", make_facts(measure(traces), bucket_s, lateness_s=0))
    return conclude(out.read("facts"), out, _about(directory, found, bucket_s), progress)


def choose_bucket(span_s: float) -> int:
    """A round number of seconds of which some sixty make the span."""
    wanted = span_s / _MOST_BUCKETS
    return next((s for s in _ROUND_S if s >= wanted), 86_400 * math.ceil(wanted / 86_400))


def _about(directory: str, found: Survey, bucket_s: int) -> dict[str, Any]:
    return {
        "directory": directory,
        "mode": "batch",
        "rows": found.rows,
        "files": found.files,
        "unreadable_files": found.unreadable_files,
        "first": found.first.isoformat(),
        "last": found.last.isoformat(),
        "span_s": found.span_s,
        "bucket_s": bucket_s,
    }
