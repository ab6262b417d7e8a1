"""The verdicts on runs of the deadline benchmark, from made-up latencies."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.deadline_report import PARTS, conclude
from tests.benchmarks.measure import Result

DEADLINES_MS = (50, 100)
_SAMPLES = 50
"""Of a topic, in each part of a run."""


def run_of(longest_ms: Sequence[float], byte_count: int = 1000) -> Result:
    """One arm: 30 ms, but for one sample in each part."""
    latencies = [[longest, *[30.0] * (_SAMPLES - 1)] for longest in longest_ms]
    topic = [int(each * 1e6) for part in latencies for each in part]
    return {
        "latencies_ns": [topic, topic],
        "bytes": {"L1": byte_count},
        "lost_packets": {"L1": 0},
        "choices": {},
        "pairs": [],
    }


def goals(**arms: Sequence[float]) -> Result:
    """Of case 1, where arms that are not named do not matter."""
    usual = {"routed": [90.0] * PARTS, "direct": [32.0] * PARTS}
    runs = {name: run_of(longest) for name, longest in (usual | arms).items()}
    case = {"case": 1, "links": "AAA", "runs": [runs]}
    found: Result = conclude([case], DEADLINES_MS)["cases"][0]["goals"]
    return found


def test_maxima_like_those_of_the_better_path_meet_the_goal() -> None:
    same = [32.0] * PARTS
    found = goals(duplicate=same, adaptive=same)
    assert found["duplicate"] == "met"
    assert found["duplicate_max_over_single"] == 1.0
    assert found["duplicate_max_over_single_in_turn"] == (1.0, 0.0)


def test_one_disturbance_is_within_the_error() -> None:
    """A single long sample says little: nine tenths of the run had maxima like the other's."""
    found = goals(duplicate=[32.0] * (PARTS - 1) + [40.0], adaptive=[32.0] * PARTS)
    assert found["duplicate_max_over_single"] == 1.25
    assert found["duplicate"] == "within the error"


def test_maxima_longer_in_every_part_do_not_meet_the_goal() -> None:
    found = goals(duplicate=[35.0] * (PARTS - 1) + [36.0], adaptive=[32.0] * PARTS)
    assert found["duplicate"] == "NOT MET"


def test_an_average_too_high_is_not_excused_by_its_maxima() -> None:
    slow = run_of([32.0] * PARTS)
    slow["latencies_ns"] = [[each + 2_000_000 for each in topic] for topic in slow["latencies_ns"]]
    arms = {
        "routed": run_of([90.0] * PARTS),
        "direct": run_of([40.0] * PARTS),
        "duplicate": slow,
        "adaptive": run_of([32.0] * PARTS),
    }
    case = {"case": 1, "links": "AAA", "runs": [arms]}
    found = conclude([case], DEADLINES_MS)["cases"][0]["goals"]
    assert found["duplicate_max_over_single"] < 1.0
    assert found["duplicate"] == "NOT MET"
