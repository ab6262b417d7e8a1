"""From what a DDS reader hands out to what travels: samples with a time and a kind. Restores the
disposes and unregisters that DDS folds into the state of valid samples. Pure apart from asking
the reader's type for a key; called by ingress for every take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.tunnel.columns import DISPOSE, UNREGISTER, WRITE, WRITE_DISPOSE

ALIVE = 16
DISPOSED = 32
NO_WRITERS = 64
"""Instance states as DDS numbers them."""

_MOST_REBORN_INSTANCES = 65_536


class SampleInfo(Protocol):
    """The part of DDS's sample information that matters here."""

    @property
    def instance_state(self) -> int: ...
    @property
    def valid_data(self) -> int: ...
    @property
    def source_timestamp(self) -> int: ...
    @property
    def instance_handle(self) -> int: ...
    @property
    def publication_handle(self) -> int: ...
    @property
    def disposed_generation_count(self) -> int: ...
    @property
    def no_writers_generation_count(self) -> int: ...


@dataclass(slots=True)
class Columns:
    """Samples column by column. `kinds` is empty when all are WRITE; `instances` may be empty
    when nobody asked for them."""

    timestamps: Sequence[int]
    samples: Sequence[bytes]
    kinds: bytes
    instances: Sequence[int]


class Translator:
    """Remembers, of instances that died and were reborn, how often: a rebirth nobody reported
    between two takes means that a dispose or unregister was folded away."""

    def __init__(
        self,
        is_accepted: Callable[[int], bool],
        key_sample: Callable[[bytes], bytes],
    ) -> None:
        """`is_accepted` says whether samples of a publication handle belong here; `key_sample`
        makes from a full sample the key-only one a dispose wants."""
        self._is_accepted = is_accepted
        self._key_sample = key_sample
        self._generations: dict[int, tuple[int, int]] = {}
        self._dead: set[int] = set()

    @property
    def has_memory(self) -> bool:
        """Whether the past of some instance matters for what comes."""
        return bool(self._dead or self._generations)

    def translate(self, taken: Sequence[tuple[bytes, SampleInfo]]) -> Columns:
        """What to send for these samples, which are all the reader had of each instance that is
        not alive."""
        # One pass over the common case: everything alive, valid and never reborn.
        shapes = {
            (
                info.publication_handle,
                info.instance_state,
                info.valid_data,
                info.disposed_generation_count,
                info.no_writers_generation_count,
            )
            for _, info in taken
        }
        accepted = {shape[0] for shape in shapes if self._is_accepted(shape[0])}
        if len(accepted) < len({shape[0] for shape in shapes}):
            taken = [entry for entry in taken if entry[1].publication_handle in accepted]
        if all(shape[1:] == (ALIVE, True, 0, 0) for shape in shapes):
            timestamps = [info.source_timestamp for _, info in taken]
            columns = Columns(
                timestamps,
                [data for data, _ in taken],
                b"",
                [info.instance_handle for _, info in taken],
            )
            if self._dead or self._generations:
                self._forget(columns.instances)
            # DDS hands out instance by instance; one writer's own order is that of its clock.
            if len(accepted) == 1 and timestamps != sorted(timestamps):
                _sort(columns)
            return columns
        columns = self._translate_lifecycle(taken)
        if len(accepted) == 1:
            _sort(columns)
        return columns

    def _translate_lifecycle(self, taken: Sequence[tuple[bytes, SampleInfo]]) -> Columns:
        following: dict[int, SampleInfo] = {}
        has_next: list[SampleInfo | None] = [None] * len(taken)
        for index in range(len(taken) - 1, -1, -1):
            info = taken[index][1]
            has_next[index] = following.get(info.instance_handle)
            following[info.instance_handle] = info
        out = _Writer()
        for (data, info), after in zip(taken, has_next, strict=True):
            instance = info.instance_handle
            if not info.valid_data:
                self._translate_event(out, data, info)
                continue
            self._catch_up(out, data, info)
            kind, is_unregistered = WRITE, False
            died = _death_between(info, after)
            if died == DISPOSED:
                kind = WRITE_DISPOSE
            elif died == NO_WRITERS:
                is_unregistered = True
            out.add(info, data, kind)
            if is_unregistered:
                out.add(info, self._key_sample(data), UNREGISTER)
            self._remember(instance, info, is_dead=died != 0)
        return out.columns()

    def _translate_event(self, out: _Writer, key: bytes, info: SampleInfo) -> None:
        instance = info.instance_handle
        if info.instance_state == ALIVE:
            return
        kind = DISPOSE if info.instance_state == DISPOSED else UNREGISTER
        out.add(info, key, kind)
        self._remember(instance, info, is_dead=True)

    def _catch_up(self, out: _Writer, data: bytes, info: SampleInfo) -> None:
        """A rebirth since the last take whose death was never reported."""
        instance = info.instance_handle
        disposed, unregistered = self._generations.get(instance, (0, 0))
        if instance in self._dead:
            return
        if info.disposed_generation_count > disposed:
            out.add(info, self._key_sample(data), DISPOSE)
        elif info.no_writers_generation_count > unregistered:
            out.add(info, self._key_sample(data), UNREGISTER)

    def _remember(self, instance: int, info: SampleInfo, *, is_dead: bool) -> None:
        generations = (info.disposed_generation_count, info.no_writers_generation_count)
        if generations == (0, 0):  # perhaps from zero again: DDS had forgotten the instance
            self._generations.pop(instance, None)
        else:
            self._generations[instance] = generations
            if len(self._generations) > _MOST_REBORN_INSTANCES:
                del self._generations[next(iter(self._generations))]
        if is_dead:
            self._dead.add(instance)
            if len(self._dead) > _MOST_REBORN_INSTANCES:
                self._dead.pop()
        else:
            self._dead.discard(instance)

    def _forget(self, instances: Sequence[int]) -> None:
        """These count from zero again: DDS had forgotten them altogether."""
        self._dead.difference_update(instances)
        for instance in self._generations.keys() & set(instances):
            del self._generations[instance]


