"""From trace rows to facts: mergeable histograms and sums per period. The same transformation
serves a batch and a stream; everything later is made from facts alone. Spark expressions only, no
Python on the way of a row. Called by run.py and follow.py.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gateway.analysis.source import EVENT
from gateway.analysis.vocabulary import (
    ARRIVAL,
    END_TO_END,
    GATEWAY,
    GROWTH,
    HOP_NAMES,
    SMALLEST_NS,
)
from gateway.observe.trace_schema import Selection

PAIR = ("fabric", "topic", "origin_lan", "destination_lan")
"""What people ask about: one topic between two LANs."""
KEYS = (*PAIR, "path", "router", "stream", "measure", "bin")
SAMPLE = "sample"
"""The measure whose rows carry the counters."""
DEADLINE = "deadline"
"""The measure whose low is the strictest deadline offered."""
NUMBER, LOST = "number", "lost"
"""Measures per stream: low and high are those of sample numbers and of samples given up."""
BLAME = "blame:"
"""Prefix of measures that count late samples by the hop that took longest."""

_SLACK_NS = 1_000_000
_IMPLAUSIBLE_NS = 3_600 * 1_000_000_000


def took(hop: str) -> str:
    """The column of a hop's duration: `router` alone is the router's name."""
    return f"{hop}_took_ns"


def measure(traces: DataFrame) -> DataFrame:
    """Durations of hops and verdicts, row by row. All times are translated to the destination's
    clock; what contradicts the bound on clock errors is not used and counted as suspect."""
    offset = _or_zero("clock_offset_ns")
    router_offset = _or_zero("router_clock_offset_ns")
    error = _or_zero("clock_error_ns") + _SLACK_NS
    router_error = _or_zero("router_clock_error_ns") + _SLACK_NS
    is_sampled = F.col("selection") == Selection.SAMPLED.value
    is_duplicated = F.col("copies") > 1

    times = traces.withColumns(
        {
            "source": F.col("source_ns") - offset,
            "ingress": F.col("ingress_ns") - offset,
            "sent": F.coalesce("sent_ns", "ingress_ns") - offset,
            "router_in": F.col("router_in_ns") - router_offset,
            "router_out": F.col("router_out_ns") - router_offset,
        }
    )
    source_lan = F.col("ingress") - F.col("source")
    is_source_known = F.coalesce(
        _is_between(source_lan, -_IMPLAUSIBLE_NS, _IMPLAUSIBLE_NS), _true()
    )
    has_router = F.col("router_in").isNotNull() & F.col("router_out").isNotNull()
    is_suspect = (
        _is_implausible(F.col("egress_ns") - F.coalesce("sent", "source"), error)
        | _is_implausible(F.col("router_in") - F.col("sent"), error + router_error)
        | _is_implausible(F.col("egress_ns") - F.col("router_out"), router_error)
    )
    flagged = times.withColumns(
        {
            "is_suspect": is_suspect,
            "is_source_known": is_source_known,
            "is_clock_unknown": F.col("clock_offset_ns").isNull(),
            "is_sampled": is_sampled,
            "is_duplicated": is_duplicated,
        }
    )
    is_sound = ~F.col("is_suspect")
    is_winner = F.col("is_winner")
    through = is_sound & has_router
    durations = {
        "source_lan": F.when(F.col("is_source_known"), source_lan),
        "origin_edge": F.when(F.col("sent_ns").isNotNull(), F.col("sent") - F.col("ingress")),
        "to_router": F.when(through, F.col("router_in") - F.col("sent")),
        "router": F.when(has_router, F.col("router_out") - F.col("router_in")),
        "from_router": F.when(through, F.col("egress_ns") - F.col("router_out")),
        "direct": F.when(is_sound & ~has_router, F.col("egress_ns") - F.col("sent")),
        "destination_edge": F.when(is_winner, F.col("written_ns") - F.col("egress_ns")),
        GATEWAY: F.when(is_sound & is_winner, F.col("written_ns") - F.col("ingress")),
        END_TO_END: F.when(
            is_sound & is_winner & F.col("is_source_known"), F.col("written_ns") - F.col("source")
        ),
        ARRIVAL: F.when(
            is_sound & F.col("is_duplicated") & F.col("is_source_known"),
            F.col("egress_ns") - F.col("source"),
        ),
    }
    measured = flagged.withColumns(
        {
            took(name): F.when(value < 0, F.lit(0)).otherwise(value)
            for name, value in durations.items()
        }
    )
    # Without a usable source timestamp the part ddswan is answerable for is compared.
    taken = F.when(is_sound & is_winner, F.coalesce(took(END_TO_END), took(GATEWAY)))
    measured = measured.withColumn("is_late", taken > F.col("deadline_ns"))
    worst = F.greatest(*(F.col(took(name)) for name in HOP_NAMES))
    culprit = F.coalesce(*(F.when(F.col(took(name)) == worst, F.lit(name)) for name in HOP_NAMES))
    return measured.withColumn("culprit", F.when(F.col("is_late"), culprit)).withColumn(
        "worst_hop", worst
    )


def make_facts(measured: DataFrame, bucket_s: int, *, lateness_s: int) -> DataFrame:
    """Sums per period and key. In a stream a period is finished when the newest row is
    `lateness_s` younger than its end; what comes later still is dropped (and counted by Spark).
    A batch takes everything."""
    stream = F.concat_ws(
        "/", "origin_edge", "origin_incarnation", F.col("stream"), "destination_edge"
    )
    is_sampled = F.col("is_sampled")
    is_delivered = is_sampled & F.col("is_winner")
    durations = [
        _entry(F.lit(name), F.col(took(name)), is_sampled & F.col(took(name)).isNotNull())
        for name in (*HOP_NAMES, GATEWAY, END_TO_END, ARRIVAL)
    ]
    others = [
        _entry(F.lit(SAMPLE), F.col("size_bytes"), _true()),
        _entry(F.lit(DEADLINE), F.col("deadline_ns"), F.col("deadline_ns").isNotNull()),
        _entry(F.lit(NUMBER), F.col("number"), is_delivered, stream),
        _entry(
            F.lit(LOST),
            F.col("lost_before"),
            is_delivered & F.col("lost_before").isNotNull(),
            stream,
        ),
        _entry(F.concat(F.lit(BLAME), "culprit"), F.col("worst_hop"), F.col("culprit").isNotNull()),
    ]
    counters = _counters()
    facts = (
        measured.withWatermark(EVENT, f"{lateness_s} seconds")
        .select(
            EVENT,
            *PAIR,
            "path",
            "router",
            *(value.alias(name) for name, value in counters.items()),
            F.explode(F.array_compact(F.array(*durations, *others))).alias("entry"),
        )
        .select("*", "entry.*")
    )
    is_sample = F.col("measure") == SAMPLE
    is_duration = F.col("measure").isin([*HOP_NAMES, GATEWAY, END_TO_END, ARRIVAL])
    facts = facts.withColumn("bin", F.when(is_duration, _bin(F.col("value"))))
    return (
        facts.groupBy(F.window(EVENT, f"{bucket_s} seconds").alias("period"), *KEYS)
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.sum(F.col("value").cast("double")).alias("total"),
            F.min("value").alias("low"),
            F.max("value").alias("high"),
            *(F.sum(F.when(is_sample, F.col(name))).alias(name) for name in counters),
        )
        .select(
            F.col("period.start").alias("bucket"), *KEYS, "n", "total", "low", "high", *counters
        )
    )


COUNTERS = {
    "sampled": "samples traced because their batch was chosen",
    "misses": "late samples traced, for whatever reason: with trace.deadline_misses all there were",
    "samples": "estimate of all samples delivered",
    "bytes": "estimate of all bytes delivered",
    "judged": "sampled ones that have a deadline and usable clocks",
    "judged_batches": "batches those came in",
    "late": "judged ones that were late",
    "copies": "copies that arrived of samples sent on several paths",
    "wins": "those of them that arrived first",
    "copies_judged": "copies with a deadline and usable clocks",
    "copies_late": "judged copies that arrived after the deadline",
    "duplicate_bytes": "estimate of the bytes sent once more than needed",
    "suspect": "rows whose times contradict the bound on clock errors",
    "clock_unknown": "rows without a clock offset",
    "clock_error_ns": "sum of the error bounds of all other rows' clock offsets",
    "source_unknown": "rows whose source timestamp is no time of day",
    "complete_share": "sum of the shares: as many as rows when everything was traced",
}
"""What the counters of facts mean; docs/traces.md repeats it."""


def _counters() -> dict[str, Column]:
    one, zero = F.lit(1.0), F.lit(0.0)
    is_delivered = F.col("is_sampled") & F.col("is_winner")
    is_copy = F.col("is_sampled") & F.col("is_duplicated")
    is_judged = is_delivered & F.col("is_late").isNotNull()
    is_copy_judged = is_copy & F.col(took(ARRIVAL)).isNotNull() & F.col("deadline_ns").isNotNull()
    weight = one / F.greatest(F.col("share"), F.lit(1e-9))
    values = {
        "sampled": (is_delivered, one),
        "misses": (F.col("is_late"), one),
        "samples": (is_delivered, weight),
        "bytes": (is_delivered, weight * F.col("size_bytes")),
        "judged": (is_judged, one),
        "judged_batches": (is_judged, one / F.greatest(F.col("batch_samples"), F.lit(1))),
        "late": (is_judged & F.col("is_late"), one),
        "copies": (is_copy, one),
        "wins": (is_copy & F.col("is_winner"), one),
        "copies_judged": (is_copy_judged, one),
        "copies_late": (is_copy_judged & (F.col(took(ARRIVAL)) > F.col("deadline_ns")), one),
        "duplicate_bytes": (
            is_delivered & F.col("is_duplicated"),
            weight * F.col("size_bytes") * (F.col("copies") - 1),
        ),
        "suspect": (F.col("is_suspect"), one),
        "clock_unknown": (F.col("is_clock_unknown"), one),
        "clock_error_ns": (~F.col("is_clock_unknown"), _or_zero("clock_error_ns").cast("double")),
        "source_unknown": (~F.col("is_source_known"), one),
        "complete_share": (is_delivered, F.col("share")),
    }
    assert set(values) == set(COUNTERS)
    return {name: F.when(when, value).otherwise(zero) for name, (when, value) in values.items()}


def _entry(name: Column, value: Column, when: Column, stream: Column | None = None) -> Column:
    """One (measure, value) of a row, or null."""
    key = F.lit(None).cast("string") if stream is None else stream
    return F.when(
        when,
        F.struct(name.alias("measure"), key.alias("stream"), value.cast("long").alias("value")),
    )


def _bin(value: Column) -> Column:
    steps = F.ceil(F.log(value / F.lit(float(SMALLEST_NS))) / F.lit(math.log(GROWTH)))
    return F.when(value <= SMALLEST_NS, F.lit(0)).otherwise(steps).cast("int")


def _or_zero(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0))


def _true() -> Column:
    return F.lit(True)


def _is_between(value: Column, low: int, high: int) -> Column:
    return (value >= low) & (value <= high)


def _is_implausible(duration: Column, error: Column) -> Column:
    return F.coalesce((duration < -error) | (duration > _IMPLAUSIBLE_NS), F.lit(False))
