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
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.commands.lans import Lans, NamespacesUnavailable, Place, domains, namespaces
from gateway.commands.supervisor import Child, Supervisor
from gateway.commands.up import edge_child, router_child, zookeeper_child
from gateway.config import Config, Edge, EmbeddedZooKeeper, Fabric, Router
from gateway.coordination.embedded import free_port
from gateway.errors import DdswanError

_LANS = ("a", "b")
_TOPIC_OF = {"a": "fleet/positions", "b": "base/positions"}
"""What is published in each LAN, for the other one."""
_VEHICLE_OF = {"a": "truck-1", "b": "crane-7"}
_SAMPLES = 10
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
        # The interrupt must unwind whatever is being built; asyncio takes over in `_show`.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A DDS configuration of this shell's is for its own network, not for the demo's.
        os.environ.pop("CYCLONEDDS_URI", None)
        with contextlib.ExitStack() as stack:
            lans = _make_lans(stack, args.domains)
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddswan-demo-"))
            return asyncio.run(_show(lans, Path(directory), config, args.verbose))


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


async def _show(lans: Lans, directory: Path, config: Config, is_verbose: bool) -> int:
    received = dict.fromkeys(_LANS, 0)

    def show(name: str, line: str) -> None:
        kind, _, lan = name.partition(" ")
        if kind == "subscriber":
            received[lan] += 1
            print(f"  LAN {_other(lan)} to LAN {lan}: {line}", flush=True)
        elif is_verbose:
            print(f"    {name} | {line}", flush=True)
        elif " ERROR " in line or "ddswan: " in line:
            print(f"  {name}: {line}", flush=True)

    print("ddswan demo: two isolated LANs, joined by an edge broker in each and two routers")
    print(f"  {lans.description}", flush=True)
    supervisor = Supervisor(show)
    scene = asyncio.create_task(_play(supervisor, lans, directory, config), name="demo-scene")
    interrupted = _on_interrupt(scene.cancel)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await scene
    except TimeoutError:
        counts = ", ".join(f"{n} of {_SAMPLES} in LAN {lan}" for lan, n in received.items())
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


async def _play(supervisor: Supervisor, lans: Lans, directory: Path, config: Config) -> None:
    """Starts everything and returns when each LAN has received its samples."""
    fabric = _fabric(lans, config)
    print("  starting ZooKeeper and two routers in the cloud, an edge in each LAN", flush=True)
    # All at once: brokers wait for ZooKeeper by themselves.
    children = [zookeeper_child(fabric, directory, str(directory / "zookeeper"))]
    children += [router_child(fabric, router, directory) for router in fabric.routers]
    for child in children:
        supervisor.start(_in(lans.cloud, child))
    for edge in fabric.edges:
        supervisor.start(_in(lans.by_name[str(edge.lan)], edge_child(fabric, edge, directory)))
    print("  starting a publisher and a subscriber in each LAN", flush=True)
    subscribers = []
    for lan, place in lans.by_name.items():
        supervisor.start(_publisher(lan, place))
        subscribers.append(supervisor.start(_subscriber(lan, place)))
    failing = asyncio.create_task(supervisor.wait_failed(), name="demo-brokers")
    receiving = asyncio.gather(*subscribers)
    try:
        either: set[asyncio.Future[Any]] = {failing, receiving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        if any(receiving.result()):
            raise DdswanError("a sample subscriber failed; its lines above say why")
    finally:
        failing.cancel()
        await asyncio.gather(failing, return_exceptions=True)


def _fabric(lans: Lans, config: Config) -> Fabric:
    address = lans.cloud_address
    return Fabric(
        fabric="demo",
        zookeeper=EmbeddedZooKeeper(hosts=(f"{address}:{free_port()}",)),
        log=config.log,
        routers=tuple(
            Router(id=name, listen=f"{address}:{free_port()}", advertise=None)
            for name in ("r1", "r2")
        ),
        edges=tuple(
            Edge(id=f"edge-{lan}", lan=lan, domain=place.domain, interface=place.interface)
            for lan, place in lans.by_name.items()
        ),
    )


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
