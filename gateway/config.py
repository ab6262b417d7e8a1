"""Every setting of ddswan, as one validated schema: names, units, bounds, defaults and why.
Read by everybody; filled by `gateway/settings.py`. No file, environment or flag is read here.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.setting_parts import (
    Globs,
    Group,
    Mode,
    Modes,
    Name,
    Port,
    Seconds,
    Share,
    Shares,
    from_commas,
)


def is_host(text: str) -> bool:
    """Whether it can be looked up: the resolver raises what nobody expects of other texts."""
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port); raises ValueError with what is expected."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"must be host:port ([address]:port for IPv6), found {address!r}")
    if not colon or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"must be host:port with a port of 0 to 65535, found {address!r}")
    if not is_host(host):
        raise ValueError(f"must be host:port with a name that a host may have, found {address!r}")
    return host, int(port)


def _is_address(text: str) -> str:
    split_address(text)
    return text


def _is_address_or_none(text: str) -> str:
    return text if text == NONE else _is_address(text)


Address = Annotated[str, AfterValidator(_is_address)]
"""host:port; `split_address` takes it apart."""
NONE = "none"
AddressOrNone = Annotated[str, AfterValidator(_is_address_or_none)]
Addresses = Annotated[tuple[Address, ...], BeforeValidator(from_commas), Field(min_length=1)]


class ZooKeeper(Group):
    """Where the control plane is."""

    hosts: Addresses = Field(
        default=("127.0.0.1:2181",),
        description="ZooKeeper ensemble, H:P[,H:P]. The default suits one machine.",
    )
    session_timeout_s: Seconds = Field(
        default=10.0,
        description="Seconds of silence after which ZooKeeper forgets a broker and its work moves. "
        "10 s rides out a short outage of the network and is still a tolerable failover.",
    )


class Log(Group):
    """What the brokers say while they run (on standard error)."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Least severe level shown. `debug` also shows tracebacks of errors.",
    )
    format: Literal["text", "json"] = Field(
        default="text", description="`text` for people, `json` (one object a line) for collectors."
    )


class Metrics(Group):
    """Where metrics and health are served; each broker's port is its own setting."""

    host: str = Field(
        default="0.0.0.0",
        min_length=1,
        description="Address the metrics port listens on. All addresses, because scrapers are "
        "usually on another machine; 127.0.0.1 keeps it local.",
    )


class Topics(Group):
    """Which topics may leave or enter the LAN; patterns with `*`, `?` and `[…]`."""

    allow: Globs = Field(
        default=("*",), description="A topic must match one of these. Default: every topic."
    )
    deny: Globs = Field(
        default=(), description="A topic matching one of these stays local, whatever `allow` says."
    )


class Edge(Group):
    """An edge broker: the ddswan process inside one LAN."""

    id: Name | None = Field(
        default=None,
        description="Name of this edge, unique in the fabric. No default: two edges with one name "
        "would fight.",
    )
    lan: Name | None = Field(
        default=None,
        description="Name of the LAN this edge serves. No default: topics cross between LANs of "
        "different names only.",
    )
    domain: int = Field(
        default=0, ge=0, le=232, description="DDS domain of the LAN. 0 is the DDS default."
    )
    interface: str | None = Field(
        default=None,
        description="Network interface (name or address) DDS uses. Default: what DDS chooses.",
    )
    express_listen: Address | None = Field(
        default=None,
        description="Address to listen on for direct links from other edges, which topics with "
        "strict deadlines use. Default: none; this edge then dials those that listen.",
    )
    express_advertise: Addresses | None = Field(
        default=None,
        description="Addresses at which other edges reach `express_listen`; the first that "
        "answers is used. Default: `express_listen`, or this host's addresses with its port.",
    )
    metrics_port: Port | None = Field(
        default=None,
        description="Port of /metrics, /healthz, /readyz and /status; 0 picks a free one. "
        "Default: not served.",
    )
    topics: Topics = Topics()


