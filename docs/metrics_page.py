"""Prints docs/metrics.md from the families of gateway/observe/metrics.py. Run by `./dev generate`,
and by `./dev lint` to see whether the page has drifted.
"""

from __future__ import annotations

from itertools import groupby

from gateway.observe.metric_labels import LABELS
from gateway.observe.metrics import BrokerMetrics, Family

_HEAD = """\
# Metrics

<!-- Made from gateway/observe/metrics.py by `./dev generate`; do not edit. -->

A broker with a metrics port serves these under `/metrics`. Units are seconds and bytes. Counters
begin at 0 with the process; query them with `rate()` or `increase()`. Of a histogram, queries use
the name with `_bucket`, `_sum` or `_count`.

Beside these there are the usual `process_…` metrics (CPU seconds, memory, open files). The series
of a topic or peer that is gone stay for ten minutes. Alerts, recording rules and dashboards that
use them: `k8s/monitoring/`; what to do about an alert: [operations.md](operations.md#alerts).
Counting takes less than 1 % of the CPU time of an edge at its limit
([benchmarks.md](benchmarks.md#overhead)).

## Labels

`fabric` and `broker` are on every metric, `lan` on every metric of an edge, without being listed
below.

| Label | |
|---|---|
"""


def main() -> None:
    print(_HEAD, end="")
    for label, text in LABELS.items():
        print(f"| `{label}` | {text} |")
    families = BrokerMetrics("edge", "").families
    for section, members in groupby(families, lambda family: family.section):
        print(f"\n## {section}")
        for family in members:
            print_family(family)


def print_family(family: Family) -> None:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
    told_by = " and ".join(f"{component}s" for component in family.components)
    print(f"\n### `{family.name}`\n\n{family.text}\n")
    print(f"{family.kind.capitalize()}, told by {told_by}. Labels: {labels}.")


if __name__ == "__main__":
    main()
