"""What brokers say to each other besides batches: one constructor for each message and one reader
for all of them. Pure; called by both brokers, which thereby never meet protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.errors import FrameError
from gateway.tunnel.frames import (
    MAX_NUMBER,
    Batch,
    Frame,
    Peer,
    StreamKey,
    decode,
    encode,
    read_batch,
    read_stream,
    write_stream,
)
from gateway.tunnel.tunnel_pb2 import Envelope
from gateway.tunnel.tunnel_pb2 import Peer as PeerMessage

_FARTHEST_NS = 1 << 62
"""Of times since 1970, and of clocks from each other."""


class Hello(NamedTuple):
    peer: Peer
    fabric: str
    lan: str
    version: str


class Welcome(NamedTuple):
    router: str
    version: str
    express: Peer | None = None
    express_addresses: tuple[str, ...] = ()


class Peers(NamedTuple):
    peers: tuple[Peer, ...]


class Ping(NamedTuple):
    nonce: int
    sent_ns: int
    wanted: bool = False


class Pong(NamedTuple):
    nonce: int
    sent_ns: int
    seen_ns: int


class Datagrams(NamedTuple):
    token: int


class Subscribe(NamedTuple):
    subscriber: Peer
    origin_incarnation: int
    topic: str
    profile: str
    mirror: int = 0


class Unsubscribe(NamedTuple):
    subscriber: Peer
    topic: str
    profile: str


class Open(NamedTuple):
    stream: StreamKey
    topic: str
    profile: str
    first: int
    reliable: bool
    history: int
    subscriber_incarnation: int


class Ack(NamedTuple):
    subscriber: Peer
    stream: StreamKey
    cumulative: int
    ranges: tuple[tuple[int, int], ...]
    unknown: bool
    finished: bool


class Close(NamedTuple):
    stream: StreamKey
    last: int


class Refused(NamedTuple):
    reason: str
    stream: StreamKey | None


class Alive(NamedTuple):
    stream: StreamKey


class Probe(NamedTuple):
    sender: Peer
    sent_ns: int
    clock_offset_ns: int
    clock_error_ns: int


class ProbeAnswer(NamedTuple):
    responder: Peer
    sent_ns: int
    seen_ns: int


class Arrivals(NamedTuple):
    subscriber: Peer
    newest_ns: int
    total: int
    delays_us: tuple[int, ...]


Message = (
    Hello
    | Welcome
    | Peers
    | Ping
    | Pong
    | Datagrams
    | Subscribe
    | Unsubscribe
    | Open
    | Batch
    | Ack
    | Close
    | Refused
    | Alive
    | Probe
    | ProbeAnswer
    | Arrivals
)


def hello(peer: Peer, fabric: str, lan: str, version: str, to: Sequence[str] = ()) -> bytes:
    envelope = Envelope(to=to)
    message = envelope.hello
    _write_peer(message.peer, peer)
    message.fabric = fabric
    message.lan = lan
    message.version = version
    return encode(envelope)


def welcome(
    router: str, version: str, express: Peer | None = None, addresses: Sequence[str] = ()
) -> bytes:
    """`express` and `addresses`: as what and where the router takes express links."""
    envelope = Envelope()
    envelope.welcome.router = router
    envelope.welcome.version = version
    if express is not None:
        _write_peer(envelope.welcome.express, express)
        envelope.welcome.express_addresses.extend(addresses)
    return encode(envelope)


def peers(present: Sequence[Peer]) -> bytes:
    envelope = Envelope()
    envelope.peers.SetInParent()
    for peer in present:
        _write_peer(envelope.peers.peers.add(), peer)
    return encode(envelope)


def ping(nonce: int, sent_ns: int, to: Sequence[str] = (), wanted: bool = False) -> bytes:
    envelope = Envelope(to=to)
    envelope.ping.nonce = nonce
    envelope.ping.sent_ns = sent_ns
    envelope.ping.wanted = wanted
    return encode(envelope)


def pong(asked: Ping, seen_ns: int, to: Sequence[str] = ()) -> bytes:
    envelope = Envelope(to=to)
    envelope.pong.nonce = asked.nonce
    envelope.pong.sent_ns = asked.sent_ns
    envelope.pong.seen_ns = seen_ns
    return encode(envelope)


def datagrams(token: int) -> bytes:
    envelope = Envelope()
    envelope.datagrams.token = token
    return encode(envelope)


def subscribe(
    to: str,
    subscriber: Peer,
    origin_incarnation: int,
    topic: str,
    profile: str,
    mirror: int = 0,
) -> bytes:
    envelope = Envelope(to=(to,))
    message = envelope.subscribe
    _write_peer(message.subscriber, subscriber)
    message.origin_incarnation = origin_incarnation
    message.topic = topic
    message.profile = profile
    message.mirror = mirror
    return encode(envelope)


def unsubscribe(to: str, subscriber: Peer, topic: str, profile: str) -> bytes:
    envelope = Envelope(to=(to,))
    message = envelope.unsubscribe
    _write_peer(message.subscriber, subscriber)
    message.topic = topic
    message.profile = profile
    return encode(envelope)


def open_stream(
    to: Peer,
    stream: StreamKey,
    topic: str,
    profile: str,
    first: int,
    reliable: bool,
    history: int = 0,
) -> bytes:
    envelope = Envelope(to=(to.edge,))
    message = envelope.open
    message.subscriber_incarnation = to.incarnation
    write_stream(message.stream, stream)
    message.topic = topic
    message.profile = profile
    message.first = first
    message.reliable = reliable
    message.history = history
    return encode(envelope)


def ack(
    to: str,
    subscriber: Peer,
    stream: StreamKey,
    cumulative: int,
    ranges: Sequence[tuple[int, int]] = (),
    unknown: bool = False,
    finished: bool = False,
) -> bytes:
    envelope = Envelope(to=(to,))
    message = envelope.ack
    _write_peer(message.subscriber, subscriber)
    write_stream(message.stream, stream)
    message.cumulative = cumulative
    for first, last in ranges:
        message.ranges.add(first=first, last=last)
    message.unknown = unknown
    message.finished = finished
    return encode(envelope)


def close(to: Sequence[str], stream: StreamKey, last: int) -> bytes:
    envelope = Envelope(to=to)
    write_stream(envelope.close.stream, stream)
    envelope.close.last = last
    return encode(envelope)


def alive(to: Sequence[str], stream: StreamKey) -> bytes:
    envelope = Envelope(to=to)
    write_stream(envelope.alive.stream, stream)
    return encode(envelope)


def probe(to: str, sender: Peer, sent_ns: int, clock_offset_ns: int, clock_error_ns: int) -> bytes:
    envelope = Envelope(to=(to,))
    message = envelope.probe
    _write_peer(message.sender, sender)
    message.sent_ns = sent_ns
    message.clock_offset_ns = clock_offset_ns
    message.clock_error_ns = clock_error_ns
    return encode(envelope)


def probe_answer(asked: Probe, responder: Peer, seen_ns: int) -> bytes:
    envelope = Envelope(to=(asked.sender.edge,))
    message = envelope.probe_answer
    _write_peer(message.responder, responder)
    message.sent_ns = asked.sent_ns
    message.seen_ns = seen_ns
    return encode(envelope)


def arrivals(
    to: str, subscriber: Peer, newest_ns: int, total: int, delays_us: Sequence[int]
) -> bytes:
    envelope = Envelope(to=(to,))
    message = envelope.arrivals
    _write_peer(message.subscriber, subscriber)
    message.newest_ns = newest_ns
    message.total = total
    message.delays_us.extend(delays_us)
    return encode(envelope)


def refused(reason: str, stream: StreamKey | None = None, to: Sequence[str] = ()) -> bytes:
    envelope = Envelope(to=to)
    envelope.refused.reason = reason
    if stream is not None:
        write_stream(envelope.refused.stream, stream)
    return encode(envelope)


def decode_message(frame: bytes) -> Message:
    """The message of a frame as a plain value; raises FrameError."""
    return interpret(decode(frame))


def interpret(frame: Frame) -> Message:
    """The message of a frame that was taken apart already; raises FrameError."""
    envelope, payload, _ = frame
    body = envelope.WhichOneof("body")
    if body == "batch":
        return read_batch(envelope, payload)
    read = _READERS.get(body or "")
    if read is None:
        raise FrameError("frame dropped: it carries no message this version knows")
    return read(envelope)


def _write_peer(message: PeerMessage, peer: Peer) -> None:
    message.edge = peer.edge
    message.incarnation = peer.incarnation


def _read_peer(message: PeerMessage) -> Peer:
    return Peer(message.edge, message.incarnation)


def _read_hello(envelope: Envelope) -> Message:
    message = envelope.hello
    return Hello(_read_peer(message.peer), message.fabric, message.lan, message.version)


def _read_welcome(envelope: Envelope) -> Welcome:
    message = envelope.welcome
    express = _read_peer(message.express) if message.HasField("express") else None
    return Welcome(message.router, message.version, express, tuple(message.express_addresses))


def _read_subscribe(envelope: Envelope) -> Message:
    message = envelope.subscribe
    return Subscribe(
        _read_peer(message.subscriber),
        message.origin_incarnation,
        message.topic,
        message.profile,
        message.mirror,
    )


def _read_unsubscribe(envelope: Envelope) -> Message:
    message = envelope.unsubscribe
    return Unsubscribe(_read_peer(message.subscriber), message.topic, message.profile)


def _time(time_ns: int) -> int:
    """Of a clock: differences of two must fit into a frame again."""
    if not -_FARTHEST_NS // 2 <= time_ns <= _FARTHEST_NS:
        raise FrameError(f"frame dropped: {time_ns} ns is no time")
    return time_ns


def _offset(offset_ns: int) -> int:
    if abs(offset_ns) > _FARTHEST_NS:
        raise FrameError(f"frame dropped: clocks are not {offset_ns} ns apart")
    return offset_ns


def _read_open(envelope: Envelope) -> Message:
    message = envelope.open
    if not 1 <= message.first <= MAX_NUMBER:
        raise FrameError(f"frame dropped: a stream does not begin with {message.first}")
    return Open(
        read_stream(message.stream),
        message.topic,
        message.profile,
        message.first,
        message.reliable,
        message.history,
        message.subscriber_incarnation,
    )


def _read_ack(envelope: Envelope) -> Message:
    message = envelope.ack
    return Ack(
        _read_peer(message.subscriber),
        read_stream(message.stream),
        message.cumulative,
        tuple((each.first, each.last) for each in message.ranges),
        message.unknown,
        message.finished,
    )


def _read_probe(envelope: Envelope) -> Message:
    message = envelope.probe
    return Probe(
        _read_peer(message.sender),
        _time(message.sent_ns),
        _offset(message.clock_offset_ns),
        _offset(message.clock_error_ns),
    )


def _read_probe_answer(envelope: Envelope) -> Message:
    message = envelope.probe_answer
    responder = _read_peer(message.responder)
    return ProbeAnswer(responder, _time(message.sent_ns), _time(message.seen_ns))


def _read_arrivals(envelope: Envelope) -> Message:
    message = envelope.arrivals
    return Arrivals(
        _read_peer(message.subscriber),
        _time(message.newest_ns),
        message.total,
        tuple(message.delays_us),
    )


def _read_refused(envelope: Envelope) -> Message:
    message = envelope.refused
    stream = read_stream(message.stream) if message.HasField("stream") else None
    return Refused(message.reason, stream)


_READERS: dict[str, Callable[[Envelope], Message]] = {
    "hello": _read_hello,
    "welcome": _read_welcome,
    "peers": lambda e: Peers(tuple(map(_read_peer, e.peers.peers))),
    "ping": lambda e: Ping(e.ping.nonce, _time(e.ping.sent_ns), e.ping.wanted),
    "pong": lambda e: Pong(e.pong.nonce, _time(e.pong.sent_ns), _time(e.pong.seen_ns)),
    "datagrams": lambda e: Datagrams(e.datagrams.token),
    "subscribe": _read_subscribe,
    "unsubscribe": _read_unsubscribe,
    "open": _read_open,
    "ack": _read_ack,
    "close": lambda e: Close(read_stream(e.close.stream), e.close.last),
    "refused": _read_refused,
    "probe": _read_probe,
    "probe_answer": _read_probe_answer,
    "arrivals": _read_arrivals,
    "alive": lambda e: Alive(read_stream(e.alive.stream)),
}
