"""What the subscribers of an outflow are told besides samples: where the stream begins for each,
that its writers live, that it ends. Owned by the outflow; called by ingress and outflows.py when
ways have changed, writers have left or time has passed.
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.reach import Reach
from gateway.model import INFINITE_NS, Liveliness, Profile
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, StreamKey
from gateway.tunnel.outgoing import OutgoingStream

_CLOSE_AGAIN_S = 1.0


class Notices:
    """What is said of one stream."""

    def __init__(
        self, key: StreamKey, topic: str, profile: Profile, stream: OutgoingStream, reach: Reach
    ) -> None:
        self._key = key
        self._topic = topic
        self._profile = profile
        self._stream = stream
        self._reach = reach
        self._preludes: dict[str, int] = {}
        """For each subscriber the number of the replay it gets first; 0: none."""
        self._unfinished: set[str] = set()
        """Subscribers that are not known to know the end."""
        self._close_due_s = 0.0
        self._life_due_s = 0.0

    @property
    def is_end_known(self) -> bool:
        """Whether nobody is to be told of an end any longer."""
        return not self._unfinished

    def on_join(self, edge: str, prelude: int, *, is_known: bool) -> None:
        """It subscribes, perhaps not for the first time, and gets replay `prelude` before."""
        if not is_known or prelude:
            self._preludes[edge] = prelude
        self.send_open(edge)

    def forget(self, edge: str) -> None:
        """It subscribes no longer."""
        self._preludes.pop(edge, None)
        self._unfinished.discard(edge)

    def send_open(self, edge: str) -> None:
        """Tells a subscriber what this stream is and where it begins for it."""
        frame = messages.open_stream(
            Peer(edge, self._stream.subscribers[edge]),
            self._key,
            self._topic,
            self._profile.id,
            self._stream.acknowledged(edge) + 1,
            self._stream.is_reliable,
            self._preludes.get(edge, 0),
        )
        self._reach.say(edge, frame)

    def announce_life(self, now_s: float, is_alive: Callable[[], bool]) -> None:
        """Says of writers with manual liveliness that they live, several times in a lease."""
        qos = self._profile.qos
        if (
            qos.liveliness is Liveliness.AUTOMATIC
            or qos.liveliness_lease_ns >= INFINITE_NS
            or now_s < self._life_due_s
        ):
            return
        self._life_due_s = now_s + qos.liveliness_lease_ns / 3e9
        if is_alive():
            for link, _, edges in self._reach.plan():
                link.send(messages.alive(edges, self._key))

    def end(self) -> None:
        """Those who subscribe now are to know that no more comes."""
        self._unfinished = set(self._stream.destinations)
        self._close_due_s = 0.0

    def announce_end(self, now_s: float) -> None:
        """Says that the stream ends, if it does, again and again until everybody knows."""
        if self._unfinished and now_s >= self._close_due_s:
            self._close_due_s = now_s + _CLOSE_AGAIN_S
            last = self._stream.next_number - 1
            for edge in self._unfinished:
                self._reach.say(edge, messages.close((edge,), self._key, last))

    def finished(self, edge: str) -> None:
        """This subscriber has everything it wants and expects nothing more."""
        self._unfinished.discard(edge)
