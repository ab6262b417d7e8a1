"""The report in a real browser: no error, everything drawn, small enough for a thousand topics. The
screenshot stays in build/ for people to look at.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from gateway.analysis.advice import PairKey, Row, recommend
from gateway.analysis.changes import ChangePoint, Outlier
from gateway.analysis.report import DETAILED_PAIRS, Findings, Pair, make_report
from gateway.analysis.vocabulary import HOP_NAMES

_BUILD = Path(__file__).parents[2] / "build"
_NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
_NASTY = "</script><script>throw 'topic'</script><b>&amp;"


def _pair(number: int, periods: int = 60) -> Pair:
    """One of many: every tenth is late, some by far."""
    share = 0.2 / (1 + number) if number % 10 == 0 else 0.0
    p50 = 20e6 * (1 + number % 7)
    outcome: Row = dict.fromkeys(
        ("copies", "wins", "copies_judged", "copies_late", "clock_unknown", "source_unknown"), 0.0
    )
    outcome |= {
        "samples": 1e6,
        "bytes": 64e6,
        "rows": 10_000,
        "sampled": 10_000.0,
        "judged": 10_000.0,
        "judged_batches": 5_000.0,
        "late": 10_000 * share,
        "misses": 10_000 * share,
        "duplicate_bytes": 5e6 if number % 3 == 0 else 0.0,
        "suspect": 3.0,
        "clock_error_ns": 10_000 * 2e6,
        "deadline_ns": int(p50 * 2.5),
        "lost": 20 if number % 5 == 0 else None,
        "loss_expected": 10_000,
        "loss_share": 0.002 if number % 5 == 0 else None,
        "loss_method": "counted" if number % 5 == 0 else None,
    }
    series: list[Row] = [
        {
            "bucket": _NOW + datetime.timedelta(minutes=minute),
            "p50_ns": p50 * (3 if number == 0 and minute > 40 else 1),
            "p99_ns": p50 * (2 + (minute * 7 % 5) / 5) * (9 if minute == 17 else 1),
            "samples": 100,
            "judged": 100.0,
            "late": 100 * share if minute > 40 else 0.0,
        }
        for minute in range(periods)
    ]
    way: Row = {
        "samples": 1e6,
        "sampled": 1e4,
        "bytes": 1.0,
        "duplicated": 5e3,
        "copies": 4990.0,
        "copies_judged": 4990.0,
        "copies_late": 12.0,
    }
    hops = {
        hop: {"mean_ns": p50 / 5, "p50_ns": p50 / 6, "p99_ns": p50, "hop": hop}
        for hop in HOP_NAMES
        if hop != "direct"
    }
    return Pair(
        latency={"hop": "end_to_end", "p50_ns": p50, "p99_ns": p50 * 3, "max_ns": p50 * 20},
        outcome=outcome,
        paths={
            "routed": way | {"wins": 400.0, "win_share": 0.08},
            "express": way | {"wins": 4600.0, "win_share": 0.92},
        },
        hops={"routed": hops, "express": {"direct": hops["to_router"]}},
        blame=Counter({"to_router": 900, "router": 100}) if share else Counter(),
        series=series,
        changes=[ChangePoint(int(series[41]["bucket"].timestamp()), p50, 3 * p50)]
        if number == 0
        else [],
        outliers=[Outlier(int(series[17]["bucket"].timestamp()), p50 * 18, p50 * 2)],
    )


def _findings(topics: int) -> Findings:
    pairs: dict[PairKey, Pair] = {
        ("default", _NASTY if n == 0 else f"plant/line{n % 20}/sensor{n}", "a", "b"): _pair(n)
        for n in range(topics)
    }
    rows = [
        {**dict(zip(("fabric", "topic", "origin_lan", "destination_lan"), key, strict=True)), **o}
        for key, pair in pairs.items()
        if (o := pair.outcome) is not None
    ]
    blame = [
        {**row, "path": "routed", "router": "r1", "hop": hop, "late": count}
        for row, pair in zip(rows, pairs.values(), strict=True)
        for hop, count in pair.blame.items()
    ]
    routers: list[Row] = [
        {"fabric": "default", "router": name, "samples": 5e6, "bytes": 1e9}
        | {"p50_ns": p99 / 9, "p99_ns": p99, "max_ns": p99 * 4}
        for name, p99 in (("r1", 40e6), ("r2", 0.3e6), ("r3", 0.4e6))
    ]
    about = {
        "directory": "/var/lib/ddswan/traces",
        "mode": "batch",
        "rows": topics * 10_000,
        "files": 120,
        "unreadable_files": 2,
        "first": _NOW.isoformat(),
        "last": (_NOW + datetime.timedelta(hours=1)).isoformat(),
        "span_s": 3600.0,
        "bucket_s": 60,
    }
    return Findings(about, pairs, routers, recommend(rows, [], blame, routers))


def _browse(page: Path, *arguments: str) -> tuple[str, list[str]]:
    """What the browser printed, and what its console said."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser is not None, "no browser: apt-get install chromium (./dev test does it)"
    done = subprocess.run(
        [
            browser,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"),
            f"--user-data-dir={page.parent / 'profile'}",
            "--window-size=1200,4800",
            *arguments,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


def test_a_thousand_topics_are_drawn_without_an_error(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(make_report(_findings(1000), _NOW), encoding="utf-8")
    assert page.stat().st_size < 1_500_000
    _BUILD.mkdir(exist_ok=True)
    shot = _BUILD / "report.png"
    shot.unlink(missing_ok=True)
    dom, console = _browse(page, "--dump-dom", f"--screenshot={shot}")
    assert console == []
    assert shot.stat().st_size > 50_000
    body = dom.split("<body>")[1].split("<script>")[0]
    assert "11 of 1,000 topics between two LANs are late more often than tolerated" in body
    assert "ddswan recommend apply recommendations.json --dry-run" in body
    assert body.count("± 2 ms") == 3
    assert body.count("<svg") == 1 + 3 * 2  # everything, and two plots of each open topic
    assert body.count('class="pair"') == DETAILED_PAIRS
    assert body.count("</tr>") > 100
    assert "1,000 of 1,000" in body
    assert body.count("more</button>") == 2
    assert "&lt;/script&gt;&lt;script&gt;throw 'topic'" in body
    assert not re.findall(r"NaN|undefined|Infinity", body)
    assert not re.findall(r"(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)", body)


@pytest.mark.parametrize(
    ("topics", "misses", "verdict"),
    [
        (0, 0.0, "Nothing can be said about lateness"),
        (1, 0.0, "Nothing can be said about lateness"),
        (1, 60.0, "Something is late: there were 60 late samples of 1 topic"),
    ],
)
def test_next_to_nothing_is_drawn_without_an_error(
    tmp_path: Path, topics: int, misses: float, verdict: str
) -> None:
    findings = _findings(topics)
    for pair in findings.pairs.values():
        assert pair.outcome is not None
        pair.outcome |= {"judged": 0.0, "late": 0.0, "misses": misses, "deadline_ns": None}
        pair.latency, pair.series, pair.hops, pair.changes, pair.outliers = None, [], {}, [], []
    findings.recommendations = []
    findings.routers = []
    page = tmp_path / "report.html"
    page.write_text(make_report(findings, _NOW), encoding="utf-8")
    dom, console = _browse(page, "--dump-dom")
    assert console == []
    body = dom.split("<body>")[1].split("<script>")[0]
    assert verdict in body
    assert not re.findall(r"NaN|undefined|Infinity", body)


def test_an_error_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    broken = make_report(_findings(1), _NOW).replace("showWords();", "showWords(); nowhere();")
    page.write_text(broken, encoding="utf-8")
    assert "nowhere is not defined" in "".join(_browse(page, "--dump-dom")[1])
