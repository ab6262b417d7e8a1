"""`ddswan edge`: one edge broker's process. Wires DDS, ZooKeeper, links, ingress, egress and the
metrics, and ends them in order. Decides and carries nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from edge_broker.dds import samples, shortcuts
from edge_broker.dds.discovery import Discovery
from edge_broker.dds.domain import LanDomain
from edge_broker.deadlines import DeadlinePolicy
from edge_broker.egress import Egress
from edge_broker.ingress import Ingress
from edge_broker.links import Link, Links
from edge_broker.outflows import OutflowLimits
from edge_broker.reconcile import Reconciler
from edge_broker.tracing import Tracing
from edge_broker.type_shop import TypeShop
from edge_broker.vigil import Vigil
from gateway.command import add_setting, require_settings
from gateway.config import Config, split_address
from gateway.coordination.nodes import SessionState
from gateway.coordination.registrar import Registrar
from gateway.coordination.types import TypeStore
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import FrameError
from gateway.lifetime import Lifetime, run_until_signalled
from gateway.model import EdgeInfo, FabricView
from gateway.observe.health import HealthServer, dialable_address
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.process_tuning import tune_process
from gateway.shared_loop import SharedLoop, running_loop
from gateway.tunnel.frames import Batch, Frame, Peer
from gateway.tunnel.messages import (
    Ack,
    Alive,
    Arrivals,
    Close,
    Hello,
    Message,
    Open,
    Probe,
    ProbeAnswer,
    Refused,
    Subscribe,
    Unsubscribe,
    interpret,
)

if TYPE_CHECKING:
    from gateway.observe.traces import TraceWriter

_log = get_logger("edge")

_TICK_S = 0.05
_OBSERVE_EVERY_TICKS = 20
_LOOK_ROUND_EVERY_TICKS = 100
_REMINDER_S = 30.0
_DRAIN_S = 3.0


class EdgeCommand:
    name = "edge"
    help = "run an edge broker: connects the DDS applications of one LAN with other LANs"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_setting(parser, "--id", "edge.id", "ID")
        add_setting(parser, "--lan", "edge.lan", "LAN")
        add_setting(parser, "--domain", "edge.domain", "N")
        add_setting(parser, "--zookeeper", "zookeeper.hosts", "H:P[,H:P]")
        add_setting(parser, "--interface", "edge.interface", "IF")
        add_setting(parser, "--express-listen", "edge.express_listen", "H:P")
        add_setting(parser, "--express-advertise", "edge.express_advertise", "H:P[,H:P]")
        add_setting(parser, "--metrics-port", "edge.metrics_port", "PORT")

    def run(self, config: Config, args: argparse.Namespace) -> int:
        require_settings(config, "edge.id", "edge.lan")
        with asyncio.Runner(loop_factory=SharedLoop) as runner:
            return runner.run(_serve(config))


command = EdgeCommand()


async def _serve(config: Config) -> int:
    lifetime = Lifetime()
    return await run_until_signalled(Edge(config, lifetime).run, lifetime)


def _trace_writer(config: Config, me: Peer, metrics: BrokerMetrics) -> TraceWriter | None:
    if config.trace.directory is None:
        return None
    # Takes some 50 MB and a fifth of a second, which an edge without traces need not pay.
    from gateway.observe.traces import TraceWriter

    return TraceWriter(config.trace, me.edge, me.incarnation, metrics)


class Edge:
    """One edge broker from start to end."""

    def __init__(self, config: Config, lifetime: Lifetime) -> None:
        settings = config.edge
        assert settings.id is not None and settings.lan is not None
        self._config = config
        self._lifetime = lifetime
        self._version = version("ddswan")
        self._info = EdgeInfo(
            edge=settings.id,
            lan=settings.lan,
            incarnation=secrets.randbits(64),
            version=self._version,
        )
        me = Peer(self._info.edge, self._info.incarnation)
        self._metrics = BrokerMetrics(
            "edge",
            self._version,
            fabric=config.fabric,
            broker=settings.id,
            lan=settings.lan,
        )
        self._zk = ZooKeeper(
            ",".join(config.zookeeper.hosts),
            config.fabric,
            session_timeout_s=config.zookeeper.session_timeout_s,
            on_answer=self._metrics.observe_coordination,
        )
        paths = self._zk.paths
        self._watcher = FabricWatcher(self._zk, paths)
        self._registrar = Registrar(self._zk, paths, identity=paths.edge(settings.id))
        self._domain = LanDomain(
            settings.domain, settings.interface, f"{config.fabric}/{settings.id}"
        )
        self._discovery = Discovery(self._domain, self._on_endpoints_changed)
        self._types = TypeShop(
            self._domain,
            self._discovery,
            TypeStore(self._zk, paths),
            on_change=self._mark,
            metrics=self._metrics,
        )
        self._links = Links(
            Hello(me, config.fabric, settings.lan, self._version),
            express_listen=settings.express_listen,
            express_advertise=settings.express_advertise,
            most_express=config.express.most_links,
            has_datagrams=config.express.datagrams,
            on_frame=self._on_frame,
            on_change=self._on_links_changed,
            on_drained=self._on_drained,
            on_failure=lifetime.fail,
            on_garbage=self._on_garbage,
            metrics=self._metrics,
        )
        self._writer = _trace_writer(config, me, self._metrics)
        self._tracing = None
        if self._writer is not None:
            self._tracing = Tracing(config.trace, config.fabric, me, settings.lan, self._writer)
        deadlines = DeadlinePolicy(config.express)
        stream = config.stream
        self._ingress = Ingress(
            me,
            self._domain,
            self._discovery,
            self._types,
            self._links,
            OutflowLimits(
                window_bytes=stream.window_bytes,
                batch_bytes=stream.batch_bytes,
                batch_samples=stream.batch_samples,
                reader_samples=config.ingress.reader_samples,
                reader_bytes=config.ingress.reader_bytes,
                history_bytes=config.ingress.history_bytes,
                outage_bytes=config.ingress.outage_bytes,
            ),
            self._metrics,
            deadlines,
            laggard_timeout_s=stream.laggard_timeout_s,
            tracing=self._tracing,
        )
        self._egress = Egress(
            me,
            self._domain,
            self._types,
            self._links,
            self._metrics,
            window_bytes=stream.window_bytes,
            on_read=self._links.reader.on_read,
            tracing=self._tracing,
        )
        self._links.reader.settle = self._egress.accounts.settle
        self._reconciler = Reconciler(
            lambda: self._info,
            settings.topics,
            self._discovery,
            self._types,
            self._watcher,
            self._registrar,
            paths,
            self._links,
            self._ingress,
            self._egress.mirrors,
            self._metrics,
            deadlines,
        )
        self._vigil = Vigil(config.express.awake_deadline_s, self._metrics)
        self._health: HealthServer | None = None
        self._garbage = 0
        self._published_malformed: Counter[str] = Counter()

    async def run(self) -> None:
        """Serves until told to stop; raises DdswanError when something fails for good."""
        unsubscribe = self._zk.subscribe(self._on_session)
        try:
            if self._writer is not None:
                self._writer.start()
            self._links.start()
            self._info = replace(self._info, express=self._links.express_addresses())
            self._start_health()
            self._domain.open(self._on_data)
            shortcuts.serve(running_loop(), self._ingress.on_taken)
            self._discovery.collect()
            _log.info("joined the LAN", lan=self._info.lan, domain=self._config.edge.domain)
            if not samples.IS_COMPILED:
                _log.warning(
                    "ddswan was installed without a C compiler: this edge carries less; install "
                    "gcc and the headers of Python, then ddswan again"
                )
            tune_process()
            self._watcher.on_change(self._on_view)
            if await self._lifetime.wait_or_stop(self._zk.start()):
                for name, work in (
                    ("registrar", self._registrar.run()),
                    ("view", self._watcher.run()),
                    ("reconcile", self._reconciler.run()),
                    ("tick", self._tick()),
                    ("registration", self._tell_when_registered()),
                ):
                    self._lifetime.spawn(name, work)
                await self._lifetime.until_stop_or_failure()
                await self._drain()
        finally:
            unsubscribe()
            await self._end()

    # ------------------------------------------------------------ events

    def _mark(self) -> None:
        self._reconciler.mark()

    def _on_view(self, view: FabricView) -> None:
        self._reconciler.mark()

    def _on_session(self, state: SessionState) -> None:
        self._metrics.zookeeper_connected.set(state is SessionState.CONNECTED)
        if state is SessionState.LOST:
            self._metrics.session_losses.inc()

    def _on_data(self, readers: list[int]) -> None:
        """The LAN has news: endpoints, samples or both."""
        if not self._domain.built_in_readers.isdisjoint(readers):
            self._discovery.collect()
        self._ingress.on_ready(readers)

    def _on_endpoints_changed(self) -> None:
        shortcuts.lower_all()  # what a writer writes may belong elsewhere from now on
        self._reconciler.mark()

    def _on_links_changed(self) -> None:
        self._ingress.on_links_changed()
        self._egress.on_links_changed()
        self._reconciler.mark()

    def _on_drained(self) -> None:
        self._ingress.wake()

    def _on_frame(self, via: str, link: Link, frame: Frame) -> None:
        if readers := shortcuts.taken():  # this may answer what they have sent
            self._ingress.on_taken(readers)
        try:
            message = interpret(frame)
            if type(message) is Batch:
                self._egress.on_batch(message, via, link)
            else:
                self._dispatch(message, via, link)
        except FrameError as error:
            self._on_garbage(error)

    def _on_garbage(self, error: FrameError) -> None:
        self._garbage += 1
        self._metrics.bad_frames.labels(reason="malformed").inc()
        if self._garbage == 1:
            _log.warning(
                "a frame cannot be understood, it is skipped and later ones "
                "counted only; do all brokers run the same version?",
                reason=str(error),
            )

    def _dispatch(self, message: Message, via: str, link: Link) -> None:
        match message:
            case Ack():
                self._ingress.on_ack(message)
            case Open():
                self._egress.on_open(message)
            case Close():
                self._egress.on_close(message)
            case Alive():
                self._egress.on_alive(message)
            case Refused():
                self._egress.on_refused(message)
            case Subscribe():
                self._ingress.on_subscribe(message)
                self._reconciler.mark()
            case Unsubscribe():
                self._ingress.on_unsubscribe(message)
            case Arrivals():
                self._ingress.on_arrivals(message, via)
            case Probe():
                self._egress.on_probe(message, link)
            case ProbeAnswer():
                self._ingress.on_answer(message, via)
            case _:
                raise FrameError(f"an edge has no use for a {type(message).__name__}")

    async def _tick(self) -> None:
        loop = running_loop()
        ticks = 0
        while True:
            await loop.at_leisure(_TICK_S)
            self._ingress.tick()
            loop.give_way()
            self._egress.tick()
            if self._tracing is not None:
                self._tracing.tick()
            ticks += 1
            if ticks % _OBSERVE_EVERY_TICKS == 0:
                self._observe()
            if ticks % _LOOK_ROUND_EVERY_TICKS == 0:
                self._look_round()

    def _look_round(self) -> None:
        """The host may have other addresses than before: of a VPN, of another network."""
        addresses = self._links.express_addresses()
        if set(addresses) != set(self._info.express):
            _log.info("other edges reach this one at other addresses", addresses=addresses)
            self._info = replace(self._info, express=addresses)
            self._reconciler.mark()

    def _observe(self) -> None:
        self._keep_vigil()
        self._links.observe()
        self._ingress.observe()
        self._egress.observe()
        now_s = time.monotonic()
        self._metrics.retire("topic", self._ingress.topics() | self._egress.mirrors.topics(), now_s)
        self._metrics.retire("peer", self._links.peers(), now_s)
        malformed = self._watcher.malformed
        for kind, count in (malformed - self._published_malformed).items():
            self._metrics.bad_records.labels(kind).inc(count)
        self._published_malformed = malformed.copy()

    def _keep_vigil(self) -> None:
        strict_s = self._vigil.deadline_s
        if strict_s > 0:
            taken = self._ingress.samples_within(strict_s)
            written = self._egress.mirrors.samples_within(strict_s)
            self._vigil.look(taken + written, time.monotonic())

    async def _tell_when_registered(self) -> None:
        while True:
            try:
                await self._registrar.settled(timeout_s=_REMINDER_S)
                break
            except TimeoutError:
                _log.warning(
                    "not registered yet; trying on, is the id in use elsewhere?",
                    zookeeper=self._zk.state.value,
                )
        _log.info("ready", edge=self._info.edge, lan=self._info.lan, fabric=self._config.fabric)
        await asyncio.Event().wait()

    # ------------------------------------------------------------ the way out

    async def _drain(self) -> None:
        """What was taken from DDS still reaches its subscribers."""
        self._ingress.stop()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._ingress.drained.wait()
        except TimeoutError:
            _log.warning(
                "not everything taken from the LAN was acknowledged in time; "
                "some samples may be lost"
            )

    async def _end(self) -> None:
        # The registrar withdraws what it declared, so it goes last.
        await self._lifetime.end(except_for=("registrar",))
        await self._egress.mirrors.deliver()
        self._egress.close()
        self._ingress.close()
        if self._zk.is_connected:
            await self._registrar.withdraw()
        await self._lifetime.end()
        await self._links.close()
        await self._types.close()
        self._domain.close()
        self._vigil.end()
        await self._zk.stop()
        if self._writer is not None:
            self._writer.stop()
        if self._health is not None:
            self._health.stop()
        _log.info("stopped", edge=self._info.edge)

    # ------------------------------------------------------------ observation

    def _start_health(self) -> None:
        port = self._config.edge.metrics_port
        if port is None:
            return
        host = self._config.metrics.host
        self._health = HealthServer(
            host,
            port,
            loop=asyncio.get_running_loop(),
            metrics=self._metrics.render,
            readiness=self._unready_reasons,
            status=self._status,
        )
        self._health.start()
        towards = [split_address(address) for address in self._config.zookeeper.hosts]
        self._info = replace(self._info, metrics=dialable_address(host, self._health.port, towards))

    def _unready_reasons(self) -> list[str]:
        reasons = []
        if not self._zk.is_connected:
            reasons.append(f"ZooKeeper at {self._zk.hosts} is {self._zk.state}")
        if self._info.edge not in self._watcher.view.edges:
            reasons.append("not registered yet")
        reasons += [
            f"no link to router {link['router']}: {link['problem']}"
            for link in self._links.summary()
            if not link["up"]
        ]
        if self._lifetime.is_stopping:
            reasons.append("stopping")
        return reasons

    def _status(self) -> dict[str, Any]:
        return {
            "edge": self._info.edge,
            "lan": self._info.lan,
            "version": self._version,
            "zookeeper": self._zk.state.value,
            "endpoints": len(self._discovery.endpoints()),
            "links": self._links.summary(),
            "express": self._links.express_summary(),
            "pairs": self._ingress.pairs_summary(),
            "outflows": self._ingress.summary(),
            "mirrors": self._egress.mirrors.summary(),
            "incompatible": [
                {
                    "topic": pair.topic,
                    "peer_lan": pair.peer_lan,
                    "policies": list(pair.mismatch.policies),
                    "why": list(pair.mismatch.explain()),
                }
                for pair in self._reconciler.unmatched
            ],
        }
