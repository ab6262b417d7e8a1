"""LANs made of Linux namespaces: isolated from each other, each with an uplink to a cloud. Used by
the fabric, the end-to-end tests and the benchmarks; starts nothing of ddswan itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.environment import environment
from tests.lab.orphans import end_orphans, owner
from tests.lab.process import Process, ProcessFailed, wait_until
from tests.lab.wan import (
    CLOUD,
    QUEUE_PACKETS,
    WAN_INTERFACE,
    Cable,
    Emulator,
    Wan,
    direct_interface,
    uplink_interface,
)

LAN_INTERFACE = "lan0"
"""The multicast-capable interface of a LAN, the one DDS picks by itself."""
LAN_ADDRESS = "192.168.7.1"
"""The same in every LAN, as behind NATs: whoever lets addresses of one LAN into another fails."""
CLOUD_ADDRESS = "10.99.0.1"
REPOSITORY = Path(__file__).resolve().parents[2]

_TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "sh")


class LabUnavailable(Exception):
    """This machine cannot make namespaces; the message says what is missing."""


class Namespace:
    """One LAN, or the cloud: its own network, /dev/shm and System V IPC. It lives as long as its
    holder, a process that ends when this one does, however that ends."""

    def __init__(self, name: str, lab: Lab) -> None:
        self.name = name
        self._lab = lab
        self._holder = lab.hold(
            ["--net", "--mount", "--ipc"],
            # Fast DDS finds its neighbours of one host through shared memory, which a network
            # namespace alone does not separate.
            "mount -t tmpfs tmpfs /dev/shm && ip link set lo up"
            " && echo 0 > /proc/sys/net/ipv4/ip_forward",
        )
        self.inode = os.stat(f"/proc/{self.holder_pid}/ns/net").st_ino

    @property
    def holder_pid(self) -> int:
        return self._holder.pid

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` as a command that runs in this namespace and dies with its parent."""
        return [
            "nsenter",
            f"--target={self.holder_pid}",
            *self._lab.enter_options,
            "--net",
            "--mount",
            "--ipc",
            "--",
            "setpriv",
            "--pdeathsig=KILL",
            "--",
            "env",
            f"--chdir={REPOSITORY}",
            *argv,
        ]

    def spawn(
        self, argv: Sequence[str], *, name: str = "", env: Mapping[str, str] | None = None
    ) -> Process:
        """Start `argv` here; its output goes into the lab's directory."""
        return self._lab.spawn(self, argv, name or Path(argv[0]).name, env or {})

    def python(
        self, module: str, *arguments: str, name: str = "", env: Mapping[str, str] | None = None
    ) -> Process:
        """Start `python -m module arguments…` here."""
        argv = [sys.executable, "-m", module, *arguments]
        return self.spawn(argv, name=name or module.rpartition(".")[2], env=env)

    def run(self, argv: Sequence[str], *, deadline_s: float = 30.0) -> str:
        """Run `argv` here to its end; its standard output. Fails on any exit code but 0."""
        done = subprocess.run(
            self.command(argv),
            env=self._lab.environment({}),
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        if done.returncode != 0:
            raise ProcessFailed(
                f"{' '.join(argv)} in {self.name}: exit code {done.returncode}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout

    def interface_bytes(self, interface: str) -> tuple[int, int]:
        """Bytes received and sent through an interface so far."""
        table = Path(f"/proc/{self.holder_pid}/net/dev").read_text()
        found = re.search(rf"^\s*{re.escape(interface)}:(.*)$", table, re.MULTILINE)
        if found is None:
            raise ProcessFailed(f"{self.name} has no interface {interface}")
        fields = found[1].split()
        return int(fields[0]), int(fields[8])

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdin is not None:
            self._holder.stdin.close()


class Lab:
    """Named LANs around one cloud. A context manager: on leaving, every process that lives in one
    of its namespaces ends, and the networks with them."""

    def __init__(self, *lans: str, directory: Path | None = None, wan: Wan | None = None) -> None:
        self._lan_names = lans
        self._wan_plan = wan or Wan(is_emulated=False)
        self._emulator: Emulator | None = None
        self._given_directory = directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._user_holder: subprocess.Popen[bytes] | None = None
        self._namespaces: dict[str, Namespace] = {}
        self._processes: list[Process] = []
        self._outputs = 0
        self.enter_options: list[str] = []
        self.directory = directory or Path()

    def __enter__(self) -> Lab:
        _require_tools()
        end_orphans()
        if self._given_directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ddswan-lab-")
            self.directory = Path(self._temporary.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def cloud(self) -> Namespace:
        return self._namespaces["cloud"]

    def lan(self, name: str) -> Namespace:
        return self._namespaces[f"lan {name}"]

    @property
    def wan(self) -> Emulator:
        """The emulated links: `lab.wan["a", "cloud"]`, `lab.wan["a", "b"]`."""
        if self._emulator is None:
            raise LabUnavailable("this lab has no emulated links: make it with Lab(…, wan=Wan(…))")
        return self._emulator

    def express_address(self, lan: str, peer: str) -> str:
        """The address of a LAN on its direct link with another; only that other reaches it."""
        return self._wan_plan.direct_address(lan, peer)

    def express_addresses(self, lan: str) -> list[str]:
        """Its addresses on all direct links it has."""
        pairs = [pair for pair in self._wan_plan.direct if lan in pair]
        return [
            self.express_address(lan, other) for pair in pairs for other in pair if other != lan
        ]

    def cut(self, lan: str) -> None:
        """Take the link between a LAN and the cloud down: packets vanish, nobody is told."""
        if self._emulator is not None:
            self._emulator[lan, CLOUD].set(cut=True)
        else:
            self.cloud.run(["ip", "link", "set", self._cloud_interface(lan), "down"])

    def heal(self, lan: str) -> None:
        if self._emulator is not None:
            self._emulator[lan, CLOUD].set(cut=False)
        else:
            self.cloud.run(["ip", "link", "set", self._cloud_interface(lan), "up"])

    def pids(self) -> dict[int, str]:
        """Every process that lives in this lab now: pid and command line. Holders are left out, and
        the emulator, which is part of the networks."""
        inodes = {space.inode: space for space in self._namespaces.values()}
        holders = {space.holder_pid for space in inodes.values()}
        if self._emulator is not None and self._emulator.pid is not None:
            holders.add(self._emulator.pid)
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in holders:
                continue
            # A process may end, or belong to somebody else, between listing and looking.
            with suppress(OSError):
                if os.stat(entry / "ns/net").st_ino in inodes:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    if line:
                        found[int(entry.name)] = line.decode(errors="replace").strip()
        return found

    def close(self) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
        if self._namespaces:
            wait_until(lambda: not self.pids(), 10.0, "the lab's processes end")
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None
        for space in self._namespaces.values():
            space.close()
        if self._user_holder is not None:
            self._user_holder.kill()
            self._user_holder.wait()
            if self._user_holder.stdin is not None:
                self._user_holder.stdin.close()
            self._user_holder = None
        self._namespaces.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    # What namespaces need of their lab.

    def hold(self, unshare_options: Sequence[str], setup: str) -> subprocess.Popen[bytes]:
        """A process that keeps new namespaces alive until its standard input closes."""
        argv = ["unshare", *unshare_options, "--", "sh", "-c", f"{setup} && echo ready && exec cat"]
        if self._user_holder is not None:
            argv = [
                "nsenter",
                f"--target={self._user_holder.pid}",
                *self.enter_options,
                "--",
                *argv,
            ]
        holder = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment({}),
        )
        if holder.stdin is None or holder.stdout is None or holder.stderr is None:
            raise LabUnavailable("a pipe to a namespace holder could not be made")
        answer = holder.stdout.readline()
        holder.stdout.close()
        if answer != b"ready\n":
            holder.stdin.close()
            reason = holder.stderr.read().decode(errors="replace").strip()
            holder.stderr.close()
            holder.wait()
            raise LabUnavailable(
                "network namespaces cannot be made here: run as root, or allow unprivileged user"
                f" namespaces (sysctl kernel.unprivileged_userns_clone=1) ({reason})"
            )
        holder.stderr.close()
        return holder

    def spawn(
        self,
        space: Namespace,
        argv: Sequence[str],
        name: str,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> Process:
        self._outputs += 1
        where = space.name.replace("/", "_").replace(" ", "-")
        output = self.directory / f"{self._outputs:03}-{where}-{name}.log"
        process = Process(
            space.command(argv),
            name=f"{name} in {space.name}",
            output=output,
            env=self.environment(env),
            cwd=REPOSITORY,
            pass_fds=pass_fds,
        )
        self._processes.append(process)
        return process

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        of_dds = ("CYCLONEDDS", "FAST")
        kept = {k: v for k, v in environment().items() if not k.startswith(of_dds)}
        return kept | owner() | {"PYTHONUNBUFFERED": "1"} | dict(extra)

    def _build(self) -> None:
        if os.geteuid() != 0:
            self._user_holder = self.hold(["--user", "--map-root-user"], "true")
            self.enter_options = ["--user", "--preserve-credentials"]
        self._namespaces["cloud"] = cloud = Namespace("cloud", self)
        cloud.run(["ip", "address", "add", f"{CLOUD_ADDRESS}/32", "dev", "lo"])
        for name in self._lan_names:
            self._namespaces[f"lan {name}"] = Namespace(f"lan {name}", self)
        self._lay(self._wan_plan.cables(self._lan_names, lambda name: self._space(name).holder_pid))
        for index, name in enumerate(self._lan_names):
            self._connect(self.lan(name), index)
        for index, pair in enumerate(self._wan_plan.direct):
            for lan, peer in (pair, pair[::-1]):
                address = self._wan_plan.direct_address(lan, peer)
                self._bring_up(self.lan(lan), direct_interface(index), address)

    def _space(self, name: str) -> Namespace:
        return self.cloud if name == CLOUD else self.lan(name)

    def _lay(self, cables: Sequence[Cable]) -> None:
        """Make the interfaces at the ends of the links."""
        if self._wan_plan.is_emulated:
            self._emulator = Emulator(self._wan_plan.seed, cables)
            self._emulator.start(
                lambda argv, fds: self.spawn(self.cloud, argv, "emulator", {}, pass_fds=fds)
            )
            return
        for cable in cables:
            (_, interface), (peer_pid, peer_interface) = cable.ends
            _ip(
                self._space(cable.names[0]),
                f"link add {interface} type veth peer name {peer_interface} netns {peer_pid}",
            )

    def _bring_up(self, space: Namespace, interface: str, address: str) -> None:
        queue = f"txqueuelen {QUEUE_PACKETS}" if self._wan_plan.is_emulated else ""
        mtu = self._wan_plan.mtu
        _ip(space, f"link set {interface} mtu {mtu} {queue} multicast off up")
        _ip(space, f"address add {address}/24 dev {interface}")

    def _connect(self, lan: Namespace, index: int) -> None:
        """Give a LAN its multicast interface, and its uplink addresses."""
        # The far end of the veth pair has no address: what matters is an interface that is up,
        # has a carrier and takes multicast, which loops back to every process of the LAN.
        _ip(lan, f"link add {LAN_INTERFACE} type veth peer name {LAN_INTERFACE}-peer")
        _ip(lan, f"link set {LAN_INTERFACE}-peer up")
        _ip(lan, f"link set {LAN_INTERFACE} multicast on up")
        _ip(lan, f"address add {LAN_ADDRESS}/24 dev {LAN_INTERFACE}")
        _ip(lan, f"route add 224.0.0.0/4 dev {LAN_INTERFACE}")
        self._bring_up(self.cloud, uplink_interface(index), f"100.64.{index}.1")
        self._bring_up(lan, WAN_INTERFACE, f"100.64.{index}.2")
        _ip(lan, f"route add {CLOUD_ADDRESS}/32 via 100.64.{index}.1 dev {WAN_INTERFACE}")

    def _cloud_interface(self, lan: str) -> str:
        return uplink_interface(self._lan_names.index(lan))


def _require_tools() -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise LabUnavailable(
            f"the lab needs {', '.join(missing)}: install the packages util-linux and iproute2"
        )


def _ip(space: Namespace, arguments: str) -> None:
    space.run(["ip", *arguments.split()])