def _death_between(info: SampleInfo, after: SampleInfo | None) -> int:
    """The state the instance went through between this sample and the next of the same instance
    (or now, when there is none) without an event of its own; 0 when it lived on."""
    if after is None:
        return 0 if info.instance_state == ALIVE else info.instance_state
    if after.disposed_generation_count > info.disposed_generation_count:
        return DISPOSED
    if after.no_writers_generation_count > info.no_writers_generation_count:
        return NO_WRITERS
    return 0


class _Writer:
    """Collects translated samples."""

    def __init__(self) -> None:
        self._timestamps: list[int] = []
        self._samples: list[bytes] = []
        self._kinds = bytearray()
        self._instances: list[int] = []

    def add(self, info: SampleInfo, data: bytes, kind: int) -> None:
        self._timestamps.append(info.source_timestamp)
        self._samples.append(data)
        self._kinds.append(kind)
        self._instances.append(info.instance_handle)

    def columns(self) -> Columns:
        kinds = bytes(self._kinds) if any(self._kinds) else b""
        return Columns(self._timestamps, self._samples, kinds, self._instances)


def _sort(columns: Columns) -> None:
    """By time; samples of equal time keep their order, and so do those of one instance, even if
    their writer set its clock back."""
    latest: dict[int, int] = {}
    times: list[int] = []
    for instance, timestamp in zip(columns.instances, columns.timestamps, strict=True):
        latest[instance] = time = max(timestamp, latest.get(instance, timestamp))
        times.append(time)
    order = sorted(range(len(times)), key=times.__getitem__)
    columns.timestamps = [columns.timestamps[i] for i in order]
    columns.samples = [columns.samples[i] for i in order]
    columns.instances = [columns.instances[i] for i in order]
    if columns.kinds:
        columns.kinds = bytes(columns.kinds[i] for i in order)


def divide(columns: Columns, most: int) -> tuple[Columns, Columns | None]:
    """The first `most` samples and the others; None: there are none."""
    if len(columns.samples) <= most:
        return columns, None
    return _part(columns, slice(most)), _part(columns, slice(most, None))


def _part(columns: Columns, part: slice) -> Columns:
    kinds = columns.kinds[part]
    return Columns(
        columns.timestamps[part],
        columns.samples[part],
        kinds if any(kinds) else b"",
        columns.instances[part],
    )
