"""What a reader hands out becomes what a writer did, whatever DDS folded together: against a model
of a DDS reader cache, and against the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_broker.lifecycle import (
    ALIVE,
    DISPOSED,
    NO_WRITERS,
    Columns,
    Translator,
)
from gateway.tunnel.columns import DISPOSE, UNREGISTER, WRITE, WRITE_DISPOSE


@dataclass(frozen=True)
class Info:
    instance_state: int
    source_timestamp: int
    instance_handle: int
    valid_data: bool = True
    publication_handle: int = 1
    disposed_generation_count: int = 0
    no_writers_generation_count: int = 0


Entry = tuple[bytes, Info]


def key_of(sample: bytes) -> bytes:
    """Model samples are `key/number`."""
    return sample.partition(b"/")[0]


def translator(accepted: Sequence[int] = (1, 2)) -> Translator:
    return Translator(lambda handle: handle in accepted, key_of)


@dataclass
class Instance:
    """Of the model's cache."""

    handle: int
    state: int = ALIVE
    writers: set[int] = field(default_factory=set)
    generations: tuple[int, int] = (0, 0)
    samples: list[tuple[bytes, int, int, tuple[int, int]]] = field(default_factory=list)
    event: tuple[int, int] | None = None
    """Time and writer of a death no valid sample tells of."""


class Cache:
    """A KEEP_ALL DDS reader: what it hands out is what Cyclone DDS was seen to hand out."""

    def __init__(self, *, keeps_handles: bool) -> None:
        self._instances: dict[bytes, Instance] = {}
        self._handles = count(1)
        self._known: dict[bytes, int] = {}
        self._keeps_handles = keeps_handles

    def _instance(self, key: bytes) -> Instance:
        found = self._instances.get(key)
        if found is None:
            handle = self._known.get(key) if self._keeps_handles else None
            found = self._instances[key] = Instance(handle or next(self._handles))
            self._known[key] = found.handle
        return found

    def write(self, key: bytes, number: int, writer: int) -> None:
        instance = self._instance(key)
        disposed, unregistered = instance.generations
        disposed += instance.state == DISPOSED
        is_orphan = not instance.writers and instance.state != ALIVE
        instance.generations = disposed, unregistered + is_orphan
        instance.state = ALIVE
        instance.writers.add(writer)
        instance.samples.append((b"%b/%d" % (key, number), number, writer, instance.generations))
        instance.event = None

    def dispose(self, key: bytes, number: int, writer: int) -> None:
        is_new = key not in self._instances
        instance = self._instance(key)
        instance.writers.add(writer)
        if instance.state != DISPOSED or is_new:
            instance.state = DISPOSED
            if not instance.samples:
                instance.event = number, writer

    def unregister(self, key: bytes, number: int, writer: int) -> None:
        instance = self._instances.get(key)
        if instance is None or writer not in instance.writers:
            return
        instance.writers.discard(writer)
        if instance.writers:
            return
        if instance.state == ALIVE:
            instance.state = NO_WRITERS
            if not instance.samples:
                instance.event = number, writer
        self._purge(key)

    def take(self, most: int) -> list[Entry]:
        taken = self._take(most)
        if len(taken) == most and any(info.instance_state != ALIVE for _, info in taken):
            taken += self._take(1_000_000)
        return taken

    def _take(self, most: int) -> list[Entry]:
        taken: list[Entry] = []
        for key, instance in list(self._instances.items()):
            while instance.samples and len(taken) < most:
                data, time, writer, (disposed, unregistered) = instance.samples.pop(0)
                state, handle = instance.state, instance.handle
                taken.append(
                    (data, Info(state, time, handle, True, writer, disposed, unregistered))
                )
            if instance.event is not None and len(taken) < most:
                time, writer = instance.event
                instance.event = None
                taken.append(
                    (
                        key,
                        Info(
                            instance.state,
                            time,
                            instance.handle,
                            False,
                            writer,
                            *instance.generations,
                        ),
                    )
                )
            self._purge(key)
        return taken

    def _purge(self, key: bytes) -> None:
        instance = self._instances[key]
        if not (instance.writers or instance.samples or instance.event):
            del self._instances[key]


class Fate:
    """What an observer who misses nothing sees of one instance."""

    def __init__(self) -> None:
        self.state = 0
        self.samples: list[tuple[bytes, bool]] = []
        """Each with whether the instance had died before it."""
        self.writers: set[int] = set()

    def apply(self, kind: int, sample: bytes, writer: int = 0) -> None:
        if kind in (WRITE, WRITE_DISPOSE):
            self.samples.append((sample, self.state in (DISPOSED, NO_WRITERS)))
            self.state = ALIVE
        if kind in (DISPOSE, WRITE_DISPOSE):
            self.state = DISPOSED
        if kind == UNREGISTER:
            self.writers.discard(writer)
            if self.state == ALIVE and not self.writers:
                self.state = NO_WRITERS
        else:
            self.writers.add(writer)


def fates_of(columns: Sequence[Columns]) -> dict[bytes, Fate]:
    fates: dict[bytes, Fate] = {}
    for each in columns:
        kinds = each.kinds or bytes(len(each.samples))
        for sample, kind in zip(each.samples, kinds, strict=True):
            fates.setdefault(key_of(sample), Fate()).apply(kind, sample)
    return fates


OPERATIONS = {"w": WRITE, "d": DISPOSE, "u": UNREGISTER}

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("wwdu"), st.integers(0, 2), st.integers(1, 2)),
        st.tuples(st.just("t"), st.sampled_from([1, 2, 3, 100]), st.just(0)),
    ),
    max_size=40,
)


