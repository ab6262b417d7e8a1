"""Emulated wide-area links of a lab, as tests and benchmarks use them: delay, loss and all else set
and counted at run time. Made by `tests/lab/namespaces.py`; packets move in `wan_process.py`.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.lab.process import Process, ProcessFailed
from tests.lab.wan_model import FIELDS, Counters, Impairments
from tests.lab.wan_process import MESSAGE_BYTES

CLOUD = "cloud"
WAN_INTERFACE = "wan0"
"""The uplink of a LAN, without multicast."""
QUEUE_PACKETS = 10_000
"""What an interface holds for the emulator while that is busy (500 by default)."""
_ANSWER_S = 10.0

Direction = Literal["both", "there", "back"]


@dataclass(frozen=True, slots=True)
class Cable:
    """A link to be made: who is at its ends, and as which interface of whose namespace."""

    names: tuple[str, str]
    ends: tuple[tuple[int, str], tuple[int, str]]
    """Pid of a process in the namespace, name of the interface."""
    fate: str
    """What its draws are made from, beside the seed."""


@dataclass(frozen=True, slots=True)
class Wan:
    """What a lab shall have beyond plain cables from each LAN to the cloud."""

    direct: Sequence[tuple[str, str]] = ()
    """Pairs of LANs with a link of their own, on a subnet of its own."""
    is_emulated: bool = True
    """Uplinks and direct links go through the emulator. Else they are plain cables: no settings,
    no counters, and no latency of the emulator's own."""
    seed: int = 1
    mtu: int = 1500
    """Up to 65535: large ones carry more at the same cost."""
    fates: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Links with the same one lose, delay and reorder the same packets, counted from the first:
    for comparing what happens over them. Named as they are made; by default all differ."""

    def direct_address(self, lan: str, peer: str) -> str:
        """The address of a LAN on its direct link with another."""
        for index, pair in enumerate(self.direct):
            if {lan, peer} == set(pair):
                return f"100.65.{index}.{1 + pair.index(lan)}"
        raise KeyError(f"no direct link between {lan} and {peer}: name it in Wan(direct=…)")

    def cables(self, lans: Sequence[str], pid_of: Callable[[str], int]) -> list[Cable]:
        """Uplinks in the order of LANs, then direct links."""
        uplinks = [
            ((name, CLOUD), (WAN_INTERFACE, uplink_interface(index)))
            for index, name in enumerate(lans)
        ]
        direct = [
            (pair, (direct_interface(index), direct_interface(index)))
            for index, pair in enumerate(self.direct)
        ]
        return [
            Cable(
                (a, b),
                ((pid_of(a), at_a), (pid_of(b), at_b)),
                self.fates.get((a, b), f"{a}-{b}"),
            )
            for (a, b), (at_a, at_b) in [*uplinks, *direct]
        ]


def uplink_interface(index: int) -> str:
    """The cloud's end of the uplink of the n-th LAN."""
    return f"to{index}"


def direct_interface(index: int) -> str:
    """Both ends of the n-th direct link."""
    return f"direct{index}"


@dataclass(frozen=True, slots=True)
class LinkCounters:
    there: Counters
    back: Counters

    @property
    def total(self) -> Counters:
        return self.there + self.back