class Router(Group):
    """A routing broker: forwards between edges; one of them leads."""

    id: Name | None = Field(
        default=None,
        description="Name of this router, unique in the fabric. No default: two routers with one "
        "name would fight.",
    )
    listen: Address = Field(
        default="0.0.0.0:7447",
        description="Address edges connect to. All addresses: a router exists to be reached.",
    )
    advertise: Address | None = Field(
        default=None,
        description="Address edges are told to dial. Default: `listen`, which therefore must then "
        "name one host.",
    )
    express_listen: AddressOrNone | None = Field(
        default=None,
        description="Address for express links of edges, which carry samples several times as fast "
        "as gRPC. Default: the host of `listen` and a free port; name one where a firewall has to "
        "let it through. Edges that cannot reach it use gRPC alone. `none`: not served.",
    )
    express_advertise: Addresses | None = Field(
        default=None,
        description="Addresses at which edges reach `express_listen`; the first that answers is "
        "used. Default: the host of `advertise` with the port of `express_listen`.",
    )
    zone: str = Field(
        default="",
        description="Failure zone (rack, availability zone); primary and standby prefer different "
        "ones. Default: none.",
    )
    metrics_port: Port | None = Field(
        default=None,
        description="Port of /metrics, /healthz, /readyz and /status; 0 picks a free one. "
        "Default: not served.",
    )
    strategy: Literal["least-load", "least-topics", "least-cpu", "least-connections"] = Field(
        default="least-load",
        description="How the leader chooses a router for a topic: fewest forwarded bytes per "
        "second, fewest topics, least processor time for those bytes (machines differ), or fewest "
        "edges joined by its topics.",
    )
    load_report_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between load reports to ZooKeeper. 5 s shows trends and costs "
        "ZooKeeper little.",
    )
    rebalance_interval_s: Seconds = Field(
        default=30.0,
        description="Least seconds between two rounds of moving topics off a busy router. Slower "
        "than load reports, so that a move shows its effect before the next.",
    )
    rebalance_ratio: float = Field(
        default=1.5,
        ge=1.0,
        le=100.0,
        description="How many times the mean load a router carries before topics move off it. "
        "1.5 leaves small differences alone.",
    )
    rebalance_min_bytes_per_s: int = Field(
        default=1_048_576,
        ge=0,
        description="Load below which nothing is moved: 1 MiB/s overloads nobody.",
    )
    queue_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=65_536,
        description="Bytes waiting for one edge before the router drops frames for it (they are "
        "resent end to end). 16 MiB is 0.1 s at 1 Gbit/s.",
    )


class Stream(Group):
    """How samples travel between edges."""

    window_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=65_536,
        description="Unacknowledged bytes a reliable stream may have on the way before its writer "
        "is held back. 16 MiB fills 1 Gbit/s at 130 ms round trip.",
    )
    batch_bytes: int = Field(
        default=1024 * 1024,
        ge=1024,
        description="Payload bytes after which a batch is sent; one larger sample makes a batch of "
        "its own. 1 MiB makes the cost per frame small for samples of 64 KiB, too; on a slow "
        "uplink smaller ones make topics wait less for one another. Topics with a strict deadline "
        "have batches of 256 KiB at most.",
    )
    batch_samples: int = Field(
        default=4096,
        ge=1,
        le=65_536,
        description="Samples after which a batch is sent. 4096 small samples make the cost per "
        "frame vanish; batches grow so far only under load.",
    )
    laggard_timeout_s: Seconds = Field(
        default=30.0,
        description="Seconds a subscribing LAN may acknowledge nothing before the others stop "
        "waiting for it. Longer than any ordinary reconnect.",
    )


class Express(Group):
    """Topics with strict deadlines: direct links between edges beside the routed path."""

    max_deadline_s: Seconds = Field(
        default=1.0,
        description="Topics whose writers offer a deadline of at most so many seconds use two "
        "paths. A routed sample is rarely later than a second.",
    )
    topics: Globs = Field(
        default=(),
        description="Topics that use two paths whatever their deadline, by pattern (`*`, `?`, "
        "`[…]`); without a deadline they aim at `max_deadline_s`. Default: none.",
    )
    mode: Mode = Field(
        default="adaptive",
        description="How two paths are used. `adaptive`: the one most likely in time, both while "
        "that is not enough; `duplicate`: always both; `single`: the direct one, the other when "
        "there is none.",
    )
    modes: Modes = Field(
        default={},
        description="Modes of single topics, by pattern; the first that matches counts. Default: "
        "`mode` for all.",
    )
    miss_target: float = Field(
        default=0.001,
        gt=0.0,
        le=0.5,
        description="With `adaptive`, the share of samples that may miss their deadline although a "
        "copy on the other path would not have. 0.001 is what two paths are bought for.",
    )
    most_wait_s: float = Field(
        default=0.025,
        ge=0.0,
        le=1.0,
        description="With `adaptive`, how long a sample waits at most for others that go the same "
        "way, where paths lose packets and so little is not noticed: never more than 8 % of what "
        "the path takes, nor half of the time left. What travels together is held up less often. "
        "0: each goes at once.",
    )
    datagrams: bool = Field(
        default=True,
        description="With `adaptive`, whether samples may go in datagrams with repair data beside "
        "a direct link where that loses packets, over UDP at the same port. Where only TCP passes "
        "they go over that.",
    )
    awake_deadline_s: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Seconds; while samples of topics with this deadline or a stricter one flow, "
        "the edge keeps the processors of its machine awake, so that a lone sample takes half to "
        "four fifths of the time. All of them then draw power as if they worked, which nobody "
        "may do to a machine unasked: 0, the default, is never. Needs write access to "
        "`/dev/cpu_dma_latency`.",
    )
    most_links: int = Field(
        default=64,
        ge=1,
        le=4096,
        description="Direct links one edge holds at most, one for each other edge whatever the "
        "number of topics. Further ones stay routed.",
    )