def script(text: str, most: int = 100) -> list[tuple[str, int, int]]:
    """`wd` on instance 0 by writer 1; `t` takes."""
    return [(step, most if step == "t" else 0, 0 if step == "t" else 1) for step in text]


@settings(max_examples=500)
@given(steps, st.booleans(), st.booleans())
@example(script("wdwdt"), False, False)
@example(script("wtdwtdwt"), False, False)
@example(script("wtuwtuwt"), False, False)
@example(script("wtduwtduwt"), False, False)
@example(script("wdutwtdwt"), False, True)
# Reborn, forgotten, back under its old handle beside another that dies, and dies unseen:
@example([*script("wtdwtutw"), ("w", 1, 1), ("d", 1, 1), *script("tdwt")], True, True)
def test_nothing_is_folded_away(
    steps: list[tuple[str, int, int]], has_one_writer: bool, keeps_handles: bool
) -> None:
    cache, translate = Cache(keeps_handles=keeps_handles), translator().translate
    truth: dict[bytes, Fate] = {}
    out: list[Columns] = []
    for number, (step, which, writer) in enumerate([*steps, ("t", 1_000_000, 0)]):
        if step == "t":
            out.append(translate(cache.take(which)))
            continue
        key, by = b"%d" % which, 1 if has_one_writer else writer
        {"w": cache.write, "d": cache.dispose, "u": cache.unregister}[step](key, number, by)
        if step == "u" and key not in truth:
            continue
        sample = b"%b/%d" % (key, number) if step == "w" else key
        truth.setdefault(key, Fate()).apply(OPERATIONS[step], sample, by)
    fates = fates_of(out)
    assert {k: (f.state, f.samples) for k, f in fates.items()} == {
        k: (f.state, f.samples) for k, f in truth.items()
    }
    for columns in out:
        assert len(columns.timestamps) == len(columns.samples) == len(columns.instances)
        assert len(columns.kinds) in (0, len(columns.samples))
        if has_one_writer:
            assert list(columns.timestamps) == sorted(columns.timestamps)


def test_a_dispose_is_no_unregister() -> None:
    translate = translator().translate
    disposed = translate([(b"a/1", Info(DISPOSED, 1, 1)), (b"b", Info(DISPOSED, 2, 2, False))])
    assert list(disposed.kinds) == [WRITE_DISPOSE, DISPOSE]
    assert list(disposed.samples) == [b"a/1", b"b"]
    left = translate([(b"c/1", Info(NO_WRITERS, 1, 3)), (b"d", Info(NO_WRITERS, 2, 4, False))])
    assert list(left.kinds) == [WRITE, UNREGISTER, UNREGISTER]
    assert list(left.samples) == [b"c/1", b"c", b"d"]


def test_only_the_last_sample_of_a_dead_instance_dies() -> None:
    taken = [(b"a/%d" % n, Info(DISPOSED, n, 1)) for n in range(3)]
    assert list(translator().translate(taken).kinds) == [WRITE, WRITE, WRITE_DISPOSE]


def test_plain_writes_have_no_kinds() -> None:
    columns = translator().translate([(b"a/1", Info(ALIVE, 1, 1)), (b"b/2", Info(ALIVE, 2, 2))])
    assert columns.kinds == b""
    empty = translator().translate([])
    assert (list(empty.samples), empty.kinds) == ([], b"")


def test_rejected_publications_leave_no_trace() -> None:
    taken = [
        (b"a/1", Info(ALIVE, 1, 1, publication_handle=7)),
        (b"b/2", Info(ALIVE, 2, 2)),
        (b"a/3", Info(DISPOSED, 3, 3, publication_handle=7)),
        (b"d", Info(DISPOSED, 4, 4, False, publication_handle=7)),
    ]
    columns = translator([1]).translate(taken)
    assert (list(columns.samples), columns.kinds) == ([b"b/2"], b"")
    assert list(columns.timestamps) == [2]


def test_one_writer_is_put_back_in_order_across_instances() -> None:
    taken = [(b"a/1", Info(ALIVE, 1, 1)), (b"a/3", Info(ALIVE, 3, 1)), (b"b/2", Info(ALIVE, 2, 2))]
    columns = translator().translate(taken)
    assert list(columns.samples) == [b"a/1", b"b/2", b"a/3"]
    assert list(columns.instances) == [1, 2, 1]


def test_clocks_of_several_writers_are_not_compared() -> None:
    taken = [
        (b"a/1", Info(ALIVE, 100, 1)),
        (b"b/2", Info(ALIVE, 5, 2, publication_handle=2)),
    ]
    assert list(translator().translate(taken).samples) == [b"a/1", b"b/2"]


@pytest.mark.parametrize("state", [ALIVE, DISPOSED])
def test_a_writer_that_sets_its_clock_back_keeps_its_order(state: int) -> None:
    """A subscriber of the same LAN gets an instance's samples as they were written."""
    taken = [
        (b"a/1", Info(state, 10, 1)),
        (b"a/2", Info(state, 3, 1)),
        (b"a/3", Info(state, 12, 1)),
        (b"b/4", Info(ALIVE, 11, 2)),
    ]
    columns = translator().translate(taken)
    assert [s for s in columns.samples if s != b"b/4"] == [b"a/1", b"a/2", b"a/3"]
    assert list(columns.samples).index(b"b/4") == 2


def test_memory_of_the_dead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_broker.lifecycle._MOST_REBORN_INSTANCES", 10)
    under_test = translator()
    for handle in range(1000):
        under_test.translate([(b"a/1", Info(DISPOSED, 1, handle))])
        under_test.translate([(b"a/1", Info(ALIVE, 2, -handle - 1, disposed_generation_count=1))])
    assert len(under_test._dead) <= 10
    assert len(under_test._generations) <= 10
