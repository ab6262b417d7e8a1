"""Which subscribers the streams of one edge still wait for: given up are those that are gone, that
hold up others or that never confirm a stream they were handed over to. Called by ingress; who is
gone is decided in gateway/plan/absence.py.
"""

from __future__ import annotations

from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.outflows import Outflows
from gateway.model import FabricView
from gateway.observe.logs import get_logger
from gateway.plan.absence import Absence, Life

_log = get_logger("edge.ingress")

_STALL_LIMIT_S = 8.0
"""A full reader stops the reception of its whole DDS domain, and after 10 s of silence the edge
would take all applications of its LAN for dead."""


class Awaited:
    """The subscribers of all outflows."""

    def __init__(self, outflows: Outflows, links: Links, *, laggard_timeout_s: float) -> None:
        self._outflows = outflows
        self._links = links
        self._laggard_timeout_s = laggard_timeout_s
        self._absence = Absence(laggard_timeout_s)
        self._view = FabricView()

    def see(self, view: FabricView, now_s: float) -> None:
        self._view = view
        self._absence.see(view)
        self._drop_the_gone(now_s)

    def is_alive(self, life: Life) -> bool:
        return self._absence.is_in_tree(life) or self._links.has_peer(*life)

    def is_taken_over(self, edge: str, outflow: Outflow) -> bool:
        """Whether another edge of its LAN gets this by now."""
        return self._absence.is_taken_over(edge, outflow.stream.destinations)

    def on_join(self, outflow: Outflow, now_s: float) -> None:
        """The newest subscriber of this one may have come in place of another."""
        if any(other not in self._view.edges for other in outflow.stream.destinations):
            self._drop_the_gone(now_s)

    def leave_laggards_behind(self, outflow: Outflow, now_s: float) -> None:
        for edge in self._laggards(outflow, now_s):
            self._leave_behind(outflow, edge)

    def tick(self, now_s: float) -> None:
        """What time brings: subscribers that do not confirm their stream, or do not come back."""
        self._drop_the_unconfirmed(now_s)
        if self._absence.is_any:
            self._drop_the_gone(now_s)

    def _laggards(self, outflow: Outflow, now_s: float) -> list[str]:
        """Subscribers not to wait for any longer: those that hold up others, and those cut off for
        so long that a full reader would cost the edge its LAN."""
        timeout_s = self._laggard_timeout_s
        if outflow.stream.has_room or not outflow.is_blocked(now_s):
            return []
        cut_off = outflow.cut_off(now_s, min(timeout_s, _STALL_LIMIT_S))
        return cut_off or outflow.stream.laggards(now_s, timeout_s)

    def _leave_behind(self, outflow: Outflow, edge: str) -> None:
        missing = outflow.stream.next_number - 1 - outflow.stream.acknowledged(edge)
        _log.warning(
            "a LAN acknowledges nothing and holds up others; it is left behind, and joins again "
            "when it answers",
            topic=outflow.topic,
            edge=edge,
            samples=missing,
        )
        outflow.given_up.inc(missing)
        self._outflows.drop_subscriber(outflow, edge)

    def _drop_the_unconfirmed(self, now_s: float) -> None:
        for outflow in list(self._outflows.streams.values()):
            for edge, until_s in list(outflow.adopted.items()):
                if now_s > until_s and self._links.path(outflow.topic, edge) is not None:
                    self._outflows.drop_subscriber(outflow, edge)
                    self._outflows.settle(outflow)

    def _drop_the_gone(self, now_s: float) -> None:
        """Subscribers nobody waits for any longer (plan/absence.py)."""
        streams = self._outflows.streams
        lives = {
            life for outflow in streams.values() for life in outflow.stream.subscribers.items()
        }
        linked = {life for life in lives if self._links.has_peer(*life)}
        for outflow in list(streams.values()):
            for life in list(outflow.stream.subscribers.items()):
                if self._absence.is_gone(
                    life,
                    outflow.stream.destinations,
                    now_s,
                    is_linked=life in linked,
                    is_reliable=outflow.is_reliable,
                ):
                    _log.info("subscriber is gone", topic=outflow.topic, edge=life[0])
                    self._outflows.drop_subscriber(outflow, life[0])
            self._outflows.settle(outflow)
        self._absence.forget_others(lives, linked)
