"""The edge's links to routers: opens and closes what the plan wants, and answers by which one a
destination is reached now. Called by reconcile, ingress and egress; what frames say stays out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from gateway.model import FabricView
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.demand import chosen_router
from gateway.tunnel.frames import Frame
from gateway.tunnel.messages import Hello
from gateway.tunnel.router_link import RouterLink

_log = get_logger("edge.links")


class Links:
    """All links of one edge. `generation` grows whenever a path may have changed."""

    def __init__(
        self,
        hello: Hello,
        *,
        on_frame: Callable[[Frame], None],
        on_change: Callable[[], None],
        on_drained: Callable[[], None],
        on_failure: Callable[[Exception], None],
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
        self._was_up: set[str] = set()
        self._view = FabricView()
        self._closing: set[asyncio.Task[None]] = set()

    def converge(self, wanted: dict[str, str], view: FabricView) -> None:
        """Holds links to these routers (address by router). A link nobody wants any longer is
        closed; one to a router that moved is opened anew. While the tree is away the view stays,
        and so do the links."""
        for router, link in list(self._links.items()):
            if wanted.get(router) != link.address:
                self._close(router)
        for router, address in wanted.items():
            if router not in self._links:
                _log.info("link wanted", router=router, address=address)
                link = self._links[router] = self._link(router, address)
                link.start()
                assert link.task is not None
                link.task.add_done_callback(self._report_end)
        if view is not self._view:
            self._view = view
            self.generation += 1

    def _link(self, router: str, address: str) -> RouterLink:
        return RouterLink(
            address,
            self._hello,
            on_frame=lambda _, frame: self._on_frame(frame),
            on_state=lambda link: self._on_state(router, link),
            on_drained=lambda _: self._on_drained(),
        )

    def path(self, topic: str, destination: str) -> RouterLink | None:
        """The link that takes frames of this topic to this edge now; None: there is no way."""
        reachable: dict[str, Iterable[str]] = {
            router: link.peers for router, link in self._links.items() if link.is_up
        }
        router = chosen_router(topic, destination, self._view, reachable)
        return None if router is None else self._links[router]

    def send(self, topic: str, destination: str, frame: bytes) -> bool:
        """False when there is no way now or its queue is full."""
        link = self.path(topic, destination)
        return link is not None and link.send(frame)

    def has_peer(self, edge: str, incarnation: int) -> bool:
        """Whether this life of an edge can be reached over any link."""
        return any(link.peers.get(edge) == incarnation for link in self._links.values())

    def summary(self) -> list[dict[str, object]]:
        """For status and readiness."""
        return [
            {
                "router": router,
                "address": link.address,
                "up": link.is_up,
                "rtt_ms": None if link.rtt_s is None else round(link.rtt_s * 1e3, 3),
                "queued_bytes": link.queued_bytes,
                "problem": link.last_error,
            }
            for router, link in sorted(self._links.items())
        ]

    def observe(self) -> None:
        """Writes what is known of the links into the metrics."""
        for router, link in self._links.items():
            self._metrics.link_up.labels(peer=router).set(link.is_up)
            self._metrics.queue_bytes.labels(peer=router).set(link.queued_bytes)
            if link.rtt_s is not None:
                self._metrics.link_rtt.labels(peer=router).set(link.rtt_s)
            if link.clock is not None:
                sent_ns, seen_ns, received_ns = link.clock
                offset_s = (2 * seen_ns - sent_ns - received_ns) / 2e9
                self._metrics.link_clock_offset.labels(peer=router).set(offset_s)
                error_s = max(0, received_ns - sent_ns) / 2e9
                self._metrics.link_clock_error.labels(peer=router).set(error_s)

    def peers(self) -> set[str]:
        """The brokers there are links to, up or not."""
        return set(self._links)

    async def close(self) -> None:
        for router in list(self._links):
            self._close(router)
        if self._closing:
            await asyncio.wait(self._closing)

    def _close(self, router: str) -> None:
        link = self._links.pop(router)
        _log.info("link closed", router=router, address=link.address)
        task = asyncio.get_running_loop().create_task(link.close(), name=f"close link {router}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._was_up.discard(router)
        metrics = self._metrics
        for family in (
            metrics.link_up,
            metrics.queue_bytes,
            metrics.link_rtt,
            metrics.link_clock_offset,
            metrics.link_clock_error,
        ):
            with suppress(KeyError):
                family.remove(router)
        self.generation += 1

    def _on_state(self, router: str, link: RouterLink) -> None:
        if self._links.get(router) is not link:
            return
        if link.is_up and router not in self._was_up:
            self._was_up.add(router)
            _log.info("link up", router=router, address=link.address)
        elif not link.is_up and router in self._was_up:
            self._was_up.discard(router)
            self._metrics.link_losses.labels(peer=router).inc()
        self.generation += 1
        self._on_change()

    def _report_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_failure(error)