class Emulator:
    """The links of one lab, by the names of their ends: `emulator["a", "cloud"]`."""

    def __init__(self, seed: int, cables: Sequence[Cable]) -> None:
        self._seed = seed
        self._cables = list(cables)
        self._impairments = [Impairments() for _ in range(2 * len(self._cables))]
        self._socket: socket.socket | None = None
        self._process: Process | None = None
        self._lock = threading.Lock()

    def start(self, spawn: Callable[[Sequence[str], Sequence[int]], Process]) -> None:
        """Have the process started with an inherited socket; its devices exist on return."""
        self._socket, inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        with inherited:
            argv = [sys.executable, "-m", "tests.lab.wan_process", str(inherited.fileno())]
            self._process = spawn(argv, [inherited.fileno()])
        cables = [(cable.fate, cable.ends) for cable in self._cables]
        self._ask({"seed": self._seed, "cables": cables})

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def __getitem__(self, names: tuple[str, str]) -> Link:
        """The link between two ends; `there` is from the first named to the second."""
        for number, cable in enumerate(self._cables):
            if names == cable.names:
                return Link(self, cable, (2 * number, 2 * number + 1))
            if names == cable.names[::-1]:
                reverse = Cable(names, cable.ends[::-1], cable.fate)
                return Link(self, reverse, (2 * number + 1, 2 * number))
        known = ", ".join(f"{a}-{b}" for a, b in (cable.names for cable in self._cables))
        raise KeyError(f"no link {names[0]}-{names[1]}: there are {known}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # What links need.

    def change(self, lines: Sequence[int], changes: Mapping[str, float]) -> None:
        unknown = changes.keys() - FIELDS
        if unknown:
            raise TypeError(f"no such setting: {', '.join(unknown)}; there are {sorted(FIELDS)}")
        with self._lock:
            made = {line: replace(self._impairments[line], **changes) for line in lines}  # type: ignore[arg-type]
            request = [(line, asdict(impairments)) for line, impairments in made.items()]
            self._ask({"change": request, "count": []})
            for line, impairments in made.items():
                self._impairments[line] = impairments

    def count(self, lines: Sequence[int]) -> list[Counters]:
        with self._lock:
            return [Counters(**found) for found in self._ask({"change": [], "count": lines})]

    def impairments(self, line: int) -> Impairments:
        return self._impairments[line]

    def _ask(self, request: object) -> Any:
        if self._socket is None or self._process is None:
            raise ProcessFailed("the emulator is not running: use the links inside `with Lab(…)`")
        try:
            self._socket.send(json.dumps(request).encode())
            answer = self._socket.recv(MESSAGE_BYTES)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            self._process.wait(_ANSWER_S)
            raise ProcessFailed(f"the emulator ended:\n{self._process.tail()}")
        return json.loads(answer)


class Link:
    """A link as seen from its first end. Settings concern both directions unless told."""

    def __init__(self, emulator: Emulator, cable: Cable, lines: tuple[int, int]) -> None:
        self._emulator = emulator
        self._cable = cable
        self._lines = lines

    def set(self, *, direction: Direction = "both", **changes: float) -> None:
        """Change what is named, from now on: `set(delay_ms=30, loss=0.01)`; the names are those of
        `Impairments`. In effect on return."""
        self._emulator.change(self._chosen(direction), changes)

    def apply(self, impairments: Impairments, *, direction: Direction = "both") -> None:
        """Set everything, also what has its default."""
        self._emulator.change(self._chosen(direction), asdict(impairments))

    def clear(self, *, direction: Direction = "both") -> None:
        """Pass everything on at once again."""
        self.apply(Impairments(), direction=direction)

    def impairments(self) -> tuple[Impairments, Impairments]:
        """There, and back."""
        there, back = self._lines
        return self._emulator.impairments(there), self._emulator.impairments(back)

    def counters(self) -> LinkCounters:
        there, back = self._emulator.count(self._lines)
        there.overrun, back.overrun = (_overrun(*end) for end in self._cable.ends)
        return LinkCounters(there, back)

    def _chosen(self, direction: Direction) -> Sequence[int]:
        there, back = self._lines
        return {"both": (there, back), "there": (there,), "back": (back,)}[direction]


def _overrun(pid: int, interface: str) -> int:
    """Packets an interface could not hand to the emulator in time."""
    table = Path(f"/proc/{pid}/net/dev").read_text()
    found = re.search(rf"^\s*{re.escape(interface)}:(.*)$", table, re.MULTILINE)
    if found is None:
        raise ProcessFailed(f"the interface {interface} of the emulator is gone")
    return int(found[1].split()[11])
