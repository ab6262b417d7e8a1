from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SampleKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WRITE: _ClassVar[SampleKind]
    DISPOSE: _ClassVar[SampleKind]
    WRITE_DISPOSE: _ClassVar[SampleKind]
    UNREGISTER: _ClassVar[SampleKind]
WRITE: SampleKind
DISPOSE: SampleKind
WRITE_DISPOSE: SampleKind
UNREGISTER: SampleKind

class Envelope(_message.Message):
    __slots__ = ("to", "trace", "hello", "welcome", "peers", "ping", "pong", "datagrams", "subscribe", "unsubscribe", "open", "batch", "ack", "close", "refused", "alive", "probe", "probe_answer", "arrivals")
    TO_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    DATAGRAMS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    PROBE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_FIELD_NUMBER: _ClassVar[int]
    to: _containers.RepeatedScalarFieldContainer[str]
    trace: Trace
    hello: Hello
    welcome: Welcome
    peers: Peers
    ping: Ping
    pong: Pong
    datagrams: Datagrams
    subscribe: Subscribe
    unsubscribe: Unsubscribe
    open: Open
    batch: Batch
    ack: Ack
    close: Close
    refused: Refused
    alive: Alive
    probe: Probe
    probe_answer: ProbeAnswer
    arrivals: Arrivals
    def __init__(self, to: _Optional[_Iterable[str]] = ..., trace: _Optional[_Union[Trace, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., peers: _Optional[_Union[Peers, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., datagrams: _Optional[_Union[Datagrams, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., probe_answer: _Optional[_Union[ProbeAnswer, _Mapping]] = ..., arrivals: _Optional[_Union[Arrivals, _Mapping]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("edge", "incarnation")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    edge: str
    incarnation: int
    def __init__(self, edge: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("peer", "fabric", "lan", "version")
    PEER_FIELD_NUMBER: _ClassVar[int]
    FABRIC_FIELD_NUMBER: _ClassVar[int]
    LAN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    peer: Peer
    fabric: str
    lan: str
    version: str
    def __init__(self, peer: _Optional[_Union[Peer, _Mapping]] = ..., fabric: _Optional[str] = ..., lan: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("router", "version", "express", "express_addresses")
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPRESS_FIELD_NUMBER: _ClassVar[int]
    EXPRESS_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    router: str
    version: str
    express: Peer
    express_addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, router: _Optional[str] = ..., version: _Optional[str] = ..., express: _Optional[_Union[Peer, _Mapping]] = ..., express_addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class Peers(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    def __init__(self, peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce", "sent_ns", "wanted")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    sent_ns: int
    wanted: bool
    def __init__(self, nonce: _Optional[int] = ..., sent_ns: _Optional[int] = ..., wanted: _Optional[bool] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce", "sent_ns", "seen_ns")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    SEEN_NS_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    sent_ns: int
    seen_ns: int
    def __init__(self, nonce: _Optional[int] = ..., sent_ns: _Optional[int] = ..., seen_ns: _Optional[int] = ...) -> None: ...

class Datagrams(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: int
    def __init__(self, token: _Optional[int] = ...) -> None: ...

class StreamId(_message.Message):
    __slots__ = ("origin", "number")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    origin: Peer
    number: int
    def __init__(self, origin: _Optional[_Union[Peer, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("subscriber", "origin_incarnation", "topic", "profile", "mirror")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    subscriber: Peer
    origin_incarnation: int
    topic: str
    profile: str
    mirror: int
    def __init__(self, subscriber: _Optional[_Union[Peer, _Mapping]] = ..., origin_incarnation: _Optional[int] = ..., topic: _Optional[str] = ..., profile: _Optional[str] = ..., mirror: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("subscriber", "topic", "profile")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    subscriber: Peer
    topic: str
    profile: str
    def __init__(self, subscriber: _Optional[_Union[Peer, _Mapping]] = ..., topic: _Optional[str] = ..., profile: _Optional[str] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("stream", "topic", "profile", "first", "reliable", "history", "subscriber_incarnation")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    topic: str
    profile: str
    first: int
    reliable: bool
    history: int
    subscriber_incarnation: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., topic: _Optional[str] = ..., profile: _Optional[str] = ..., first: _Optional[int] = ..., reliable: _Optional[bool] = ..., history: _Optional[int] = ..., subscriber_incarnation: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("stream", "first", "count", "timestamps", "sizes", "uniform_size", "kinds", "sent_ns")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_SIZE_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    first: int
    count: int
    timestamps: bytes
    sizes: bytes
    uniform_size: int
    kinds: bytes
    sent_ns: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., timestamps: _Optional[bytes] = ..., sizes: _Optional[bytes] = ..., uniform_size: _Optional[int] = ..., kinds: _Optional[bytes] = ..., sent_ns: _Optional[int] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("share", "ingress_ns", "sent_ns", "copies", "router_clock_offset_ns", "router_clock_error_ns", "router_in_ns", "router_out_ns")
    class CopiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SHARE_FIELD_NUMBER: _ClassVar[int]
    INGRESS_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ROUTER_CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_CLOCK_ERROR_NS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_IN_NS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_OUT_NS_FIELD_NUMBER: _ClassVar[int]
    share: float
    ingress_ns: int
    sent_ns: int
    copies: _containers.ScalarMap[str, int]
    router_clock_offset_ns: int
    router_clock_error_ns: int
    router_in_ns: int
    router_out_ns: int
    def __init__(self, share: _Optional[float] = ..., ingress_ns: _Optional[int] = ..., sent_ns: _Optional[int] = ..., copies: _Optional[_Mapping[str, int]] = ..., router_clock_offset_ns: _Optional[int] = ..., router_clock_error_ns: _Optional[int] = ..., router_in_ns: _Optional[int] = ..., router_out_ns: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("subscriber", "stream", "cumulative", "ranges", "unknown", "finished")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    subscriber: Peer
    stream: StreamId
    cumulative: int
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    unknown: bool
    finished: bool
    def __init__(self, subscriber: _Optional[_Union[Peer, _Mapping]] = ..., stream: _Optional[_Union[StreamId, _Mapping]] = ..., cumulative: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., unknown: _Optional[bool] = ..., finished: _Optional[bool] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("stream", "last")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    last: int
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ..., last: _Optional[int] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: StreamId
    def __init__(self, stream: _Optional[_Union[StreamId, _Mapping]] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("sender", "sent_ns", "clock_offset_ns", "clock_error_ns")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ERROR_NS_FIELD_NUMBER: _ClassVar[int]
    sender: Peer
    sent_ns: int
    clock_offset_ns: int
    clock_error_ns: int
    def __init__(self, sender: _Optional[_Union[Peer, _Mapping]] = ..., sent_ns: _Optional[int] = ..., clock_offset_ns: _Optional[int] = ..., clock_error_ns: _Optional[int] = ...) -> None: ...

class ProbeAnswer(_message.Message):
    __slots__ = ("responder", "sent_ns", "seen_ns")
    RESPONDER_FIELD_NUMBER: _ClassVar[int]
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    SEEN_NS_FIELD_NUMBER: _ClassVar[int]
    responder: Peer
    sent_ns: int
    seen_ns: int
    def __init__(self, responder: _Optional[_Union[Peer, _Mapping]] = ..., sent_ns: _Optional[int] = ..., seen_ns: _Optional[int] = ...) -> None: ...

class Arrivals(_message.Message):
    __slots__ = ("subscriber", "newest_ns", "total", "delays_us")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    NEWEST_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELAYS_US_FIELD_NUMBER: _ClassVar[int]
    subscriber: Peer
    newest_ns: int
    total: int
    delays_us: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, subscriber: _Optional[_Union[Peer, _Mapping]] = ..., newest_ns: _Optional[int] = ..., total: _Optional[int] = ..., delays_us: _Optional[_Iterable[int]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "stream")
    REASON_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    reason: str
    stream: StreamId
    def __init__(self, reason: _Optional[str] = ..., stream: _Optional[_Union[StreamId, _Mapping]] = ...) -> None: ...
