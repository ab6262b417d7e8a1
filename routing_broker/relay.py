"""Forwards frames between the edges connected to this router: reads whom a frame is for and
passes its bytes on untouched (traced ones get the time of it). Keeps no reliable state: edges
repair what is lost here. Called by the router's app; who carries which topic stays out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable

from gateway.errors import FrameError, FrameVersionError
from gateway.model import RouterLoad
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel import messages
from gateway.tunnel.frames import Envelope, Peer, StreamKey, bounds, decode_envelope
from gateway.tunnel.messages import Message, Ping
from gateway.tunnel.traced import passing
from gateway.tunnel.tunnel_server import Neighbour, TunnelServer
from routing_broker.traffic import Traffic

log = get_logger("relay")

_TICK_S = 1.0
_ANNOUNCE_DELAY_S = 0.01
"""Edges that join together are announced together."""
_MAX_DESTINATIONS = 10_000
_HEAVIEST_TOPICS = 200

NO_SUCH_EDGE = "no such edge"
QUEUE_FULL = "queue full"
TO_ITS_SENDER = "to its sender"
NOT_FOR_ROUTERS = "not for routers"


class Relay:
    def __init__(
        self, listen: str, *, router: str, fabric: str, version: str, metrics: BrokerMetrics
    ) -> None:
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
        """Raises LinkError when the address cannot be listened on."""
        await self._server.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="relay meter")

    async def close(self) -> None:
        if self._ticker is None:
            return
        self._ticker.cancel()
        await asyncio.wait({self._ticker})
        await self._server.close()
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
            sender.send(messages.pong(message, time.time_ns()))
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
        if self._announcement is None:
            loop = asyncio.get_running_loop()
            self._announcement = loop.call_later(_ANNOUNCE_DELAY_S, self._announce)

    def _announce(self) -> None:
        self._announcement = None
        frame = messages.peers(self.edges)
        for neighbour in self._neighbours.values():
            neighbour.send(frame)
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
        while True:
            await asyncio.sleep(_TICK_S)
            now_s, cpu_s = time.monotonic(), time.process_time()
            self._traffic.tick(now_s - before_s)
            self._cpu = (cpu_s - before_cpu_s) / (now_s - before_s)
            before_s, before_cpu_s = now_s, cpu_s
            self._publish()

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
