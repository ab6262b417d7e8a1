"""What the leading router does: plans assignments from the whole fabric's view and writes them,
fenced by its epoch. Started by the router's app and idle while another router leads; decides
nothing itself (gateway/plan) and carries no samples.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gateway.coordination import assignments
from gateway.coordination.election import Election, Leadership
from gateway.coordination.nodes import SessionState
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper, together
from gateway.errors import CoordinationError, CoordinationLost
from gateway.model import Assignment, FabricView, TopicView
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.assignment import (
    Cause,
    Change,
    Rebalancing,
    empty_since,
    plan_assignments,
    plan_deletions,
)
from gateway.plan.strategies import Strategy, TopicRates
from routing_broker.adviser import Adviser

log = get_logger("router.leader")

_TICK_S = 1.0
_FIRST_RETRY_S = 0.2
_LAST_RETRY_S = 5.0
_MOST_DELETIONS = 50
"""In one pass: nothing is assigned meanwhile."""
_TRUST_WRITTEN_S = 5.0
"""How long our own write outranks an older view; the watch normally takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the leader waits before it acts on what it sees."""

    empty_grace_s: float = 5.0
    """Before a topic nobody uses is deleted: applications restart."""
    assembly_s: float = 5.0
    """After our own session began, before we believe that a router named in an assignment is gone:
    after an outage of ZooKeeper everybody comes back, but not at once. Attempts to connect are a
    second apart, and one that is not answered is given up after two."""
    rebalance_interval_s: float = 30.0
    """Between two voluntary rounds of moves, and before the first one of a term."""


@dataclass(slots=True)
class _Term:
    """What a leader remembers; nothing of it outlives its leadership."""

    leadership: Leadership
    rebalanced_s: float
    rates: TopicRates = field(default_factory=TopicRates)
    unused: dict[str, float] = field(default_factory=dict)
    written: dict[str, tuple[float, int, Assignment]] = field(default_factory=dict)
    """By topic: when, node version and content of what we wrote and the view may not show yet."""
    unserved: int = 0


class Leader:
    def __init__(
        self,
        zk: ZooKeeper,
        election: Election,
        watcher: FabricWatcher,
        *,
        strategy: Strategy,
        rebalancing: Rebalancing,
        metrics: BrokerMetrics,
        patience: Patience | None = None,
        adviser: Adviser | None = None,
    ) -> None:
        self._adviser = adviser
        self._zk = zk
        self._election = election
        self._watcher = watcher
        self._strategy = strategy
        self._rebalancing = rebalancing
        self._metrics = metrics
        self._patience = patience or Patience()
        self._wake = asyncio.Event()
        self._term: _Term | None = None
        self._session: int | None = None
        self._session_since_s = 0.0
        self._shown_routers: set[str] = set()
        self._refusals = 0
        self._retry_s = _FIRST_RETRY_S
        """After the next refusal, unless there is news before; grows with each in a row."""

    @property
    def is_leading(self) -> bool:
        return self._term is not None

    @property
    def unserved(self) -> int:
        """Topics in use for which there is no router."""
        return self._term.unserved if self._term is not None else 0

    async def run(self) -> None:
        """Leads whenever this router is elected, until cancelled."""
        self._election.on_change(lambda _: self._wake.set())
        self._watcher.on_change(lambda _: self._wake.set())
        unsubscribe = self._zk.subscribe(self._on_session)
        self._on_session(self._zk.state)
        try:
            while True:
                await self._news(_TICK_S)  # or none: grace periods end without anybody waking us
                self._wake.clear()
                await self._converge()
        finally:
            unsubscribe()
            self._end_term()

    async def _news(self, at_most_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._wake.wait()

    def _on_session(self, _: SessionState) -> None:
        if self._session != self._zk.session_id:
            self._session = self._zk.session_id
            self._session_since_s = time.monotonic()

    async def _converge(self) -> None:
        leadership = self._election.leadership
        if leadership is None or (self._term is not None and self._term.leadership != leadership):
            self._end_term()
        if leadership is None:
            return
        try:
            term = self._term
            if term is None:
                term = await self._begin_term(leadership)
            refusals = self._refusals
            await self._plan_and_write(term)
            if self._refusals == refusals:
                self._retry_s = _FIRST_RETRY_S
        except CoordinationLost as error:
            # Nothing to do: the election tells whether we still lead once we are connected again.
            log.warning(
                "assignments wait for ZooKeeper; they are planned again then", reason=str(error)
            )
        except CoordinationError as error:
            log.warning("assignments were refused; reading again", reason=str(error))
            await self._reread()

    async def _begin_term(self, leadership: Leadership) -> _Term:
        # A plan made from an incomplete view would move topics of routers that are alive.
        self._watcher.follow(None)
        await self._watcher.refresh()
        now_s = time.monotonic()
        self._term = term = _Term(leadership, rebalanced_s=now_s)
        self._metrics.is_leader.set(1)
        self._metrics.leader_epoch.set(leadership.epoch)
        log.info("leading", epoch=leadership.epoch, topics=len(self._watcher.view.topics))
        return term

    def _end_term(self) -> None:
        if self._term is None:
            return
        log.info("no longer leading", epoch=self._term.leadership.epoch)
        self._term = None
        self._watcher.follow(frozenset())
        self._metrics.is_leader.set(0)
        self._metrics.unassigned_topics.set(0)
        self._show_assignments({})

    async def _plan_and_write(self, term: _Term) -> None:
        now_s = time.monotonic()
        view = _as_written(self._watcher.view, term.written, now_s)
        term.rates.observe(view, now_s)
        is_assembling = now_s - self._session_since_s < self._patience.assembly_s
        if is_assembling and _has_missing_router(view):
            return
        is_due = now_s - term.rebalanced_s >= self._patience.rebalance_interval_s
        plan = plan_assignments(
            view,
            self._strategy,
            epoch=term.leadership.epoch,
            rates=term.rates.known,
            rebalancing=self._rebalancing if is_due else None,
        )
        self._report_unserved(term, len(plan.unserved))
        if plan.changes:
            await self._write(term, plan.changes, now_s)
            view = _as_written(view, term.written, now_s)
        self._show_assignments(view.topics)
        await self._delete_unused(term, view, now_s)
        if self._adviser is not None:
            await self._adviser.converge(term.leadership, view, now_s)

    async def _write(self, term: _Term, changes: tuple[Change, ...], now_s: float) -> None:
        done = await assignments.write(
            self._zk,
            self._zk.paths,
            term.leadership,
            [(change.topic, change.after, change.version) for change in changes],
        )
        for change in changes:
            if change.topic not in done:
                continue
            term.written[change.topic] = (now_s, change.version + 1, change.after)
            if change.why is Cause.REBALANCING:
                term.rebalanced_s = now_s
            if change.is_move:
                self._metrics.moves.labels(change.why.value).inc()
            log.info("assignment changed", **_fields(change))
        if len(done) < len(changes):
            log.warning("topics changed meanwhile; reading again", topics=len(changes) - len(done))
            await self._reread()

    async def _delete_unused(self, term: _Term, view: FabricView, now_s: float) -> None:
        term.unused = empty_since(view, term.unused, now_s)
        due = plan_deletions(term.unused, now_s, self._patience.empty_grace_s)
        if len(due) > _MOST_DELETIONS:
            due = due[:_MOST_DELETIONS]
            self._wake.set()
        deleted = await together(
            assignments.delete_topic(self._zk, self._zk.paths, term.leadership, topic)
            for topic in due
        )
        for topic, is_deleted in zip(due, deleted, strict=True):
            # The view shows the end, or that somebody has begun to use it, only later.
            term.unused[topic] = now_s
            if is_deleted:
                term.written.pop(topic, None)
                log.info("topic deleted, nobody uses it", topic=topic)

    async def _reread(self) -> None:
        """After a refusal the view is older than the tree: read all of it and plan again. What is
        refused may stay so: then less and less often, but news of others does not wait for that."""
        self._refusals += 1
        if self._term is not None:
            self._term.written.clear()
        await asyncio.sleep(_FIRST_RETRY_S)
        await self._news(self._retry_s - _FIRST_RETRY_S)
        self._retry_s = min(_LAST_RETRY_S, 2 * self._retry_s)
        try:
            await self._watcher.refresh()
        except CoordinationError as error:
            log.warning("the fabric cannot be read; trying again", reason=str(error))
        self._wake.set()

    def _report_unserved(self, term: _Term, unserved: int) -> None:
        if unserved and not term.unserved:
            log.warning("topics have no router; start one", topics=unserved)
        term.unserved = unserved
        self._metrics.unassigned_topics.set(unserved)

    def _show_assignments(self, topics: Mapping[str, TopicView]) -> None:
        counts = Counter(t.assignment.primary for t in topics.values() if t.assignment is not None)
        for router in self._shown_routers - counts.keys():
            self._metrics.assignments.remove(router)
        for router, count in counts.items():
            self._metrics.assignments.labels(router).set(count)
        self._shown_routers = set(counts)


def _fields(change: Change) -> dict[str, object]:
    before, after = change.before, change.after
    return {
        "topic": change.topic,
        "from": _route(before),
        "to": _route(after),
        "why": change.why.value,
        "epoch": after.epoch,
    }


def _route(assignment: Assignment | None) -> str:
    if assignment is None:
        return "none"
    return f"{assignment.primary}+{assignment.standby or 'none'}"


def _has_missing_router(view: FabricView) -> bool:
    """Whether an assignment names a router that is not registered."""
    return any(
        router is not None and router not in view.routers
        for topic in view.topics.values()
        if topic.assignment is not None
        for router in (topic.assignment.primary, topic.assignment.standby)
    )


def _as_written(
    view: FabricView, written: dict[str, tuple[float, int, Assignment]], now_s: float
) -> FabricView:
    """The view with our own writes that it does not show yet. Forgets in `written` what it shows
    and what is too old to be believed."""
    topics = dict(view.topics)
    for name, (since_s, version, assignment) in list(written.items()):
        seen = topics.get(name)
        if seen is None or seen.version >= version or now_s - since_s > _TRUST_WRITTEN_S:
            del written[name]
        else:
            topics[name] = replace(seen, assignment=assignment, version=version)
    return replace(view, topics=topics)
