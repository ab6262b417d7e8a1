"""The edge's links to routers and to other edges: opens and closes what the plan wants, and
answers by which ones a destination is reached now. Called by reconcile, ingress and egress; what
frames say stays out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from edge_broker.dds import shortcuts
from gateway.errors import FrameError
from gateway.model import Assignment, FabricView
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import routers_towards
from gateway.shared_loop import running_loop
from gateway.tunnel.datagrams import DatagramCounts, DatagramLink
from gateway.tunnel.express import ExpressLinks
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Frame
from gateway.tunnel.messages import Hello
from gateway.tunnel.router_link import RouterLink
from gateway.tunnel.wire_reader import WireReader

_log = get_logger("edge.links")


EXPRESS = "express"
"""The name and the `via` of a direct way; routed ones go via their router's id."""
DATAGRAMS = "datagrams"
"""The `via` of a direct way beside its TCP connection."""
DIRECT = (EXPRESS, DATAGRAMS)
ROUTED = "routed"
STANDBY = "standby"

_LINGER_S = 5.0
"""How long the link to a router stays when nobody wants it any longer: some times what is repeated
until it is answered."""
_ABSENCE_S = 20.0
"""And when that router is gone from the tree, though the link is up: it has lost ZooKeeper, or
ZooKeeper has lost everybody, and they come back one after the other."""

_LAST_BACKOFF_S = 30.0
"""Between two attempts to reach a router beside gRPC: a firewall may be there for good."""

Link = RouterLink | ExpressLink | DatagramLink


class Way(NamedTuple):
    """How an edge is reached now."""

    name: str
    """express, routed or standby."""
    via: str
    link: Link