class Ingress(Group):
    """How an edge reads from DDS."""

    reader_samples: int = Field(
        default=8192,
        ge=64,
        le=1_048_576,
        description="Samples a DDS reader of the edge holds before it pushes back on a reliable "
        "writer. DDS pauses for some 10 ms when a reader is full; this is what a fast writer of "
        "small samples sends meanwhile.",
    )
    reader_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1_048_576,
        description="Bytes a DDS reader of the edge holds, roughly: where samples are large "
        "it holds fewer than `reader_samples`, but always 16. 64 MiB is some 100 ms of all a "
        "machine can carry.",
    )
    outage_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=0,
        description="Bytes an edge keeps, for all its reliable streams together and beyond their "
        "windows, while subscribing LANs are cut off. After that reliable writers are held back. "
        "256 MiB bridge half a minute of 8 MiB/s.",
    )
    history_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=65_536,
        description="Bytes of history an edge keeps for one transient-local publisher profile, for "
        "LANs that subscribe later. The origin's own history depth is the usual bound; this is the "
        "last one.",
    )


class Trace(Group):
    """Latency traces: rows an edge writes about samples that arrived, for `ddswan analyze`."""

    directory: str | None = Field(
        default=None,
        min_length=1,
        description="Directory the edge writes traces into (Parquet files); several edges may "
        "share it. Default: none are written.",
    )
    share: Share = Field(
        default=0.01,
        description="Share of a topic's batches that are traced, 0 to 1. One in a hundred gives "
        "percentiles of any busy topic within minutes and costs nearly nothing.",
    )
    topics: Shares = Field(
        default={},
        description="Shares of single topics, by pattern (`*`, `?`, `[…]`); the first that "
        "matches counts. Default: `share` for all.",
    )
    deadline_misses: bool = Field(
        default=True,
        description="Trace every sample that arrives later than its deadline, whatever the share: "
        "these are the ones somebody asks about.",
    )
    file_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=65_536,
        description="Bytes after which a new file is begun; never more than a quarter of "
        "`disk_bytes`. 16 MiB hold about half a million rows.",
    )
    file_age_s: Seconds = Field(
        default=60.0,
        description="Seconds after which a file is closed and can be read. A crash loses the rows "
        "of the file being written, never a closed one.",
    )
    disk_bytes: int = Field(
        default=1024 * 1024 * 1024,
        ge=1_048_576,
        description="Bytes one edge's files may take; the oldest are removed first. 1 GiB is some "
        "30 million samples.",
    )
    queue_samples: int = Field(
        default=200_000,
        ge=1_000,
        description="Rows waiting to be written before more are dropped and counted. 200,000 are "
        "a second of the busiest edge, all of it traced.",
    )


class Advice(Group):
    """What is done with what `ddswan analyze` recommends (`ddswan recommend`)."""

    mode: Literal["manual", "auto"] = Field(
        default="manual",
        description="`manual`: `ddswan recommend apply` applies it. `auto`: the leading router "
        "does, from `file`.",
    )
    file: str | None = Field(
        default=None,
        min_length=1,
        description="The recommendations.json the leader reads with `auto`; every router that may "
        "lead needs it. Default: none, and then nothing is applied.",
    )
    most_changes: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Changes applied at a time, most urgent first. Few, so that their effect can "
        "be told apart.",
    )
    interval_s: Seconds = Field(
        default=60.0, description="Seconds between two looks of the leader at `file`."
    )
    hold_s: Seconds = Field(
        default=900.0,
        description="Seconds the leader leaves what it applied to a topic alone, so that the next "
        "analysis has seen the effect before it is changed again.",
    )


FABRIC_TEXT = "Name of the fabric: brokers of different fabrics share ZooKeeper and nothing else."


class Config(Group):
    """All settings of one ddswan process."""

    fabric: Name = Field(default="default", description=FABRIC_TEXT)
    zookeeper: ZooKeeper = ZooKeeper()
    log: Log = Log()
    metrics: Metrics = Metrics()
    edge: Edge = Edge()
    router: Router = Router()
    stream: Stream = Stream()
    ingress: Ingress = Ingress()
    express: Express = Express()
    trace: Trace = Trace()
    advice: Advice = Advice()
