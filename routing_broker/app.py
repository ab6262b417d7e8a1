"""`ddswan router`: one routing broker's process. Wires ZooKeeper, registration, election, the
leader's work, the relay and the metrics, and ends them in order. Decides and carries nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import secrets
from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from gateway.command import add_setting, require_settings
from gateway.config import NONE, Config, split_address
from gateway.config import Router as RouterSettings
from gateway.coordination.election import Election
from gateway.coordination.nodes import SessionState
from gateway.coordination.records import encode_router
from gateway.coordination.registrar import Registrar
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import ConfigError, CoordinationError
from gateway.lifetime import Lifetime, run_until_signalled
from gateway.model import FabricView, RouterInfo
from gateway.observe.health import HealthServer
from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics
from gateway.plan.assignment import Rebalancing
from gateway.plan.strategies import choose_strategy
from gateway.process_tuning import tune_process
from gateway.shared_loop import SharedLoop
from routing_broker.adviser import Adviser
from routing_broker.leader import Leader, Patience
from routing_broker.relay import Relay

log = get_logger("router")

_DRAIN_S = 2.5
"""Longest wait for topics and edges to move away. Even when ZooKeeper falls silent meanwhile, the
whole way out takes less than 10 s."""
_LOOK_S = 0.05
_REMINDER_S = 30.0


class RouterCommand:
    name = "router"
    help = "run a routing broker: forwards samples between edges; one of them leads"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_setting(parser, "--id", "router.id", "ID")
        add_setting(parser, "--zookeeper", "zookeeper.hosts", "H:P[,H:P]")
        add_setting(parser, "--listen", "router.listen", "H:P")
        add_setting(parser, "--advertise", "router.advertise", "H:P")
        add_setting(parser, "--express-listen", "router.express_listen", "H:P|none")
        add_setting(parser, "--express-advertise", "router.express_advertise", "H:P[,H:P]")
        add_setting(parser, "--zone", "router.zone", "NAME")
        add_setting(parser, "--strategy", "router.strategy", "NAME")
        add_setting(parser, "--metrics-port", "router.metrics_port", "PORT")

    def run(self, config: Config, args: argparse.Namespace) -> int:
        require_settings(config, "router.id")
        advertised_address(config, 0)
        with asyncio.Runner(loop_factory=SharedLoop) as runner:
            return runner.run(_serve(config))


command = RouterCommand()


def _express_listen(settings: RouterSettings) -> str | None:
    """Where edges may come beside gRPC; None: nowhere."""
    if settings.express_listen is None:
        return _address(split_address(settings.listen)[0], 0)
    return None if settings.express_listen == NONE else settings.express_listen


def advertised_address(config: Config, port: int) -> str:
    """Where edges reach this router; `port` is the one bound, for addresses that leave it open."""
    given = config.router.advertise or config.router.listen
    host, wanted = split_address(given)
    if _is_everywhere(host):
        raise ConfigError(
            f"edges cannot dial {given}: pass --advertise HOST:PORT, the address at which they "
            f"reach this router"
        )
    return _address(host, wanted or port)


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _serve(config: Config) -> int:
    lifetime = Lifetime()
    return await run_until_signalled(Router(config, lifetime).run, lifetime)


def _adviser(config: Config, zk: ZooKeeper) -> Adviser | None:
    if config.advice.mode != "auto" or config.advice.file is None:
        return None
    return Adviser(zk, config.advice, config.fabric)


class Router:
    """One routing broker from start to end."""

    def __init__(self, config: Config, lifetime: Lifetime) -> None:
        settings = config.router
        assert settings.id is not None
        self._config = config
        self._lifetime = lifetime
        self._version = version("ddswan")
        self._metrics = BrokerMetrics(
            "router", self._version, fabric=config.fabric, broker=settings.id
        )
        self._relay = Relay(
            settings.listen,
            router=settings.id,
            fabric=config.fabric,
            version=self._version,
            metrics=self._metrics,
            express_listen=_express_listen(settings),
            express_host=advertised_address(config, 1).rpartition(":")[0],
            express_advertise=settings.express_advertise,
            on_failure=lifetime.fail,
        )
        self._info = RouterInfo(
            router=settings.id,
            address="",
            zone=settings.zone,
            incarnation=secrets.randbits(64),
            version=self._version,
        )
        self._zk = ZooKeeper(
            ",".join(config.zookeeper.hosts),
            config.fabric,
            session_timeout_s=config.zookeeper.session_timeout_s,
            on_answer=self._metrics.observe_coordination,
        )
        paths = self._zk.paths
        self._watcher = FabricWatcher(self._zk, paths)
        self._registrar = Registrar(self._zk, paths, identity=paths.router(settings.id))
        self._election = Election(self._zk, paths, settings.id)
        self._leader = Leader(
            self._zk,
            self._election,
            self._watcher,
            strategy=choose_strategy(
                settings.strategy, negligible_bytes_per_s=settings.rebalance_min_bytes_per_s
            ),
            rebalancing=Rebalancing(factor=settings.rebalance_ratio),
            metrics=self._metrics,
            patience=Patience(rebalance_interval_s=settings.rebalance_interval_s),
            adviser=_adviser(config, self._zk),
        )
        self._health: HealthServer | None = None
        self._published_malformed: Counter[str] = Counter()

    async def run(self) -> None:
        """Serves until told to stop; raises DdswanError when something fails for good."""
        unsubscribe = self._zk.subscribe(self._on_session)
        try:
            self._start_health()
            await self._relay.start()
            tune_process()
            self._info = replace(
                self._info, address=advertised_address(self._config, self._relay.port)
            )
            log.info("listening", router=self._info.router, address=self._info.address)
            if await self._lifetime.wait_or_stop(self._zk.start()):
                await self._serve()
        finally:
            unsubscribe()
            await self._end()

    # ------------------------------------------------------------ serving

    async def _serve(self) -> None:
        self._declare()
        self._lifetime.spawn("registrar", self._registrar.run())
        # Nobody leads, or reports, under a name that may be another's.
        self._lifetime.spawn("registration", self._registered())
        await self._lifetime.until_stop_or_failure()
        await self._drain()

    async def _registered(self) -> None:
        while True:
            try:
                await self._registrar.settled(timeout_s=_REMINDER_S)
                break
            except TimeoutError:
                log.warning(
                    "not registered yet; trying on, is the id in use elsewhere?",
                    zookeeper=self._zk.state.value,
                )
        log.info("registered", router=self._info.router, fabric=self._config.fabric)
        self._lifetime.spawn("view", self._watcher.run())
        self._lifetime.spawn("election", self._election.run())
        self._lifetime.spawn("leader", self._leader.run())
        await self._report_load()

    async def _report_load(self) -> None:
        while True:
            await asyncio.sleep(self._config.router.load_report_interval_s)
            load = self._relay.load()
            self._info = replace(self._info, load=replace(load, cpu=round(load.cpu, 2)))
            self._declare()
            malformed = self._watcher.malformed
            for kind, count in (malformed - self._published_malformed).items():
                self._metrics.bad_records.labels(kind).inc(count)
            self._published_malformed = malformed.copy()

    def _declare(self) -> None:
        path = self._zk.paths.router(self._info.router)
        self._registrar.declare({path: encode_router(self._info)})

    def _on_session(self, state: SessionState) -> None:
        self._metrics.zookeeper_connected.set(state is SessionState.CONNECTED)
        if state is SessionState.LOST:
            self._metrics.session_losses.inc()

    # ------------------------------------------------------------ the way out

    async def _drain(self) -> None:
        """Asks the leader to move our topics away and waits for the edges to follow, if there is
        anybody to take them."""
        self._info = replace(self._info, draining=True)
        self._declare()
        log.info("draining", edges=len(self._relay.edges))
        try:
            async with asyncio.timeout(_DRAIN_S):
                self._watcher.follow(None)
                view = await self._watcher.refresh()
                while self._has_heir(view) and (self._is_assigned(view) or self._relay.edges):
                    await asyncio.sleep(_LOOK_S)
                    view = self._watcher.view
        except TimeoutError:
            log.warning(
                "not drained in time; the edges use other routers from now on",
                edges=len(self._relay.edges),
            )
        except CoordinationError as error:
            log.warning(
                "cannot hand over; the leader does when the session has expired", reason=str(error)
            )

    def _has_heir(self, view: FabricView) -> bool:
        us = self._info.router
        return any(name != us and not info.draining for name, info in view.routers.items())

    def _is_assigned(self, view: FabricView) -> bool:
        us = self._info.router
        return any(
            us in (topic.assignment.primary, topic.assignment.standby)
            for topic in view.topics.values()
            if topic.assignment is not None and (topic.pubs or topic.subs)
        )

    async def _end(self) -> None:
        # The registrar withdraws what it declared, so its task goes last.
        ending = [self._lifetime.end(except_for=("registrar",)), self._relay.close()]
        if self._zk.is_connected:
            ending.append(self._registrar.withdraw())
        await asyncio.gather(*ending)
        await self._lifetime.end()
        await self._zk.stop()
        if self._health is not None:
            self._health.stop()
        log.info("stopped", router=self._info.router)

    # ------------------------------------------------------------ observation

    def _start_health(self) -> None:
        port = self._config.router.metrics_port
        if port is None:
            return
        health = HealthServer(
            self._config.metrics.host,
            port,
            loop=asyncio.get_running_loop(),
            metrics=self._metrics.render,
            readiness=self._unready_reasons,
            status=self._status,
        )
        health.start()
        self._health = health
        host = self._config.metrics.host
        if _is_everywhere(host):
            host, _ = split_address(self._config.router.advertise or self._config.router.listen)
        self._info = replace(self._info, metrics=_address(host, health.port))

    def _unready_reasons(self) -> list[str]:
        reasons = []
        if not self._zk.is_connected:
            reasons.append(f"ZooKeeper at {self._zk.hosts} is {self._zk.state}")
        if self._info.router not in self._watcher.view.routers:
            reasons.append("not registered yet")
        if self._lifetime.is_stopping:
            reasons.append("draining")
        return reasons

    def _status(self) -> dict[str, Any]:
        load = self._relay.load()
        leadership = self._election.leadership
        return {
            "router": self._info.router,
            "address": self._info.address,
            "version": self._version,
            "zookeeper": self._zk.state.value,
            "draining": self._lifetime.is_stopping,
            "leader": self._leader.is_leading,
            "epoch": leadership.epoch if leadership is not None else None,
            "unserved_topics": self._leader.unserved,
            "edges": sorted(peer.edge for peer in self._relay.edges),
            "bytes_per_s": load.bytes_per_s,
            "cpu": load.cpu,
            "topics": dict(load.topics),
        }
