"""`ddswan up FILE`: every broker of one file on this machine, supervised until a signal. Called
by the command line; `demo` runs its brokers through the same functions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import yaml

from gateway.commands.supervisor import Child, Supervisor, ddswan_child, wait_for_address
from gateway.config import Config, Edge, Router, ZooKeeper, split_address
from gateway.errors import ConfigError, DdswanError
from gateway.observe.logs import get_logger
from gateway.settings import load_settings
from gateway.up_file import Fabric

_log = get_logger("up")

ZOOKEEPER_STAGE = 0
ROUTER_STAGE = 1
EDGE_STAGE = 2
_ZOOKEEPER_TIMEOUT_S = 30.0


class UpCommand:
    name = "up"
    help = "run everything of one YAML file on this machine: ZooKeeper, routers, edges"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", help="what to run; examples/two-lans.yaml explains itself"
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        if args.config is not None:
            raise ConfigError("up takes its settings from FILE; leave out --config")
        fabric = load_settings(
            Fabric,
            file=args.file,
            # Its own settings only: DDSWAN_EDGE_… cannot mean one of several edges.
            environment=_common_environment(),
            flags={path: getattr(args, path) for path in ("fabric", "log.level", "log.format")},
        )
        check_fabric(fabric, args.file)
        return asyncio.run(_run(fabric))


def check_fabric(fabric: Fabric, file: str) -> None:
    """Refuses what cannot run before anything is started."""
    if not fabric.routers or not fabric.edges:
        raise ConfigError(f"{file} needs at least one entry under 'routers' and under 'edges'")
    for edge in fabric.edges:
        if edge.lan is None:
            raise ConfigError(f"{file}: every entry under 'edges' needs a 'lan'")
    ids = {
        "routers": [router.id for router in fabric.routers],
        "edges": [edge.id for edge in fabric.edges],
    }
    for kind, names in ids.items():
        if None in names:
            raise ConfigError(f"{file}: every entry under '{kind}' needs an 'id'")
        (name, count) = Counter(names).most_common(1)[0]
        if count > 1:
            raise ConfigError(f"{file}: {count} {kind} are called {name}; give each its own 'id'")


def zookeeper_child(fabric: Fabric, directory: Path, data: str) -> Child:
    """The embedded ZooKeeper of this fabric."""
    host, port = split_address(fabric.zookeeper.hosts[0])
    file = _write_config(directory, "zookeeper", fabric, {})
    return ddswan_child(
        "zookeeper",
        ZOOKEEPER_STAGE,
        *("zookeeper", "--config", str(file)),
        *("--host", host, "--port", str(port), "--data", data),
    )


def router_child(fabric: Fabric, router: Router, directory: Path) -> Child:
    file = _write_config(directory, f"router-{router.id}", fabric, {"router": router})
    return ddswan_child(f"router {router.id}", ROUTER_STAGE, "router", "--config", str(file))


def edge_child(fabric: Fabric, edge: Edge, directory: Path) -> Child:
    file = _write_config(directory, f"edge-{edge.id}", fabric, {"edge": edge})
    return ddswan_child(f"edge {edge.id}", EDGE_STAGE, "edge", "--config", str(file))


def _write_config(
    directory: Path, name: str, fabric: Fabric, own: Mapping[str, Router | Edge]
) -> Path:
    """One process's settings: the common groups and its own."""
    zookeeper = ZooKeeper(
        hosts=fabric.zookeeper.hosts, session_timeout_s=fabric.zookeeper.session_timeout_s
    )
    common = {
        "zookeeper": zookeeper,
        "log": fabric.log,
        "metrics": fabric.metrics,
        "stream": fabric.stream,
        "ingress": fabric.ingress,
        "express": fabric.express,
        "trace": fabric.trace,
        "advice": fabric.advice,
    }
    config = Config.model_validate({"fabric": fabric.fabric, **common, **own})
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    return file


def _common_environment() -> dict[str, str]:
    return {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("DDSWAN_EDGE_", "DDSWAN_ROUTER_"))
    }


async def _run(fabric: Fabric) -> int:
    loop = asyncio.get_running_loop()
    names = [f"router {router.id}" for router in fabric.routers]
    names += [f"edge {edge.id}" for edge in fabric.edges]
    width = max(len(name) for name in ("zookeeper", *names))

    def show(name: str, line: str) -> None:
        is_json = fabric.log.format == "json"
        print(line if is_json else f"{name:<{width}} | {line}", flush=True)

    supervisor = Supervisor(show)
    interrupted = asyncio.Event()

    def interrupt() -> None:
        if interrupted.is_set():
            supervisor.kill()
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    with tempfile.TemporaryDirectory(prefix="ddswan-up-") as name:
        running = asyncio.create_task(
            _start_all(supervisor, fabric, Path(name)), name="up-children"
        )
        stopping = asyncio.create_task(interrupted.wait(), name="up-interrupted")
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            await supervisor.stop()
    _log.info("everything stopped")
    return 0


async def _start_all(supervisor: Supervisor, fabric: Fabric, directory: Path) -> None:
    if fabric.zookeeper.embedded:
        await start_zookeeper(supervisor, fabric, directory)
    for router in fabric.routers:
        supervisor.start(router_child(fabric, router, directory))
    for edge in fabric.edges:
        supervisor.start(edge_child(fabric, edge, directory))
    await supervisor.wait_failed()


async def start_zookeeper(supervisor: Supervisor, fabric: Fabric, directory: Path) -> None:
    """Returns when it serves, so that the first log lines are not all about waiting for it."""
    host, port = split_address(fabric.zookeeper.hosts[0])
    data = fabric.zookeeper.data or str(directory / "zookeeper-data")
    child = supervisor.start(zookeeper_child(fabric, directory, data))
    serving = asyncio.create_task(
        wait_for_address(host, port, _ZOOKEEPER_TIMEOUT_S), name="zookeeper-serving"
    )
    await asyncio.wait({child, serving}, return_when=asyncio.FIRST_COMPLETED)
    if child.done():
        serving.cancel()
        child.result()
    elif not serving.result():
        raise DdswanError(
            f"ZooKeeper does not serve {host}:{port} after {_ZOOKEEPER_TIMEOUT_S:.0f} s; its lines "
            f"above say why"
        )


command = UpCommand()
