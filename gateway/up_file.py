"""The schema of an `up` file: every broker of one machine, with the groups of config.py. Read by
`ddswan up` and `ddswan config schema --of up`; `ddswan demo` makes one of its own.
"""

from __future__ import annotations

from pydantic import Field

from gateway.config import (
    FABRIC_TEXT,
    Advice,
    Edge,
    Express,
    Ingress,
    Log,
    Metrics,
    Router,
    Stream,
    Trace,
    ZooKeeper,
)
from gateway.setting_parts import Group, Name


class EmbeddedZooKeeper(ZooKeeper):
    """ZooKeeper of an `up` file: an ensemble elsewhere, or a single node started here."""

    embedded: bool = Field(
        default=True,
        description="Start a ZooKeeper here on the first of `hosts`, which must be of this "
        "machine. False: use the ensemble named in `hosts`.",
    )
    data: str | None = Field(
        default=None,
        description="Directory of the embedded ZooKeeper's data. Default: a temporary one, "
        "because the tree holds only what live brokers put there.",
    )


UP_ONLY = tuple(
    f"zookeeper.{name}"
    for name in EmbeddedZooKeeper.model_fields
    if name not in ZooKeeper.model_fields
)
"""Settings no single process has."""


class Fabric(Group):
    """An `up` file: every broker of one machine; common groups apply to all of them."""

    fabric: Name = Field(default="default", description=FABRIC_TEXT)
    zookeeper: EmbeddedZooKeeper = EmbeddedZooKeeper()
    log: Log = Log()
    metrics: Metrics = Metrics()
    stream: Stream = Stream()
    ingress: Ingress = Ingress()
    express: Express = Express()
    trace: Trace = Trace()
    advice: Advice = Advice()
    routers: tuple[Router, ...] = Field(default=(), description="The routing brokers to run.")
    edges: tuple[Edge, ...] = Field(default=(), description="The edge brokers to run.")
