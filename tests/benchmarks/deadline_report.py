"""What the runs of deadline.py say: numbers of each case, whether the goals are met, tables and a
plot beside the paper's statements. Pure but for printing and the file of the plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, stdev

from tests.benchmarks.measure import Result, print_table
from tests.benchmarks.svg import Panel, grouped_panels

SINGLES = ("routed", "direct")
LATENCIES = ("average_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
DUPLICATE_OVER_SINGLE = 1.05
"""Average and maximum of `duplicate` over those of the better single path."""
MISSES_OVER_DUPLICATE = 0.001
"""The default target of `adaptive`, as a share of the samples."""
BYTES_OVER_SINGLE = 1.2
"""Of `adaptive` over the better single path, where one path is good enough."""
PARTS = 10
"""Of a run, for estimating how much of a difference is chance."""
BYTES_JUDGED = range(1, 8)
PAPER_BEATS = range(1, 6)
"""Cases in which it says that both paths are better than single ones."""


def conclude(measured: Sequence[Result], deadlines_ms: Sequence[int]) -> Result:
    """`measured`: for each case its runs, which are taken together."""
    cases = []
    for case in measured:
        arms = {
            name: summarise([run[name] for run in case["runs"]], deadlines_ms)
            for name in case["runs"][0]
        }
        cases.append(
            {
                "case": case["case"],
                "links": case["links"],
                "arms": arms,
                "goals": judge(case["case"], arms),
            }
        )
    return {"cases": cases, "paper": compare_with_paper(cases)}


def summarise(runs: Sequence[Result], deadlines_ms: Sequence[int]) -> Result:
    """One arm of one case."""
    by_topic = [list(chain.from_iterable(topic)) for topic in zip(*_latencies(runs), strict=True)]
    ordered = sorted(chain.from_iterable(by_topic))
    links = runs[0]["bytes"]
    sent = {link: sum(run["bytes"][link] for run in runs) for link in links}
    return {
        "count": len(ordered),
        "average_ms": sum(ordered) / len(ordered) / 1e6,
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "p999_ms": percentile(ordered, 0.999),
        "max_ms": percentile(ordered, 1.0),
        "max_ms_in_turn": [longest for run in runs for longest in _longest(run["latencies_ns"])],
        "misses": {
            str(deadline): _missed(topic, deadline)
            for deadline, topic in zip(deadlines_ms, by_topic, strict=True)
        },
        "misses_in_turn": {
            str(deadline): [
                _missed(part, deadline)
                for run in runs
                for part in _parts(run["latencies_ns"][number], PARTS)
            ]
            for number, deadline in enumerate(deadlines_ms)
        },
        "bytes_per_sample": sum(sent.values()) / len(ordered),
        "bytes_per_sample_by_link": {link: octets / len(ordered) for link, octets in sent.items()},
        "lost_packets": sum(sum(run["lost_packets"].values()) for run in runs),
        "choices": runs[-1]["choices"],
        "pairs": runs[-1]["pairs"],
    }


def _latencies(runs: Sequence[Result]) -> list[list[list[int]]]:
    return [run["latencies_ns"] for run in runs]


def _missed(latencies_ns: Sequence[int], deadline_ms: float) -> float:
    return sum(latency > deadline_ms * 1e6 for latency in latencies_ns) / len(latencies_ns)


def _parts(latencies_ns: Sequence[int], count: int) -> list[Sequence[int]]:
    size = max(1, len(latencies_ns) // count)
    return [latencies_ns[at : at + size] for at in range(0, size * count, size)]


def _longest(latencies_ns: Sequence[Sequence[int]]) -> list[float]:
    """Of all topics, in each part of a run."""
    parts = (_parts(topic, PARTS) for topic in latencies_ns)
    return [max(map(max, part)) / 1e6 for part in zip(*parts, strict=True)]


def percentile(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


def judge(case: int, arms: dict[str, Result]) -> Result:
    """The numbers the goals are about. The better single path is the one with fewer misses, the
    faster one when they are the same."""
    better = min(SINGLES, key=lambda name: (_all_missed(arms[name]), arms[name]["average_ms"]))
    duplicate, adaptive = arms["duplicate"], arms["adaptive"]
    ratios = {
        key: duplicate[key] / min(arms[name][key] for name in SINGLES)
        for key in ("average_ms", "max_ms")
    }
    excess = {
        deadline: _excess(
            adaptive["misses_in_turn"][deadline], duplicate["misses_in_turn"][deadline]
        )
        for deadline in duplicate["misses"]
    }
    cost = adaptive["bytes_per_sample"] / arms[better]["bytes_per_sample"]
    steadier = min((arms[name] for name in SINGLES), key=lambda arm: arm["max_ms"])
    in_turn = _mean_and_error(
        [
            one / other
            for one, other in zip(
                duplicate["max_ms_in_turn"], steadier["max_ms_in_turn"], strict=True
            )
        ]
    )
    return {
        "better_single": better,
        "duplicate_average_over_single": ratios["average_ms"],
        "duplicate_max_over_single": ratios["max_ms"],
        "duplicate_max_over_single_in_turn": in_turn,
        "duplicate": _verdict(
            max(ratios.values()) <= DUPLICATE_OVER_SINGLE,
            max(ratios["average_ms"], in_turn[0] - 2.0 * in_turn[1]) <= DUPLICATE_OVER_SINGLE,
        ),
        "adaptive_misses_over_duplicate": excess,
        "misses": _verdict(
            all(mean <= MISSES_OVER_DUPLICATE for mean, _ in excess.values()),
            all(mean - 2.0 * error <= MISSES_OVER_DUPLICATE for mean, error in excess.values()),
        ),
        "adaptive_bytes_over_single": cost,
        "bytes": _verdict(cost <= BYTES_OVER_SINGLE) if case in BYTES_JUDGED else "not judged",
    }


def _all_missed(arm: Result) -> float:
    return sum(map(float, arm["misses"].values()))


def _excess(shares: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """By how much the first are more, and the standard error of that: late samples come in
    clusters, so it is estimated from parts of the run, each longer than such a cluster."""
    return _mean_and_error([one - other for one, other in zip(shares, others, strict=True)])


def _mean_and_error(measured: Sequence[float]) -> tuple[float, float]:
    return mean(measured), stdev(measured) / len(measured) ** 0.5


def _verdict(is_met: bool, is_met_maybe: bool = False) -> str:
    return "met" if is_met else ("within the error" if is_met_maybe else "NOT MET")


def compare_with_paper(cases: Sequence[Result]) -> list[Result]:
    """Its two statements: both paths are better than the single ones, and better than a bad single
    one, which here is the direct link when it is of kind B, in whatever case that was measured."""
    bad = [case["arms"]["direct"] for case in cases if case["links"][-1] == "B"]
    keys = ("average_ms", "max_ms")
    return [
        {
            "case": case["case"],
            "better_than_singles": case["goals"]["duplicate"],
            "better_than_a_bad_single": _verdict(
                all(case["arms"]["duplicate"][key] < arm[key] for arm in bad for key in keys)
            )
            if bad
            else "not measured",
        }
        for case in cases
    ]


# ---------------------------------------------------------------- for people


def show(result: Result) -> None:
    links = "; ".join(
        f"{name} = {link['delay_ms']:g} ms, {link['loss']:.0%} loss"
        for name, link in result["links"].items()
    )
    deadlines = [str(each) for each in result["deadlines_ms"]]
    rows = []
    for case in result["cases"]:
        for name, arm in case["arms"].items():
            rows.append(
                (
                    f"{case['case']} {case['links']} {name}",
                    *(f"{arm[key]:.1f}" for key in LATENCIES),
                    *(f"{arm['misses'][each]:.2%}" for each in deadlines),
                    f"{arm['bytes_per_sample']:.0f}",
                    str(arm["lost_packets"]),
                )
            )
    print_table(
        f"per case L1 L2 L3 ({links}): latency (ms), missed deadlines, wire bytes of a sample",
        (
            "",
            *("avg", "p50", "p99", "p99.9", "max"),
            *(f"{each} ms" for each in deadlines),
            *("bytes", "lost packets"),
        ),
        rows,
    )
    print_table(
        "why adaptive did so, at the end",
        ("topic", "why"),
        [
            (f"{case['case']} {case['links']} {each['deadline_ms']:g} ms", each["why"])
            for case in result["cases"]
            for topic in case["arms"]["adaptive"]["choices"].values()
            for each in topic
        ],
    )
    if not result["is_quick"]:
        show_goals(result)


def show_goals(result: Result) -> None:
    print_table(
        "against the goals",
        (
            "case",
            "better single",
            f"duplicate/single avg, max (tenths) <= {DUPLICATE_OVER_SINGLE:g}",
            f"adaptive - duplicate missed <= {MISSES_OVER_DUPLICATE:.1%}",
            f"adaptive/single bytes <= {BYTES_OVER_SINGLE:g}",
        ),
        [
            (
                f"{case['case']} {case['links']}",
                goals["better_single"],
                f"{goals['duplicate_average_over_single']:.3f}, "
                f"{goals['duplicate_max_over_single']:.3f} "
                "({:.3f}±{:.3f}) {}".format(
                    *goals["duplicate_max_over_single_in_turn"], goals["duplicate"]
                ),
                " ".join(
                    f"{excess:+.2%}±{error:.2%}"
                    for excess, error in goals["adaptive_misses_over_duplicate"].values()
                    if excess or error
                )
                + f" {goals['misses']}",
                f"{goals['adaptive_bytes_over_single']:.2f} {goals['bytes']}",
            )
            for case in result["cases"]
            for goals in [case["goals"]]
        ],
    )
    print_table(
        "beside the paper's statements on latency (average and maximum)",
        ("case", "both better than either (within 5 %)", "both better than the direct link as B"),
        [
            (
                f"{row['case']}",
                f"{_said(row['case'] in PAPER_BEATS)}, here {row['better_than_singles']}",
                f"stated, here {row['better_than_a_bad_single']}",
            )
            for row in result["paper"]
        ],
    )


def _said(is_stated: bool) -> str:
    return "stated" if is_stated else "not stated"


def write_plot(path: Path, result: Result) -> None:
    """Latency, missed deadlines and bytes of every case and arm."""
    cases = [f"{case['case']}: {case['links']}" for case in result["cases"]]
    arms = list(result["cases"][0]["arms"])
    worst = [str(each) for each in result["deadlines_ms"]]
    panels = [
        Panel(
            "average latency, and whiskers to p99.9 and maximum (ms)",
            [[case["arms"][arm]["average_ms"] for arm in arms] for case in result["cases"]],
            [
                [(case["arms"][arm]["p999_ms"], case["arms"][arm]["max_ms"]) for arm in arms]
                for case in result["cases"]
            ],
            is_logarithmic=True,
        ),
        *(
            Panel(
                f"missed deadlines of {deadline} ms (%)",
                [
                    [100 * case["arms"][arm]["misses"][deadline] for arm in arms]
                    for case in result["cases"]
                ],
            )
            for deadline in worst
        ),
        Panel(
            "bytes on the wire for one sample, all links and both directions",
            [[case["arms"][arm]["bytes_per_sample"] for arm in arms] for case in result["cases"]],
        ),
    ]
    title = "Paths of deadline topics: L1 and L2 are the routed path, L3 is the direct one"
    path.write_text(grouped_panels(title, cases, arms, panels), encoding="utf-8")
    print(f"plot written to {path}")
