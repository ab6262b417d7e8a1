"""How few bytes a sender could get by with that knows far more than any real one: it sees at once
what its peer has confirmed of every sample on every path, also of copies never sent, and knows
beforehand how likely everything is. Called by test_path_choice.py; see docs/benchmarks.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gateway.plan.path_choice import DEFAULT_TARGET
from tests.plan.path_simulation import PathModel

STEP_S = 0.05


def least_cost(
    models: Sequence[PathModel],
    delays: Sequence[Sequence[float]],
    times: Sequence[float],
    deadline_s: float,
) -> float:
    """Copies for each sample of two paths, at least, if no more than the target is to be missed
    that both paths together would not have missed.

    What is lost is drawn for each packet alone, so all that can be known of the fate of a sample is
    how long confirmations have been overdue on each path. Of the moments alike in that, those go
    without a copy first where it would have rescued the fewest samples, over the path that is
    better then; what was observed of them in this very run is taken for their probability, which
    favours the bound.
    """
    overdue = [
        _overdue_steps(model, path, times) for model, path in zip(models, delays, strict=True)
    ]
    moments: Counter[tuple[int, ...]] = Counter()
    rescued: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    for state, fate in zip(zip(*overdue, strict=True), zip(*delays, strict=True), strict=True):
        moments[state] += 1
        for path in (0, 1):
            rescued[path][state] += fate[path] > deadline_s >= fate[1 - path]
    allowed = DEFAULT_TARGET * len(times)
    alone = 0.0
    for risk, count in sorted(
        (min(each[state] for each in rescued) / count, count) for state, count in moments.items()
    ):
        share = 1.0 if risk * count <= allowed else allowed / (risk * count)
        alone += share * count
        allowed -= share * risk * count
    return 2.0 - alone / len(times)


def _overdue_steps(model: PathModel, delays: Sequence[float], times: Sequence[float]) -> list[int]:
    """For each moment since when the oldest sample not confirmed ought to have been."""
    usual_s = 2 * model.base_s + STEP_S / 5
    known_s = [at_s + delay_s + model.base_s for at_s, delay_s in zip(times, delays, strict=True)]
    steps, oldest = [], 0
    for now_s in times:
        while known_s[oldest] <= now_s and times[oldest] < now_s:
            oldest += 1
        overdue_s = now_s - times[oldest] - usual_s
        steps.append(min(20, int(overdue_s / STEP_S) + 1) if overdue_s > 0 else 0)
    return steps
