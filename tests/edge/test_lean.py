"""Samples in one piece of memory (lean.c) are what the binding would have made of them: contract
with the version of Cyclone DDS whose memory it knows.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import pytest
from cyclonedds.domain import DomainParticipant

from edge_broker.dds import native, samples
from tests.apps.samples import MAKERS, Named
from tests.edge.parts import (
    FAR,
    NEAR,
    Keyed,
    Machine,
    Pair,
    Plain,
    batch_of,
    gather,
    never,
    take,
    until,
    write,
)

pytestmark = pytest.mark.dds

HEADER = b"\0\1\0\0"
BIG_ENDIAN_HEADER = b"\0\0\0\0"
POOLED_BYTES = (320, 1536)
"""Sizes of pieces that are used again, as in lean.c; a sample of 150 bytes less fits."""


def plain(index: int, size: int) -> bytes:
    octets = bytes((index + at) % 251 for at in range(min(size, 200)))
    return HEADER + struct.pack("<II", index, size) + octets.ljust(size, b"\7")


def padded(sample: bytes) -> bytes:
    """As DDS sends it; nothing of other samples is in there."""
    return sample.ljust((len(sample) + 3) // 4 * 4, b"\0")


def write_all(writer: int, data: Sequence[bytes], first: int = 1) -> None:
    """However often the writer's history is full."""
    batch = batch_of(data, list(range(first, first + len(data))))
    done = 0

    def is_done() -> bool:
        nonlocal done
        done = samples.write(writer, batch, done, never)
        return done == len(data)

    until(is_done)


def test_it_is_in_force() -> None:
    assert samples.IS_LEAN


