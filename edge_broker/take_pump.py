"""Whose turn it is to be taken from: outflows that have data and may send, one take each a turn;
floods are let come together, and so are topics whose samples wait for company. Owned by ingress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from edge_broker.dds.domain import LanDomain, Port
from edge_broker.feed import Feed
from edge_broker.outflow import Outflow
from edge_broker.pace import REST_S, Flood, Pace
from edge_broker.source import ReaderSource, ReplaySource

_COLLECT_S = 0.002
_MOST_COLLECTS = 12
_FLOW_SAMPLES = 8
"""A topic that gives fewer at once is no part of a flood."""


class TakePump:
    """The outflows that may have data."""

    def __init__(
        self,
        domain: LanDomain,
        clock: Callable[[], float],
        readers: Mapping[int, Feed],
        on_replayed: Callable[[Outflow], None],
    ) -> None:
        """`readers` are the open ones. `on_replayed` is told of a replay that has no more."""
        self._domain = domain
        self._clock = clock
        self._readers = readers
        self._on_replayed = on_replayed
        self._ready: dict[int, Outflow] = {}
        self._collecting: set[int] = set()
        """Readers whose flood is let come together."""
        self._waiting: dict[int, Outflow] = {}
        """Outflows whose samples wait for company; none of them is ready."""
        self._resting: dict[int, Port] = {}
        """Their readers, though they may be other outflows' by now."""
        self._departure: asyncio.TimerHandle | None = None
        """When the first of these must go; the others go with it."""
        self._due: set[int] = set()
        """Outflows whose samples have waited, and are still to be taken."""
        self._is_patient = True
        self._is_scheduled = False
        self._pace = Pace()
        self._flood = Flood()

    def add(self, outflow: Outflow) -> None:
        """It may have data."""
        if outflow.key.number not in self._waiting:
            self._ready[outflow.key.number] = outflow

    def discard(self, outflow: Outflow) -> None:
        number = outflow.key.number
        self._ready.pop(number, None)
        self._waiting.pop(number, None)
        self._due.discard(number)

    def __contains__(self, outflow: Outflow) -> bool:
        """Whether it may still have data."""
        return outflow.key.number in self._ready or outflow.key.number in self._waiting

    def hurry(self) -> None:
        """From now on nothing waits for company."""
        self._is_patient = False
        if self._departure is not None:
            self._departure.cancel()
            self._depart()

    def wake(self) -> None:
        """Something that may have held an outflow back has changed."""
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> None:
        """One turn for each outflow that has data and may send. While any can go on, the DDS
        wait thread rests: its news would change nothing."""
        self._is_scheduled = False
        now_s = self._clock()
        can_go_on = False
        emptied: list[tuple[Outflow, Port]] = []
        trickling = 0
        for number, outflow in list(self._ready.items()):
            if self._is_collecting(outflow) or outflow.is_blocked(now_s):
                continue
            if self._should_wait(outflow):
                self._let_wait(outflow)
                continue
            self._due.discard(number)
            if outflow.forward(now_s):
                can_go_on = True
            elif (
                outflow.last_count >= _FLOW_SAMPLES
                and isinstance(outflow.source, ReaderSource)
                and not outflow.patience_s  # it comes together by waiting
            ):
                emptied.append((outflow, outflow.source.reader))
            else:
                trickling += outflow.last_count > 0
                del self._ready[number]
                if isinstance(outflow.source, ReplaySource):
                    self._on_replayed(outflow)
        self._collect(emptied, now_s)
        if can_go_on or self._collecting:
            self._pace.forget()
            trickling = 0
        if can_go_on:
            self.wake()
        elif trickling and self._pace.should_rest(now_s, trickling):
            self._domain.wait_again(after_s=REST_S)
        else:
            self._domain.wait_again()

    def _should_wait(self, outflow: Outflow) -> bool:
        """Once for each sample: neither what a take has left nor what could not go then."""
        return bool(
            outflow.patience_s
            and self._is_patient
            and not outflow.has_more
            and outflow.key.number not in self._due
        )

    def _let_wait(self, outflow: Outflow) -> None:
        """Its samples travel with those of others that come soon: see plan/path_patience.py."""
        assert isinstance(outflow.source, ReaderSource)
        reader = outflow.source.reader
        self._waiting[outflow.key.number] = self._ready.pop(outflow.key.number)
        self._resting[reader.ref] = reader
        self._domain.ignore_reader(reader)
        loop = asyncio.get_running_loop()
        due_s = loop.time() + outflow.patience_s
        if self._departure is None or due_s < self._departure.when():
            if self._departure is not None:
                self._departure.cancel()
            self._departure = loop.call_at(due_s, self._depart)

    def _depart(self) -> None:
        """All that wait go."""
        self._departure = None
        waiting, self._waiting = self._waiting, {}
        resting, self._resting = self._resting, {}
        self._ready |= waiting
        self._due |= waiting.keys()
        links = {link for outflow in waiting.values() for link in outflow.last_links}
        for link in links:
            link.gather(True)
        try:
            self.run()
        finally:
            for link in links:
                link.gather(False)
            self._heed(resting.values())

    def _is_collecting(self, outflow: Outflow) -> bool:
        source = outflow.source
        return isinstance(source, ReaderSource) and (
            source.reader.ref in self._collecting or source.reader.ref in self._resting
        )

    def _collect(self, emptied: list[tuple[Outflow, Port]], now_s: float) -> None:
        """Lets the samples of a flood, in one topic or in many at once, come together for a moment:
        small batches would cost every stage behind this one more than the wait. A trickle is never
        made to wait."""
        if not emptied:
            return
        samples = sum(outflow.last_count for outflow, _ in emptied)
        size = sum(outflow.last_bytes for outflow, _ in emptied)
        if not self._flood.has(now_s, samples, size):
            for outflow, _ in emptied:
                del self._ready[outflow.key.number]
            return
        flooding = len(self._collecting) + len(emptied)
        pause_s = _COLLECT_S * min(max(1.0, flooding / 2), _MOST_COLLECTS)
        for _, reader in emptied:
            self._collecting.add(reader.ref)
            self._domain.ignore_reader(reader)
        asyncio.get_running_loop().call_later(
            pause_s, self._end_collecting, [reader for _, reader in emptied]
        )

    def _end_collecting(self, readers: list[Port]) -> None:
        self._collecting.difference_update(reader.ref for reader in readers)
        self.run()
        self._heed(readers)

    def _heed(self, readers: Iterable[Port]) -> None:
        """Those that are still there, and do not rest again."""
        for reader in readers:
            is_away = reader.ref in self._collecting or reader.ref in self._resting
            if not is_away and reader.ref in self._readers:
                self._domain.heed_reader(reader)