class Links:
    """All links of one edge. `generation` grows whenever a path may have changed. `on_frame` is
    told by which link and via what a frame came."""

    def __init__(
        self,
        hello: Hello,
        *,
        express_listen: str | None,
        express_advertise: Iterable[str] | None,
        most_express: int,
        has_datagrams: bool = True,
        on_frame: Callable[[str, Link, Frame], None],
        on_change: Callable[[], None],
        on_drained: Callable[[], None],
        on_failure: Callable[[Exception], None],
        on_garbage: Callable[[FrameError], None],
        metrics: BrokerMetrics,
    ) -> None:
        self.generation = 0
        self._hello = hello
        self._on_frame = on_frame
        self._on_change = on_change
        self._on_drained = on_drained
        self._on_failure = on_failure
        self._metrics = metrics
        self._links: dict[str, RouterLink] = {}
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        """Routers nobody wants any longer, and when their links end."""
        self._was_up: set[str] = set()
        self._view = FabricView()
        self._closing: set[asyncio.Task[None]] = set()
        self._shown_express: set[str] = set()
        self._counted: dict[str, tuple[DatagramLink, DatagramCounts]] = {}
        """What metrics say already of the datagrams beside each direct link."""
        self.reader = WireReader(running_loop().turn, shortcuts.wires_ahead())
        """Of express links."""
        self._express = ExpressLinks(
            hello,
            listen=express_listen,
            advertise=None if express_advertise is None else tuple(express_advertise),
            is_known=self._is_in_tree,
            on_frame=partial(on_frame, EXPRESS),
            on_state=lambda _: self._note_change(),
            on_drained=lambda _: self._on_drained(),
            on_failure=on_failure,
            reader=self.reader,
            most_links=most_express,
            on_datagram_frame=partial(on_frame, DATAGRAMS) if has_datagrams else None,
        )
        self._beside = ExpressLinks(
            hello,
            listen=None,
            advertise=None,
            is_known=lambda *_: False,
            on_frame=self._on_router_frame,
            on_state=lambda _: self._on_beside(),
            on_drained=lambda _: self._on_drained(),
            on_failure=on_failure,
            reader=self.reader,
            last_backoff_s=_LAST_BACKOFF_S,
            on_garbage=on_garbage,
        )
        """Express links to routers, beside gRPC."""

    def start(self) -> None:
        """Lets other edges come. Raises LinkError when the address cannot be listened on."""
        self.reader.start()
        self._express.start()
        self._beside.start()

    def express_addresses(self) -> tuple[str, ...]:
        """Where other edges may reach this one now, once started."""
        return self._express.candidates()

    def converge(
        self, wanted: dict[str, str], express: Mapping[str, Candidate], view: FabricView
    ) -> None:
        """Holds links to these routers (address by router) and these edges. A link nobody wants
        any longer is closed, after what is still to be said over it: that a stream is over; one to
        a router that is merely gone from the tree, after it had time to come back. One to a router
        that moved is opened anew. While the tree is away the view stays, and so do the
        links."""
        for router, link in list(self._links.items()):
            if router not in wanted:
                if not link.is_up:
                    self._close(router)
                elif router not in self._lingering:
                    linger_s = _LINGER_S if router in view.routers else _ABSENCE_S
                    loop = asyncio.get_running_loop()
                    self._lingering[router] = loop.call_later(linger_s, self._close, router)
            elif wanted[router] != link.address:
                self._close(router)
            elif (timer := self._lingering.pop(router, None)) is not None:
                timer.cancel()
        for router, address in wanted.items():
            if router not in self._links:
                _log.info("link wanted", router=router, address=address)
                link = self._links[router] = self._link(router, address)
                link.start()
                assert link.task is not None
                link.task.add_done_callback(self._report_end)
        before, self._view = self._view, view
        if _assignments(before) != _assignments(view):
            self._paths_changed()
        self._express.converge(express)

    def _attach(self) -> None:
        """Express links to routers as they are wanted and as they are."""
        self._beside.converge(dict(link.express for link in self._links.values() if link.express))
        for link in self._links.values():
            link.attach(None if link.express is None else self._beside.link(link.express[0]))

    def _on_beside(self) -> None:
        self._attach()
        self._note_change()

    def _on_router_frame(self, express: ExpressLink, frame: Frame) -> None:
        for router, link in self._links.items():
            if link.express is not None and link.express[0] == express.edge:
                self._on_frame(router, link, frame)
                return

    def _is_in_tree(self, edge: str, incarnation: int) -> bool:
        info = self._view.edges.get(edge)
        return info is not None and info.incarnation == incarnation

    def _link(self, router: str, address: str) -> RouterLink:
        return RouterLink(
            address,
            self._hello,
            on_frame=partial(self._on_frame, router),
            on_state=lambda link: self._on_state(router, link),
            on_drained=lambda _: self._on_drained(),
        )

    def path(self, topic: str, destination: str) -> RouterLink | None:
        """The link that takes frames of this topic to this edge now; None: there is no way."""
        for router in self._routers_towards(topic, destination):
            return self._links[router]
        return None

    def _routers_towards(self, topic: str, destination: str) -> list[str]:
        reachable: dict[str, Iterable[str]] = {
            router: link.peers for router, link in self._links.items() if link.is_up
        }
        return routers_towards(topic, destination, self._view, reachable)

    def ways(self, topic: str, destination: str) -> list[Way]:
        """The two best ways a deadline topic has to this edge now: the direct one and the routed
        one, or two routed ones over different routers."""
        found = []
        if (direct := self._express.link(destination)) is not None:
            found.append(Way(EXPRESS, EXPRESS, direct))
        routers = self._routers_towards(topic, destination)
        for name, router in zip((ROUTED, STANDBY), routers, strict=False):
            found.append(Way(name, router, self._links[router]))
        return found[:2]

    def all_ways(self, destination: str) -> list[Way]:
        """Every link that reaches this edge now, whatever the topic."""
        found = [
            Way(ROUTED, router, link)
            for router, link in self._links.items()
            if link.is_up and destination in link.peers
        ]
        if (direct := self._express.link(destination)) is not None:
            found.append(Way(EXPRESS, EXPRESS, direct))
            if (beside := direct.datagrams) is not None:
                found.append(Way(EXPRESS, DATAGRAMS, beside))
        return found

    def name_of(self, topic: str, via: str) -> str:
        """What the path over this link is called for this topic."""
        if via in DIRECT:
            return EXPRESS
        known = self._view.topics.get(topic)
        if known is not None and known.assignment is not None and known.assignment.standby == via:
            return STANDBY
        return ROUTED

    def send(self, topic: str, destination: str, frame: bytes) -> bool:
        """False when there is no way now or its queue is full."""
        link: Link | None = self.path(topic, destination) or self._express.link(destination)
        return link is not None and link.send(frame)

    def send_every_way(self, topic: str, destination: str, frame: bytes) -> None:
        """For what deadline topics cannot wait for; whoever gets it twice does not mind."""
        for way in self.ways(topic, destination):
            way.link.send(frame)

    def has_peer(self, edge: str, incarnation: int) -> bool:
        """Whether this life of an edge can be reached over any link."""
        direct = self._express.link(edge)
        return (direct is not None and direct.incarnation == incarnation) or any(
            link.peers.get(edge) == incarnation for link in self._links.values()
        )

    def summary(self) -> list[dict[str, object]]:
        """For status and readiness."""
        return [
            {
                "router": router,
                "address": link.address,
                "up": link.is_up,
                "express": link.has_express,
                "rtt_ms": None if link.rtt_s is None else round(link.rtt_s * 1e3, 3),
                "queued_bytes": link.queued_bytes,
                "problem": link.last_error,
            }
            for router, link in sorted(self._links.items())
        ]

    def express_summary(self) -> list[dict[str, Any]]:
        """For status."""
        return self._express.summary()

    def observe(self) -> None:
        """Writes what is known of the links into the metrics."""
        self._observe_express()
        for router, link in self._links.items():
            self._metrics.link_up.labels(peer=router).set(link.is_up)
            self._metrics.link_express.labels(peer=router).set(link.is_up and link.has_express)
            self._metrics.queue_bytes.labels(peer=router).set(link.queued_bytes)
            if link.rtt_s is not None:
                self._metrics.link_rtt.labels(peer=router).set(link.rtt_s)
            if link.clock is not None:
                sent_ns, seen_ns, received_ns = link.clock
                offset_s = (2 * seen_ns - sent_ns - received_ns) / 2e9
                self._metrics.link_clock_offset.labels(peer=router).set(offset_s)
                error_s = max(0, received_ns - sent_ns) / 2e9
                self._metrics.link_clock_error.labels(peer=router).set(error_s)

    def _observe_express(self) -> None:
        # Where nobody can be dialled there is no link, and that is no fault.
        rows = [row for row in self._express.summary() if row["up"] or row["problem"]]
        families = (self._metrics.link_up, self._metrics.queue_bytes, self._metrics.link_rtt)
        for edge in self._shown_express - {row["edge"] for row in rows}:
            for family in families:
                with suppress(KeyError):
                    family.remove(edge)
        shown = self._shown_express = {row["edge"] for row in rows}
        self._counted = {each: self._counted[each] for each in self._counted.keys() & shown}
        for row in rows:
            self._metrics.link_up.labels(peer=row["edge"]).set(row["up"])
            if row["up"]:
                self._metrics.queue_bytes.labels(peer=row["edge"]).set(row["queued_bytes"])
                if row["rtt_ms"] is not None:
                    self._metrics.link_rtt.labels(peer=row["edge"]).set(row["rtt_ms"] / 1e3)
                self._count_datagrams(row["edge"])

    def _count_datagrams(self, edge: str) -> None:
        direct = self._express.link(edge)
        if direct is None or (beside := direct.datagrams) is None:
            return
        before = self._counted.get(edge)
        known = DatagramCounts() if before is None or before[0] is not beside else before[1]
        counts = DatagramCounts(*map(max, beside.counts, known))  # some were only late
        families = (
            self._metrics.datagrams_sent,
            self._metrics.datagrams_lost,
            self._metrics.datagrams_repaired,
        )
        for family, now, then in zip(families, counts, known, strict=True):
            family.labels(peer=edge).inc(now - then)
        self._counted[edge] = beside, counts

    def peers(self) -> set[str]:
        """The brokers there are links to, up or not."""
        return set(self._links) | {row["edge"] for row in self._express.summary()}

    async def close(self) -> None:
        for router in list(self._links):
            self._close(router)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._express.close()
        await self._beside.close()
        await self.reader.close()

    def _close(self, router: str) -> None:
        link = self._links.pop(router)
        if (timer := self._lingering.pop(router, None)) is not None:
            timer.cancel()
        _log.info("link closed", router=router, address=link.address)
        task = asyncio.get_running_loop().create_task(link.close(), name=f"close link {router}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._was_up.discard(router)
        self._attach()
        metrics = self._metrics
        for family in (
            metrics.link_up,
            metrics.link_express,
            metrics.queue_bytes,
            metrics.link_rtt,
            metrics.link_clock_offset,
            metrics.link_clock_error,
        ):
            with suppress(KeyError):
                family.remove(router)
        self._paths_changed()

    def _on_state(self, router: str, link: RouterLink) -> None:
        if self._links.get(router) is not link:
            return
        if link.is_up and router not in self._was_up:
            self._was_up.add(router)
            _log.info("link up", router=router, address=link.address)
        elif not link.is_up and router in self._was_up:
            self._was_up.discard(router)
            self._metrics.link_losses.labels(peer=router).inc()
        self._attach()
        self._note_change()

    def _note_change(self) -> None:
        self._paths_changed()
        self._on_change()

    def _paths_changed(self) -> None:
        self.generation += 1
        shortcuts.lower_all()

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_failure(error)


def _assignments(view: FabricView) -> dict[str, Assignment | None]:
    return {name: topic.assignment for name, topic in view.topics.items()}
