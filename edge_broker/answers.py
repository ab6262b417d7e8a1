"""What a subscribing edge says to publishers' edges of their streams: what is written, what it does
not know, what it has all of. Called by egress and its pump.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from edge_broker.links import Link, Links
from edge_broker.mirror import Inbound, Mirror
from gateway.tunnel import messages
from gateway.tunnel.frames import Peer, StreamKey

_REFRESH_S = 5.0
"""How often an idle stream is acknowledged: a publisher's edge that does not know of it (any
longer) answers with a refusal."""
_UNKNOWN_AGAIN_S = 0.1
_MOST_FINISHED = 4096
_MOST_UNKNOWN = 4096


class Answers:
    """All acknowledgements of one edge."""

    def __init__(
        self,
        me: Peer,
        links: Links,
        inbound: Mapping[StreamKey, tuple[Inbound, Mirror]],
        clock: Callable[[], float],
        ask: Callable[[], object],
    ) -> None:
        """`inbound` are the open streams, as egress knows them. `ask` is called when something is
        to be said: `acknowledge_due` is to be called soon."""
        self._me = me
        self._links = links
        self._inbound = inbound
        self._clock = clock
        self._due: dict[StreamKey, None] = {}
        self._ask = ask
        self._finished: OrderedDict[StreamKey, None] = OrderedDict()
        self._unknown_said_s: OrderedDict[StreamKey, float] = OrderedDict()

    # ------------------------------------------------------------ open streams

    def acknowledge_soon(self, stream: StreamKey) -> None:
        self._due[stream] = None
        self._ask()

    def acknowledge_due(self, reports: Mapping[Link, list[bytes]]) -> None:
        """Says it, behind these reports: what travels together costs one frame's price."""
        due, self._due = self._due, {}
        acks: dict[Link, list[tuple[Mirror, bytes]]] = {link: [] for link in reports}
        now_s = self._clock()
        for stream in due:
            found = self._inbound.get(stream)
            if found is None or not _may_say(found[0], now_s):
                continue
            inbound, mirror = found
            frame = self._acknowledgement(inbound, now_s)
            if inbound.answer_link is None:
                self._links.send(mirror.key.topic, stream.edge, frame)
            else:
                acks.setdefault(inbound.answer_link, []).append((mirror, frame))
        for link, said in acks.items():
            frames = [*reports.get(link, ()), *(frame for _, frame in said)]
            if not link.send_together(frames):
                for mirror, frame in said:
                    self._links.send(mirror.key.topic, mirror.key.edge, frame)

    def acknowledge(self, inbound: Inbound, mirror: Mirror) -> None:
        now_s = self._clock()
        self._due.pop(inbound.key, None)
        if _may_say(inbound, now_s):
            self._say(inbound, mirror, now_s)

    def _say(self, inbound: Inbound, mirror: Mirror, now_s: float) -> None:
        frame = self._acknowledgement(inbound, now_s)
        link = inbound.answer_link
        if link is None or not link.send(frame):
            self._links.send(mirror.key.topic, inbound.key.edge, frame)

    def _acknowledgement(self, inbound: Inbound, now_s: float) -> bytes:
        inbound.unacknowledged_bytes = 0
        inbound.acknowledged_s = now_s
        cumulative, ranges = inbound.incoming.acknowledgement()
        return messages.ack(inbound.key.edge, self._me, inbound.key, cumulative, ranges)

    def remind(self, inbound: Inbound, mirror: Mirror, now_s: float) -> None:
        """Acknowledges again what lacks something, and what has been idle for long."""
        if inbound.incoming.has_gap or now_s >= inbound.acknowledged_s + _REFRESH_S:
            self.acknowledge(inbound, mirror)

    def on_links_changed(self) -> None:
        """Says at once where each stream stands whose way back is a new one: during the
        interruption its publisher's edge may have given this one up, and then refuses."""
        now_s = self._clock()
        for inbound, mirror in self._inbound.values():
            if inbound.answer_link is not None and not any(
                way.link is inbound.answer_link for way in self._links.all_ways(inbound.key.edge)
            ):
                inbound.answer_link = None
            link = self._links.path(mirror.key.topic, inbound.key.edge)
            if link is None:
                continue
            way = (link, link.connects)
            if way != inbound.answered_over:
                inbound.answered_over = way
                self._say(inbound, mirror, now_s)

    # ------------------------------------------------------------ others

    def finish(self, stream: StreamKey, topic: str) -> None:
        """All of it is written; whatever comes of it later is answered so."""
        self._finished[stream] = None
        if len(self._finished) > _MOST_FINISHED:
            self._finished.popitem(last=False)
        self.say_finished(stream, topic)

    def is_finished(self, stream: StreamKey) -> bool:
        return stream in self._finished

    def say_finished(self, stream: StreamKey, topic: str) -> None:
        """This edge wants no more of it."""
        frame = messages.ack(stream.edge, self._me, stream, 0, finished=True)
        self._links.send(topic, stream.edge, frame)

    def say_unknown(self, stream: StreamKey) -> None:
        """Answers a frame of a stream that is not open here."""
        if stream in self._finished:
            self.say_finished(stream, "")
            return
        now_s = self._clock()
        if now_s - self._unknown_said_s.get(stream, -_UNKNOWN_AGAIN_S) < _UNKNOWN_AGAIN_S:
            return
        self._unknown_said_s[stream] = now_s
        if len(self._unknown_said_s) > _MOST_UNKNOWN:
            self._unknown_said_s.popitem(last=False)
        frame = messages.ack(stream.edge, self._me, stream, 0, unknown=True)
        self._links.send("", stream.edge, frame)


def _may_say(inbound: Inbound, now_s: float) -> bool:
    """Best-effort streams are acknowledged only so that their publishers know of them."""
    return inbound.is_reliable or now_s >= inbound.acknowledged_s + _REFRESH_S