def test_samples_of_all_sizes_arrive_as_they_were(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """Small ones, those about the sizes of pieces, and some in many fragments."""
    pair = Pair(far, near, Plain)
    about = chain.from_iterable(range(size - 170, size - 90) for size in POOLED_BYTES)
    sizes = [*range(40), *about, 70_000, 3_000_000, 200_001]
    sent = [plain(index % 50, size) for index, size in enumerate(sizes)]
    write_all(pair.writer._ref, sent)
    got = gather(pair.reader._ref, len(sent))
    assert [padded(data) for data, _ in got] == list(map(padded, sent))


def test_pieces_are_used_again_by_several_threads(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    """Made in some and freed in others, at the same time: nothing is mixed up."""
    pairs = [Pair(far, near, Plain) for _ in range(3)]
    rounds, most = 40, 100
    sent: list[list[bytes]] = [[] for _ in pairs]

    def publish(pair: Pair, into: list[bytes], seed: int) -> None:
        draw = random.Random(seed)
        for turn in range(rounds):
            sizes = [draw.choice((8, 60, 300, 1300, 5000)) for _ in range(most)]
            data = [plain(draw.randrange(50), size) for size in sizes]
            write_all(pair.writer._ref, data, turn * most + 1)
            into.extend(data)

    threads = [
        threading.Thread(target=publish, args=(pair, into, seed))
        for seed, (pair, into) in enumerate(zip(pairs, sent, strict=True))
    ]
    for thread in threads:
        thread.start()
    got = [gather(pair.reader._ref, rounds * most) for pair in pairs]
    for thread in threads:
        thread.join()
    assert [[data for data, _ in each] for each in got] == [
        list(map(padded, data)) for data in sent
    ]


def test_other_byte_orders_become_this_one(near: DomainParticipant, far: DomainParticipant) -> None:
    pair = Pair(far, near, Keyed)
    write(pair.writer._ref, BIG_ENDIAN_HEADER + struct.pack(">IiIBB", 7, -5, 2, 1, 2), 1)
    write(pair.writer._ref, HEADER + struct.pack("<IiIBB", 8, -5, 2, 3, 4), 2)
    (one, of_one), (other, of_other) = gather(pair.reader._ref, 2)
    assert one == padded(HEADER + struct.pack("<IiIBB", 7, -5, 2, 1, 2))
    assert other == padded(HEADER + struct.pack("<IiIBB", 8, -5, 2, 3, 4))
    assert of_one.instance_handle == of_other.instance_handle


@pytest.mark.parametrize("size", [0, 1, 20, 24, 25, 30, 250, 260, 5000])
def test_keys_of_any_size_are_told_apart_and_can_be_disposed(
    near: DomainParticipant, far: DomainParticipant, size: int
) -> None:
    pair = Pair(far, near, Named)
    keys = [named_key("x" * size + end, unit) for end in ("", "y") for unit in (1, 2)]
    data = [padded(HEADER + key) + struct.pack("<I", 3) for key in keys]
    write_all(pair.writer._ref, data * 2)
    found = Counter(info.instance_handle for _, info in gather(pair.reader._ref, 2 * len(keys)))
    assert list(found.values()) == [2] * len(keys)
    pair.writer.dispose(Named("x" * size, 2, 0))
    pair.settle()
    ((key, info),) = take(pair.reader._ref)
    assert info.instance_state == native.INSTANCE_DISPOSED
    assert not info.valid_data
    assert key == HEADER + keys[1]


def named_key(name: str, unit: int) -> bytes:
    octets = name.encode() + b"\0"
    aligned = octets.ljust((len(octets) + 1) // 2 * 2, b"\0")
    return struct.pack("<I", len(octets)) + aligned + struct.pack("<h", unit)


def test_thousands_of_instances_are_told_apart(
    near: DomainParticipant, far: DomainParticipant
) -> None:
    pair = Pair(far, near, Keyed)
    count = 5000
    ids = [index * 65_536 % 2**31 + index // 32_768 for index in range(count)]
    write_all(pair.writer._ref, [HEADER + struct.pack("<IiI", 1, each, 0) for each in ids])
    got = gather(pair.reader._ref, count)
    assert len({info.instance_handle for _, info in got}) == count


def test_what_is_malformed_is_refused(near: DomainParticipant, far: DomainParticipant) -> None:
    """And harms nobody: too short for its header, for its numbers, for what it announces."""
    pair = Pair(far, near, Keyed)
    sound = HEADER + struct.pack("<IiI", 1, 2, 0)
    bad = [sound[:size] for size in range(len(sound))]
    bad.append(HEADER + struct.pack("<IiI", 1, 2, 2**32 - 1))
    bad.append(HEADER + struct.pack("<IiI", 1, 2, 1))
    codes: list[int] = []
    batch = batch_of([*bad, sound], list(range(1, len(bad) + 2)))
    assert samples.write(pair.writer._ref, batch, 0, codes.append) == len(bad) + 1
    assert codes == [native.RETCODE_BAD_PARAMETER] * len(bad)
    ((data, _),) = gather(pair.reader._ref, 1)
    assert data == sound


_TELL = """
import sys
from importlib import metadata
if sys.argv[1] == "binding":
    metadata.version = lambda _: "another"
from edge_broker.dds import samples
assert samples.IS_LEAN == (sys.argv[1] == "lean")
from tests.edge.test_lean import everything
print(everything())
"""


def everything() -> list[object]:
    """What an edge gets of samples of all types, with keys and without."""
    lan = uuid.uuid4().hex
    near, far = Machine(NEAR, lan), Machine(FAR, lan)
    found: list[object] = []
    for name, (type_, make) in MAKERS.items():
        pair = Pair(far.participant, near.participant, type_)
        values = [make(index, index * 7, index % 5) for index in range(40)]
        for time, value in enumerate(values, 1):
            pair.writer.write(value, time)
        pair.writer.dispose(values[0], 41)
        pair.writer.unregister_instance(values[1], 42)
        pair.settle()
        got = take(pair.reader._ref)
        places = {handle: at for at, handle in enumerate(_handles(got))}
        rows = [
            (data.hex(), places[info.instance_handle], *info[:4], info.source_timestamp)
            for data, info in got
        ]
        found.append((name, rows))
    far.close()
    near.close()
    return found


def _handles(taken: Sequence[tuple[bytes, native.SampleInfo]]) -> dict[int, None]:
    """Of instances, each once, in the order they came."""
    return {info.instance_handle: None for _, info in sorted(taken, key=_time)}


def _time(entry: tuple[bytes, native.SampleInfo]) -> int:
    return entry[1].source_timestamp


def test_all_is_as_the_binding_makes_it() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", _TELL, by],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for by in ("binding", "lean")
    ]
    assert told[0] == told[1]
    assert all(name in told[0] for name in MAKERS)
