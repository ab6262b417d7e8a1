"""Forwards frames between the edges connected to this router: reads whom a frame is for and
passes its bytes on untouched (traced ones get the time of it). Keeps no reliable state: edges
repair what is lost here. Called by the router's app; who carries which topic stays out.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gateway.errors import FrameError, FrameVersionError
from gateway.model import RouterLoad
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.shared_loop import running_loop
from gateway.tunnel import messages
from gateway.tunnel.express import ExpressLinks
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Envelope, Frame, Peer, StreamKey, bounds, decode_envelope
from gateway.tunnel.messages import Hello, Message, Ping
from gateway.tunnel.traced import passing
from gateway.tunnel.tunnel_server import Neighbour, TunnelServer
from gateway.tunnel.wire_reader import WireReader
from routing_broker.passages import Passages, passages
from routing_broker.traffic import Traffic

log = get_logger("relay")

_TICK_S = 1.0
_ANNOUNCE_DELAY_S = 0.01
"""Edges that join together are announced together."""
_MAX_DESTINATIONS = 10_000
_HEAVIEST_TOPICS = 200
_MOST_EXPRESS = 10_000

NO_SUCH_EDGE = "no such edge"
QUEUE_FULL = "queue full"
TO_ITS_SENDER = "to its sender"
NOT_FOR_ROUTERS = "not for routers"
NOT_A_NEIGHBOUR = "not a neighbour"


def _ignore(_: object) -> None:
    """Routers hold nothing back."""


def _raise(error: Exception) -> None:
    raise error


class Relay:
    def __init__(
        self,
        listen: str,
        *,
        router: str,
        fabric: str,
        version: str,
        metrics: BrokerMetrics,
        express_listen: str | None = None,
        express_host: str = "",
        express_advertise: Sequence[str] | None = None,
        on_failure: Callable[[Exception], None] = _raise,
    ) -> None:
        """Takes express links at `express_listen` as well, if given, which edges find at
        `express_advertise`, or else at that port of `express_host` (IPv6 in brackets)."""
        self.dropped: Counter[str] = Counter()
        """Frames given up, by reason, once for each destination."""
        self.garbage = 0
        self._server = TunnelServer(
            listen,
            router=router,
            fabric=fabric,
            version=version,
            on_message=self._on_message,
            on_change=self._on_change,
        )
        self._neighbours = self._server.neighbours
        self._express_host = express_host
        self._express_advertise = express_advertise
        # Whatever edges are called, this is none of them.
        self._as_edge = Peer(f"router/{router}", secrets.randbits(64))
        self._router = router
        self._version = version
        self._passages: Passages | None = None
        self._reader: WireReader | None = None
        self._express: ExpressLinks | None = None
        if express_listen is not None:
            self._passages = passages()
            self._reader = WireReader(running_loop().turn, self._passages)
            self._reader.settle = self._settle
            self._express = ExpressLinks(
                Hello(self._as_edge, fabric, "", version),
                listen=express_listen,
                advertise=None,
                is_known=self._is_neighbour,
                on_frame=self._on_express_frame,
                on_state=self._attach,
                on_drained=_ignore,
                on_failure=on_failure,
                reader=self._reader,
                most_links=_MOST_EXPRESS,
            )
        self._traffic = Traffic()
        self._metrics = metrics
        self._published: Counter[str] = Counter()
        self._published_garbage = 0
        self._present: dict[str, Neighbour] = {}
        """The neighbours last announced."""
        self._cpu = 0.0
        self._announcement: asyncio.TimerHandle | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port bound, once started."""
        return self._server.port

    @property
    def edges(self) -> tuple[Peer, ...]:
        """The edges connected now."""
        return tuple(Peer(each.edge, each.incarnation) for each in self._neighbours.values())

    async def start(self) -> None:
        """Raises LinkError when an address cannot be listened on."""
        if self._reader is not None and self._express is not None:
            self._reader.start()
            self._express.start()
            addresses = self._express_advertise or (f"{self._express_host}:{self._express.port}",)
            self._server.welcome = messages.welcome(
                self._router, self._version, self._as_edge, addresses
            )
        await self._server.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="relay meter")

    async def close(self) -> None:
        if self._ticker is None:
            return
        self._ticker.cancel()
        await asyncio.wait({self._ticker})
        await self._server.close()
        if self._express is not None and self._reader is not None:
            await self._express.close()
            await self._reader.close()
        if self._announcement is not None:
            self._announcement.cancel()

    def load(self) -> RouterLoad:
        return RouterLoad(
            bytes_per_s=round(self._traffic.bytes_per_s),
            cpu=round(self._cpu, 3),
            connections=len(self._neighbours),
            topics=self._traffic.heaviest(_HEAVIEST_TOPICS),
        )

    # ------------------------------------------------------------ frames

    def _on_message(self, sender: Neighbour, message: bytes) -> None:
        """Raises FrameVersionError, which ends the link."""
        try:
            members = bounds(message)
        except FrameVersionError:
            raise
        except FrameError as error:
            self._on_garbage(sender, error)
            return
        if len(members) > 1 and self._forward_whole(sender, message, members):
            return
        for start, end in members:
            try:
                envelope = decode_envelope(message, start, end)
                # One that is the whole message is passed on without a copy.
                self._forward(sender, message[start:end], envelope)
            except FrameVersionError:
                raise
            except FrameError as error:
                self._on_garbage(sender, error)

    def _on_express_frame(self, link: ExpressLink, frame: Frame) -> None:
        sender = self._neighbours.get(link.edge)
        if sender is None or sender.incarnation != link.incarnation:
            self.dropped[NOT_A_NEIGHBOUR] += 1
            return
        try:
            self._forward(sender, frame.raw, frame.envelope)
        except FrameError as error:
            self._on_garbage(sender, error)

    def _is_neighbour(self, edge: str, incarnation: int) -> bool:
        neighbour = self._neighbours.get(edge)
        return neighbour is not None and neighbour.incarnation == incarnation

    def _attach(self, edge: str) -> None:
        """The express link of an edge came, went or is another one; or the edge itself came."""
        neighbour = self._neighbours.get(edge)
        if neighbour is not None and self._express is not None:
            link = self._express.link(edge)
            is_of_this_life = link is not None and link.incarnation == neighbour.incarnation
            neighbour.lane.attach(link if is_of_this_life else None)
        self._reroute()

    def _reroute(self) -> None:
        """Edges are where they are now."""
        if self._passages is not None:
            self._collect(self._passages)
            found = [(each.edge, each.lane.descriptor) for each in self._neighbours.values()]
            where = {edge: wire for edge, wire in found if wire is not None}
            self._passages.route(where)
            for neighbour in self._neighbours.values():
                self._open(neighbour)

    def _open(self, neighbour: Neighbour) -> None:
        """Frames for this edge need not come through here, unless some wait."""
        if self._passages is not None:
            wire = neighbour.lane.open_descriptor
            if wire is not None:
                self._passages.open(wire)

    def _settle(self) -> None:
        """Before more is read: what was read ahead and is left to do."""
        if self._passages is None or self._reader is None:
            return
        for wire in self._passages.stuck():
            for neighbour in self._neighbours.values():
                if neighbour.lane.descriptor == wire:
                    neighbour.lane.send_rest()
        if (left := self._passages.left()) is not None:
            self._reader.on_read(*left)

    def _forward_whole(
        self, sender: Neighbour, bundle: bytes, members: list[tuple[int, int]]
    ) -> bool:
        """Most bundles go to one place with all they hold: then they are passed on without being
        copied apart and together again. False when this one does not, and nothing was done."""
        try:
            envelopes = [decode_envelope(bundle, start, end) for start, end in members]
        except FrameError:
            return False
        destinations = envelopes[0].to
        if len(destinations) != 1:
            return False
        if any(each.to != destinations or each.HasField("trace") for each in envelopes):
            return False
        sent = self._send(sender, destinations, bundle, len(members))
        for envelope, (start, end) in zip(envelopes, members, strict=True):
            self._account(sender, envelope, end - start, sent)
        return True

    def _forward(self, sender: Neighbour, frame: bytes, envelope: Envelope) -> None:
        destinations = envelope.to
        if not destinations:
            self._answer(sender, messages.decode_message(frame))
            return
        if len(destinations) > _MAX_DESTINATIONS:
            raise FrameError(f"frame dropped: {len(destinations)} destinations are too many")
        if envelope.HasField("trace"):
            frame = passing(frame, time.time_ns())
        sent = self._send(sender, dict.fromkeys(destinations), frame, 1)
        self._account(sender, envelope, len(frame), sent)

    def _send(
        self, sender: Neighbour, destinations: Iterable[str], message: bytes, frames: int
    ) -> int:
        """To how many of them it went."""
        sent = 0
        for edge in destinations:
            neighbour = self._neighbours.get(edge)
            if neighbour is None:
                self.dropped[NO_SUCH_EDGE] += frames
            elif neighbour is sender:
                self.dropped[TO_ITS_SENDER] += frames
            elif neighbour.send(message):
                sent += 1
                self._open(neighbour)
            else:
                self.dropped[QUEUE_FULL] += frames
        return sent

    def _account(self, sender: Neighbour, envelope: Envelope, size: int, sent: int) -> None:
        sender.frames_in += 1
        sender.bytes_in += size
        if envelope.HasField("batch"):
            stream = envelope.batch.stream
            origin = stream.origin
            self._traffic.count((origin.edge, origin.incarnation, stream.number), size * sent)
        elif envelope.HasField("open"):
            opened = envelope.open
            stream = opened.stream
            key = StreamKey(stream.origin.edge, stream.origin.incarnation, stream.number)
            self._traffic.learn(key, opened.topic)

    def _answer(self, sender: Neighbour, message: Message) -> None:
        if isinstance(message, Ping):
            sender.tell(messages.pong(message, time.time_ns()))
        else:
            self.dropped[NOT_FOR_ROUTERS] += 1

    def _on_garbage(self, sender: Neighbour, error: FrameError) -> None:
        self.garbage += 1
        sender.garbage += 1
        if sender.garbage == 1:
            log.warning(
                "garbage from an edge, it is skipped and later counted only; "
                "do both run the same version?",
                edge=sender.edge,
                reason=str(error),
            )

    # ------------------------------------------------------------ neighbours

    def _on_change(self) -> None:
        for edge in self._neighbours:
            self._attach(edge)
        self._reroute()
        if self._announcement is None:
            loop = asyncio.get_running_loop()
            self._announcement = loop.call_later(_ANNOUNCE_DELAY_S, self._announce)

    def _announce(self) -> None:
        self._announcement = None
        frame = messages.peers(self.edges)
        for neighbour in self._neighbours.values():
            neighbour.tell(frame)
        for edge, neighbour in self._present.items():
            now = self._neighbours.get(edge)
            if now is None or now.incarnation != neighbour.incarnation:
                self._traffic.forget(edge)
            if now is None:
                self._retire_metrics(edge)
        self._present = dict(self._neighbours)

    def _retire_metrics(self, edge: str) -> None:
        metrics = self._metrics
        for family in (metrics.relayed_frames, metrics.relayed_bytes, metrics.queue_bytes):
            with contextlib.suppress(KeyError):  # it left before it was ever published
                family.remove(edge)

    # ------------------------------------------------------------ load

    async def _tick(self) -> None:
        before_s, before_cpu_s = time.monotonic(), time.process_time()
        loop = running_loop()
        while True:
            await loop.at_leisure(_TICK_S)
            if self._passages is not None:
                self._collect(self._passages)
            now_s, cpu_s = time.monotonic(), time.process_time()
            self._traffic.tick(now_s - before_s)
            self._cpu = (cpu_s - before_cpu_s) / (now_s - before_s)
            before_s, before_cpu_s = now_s, cpu_s
            self._publish()

    def _collect(self, passages: Passages) -> None:
        """What was passed on ahead counts as well."""
        by_wire = {each.lane.descriptor: each for each in self._neighbours.values()}
        passed = passages.collect()
        for wire, frames, size in passed.frames:
            sender = by_wire.get(wire)
            if sender is not None:  # else it has just left
                sender.frames_in += frames
                sender.bytes_in += size
        for stream, size in passed.streams:
            self._traffic.count(stream, size)

    def _publish(self) -> None:
        """Counters reach the metrics here and not with each frame, where they would cost more
        than the frame."""
        metrics = self._metrics
        for edge, neighbour in self._neighbours.items():
            metrics.relayed_frames.labels(edge).inc(neighbour.frames_in)
            metrics.relayed_bytes.labels(edge).inc(neighbour.bytes_in)
            metrics.queue_bytes.labels(edge).set(neighbour.queued_bytes)
            neighbour.frames_in = neighbour.bytes_in = 0
        for reason, count in self.dropped.items():
            metrics.relay_dropped_frames.labels(reason).inc(count - self._published[reason])
        self._published = self.dropped.copy()
        metrics.bad_frames.labels("garbage").inc(self.garbage - self._published_garbage)
        self._published_garbage = self.garbage
