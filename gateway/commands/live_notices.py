"""What the live view of `ddswan status` says above its table: what keeps it from being whole, and
which brokers have left. Pure; called by live.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.model import FabricView

GONE_SHOWN_S = 60.0


@dataclass(frozen=True, slots=True)
class Coordination:
    """What ZooKeeper has said so far."""

    hosts: str
    is_connected: bool = False
    is_read: bool = False
    """The whole tree, once."""
    leader: str | None = None


class Departures:
    """Brokers that were there and are not any more; one that comes back has not left."""

    def __init__(self) -> None:
        self._present: frozenset[str] = frozenset()
        self._gone_s: dict[str, float] = {}

    def update(self, view: FabricView, now_s: float) -> None:
        present = frozenset(
            [f"router {router}" for router in view.routers]
            + [f"edge {edge.edge} (LAN {edge.lan})" for edge in view.edges.values()]
        )
        self._gone_s.update(dict.fromkeys(self._present - present, now_s))
        for back in present & self._gone_s.keys():
            del self._gone_s[back]
        self._present = present

    def recent(self, now_s: float) -> str:
        """Who left lately, the last one first; empty: nobody."""
        self._gone_s = {
            broker: gone_s
            for broker, gone_s in self._gone_s.items()
            if now_s - gone_s < GONE_SHOWN_S
        }
        latest_first = sorted(self._gone_s.items(), key=lambda item: (-item[1], item[0]))
        told = [f"{broker} left {now_s - gone_s:.0f} s ago" for broker, gone_s in latest_first]
        return ", ".join(told)


def make_notices(
    coordination: Coordination,
    view: FabricView,
    has_routes: bool,
    gone: str,
    problems: Mapping[str, str],
) -> list[str]:
    """`problems`: why edges do not tell their rates. The most important first: a low terminal
    shows no more than that."""
    notices = []
    known = coordination
    if not known.is_connected:
        notices.append(
            f"ZooKeeper at {known.hosts} does not answer; routes are as last known"
            if known.is_read
            else f"waiting for ZooKeeper at {known.hosts}; is --zookeeper right?"
        )
    elif not known.is_read:
        notices.append("reading the fabric")
    elif not view.routers and not view.edges:
        notices.append("no broker is connected to this fabric; is --fabric right?")
    elif known.leader is None:
        notices.append("no leader: topics keep their routers, new ones wait")
    elif not has_routes:
        notices.append(
            "nothing to carry: no topic is published in one LAN and subscribed in another"
        )
    if gone:
        notices.append(gone)
    notices += [f"no rates from {edge}: {why}" for edge, why in problems.items()]
    mute = sorted(edge.edge for edge in view.edges.values() if edge.metrics is None)
    if mute:
        notices.append(f"no rates from {', '.join(mute)}: started without --metrics-port")
    return notices
