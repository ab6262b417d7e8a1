"""`ddswan demo`: two LANs, the brokers between them and sample applications that know nothing of
ddswan; succeeds only if data crossed both ways. Called by the command line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.commands.lans import Lans, NamespacesUnavailable, Place, domains, namespaces
from gateway.commands.supervisor import Child, Supervisor, ddswan_child
from gateway.commands.up import edge_child, router_child, zookeeper_child
from gateway.config import Config, Edge, Router
from gateway.errors import DdswanError
from gateway.lifetime import end_tasks
from gateway.up_file import EmbeddedZooKeeper, Fabric

_LANS = ("a", "b")
_TOPIC_OF = {"a": "fleet/positions", "b": "base/positions"}
"""What is published in each LAN, for the other one."""
_VEHICLE_OF = {"a": "truck-1", "b": "crane-7"}
_SAMPLES = 20
_TIMEOUT_S = 50.0
_APPLICATION_STAGE = 3
_SAMPLES_MODULE = "gateway.commands.samples.positions"
_DDS_SETTINGS = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='{interface}'/></Interfaces>"
    "</General></Domain></CycloneDDS>"
)


class DemoCommand:
    name = "demo"
    help = "show data crossing between two LANs on this machine, then stop everything"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--domains",
            action="store_true",
            help="two DDS domains on loopback even where network namespaces could be had",
        )
        parser.add_argument(
            "--verbose", action="store_true", help="show the brokers' log lines as well"
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        # The interrupt must unwind whatever is being built; asyncio takes over in `_run`.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A DDS configuration of this shell's is for its own network, not for the demo's.
        os.environ.pop("CYCLONEDDS_URI", None)
        with contextlib.ExitStack() as stack:
            lans = _make_lans(stack, args.domains)
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddswan-demo-"))
            return asyncio.run(_run(lans, Path(directory), config, args.verbose))


def _make_lans(stack: contextlib.ExitStack, is_domains_wanted: bool) -> Lans:
    # Not the domains people use; their ports stay below those the kernel hands out.
    domain = random.randrange(30, 90)
    reason = "--domains"
    if not is_domains_wanted:
        try:
            return stack.enter_context(namespaces(_LANS, domain))
        except NamespacesUnavailable as error:
            reason = str(error)
    return stack.enter_context(domains(_LANS, reason, domain))


class _Show:
    """What is seen of the demo, and what is counted."""

    def __init__(self, is_verbose: bool) -> None:
        self._is_verbose = is_verbose
        self.received = dict.fromkeys(_LANS, 0)
        self.status: list[str] = []
        self.has_data_everywhere = asyncio.Event()

    def line(self, name: str, line: str) -> None:
        """Takes a line of a child."""
        kind, _, lan = name.partition(" ")
        if kind == "subscriber":
            self.received[lan] += 1
            if all(self.received.values()):
                self.has_data_everywhere.set()
            print(f"  LAN {_other(lan)} to LAN {lan}: {line}", flush=True)
        elif kind == "status":
            self.status.append(line)
        elif self._is_verbose:
            print(f"    {name} | {line}", flush=True)
        elif " ERROR " in line or "ddswan: " in line:
            print(f"  {name}: {line}", flush=True)


async def _run(lans: Lans, directory: Path, config: Config, is_verbose: bool) -> int:
    print("ddswan demo: two isolated LANs, joined by an edge broker in each and two routers")
    print(f"  {lans.description}", flush=True)
    show = _Show(is_verbose)
    supervisor = Supervisor(show.line)
    scene = asyncio.create_task(
        _play(supervisor, show, lans, _fabric(lans, config), directory), name="demo-scene"
    )
    interrupted = _on_interrupt(scene.cancel)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await scene
    except TimeoutError:
        counts = ", ".join(f"{n} of {_SAMPLES} in LAN {lan}" for lan, n in show.received.items())
        raise DdswanError(
            f"after {_TIMEOUT_S:.0f} s only {counts} had arrived; `ddswan demo --verbose` shows "
            f"what the brokers say"
        ) from None
    except asyncio.CancelledError:
        if not interrupted.is_set():
            raise
        print("interrupted, stopping everything", flush=True)
        return 1
    finally:
        await supervisor.stop()
    print("meanwhile `ddswan status` said:\n")
    print("".join(f"  {line}\n" for line in show.status))
    print(f"done: {_SAMPLES} samples crossed each way; everything is stopped again")
    return 0


def _on_interrupt(act: Callable[[], object]) -> asyncio.Event:
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()

    def interrupt() -> None:
        interrupted.set()
        act()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    return interrupted


async def _play(
    supervisor: Supervisor, show: _Show, lans: Lans, fabric: Fabric, directory: Path
) -> None:
    """Starts everything and returns when each LAN has received its samples."""
    print("  starting ZooKeeper and two routers in the cloud, an edge in each LAN", flush=True)
    # All at once: brokers wait for ZooKeeper by themselves.
    children = [zookeeper_child(fabric, directory, str(directory / "zookeeper"))]
    children += [router_child(fabric, router, directory) for router in fabric.routers]
    for child in children:
        supervisor.start(_in(lans.cloud, child))
    for edge in fabric.edges:
        supervisor.start(_in(lans.by_name[str(edge.lan)], edge_child(fabric, edge, directory)))
    print("  starting a publisher and a subscriber in each LAN", flush=True)
    for lan, place in lans.by_name.items():
        supervisor.start(_publisher(lan, place))
    wanted = [supervisor.start(_subscriber(lan, place)) for lan, place in lans.by_name.items()]
    broken = asyncio.create_task(supervisor.wait_failed(), name="demo-brokers")
    flowing = asyncio.create_task(show.has_data_everywhere.wait(), name="demo-flowing")
    try:
        await _first_of(broken, flowing)
        status = ddswan_child(
            "status",
            _APPLICATION_STAGE,
            *("status", "--fabric", fabric.fabric, "--zookeeper", fabric.zookeeper.hosts[0]),
        )
        status = dataclasses.replace(status, is_restarted=False)
        wanted.append(supervisor.start(_in(lans.cloud, status)))
        ended = asyncio.gather(*wanted)
        await _first_of(broken, ended)
        if any(ended.result()):
            raise DdswanError("a sample application or `ddswan status` failed; its lines say why")
    finally:
        await end_tasks([broken, flowing])


async def _first_of(broken: asyncio.Future[Any], other: asyncio.Future[Any]) -> None:
    """Waits for `other`; raises when a broker is given up first."""
    await asyncio.wait({broken, other}, return_when=asyncio.FIRST_COMPLETED)
    if broken.done():
        broken.result()


def _fabric(lans: Lans, config: Config) -> Fabric:
    address = lans.cloud_address
    return Fabric(
        fabric="demo",
        zookeeper=EmbeddedZooKeeper(hosts=(f"{address}:{_free_port()}",)),
        log=config.log,
        routers=tuple(
            Router(id=name, listen=f"{address}:{_free_port()}", advertise=None)
            for name in ("r1", "r2")
        ),
        edges=tuple(
            Edge(id=f"edge-{lan}", lan=lan, domain=place.domain, interface=place.interface)
            for lan, place in lans.by_name.items()
        ),
    )


def _free_port() -> int:
    """Below the ports the kernel hands out: a client that keeps knocking at one of those before
    its server is there will sooner or later be connected to itself."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _in(place: Place, child: Child) -> Child:
    return dataclasses.replace(child, arguments=(*place.prefix, *child.arguments))


def _publisher(lan: str, place: Place) -> Child:
    arguments = ("publish", "--topic", _TOPIC_OF[lan], "--vehicle", _VEHICLE_OF[lan])
    return _application(f"publisher {lan}", place, *arguments)


def _subscriber(lan: str, place: Place) -> Child:
    arguments = ("--topic", _TOPIC_OF[_other(lan)], "--count", str(_SAMPLES))
    child = _application(f"subscriber {lan}", place, "subscribe", *arguments)
    return dataclasses.replace(child, is_restarted=False)


def _application(name: str, place: Place, *arguments: str) -> Child:
    """An ordinary DDS application; it is told nothing but its domain and interface."""
    program = find_spec(_SAMPLES_MODULE)
    assert program is not None and program.origin is not None
    command = (sys.executable, program.origin, *arguments, "--domain", str(place.domain))
    settings = _DDS_SETTINGS.format(interface=place.interface)
    environment = {**os.environ, "CYCLONEDDS_URI": settings, "PYTHONUNBUFFERED": "1"}
    return _in(place, Child(name, command, environment, _APPLICATION_STAGE))


def _other(lan: str) -> str:
    return next(name for name in _LANS if name != lan)


command = DemoCommand()
