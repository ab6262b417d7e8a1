"""From facts to the tables people and programs read: percentiles, outcomes, paths, routers. The
same for facts of a batch and of a stream. Called by conclude.py.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from gateway.analysis.facts import BLAME, COUNTERS, DEADLINE, LOST, NUMBER, PAIR, SAMPLE
from gateway.analysis.vocabulary import GROWTH, HOP_NAMES, SMALLEST_NS

PERCENTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}


def latency(facts: DataFrame, *keys: str) -> DataFrame:
    """Percentiles of every duration for these keys and each hop (`hop` also names `gateway`,
    `end_to_end` and `arrival`)."""
    by = [*keys, "hop"]
    bins = (
        facts.where(F.col("bin").isNotNull())
        .withColumnRenamed("measure", "hop")
        .groupBy(*by, "bin")
        .agg(
            F.sum("n").alias("n"),
            F.sum("total").alias("total"),
            F.min("low").alias("low"),
            F.max("high").alias("high"),
        )
    )
    group = Window.partitionBy(*by)
    so_far = group.orderBy("bin").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counted = bins.withColumns({"reached": F.sum("n").over(so_far), "of": F.sum("n").over(group)})
    low, high = F.min("low"), F.max("high")
    return counted.groupBy(*by).agg(
        F.sum("n").alias("samples"),
        (F.sum("total") / F.sum("n")).alias("mean_ns"),
        low.alias("min_ns"),
        *(
            F.least(F.greatest(_value(_bin_at(rank)), low), high).alias(name)
            for name, rank in PERCENTILES.items()
        ),
        high.alias("max_ns"),
    )


def outcomes(facts: DataFrame) -> DataFrame:
    """Per topic and LAN pair: how much, how much of it late or lost, and what clocks are worth."""
    counted = (
        facts.where(F.col("measure") == SAMPLE)
        .groupBy(*PAIR)
        .agg(
            *(F.sum(name).alias(name) for name in COUNTERS),
            F.sum("n").alias("rows"),
            F.min("bucket").alias("first_bucket"),
            F.max("bucket").alias("last_bucket"),
        )
        .withColumn("late_share", F.col("late") / F.nullif(F.col("judged"), F.lit(0.0)))
    )
    deadlines = (
        facts.where(F.col("measure") == DEADLINE)
        .groupBy(*PAIR)
        .agg(F.min("low").alias("deadline_ns"))
    )
    return counted.join(deadlines, list(PAIR), "left").join(losses(facts), list(PAIR), "left")


def losses(facts: DataFrame) -> DataFrame:
    """Samples lost, where that can be known. Either the destination counted what it gave up
    (`loss_method` counted: between a stream's first and last traced sample), or everything was
    traced, so that a missing number is a lost sample (gaps)."""
    streams = (
        facts.where(F.col("measure").isin(NUMBER, LOST))
        .groupBy(*PAIR, "stream")
        .agg(
            *_low_and_high(NUMBER),
            *_low_and_high(LOST),
            F.sum(F.when(F.col("measure") == NUMBER, F.col("n"))).alias("traced"),
        )
    )
    complete = (
        facts.where(F.col("measure") == SAMPLE)
        .groupBy(*PAIR)
        .agg((F.sum("complete_share") >= F.sum("sampled")).alias("is_complete"))
    )
    expected = F.col("number_high") - F.col("number_low") + 1
    counted = F.col("lost_high") - F.col("lost_low")
    known = streams.join(complete, list(PAIR)).withColumns(
        {
            "loss_method": F.when(F.col("lost_high").isNotNull(), "counted").when(
                F.col("is_complete"), "gaps"
            ),
            "expected": expected,
        }
    )
    known = known.where(F.col("loss_method").isNotNull() & expected.isNotNull()).withColumn(
        "lost",
        F.when(F.col("loss_method") == "counted", counted).otherwise(
            F.greatest(expected - F.col("traced"), F.lit(0))
        ),
    )
    return known.groupBy(*PAIR).agg(
        F.sum("lost").alias("lost"),
        F.sum("expected").alias("loss_expected"),
        (F.sum("lost") / F.sum("expected")).alias("loss_share"),
        F.max("loss_method").alias("loss_method"),
    )


def paths(facts: DataFrame) -> DataFrame:
    """Per topic, LAN pair and path: deliveries, wins, and how the path would have done alone."""
    names = ("sampled", "samples", "bytes", "copies", "wins", "copies_judged", "copies_late")
    by_path = (
        facts.where(F.col("measure") == SAMPLE)
        .groupBy(*PAIR, "path")
        .agg(*(F.sum(name).alias(name) for name in names))
    )
    pair = Window.partitionBy(*PAIR)
    duplicated = F.sum("wins").over(pair)
    return by_path.withColumns(
        {
            "duplicated": duplicated,
            "win_share": F.col("wins") / F.nullif(duplicated, F.lit(0.0)),
        }
    )


def blame(facts: DataFrame) -> DataFrame:
    """Late samples by the hop that took longest, with the router they passed."""
    return (
        facts.where(F.col("measure").startswith(BLAME))
        .withColumn("hop", F.substring("measure", len(BLAME) + 1, 100))
        .groupBy(*PAIR, "path", "router", "hop")
        .agg(F.sum("n").alias("late"), F.max("high").alias("longest_ns"))
    )


def where_time_goes(by_hop: DataFrame) -> DataFrame:
    """Each hop's part of the mean way, per topic, LAN pair and path."""
    whole = Window.partitionBy(*PAIR, "path")
    return by_hop.where(F.col("hop").isin(list(HOP_NAMES))).select(
        *PAIR,
        "path",
        "hop",
        "samples",
        "mean_ns",
        (F.col("mean_ns") / F.nullif(F.sum("mean_ns").over(whole), F.lit(0.0))).alias("share"),
    )


def routers(facts: DataFrame) -> DataFrame:
    """Per router: its load as far as traces tell, and how long samples stay in it."""
    through = facts.where(F.col("router").isNotNull())
    load = (
        through.where(F.col("measure") == SAMPLE)
        .groupBy("fabric", "router")
        .agg(F.sum("samples").alias("samples"), F.sum("bytes").alias("bytes"))
    )
    times = latency(through.where(F.col("measure") == "router"), "fabric", "router").drop("samples")
    return load.join(times, ["fabric", "router"], "left").drop("hop")


def _bin_at(rank: float) -> Column:
    """The first bin at which that part of the group is reached."""
    needed = F.ceil(F.col("of") * F.lit(rank))
    return F.min(F.when(F.col("reached") >= needed, F.col("bin")))


def _value(index: Column) -> Column:
    middle = F.lit(SMALLEST_NS * 2.0 / (1.0 + GROWTH)) * F.pow(F.lit(GROWTH), index)
    return F.when(index <= 0, F.lit(float(SMALLEST_NS))).otherwise(middle)


def _low_and_high(name: str) -> tuple[Column, Column]:
    of = F.col("measure") == name
    return (
        F.min(F.when(of, F.col("low"))).alias(f"{name}_low"),
        F.max(F.when(of, F.col("high"))).alias(f"{name}_high"),
    )
