"""What the analysis must find, worked out again in plain Python from the rows: the slow and obvious
way, sharing nothing with gateway/analysis but its words.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
_HOUR_NS = 3_600_000_000_000
_SLACK_NS = 1_000_000


def pair_of(row: Row) -> tuple[Any, ...]:
    return row["fabric"], row["topic"], row["origin_lan"], row["destination_lan"]


def hops(row: Row) -> dict[str, int]:
    """Durations of one row, by hop."""
    offset, router_offset = row["clock_offset_ns"] or 0, row["router_clock_offset_ns"] or 0
    source = row["source_ns"] - offset
    ingress = None if row["ingress_ns"] is None else row["ingress_ns"] - offset
    sent = ingress if row["sent_ns"] is None else row["sent_ns"] - offset
    through = None
    if row["router_in_ns"] is not None and row["router_out_ns"] is not None:
        through = row["router_in_ns"] - router_offset, row["router_out_ns"] - router_offset
    egress, written = row["egress_ns"], row["written_ns"] if row["is_winner"] else None
    is_sound = not is_suspect(row)
    found: dict[str, int] = {}
    if ingress is not None and is_source_known(row):
        found["source_lan"] = ingress - source
    if row["sent_ns"] is not None and ingress is not None:
        found["origin_edge"] = row["sent_ns"] - row["ingress_ns"]
    if through is not None:
        found["router"] = through[1] - through[0]
        if is_sound:
            found["from_router"] = egress - through[1]
            if sent is not None:
                found["to_router"] = through[0] - sent
    elif is_sound and sent is not None:
        found["direct"] = egress - sent
    if written is not None:
        found["destination_edge"] = written - egress
        if is_sound and ingress is not None:
            found["gateway"] = written - ingress
        if is_sound and is_source_known(row):
            found["end_to_end"] = written - source
    if is_sound and row["copies"] > 1 and is_source_known(row):
        found["arrival"] = egress - source
    return {hop: max(0, value) for hop, value in found.items()}


def is_source_known(row: Row) -> bool:
    if row["ingress_ns"] is None:
        return True
    return bool(abs(row["ingress_ns"] - row["source_ns"]) <= _HOUR_NS)


def is_suspect(row: Row) -> bool:
    offset, router_offset = row["clock_offset_ns"] or 0, row["router_clock_offset_ns"] or 0
    error = (row["clock_error_ns"] or 0) + _SLACK_NS
    router_error = (row["router_clock_error_ns"] or 0) + _SLACK_NS
    sent = row["sent_ns"] if row["sent_ns"] is not None else row["ingress_ns"]
    begun = sent if sent is not None else row["source_ns"]
    checks = [(row["egress_ns"] - (begun - offset), error)]
    if row["router_in_ns"] is not None and sent is not None:
        way = (row["router_in_ns"] - router_offset) - (sent - offset)
        checks.append((way, error + router_error))
    if row["router_out_ns"] is not None:
        checks.append((row["egress_ns"] - (row["router_out_ns"] - router_offset), router_error))
    return any(value < -bound or value > _HOUR_NS for value, bound in checks)


def is_late(row: Row) -> bool | None:
    found = hops(row)
    latency = found.get("end_to_end", found.get("gateway"))
    if not row["is_winner"] or latency is None or row["deadline_ns"] is None:
        return None
    return bool(latency > row["deadline_ns"])


def percentile(values: Iterable[int], rank: float) -> int:
    ordered = sorted(values)
    return ordered[math.ceil(rank * len(ordered)) - 1]


def latencies(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[int]]:
    """Sampled durations by pair, path and hop."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows:
        if row["selection"] == "sampled":
            for hop, value in hops(row).items():
                found[*pair_of(row), row["path"], hop].append(value)
    return found


def outcome(rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[str, float]]:
    """The counters, by pair."""
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        counts = found[pair_of(row)]
        late = is_late(row)
        weight = 1.0 / max(row["share"], 1e-9)
        counts["rows"] += 1
        counts["misses"] += late is True
        counts["suspect"] += is_suspect(row)
        counts["source_unknown"] += not is_source_known(row)
        counts["clock_unknown"] += row["clock_offset_ns"] is None
        if row["clock_offset_ns"] is not None:
            counts["clock_error_ns"] += row["clock_error_ns"] or 0
        if row["selection"] != "sampled":
            continue
        if row["copies"] > 1:
            counts["copies"] += 1
            counts["wins"] += row["is_winner"]
            arrival = hops(row).get("arrival")
            if arrival is not None and row["deadline_ns"] is not None:
                counts["copies_judged"] += 1
                counts["copies_late"] += arrival > row["deadline_ns"]
        if row["is_winner"]:
            counts["sampled"] += 1
            counts["samples"] += weight
            counts["bytes"] += weight * row["size_bytes"]
            counts["duplicate_bytes"] += weight * row["size_bytes"] * (row["copies"] - 1)
            counts["judged"] += late is not None
            counts["late"] += late is True
            if late is not None:
                counts["judged_batches"] += 1.0 / max(row["batch_samples"], 1)
    return found


def losses(rows: Iterable[Row]) -> dict[tuple[Any, ...], tuple[int, int, str]]:
    """Lost, expected and how it is known, by pair; pairs of which nothing is known are missing."""
    streams: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Row]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        name = tuple(row[c] for c in ("origin_edge", "origin_incarnation", "stream"))
        streams[pair_of(row)][(*name, row["destination_edge"])].append(row)
    found = {}
    for pair, of_pair in streams.items():
        sampled = [
            row
            for stream in of_pair.values()
            for row in stream
            if row["selection"] == "sampled" and row["is_winner"]
        ]
        is_complete = sum(row["share"] for row in sampled) >= len(sampled)
        lost = expected = 0
        methods = set()
        for stream in of_pair.values():
            numbers = [
                row["number"]
                for row in stream
                if row["selection"] == "sampled" and row["is_winner"]
            ]
            if not numbers:
                continue
            counted = [
                row["lost_before"]
                for row in stream
                if row in sampled and row["lost_before"] is not None
            ]
            if counted:
                methods.add("counted")
                lost += max(counted) - min(counted)
            elif is_complete:
                methods.add("gaps")
                lost += max(0, max(numbers) - min(numbers) + 1 - len(numbers))
            else:
                continue
            expected += max(numbers) - min(numbers) + 1
        if methods:
            found[pair] = (lost, expected, max(methods))
    return found
