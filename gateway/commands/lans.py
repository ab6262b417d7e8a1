"""Two LANs and a cloud on one machine for `demo`: network namespaces that no process outside can
reach, or, where these cannot be had, two DDS domains on loopback. Called by demo.py.

A namespace has no name: it lives as long as its holder process, which dies with the demo, so
nothing is left behind however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.commands.supervisor import die_with

CLOUD = "cloud"
_CLOUD_ADDRESS = "10.187.0.1"
_HOLDER = "import sys; print(flush=True); sys.stdin.read()"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process of the demo runs: what goes before its command, and how DDS is set up."""

    prefix: tuple[str, ...]
    domain: int
    interface: str


@dataclass(frozen=True, slots=True)
class Lans:
    description: str
    cloud: Place
    cloud_address: str
    """Where every LAN reaches the cloud."""
    by_name: dict[str, Place]


class NamespacesUnavailable(Exception):
    """This machine or user cannot make network namespaces; the text says why."""


@contextlib.contextmanager
def namespaces(names: tuple[str, ...], domain: int) -> Iterator[Lans]:
    """One namespace for each LAN and one for the cloud, each LAN with a cable to the cloud and no
    way to another LAN. Raises NamespacesUnavailable."""
    if os.geteuid() != 0:
        raise NamespacesUnavailable("not root")
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise NamespacesUnavailable(f"no '{tool}' command")
    with contextlib.ExitStack() as stack:
        holders = {name: stack.enter_context(_holder()) for name in (CLOUD, *names)}
        cloud = _enter(holders[CLOUD])
        for pid in holders.values():
            _run(*_enter(pid), "ip", "link", "set", "lo", "up")
        _run(*cloud, "ip", "address", "add", f"{_CLOUD_ADDRESS}/32", "dev", "lo")
        for index, name in enumerate(names, start=1):
            _lay_cable(cloud, holders[name], name, index)
        yield Lans(
            "each LAN is a network namespace of its own: no packet gets from one to the other",
            Place(cloud, domain, "lo"),
            _CLOUD_ADDRESS,
            {name: Place(_enter(holders[name]), domain, "uplink") for name in names},
        )


@contextlib.contextmanager
def domains(names: tuple[str, ...], reason: str, first_domain: int) -> Iterator[Lans]:
    """Each LAN is a DDS domain on loopback: DDS in one never sees the other."""
    yield Lans(
        f"each LAN is a DDS domain of its own on loopback, because network namespaces cannot be "
        f"had here ({reason})",
        Place((), first_domain, "lo"),
        "127.0.0.1",
        {name: Place((), first_domain + index, "lo") for index, name in enumerate(names)},
    )


@contextlib.contextmanager
def _holder() -> Iterator[int]:
    """A process that does nothing in a network namespace of its own; its pid."""
    parent = os.getpid()
    holder = subprocess.Popen(
        ("unshare", "--net", "--", sys.executable, "-I", "-S", "-c", _HOLDER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: die_with(parent),
    )
    assert holder.stdin is not None and holder.stdout is not None and holder.stderr is not None
    try:
        if not holder.stdout.read(1):
            problem = holder.stderr.read().decode(errors="replace").strip().splitlines()
            raise NamespacesUnavailable(problem[-1] if problem else "unshare failed")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout, holder.stderr):
            pipe.close()


def _lay_cable(cloud: tuple[str, ...], lan_pid: int, lan: str, index: int) -> None:
    """The LAN knows the way to the cloud's address and no other, so that even a cloud that
    forwards could not join two LANs."""
    inside = _enter(lan_pid)
    port, near, far = f"to-{lan}", f"10.187.{index}.1", f"10.187.{index}.2"
    _run(
        *(*cloud, "ip", "link", "add", port, "type", "veth"),
        *("peer", "name", "uplink", "netns", str(lan_pid)),
    )
    for enter, device, address in ((cloud, port, near), (inside, "uplink", far)):
        _run(*enter, "ip", "address", "add", f"{address}/24", "dev", device)
        _run(*enter, "ip", "link", "set", device, "up")
    _run(*inside, "ip", "route", "add", _CLOUD_ADDRESS, "via", near)


def _enter(pid: int) -> tuple[str, ...]:
    return ("nsenter", "-t", str(pid), "-n", "--")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        problem = done.stderr.strip().splitlines()
        raise NamespacesUnavailable(problem[-1] if problem else f"{command[0]} failed")
