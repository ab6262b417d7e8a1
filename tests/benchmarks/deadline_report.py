"""What the runs of deadline.py say: numbers of each case, whether the goals are met, tables and a
plot beside the paper's statements. Pure but for printing and the file of the plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

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
BYTES_JUDGED = range(1, 8)
PAPER_BEATS = range(1, 6)


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
        "misses": {
            str(deadline): sum(latency > deadline * 1_000_000 for latency in topic) / len(topic)
            for deadline, topic in zip(deadlines_ms, by_topic, strict=True)
        },
        "bytes_per_sample": sum(sent.values()) / len(ordered),
        "bytes_per_sample_by_link": {link: octets / len(ordered) for link, octets in sent.items()},
        "lost_packets": sum(sum(run["lost_packets"].values()) for run in runs),
        "choices": runs[-1]["choices"],
        "pairs": runs[-1]["pairs"],
    }


def _latencies(runs: Sequence[Result]) -> list[list[list[int]]]:
    return [run["latencies_ns"] for run in runs]


def percentile(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


def judge(case: int, arms: dict[str, Result]) -> Result:
    """The numbers the goals are about. The better single path is the one with fewer misses, the
    faster one when they are the same."""
    better = min(SINGLES, key=lambda name: (_missed(arms[name]), arms[name]["average_ms"]))
    duplicate, adaptive = arms["duplicate"], arms["adaptive"]
    ratios = {
        key: duplicate[key] / min(arms[name][key] for name in SINGLES)
        for key in ("average_ms", "max_ms")
    }
    excess = max(
        adaptive["misses"][deadline] - duplicate["misses"][deadline]
        for deadline in duplicate["misses"]
    )
    cost = adaptive["bytes_per_sample"] / arms[better]["bytes_per_sample"]
    return {
        "better_single": better,
        "duplicate_average_over_single": ratios["average_ms"],
        "duplicate_max_over_single": ratios["max_ms"],
        "is_duplicate_met": max(ratios.values()) <= DUPLICATE_OVER_SINGLE,
        "adaptive_misses_over_duplicate": excess,
        "is_misses_met": excess <= MISSES_OVER_DUPLICATE,
        "adaptive_bytes_over_single": cost,
        "is_bytes_met": cost <= BYTES_OVER_SINGLE if case in BYTES_JUDGED else None,
    }


def _missed(arm: Result) -> float:
    return sum(map(float, arm["misses"].values()))


def compare_with_paper(cases: Sequence[Result]) -> list[Result]:
    """Its two statements, as far as the cases measured tell."""
    by_number = {case["case"]: case["arms"] for case in cases}
    singles = [arms[name] for arms in by_number.values() for name in SINGLES]
    fastest = {key: min(arm[key] for arm in singles) for key in ("average_ms", "max_ms")}
    found = []
    for number, arms in by_number.items():
        bad = [by_number[each]["direct"] for each in by_number if each % 2 == 0]
        found.append(
            {
                "case": number,
                "is_best_of_all_singles": _is_not_worse(arms["duplicate"], fastest),
                "is_better_than_a_bad_single": all(
                    arms["duplicate"][key] < arm[key] for arm in bad for key in fastest
                )
                if bad
                else None,
            }
        )
    return found


def _is_not_worse(arm: Result, than: dict[str, float]) -> bool:
    return all(arm[key] <= DUPLICATE_OVER_SINGLE * than[key] for key in than)


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
            f"duplicate/single avg, max <= {DUPLICATE_OVER_SINGLE:g}",
            f"adaptive - duplicate missed <= {MISSES_OVER_DUPLICATE:.1%}",
            f"adaptive/single bytes <= {BYTES_OVER_SINGLE:g}",
        ),
        [
            (
                f"{case['case']} {case['links']}",
                goals["better_single"],
                f"{goals['duplicate_average_over_single']:.3f}, "
                f"{goals['duplicate_max_over_single']:.3f} {_word(goals['is_duplicate_met'])}",
                f"{goals['adaptive_misses_over_duplicate']:+.2%} {_word(goals['is_misses_met'])}",
                f"{goals['adaptive_bytes_over_single']:.2f} {_word(goals['is_bytes_met'])}",
            )
            for case in result["cases"]
            for goals in [case["goals"]]
        ],
    )
    print_table(
        "beside the paper's statements on latency (average and maximum)",
        ("case", "both paths best every single one", "both paths better than a bad single one"),
        [
            (
                f"{row['case']}",
                f"{_said(row['case'] in PAPER_BEATS)}, here {_word(row['is_best_of_all_singles'])}",
                f"stated, here {_word(row['is_better_than_a_bad_single'])}",
            )
            for row in result["paper"]
        ],
    )


def _word(is_met: bool | None) -> str:
    return "not judged" if is_met is None else ("met" if is_met else "NOT MET")


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
