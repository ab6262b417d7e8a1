"""The benchmarks' command line: `./dev bench NAME`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.benchmarks import analyze, deadline, latency, overhead, soak, throughput
from tests.benchmarks.options import Options
from tests.lab.namespaces import LabUnavailable
from tests.lab.process import ProcessFailed

_RUNS = {
    "analyze": analyze.run,
    "deadline": deadline.run,
    "latency": latency.run,
    "overhead": overhead.run,
    "soak": soak.run,
    "throughput": throughput.run,
}
_REPETITIONS = {"deadline": 1, "overhead": 16}
_SECONDS = {"deadline": 50.0, "overhead": 1.5, "soak": 60.0}
"""Where 5 is not the usual number: 50 s are 10,000 samples of each case; many short phases tell
more of a small difference than few long ones."""


def main() -> int:
    command = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measures ddswan beside plain DDS, in network namespaces on this machine.",
        epilog="latency: one-way, 10 topics at 20 Hz. throughput: ddsperf at four sizes, and one "
        "topic against 32. deadline: eight cases of good and bad links, by one path, by both and "
        "adaptively. overhead: what metrics and traces cost. soak: nothing is lost, whatever "
        "befalls links and brokers. analyze: Spark over traces of three sizes. What the numbers "
        "mean: docs/benchmarks.md.",
    )
    command.add_argument("name", choices=sorted(_RUNS))
    command.add_argument("--json", type=Path, metavar="FILE", help="write the result there, too")
    command.add_argument(
        "--repetitions",
        type=int,
        metavar="N",
        help="of each measurement (5; deadline: 1; overhead: 16)",
    )
    command.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="of each measurement (5; deadline: 50; overhead: 1.5; soak: 60)",
    )
    command.add_argument(
        "--case",
        type=int,
        action="append",
        default=[],
        choices=sorted(deadline.CASES),
        help="of deadline: only this one; may be repeated",
    )
    command.add_argument(
        "--size",
        type=int,
        action="append",
        default=[],
        metavar="BYTES",
        help="of overhead: of a sample; may be repeated (64 and 1024)",
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="a smoke test: one short repetition, fails on a lost sample, judges no speed",
    )
    given = command.parse_args()
    options = Options(
        repetitions=given.repetitions or (1 if given.quick else _REPETITIONS.get(given.name, 5)),
        seconds=given.seconds or (2.0 if given.quick else _SECONDS.get(given.name, 5.0)),
        json=given.json,
        is_quick=given.quick,
        cases=tuple(given.case),
        sizes=tuple(given.size),
    )
    try:
        return _RUNS[given.name](options)
    except (LabUnavailable, ProcessFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
