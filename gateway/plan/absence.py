"""Which subscribing edges a publisher's edge still waits for, when the tree has lost sight of them.
Pure; asked by edge_broker/awaited.py whenever the view or a subscription changes, and while
somebody is away.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.model import FabricView

Life = tuple[str, int]
"""An edge and its incarnation."""

_MOST_LANS = 10_000
"""Edges whose LAN is remembered."""


class Absence:
    """What is known of those that are away."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._view = FabricView()
        self._since_s: dict[Life, float] = {}
        """Gone from the tree, and not linked: perhaps cut off, and then they come back for what
        they have missed."""
        self._lans: dict[str, str] = {}
        """Of edges in the tree, and of those that were."""

    @property
    def is_any(self) -> bool:
        """Whether somebody is waited for, who may be gone by and by."""
        return bool(self._since_s)

    def see(self, view: FabricView) -> None:
        self._view = view
        former = self._lans if len(self._lans) < _MOST_LANS else {}
        self._lans = former | {edge: info.lan for edge, info in view.edges.items()}

    def is_in_tree(self, life: Life) -> bool:
        info = self._view.edges.get(life[0])
        return info is not None and info.incarnation == life[1]

    def is_taken_over(self, edge: str, subscribers: Collection[str]) -> bool:
        """Whether another edge of its LAN, of which the tree has not lost sight, subscribes to the
        same by now: the LAN would get everything twice."""
        lan = self._lans.get(edge)
        return edge not in self._view.edges and any(
            other != edge and other in self._view.edges and self._lans[other] == lan
            for other in subscribers
        )

    def is_gone(
        self,
        life: Life,
        subscribers: Collection[str],
        now_s: float,
        *,
        is_linked: bool,
        is_reliable: bool,
    ) -> bool:
        """Whether this one of a stream's subscribers is to be given up; if not, since when it is
        away is remembered. An edge that leaves on purpose says so itself."""
        if self.is_in_tree(life):
            return False
        if self.is_taken_over(life[0], subscribers):
            return True
        if is_linked:  # only ZooKeeper has lost sight of it
            return False
        if life[0] in self._view.edges or not is_reliable:
            return True  # it lives anew, or nothing is kept for it
        return now_s >= self._since_s.setdefault(life, now_s) + self._patience_s

    def forget_others(self, lives: Collection[Life], linked: Collection[Life]) -> None:
        """Only these subscribe to anything, and those that are linked are not away."""
        self._since_s = {
            life: since_s
            for life, since_s in self._since_s.items()
            if life in lives and life not in linked and not self.is_in_tree(life)
        }
