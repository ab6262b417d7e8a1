"""`ddswan analyze`: Spark over the traces edges wrote. Called by the command line; the work is in
gateway/analysis, which is imported only when it runs, because Spark takes a while to load.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from gateway.config import Config
from gateway.errors import ConfigError

_BUCKET_S = 60
_LATENESS_S = 120


class AnalyzeCommand:
    name = "analyze"
    help = "analyse latency traces with Spark: tables, recommendations, a report to read"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("traces", metavar="DIR", help="the edges' trace.directory")
        parser.add_argument(
            "--out",
            required=True,
            metavar="DIR",
            help="where report.html, recommendations.json and the tables go; object stores work",
        )
        parser.add_argument(
            "--master",
            default="local[*]",
            metavar="URL",
            help="Spark master, such as spark://H:P. Default: this machine, all cores.",
        )
        parser.add_argument(
            "--memory", default="1g", metavar="SIZE", help="memory of Spark's driver. Default: 1g."
        )
        parser.add_argument(
            "--bucket",
            type=_seconds,
            metavar="S",
            help=f"length of a period. Default: a sixtieth of all; {_BUCKET_S} with --follow.",
        )
        parser.add_argument(
            "--follow", action="store_true", help="go on with new traces until interrupted"
        )
        parser.add_argument(
            "--once",
            action="store_true",
            help="with --follow: end when all there is has been counted, to go on another time",
        )
        parser.add_argument(
            "--late-after",
            type=_seconds,
            default=_LATENESS_S,
            metavar="S",
            help="with --follow: rows that come later than this are dropped; longer than "
            f"trace.file_age_s. Default: {_LATENESS_S}.",
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        from gateway.analysis import run
        from gateway.analysis.follow import Follower
        from gateway.analysis.progress import Progress
        from gateway.analysis.session import open_session

        if args.once and not args.follow:
            raise ConfigError("--once goes with --follow; without it every analysis ends by itself")
        progress = Progress(sys.stderr, run.STEPS)
        stopping = threading.Event()
        print("starting Spark", file=sys.stderr, flush=True)
        with open_session(args.master, memory=args.memory) as spark:
            if args.follow:
                _stop_on_signals(stopping)
                if not args.once:
                    print(
                        f"following {args.traces}: a report comes when a period of "
                        f"{args.bucket or _BUCKET_S} s is {args.late_after} s old, and again with "
                        "each; interrupt to end",
                        file=sys.stderr,
                        flush=True,
                    )
                Follower(
                    spark,
                    args.traces,
                    args.out,
                    progress,
                    bucket_s=args.bucket or _BUCKET_S,
                    lateness_s=args.late_after,
                ).run(stopping, is_once=args.once)
            else:
                run.analyse(spark, args.traces, args.out, progress, args.bucket)
        if stopping.is_set():
            print(f"ended; the same --out {args.out} goes on where this was")
        else:
            print(f"open {args.out.rstrip('/')}/report.html")
        return 0


def _stop_on_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())


def _seconds(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be 1 to 86400 seconds, found {text}")
    return value


command = AnalyzeCommand()
