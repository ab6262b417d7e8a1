"""A whole ddswan in a lab: ZooKeeper and routers in the cloud, one edge in every LAN. Used by the
end-to-end tests and the benchmarks; brokers are started by their command line only.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any

from tests.lab.namespaces import CLOUD_ADDRESS, LAN_INTERFACE, Lab
from tests.lab.process import Process, ProcessFailed, wait_until

ZOOKEEPER = f"{CLOUD_ADDRESS}:2181"
FABRIC = "default"
ROOT = f"/ddswan/{FABRIC}"
_FIRST_PORT = 7447
_EXPRESS_PORT = 7500
_METRICS_PORT = 9100
EDGE_METRICS = {
    "DDSWAN_METRICS_HOST": "0.0.0.0",
    "DDSWAN_EDGE_METRICS_PORT": str(_METRICS_PORT),
}
"""Settings with which edges serve metrics and status, inside their LAN and towards the cloud."""
STOP_S = 10.0
"""How long any broker may take from SIGTERM to its end."""

_REGISTERED = "zookeeper serving|router registered|edge ready"
"""What brokers say once they are there."""

Tree = dict[str, str]


class Fabric:
    """Brokers by their ids. A context manager: running when entered, ended when left."""

    def __init__(
        self,
        lab: Lab,
        lans: list[str],
        *,
        routers: int = 1,
        settings: Mapping[str, str] | None = None,
        express_lans: Collection[str] | None = None,
    ) -> None:
        """`express_lans`: whose edges listen for express links; else all that have direct links."""
        self.lab = lab
        self._lans = lans
        self._express_lans = lans if express_lans is None else express_lans
        self._relays: dict[str, Process] = {}
        self._router_ids = [f"r{number + 1}" for number in range(routers)]
        self._settings = dict(settings or {})
        self.brokers: dict[str, Process] = {}
        """Running ones and ended ones, by id; `zookeeper` among them."""

    def __enter__(self) -> Fabric:
        try:
            # All at once: brokers wait for ZooKeeper by themselves.
            self._spawn_zookeeper()
            for router in self._router_ids:
                self.start_router(router)
            for lan in self._lans:
                self.start_edge(lan)
            self.wait_until_registered()
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

    # Brokers.

    def start_zookeeper(self) -> Process:
        """It answers when this returns."""
        process = self._spawn_zookeeper()
        process.wait_for_line("zookeeper serving", 30.0)
        return process

    def start_router(self, router: str) -> Process:
        port = _FIRST_PORT + int(router[1:]) - 1
        return self._ddswan(
            router,
            "router",
            f"--id={router}",
            f"--zookeeper={ZOOKEEPER}",
            f"--listen=0.0.0.0:{port}",
            f"--advertise={CLOUD_ADDRESS}:{port}",
        )

    def start_edge(self, lan: str, edge: str = "", zookeeper: str = ZOOKEEPER) -> Process:
        """The edge of a LAN; its id is `e-<lan>` unless given."""
        edge = edge or edge_of(lan)
        addresses = self.lab.express_addresses(lan) if lan in self._express_lans else []
        express = [f"{address}:{_EXPRESS_PORT}" for address in addresses]
        return self._ddswan(
            edge,
            "edge",
            f"--id={edge}",
            f"--lan={lan}",
            "--domain=0",
            f"--zookeeper={zookeeper}",
            f"--interface={LAN_INTERFACE}",
            *(
                (
                    f"--express-listen=0.0.0.0:{_EXPRESS_PORT}",
                    f"--express-advertise={','.join(express)}",
                )
                if express
                else ()
            ),
            lan=lan,
        )

    def edge(self, lan: str) -> Process:
        return self.brokers[edge_of(lan)]

    def close(self) -> None:
        """End everything at once; a test that cares how brokers stop does so itself before."""
        for process in reversed(self.brokers.values()):
            process.kill()
        for relay in self._relays.values():
            relay.kill()

    def stop(self) -> dict[str, int]:
        """SIGTERM to edges, then routers, then ZooKeeper; exit codes. Fails past the deadline."""
        order = [*(id for id in self.brokers if id.startswith("e-"))]
        order += [id for id in self.brokers if id not in order and id != "zookeeper"]
        order += ["zookeeper"]
        return {id: self.brokers[id].terminate(STOP_S) for id in order}

    # The tree and what `ddswan status` says of it.

    def tree(self) -> Tree:
        """Every node of the fabric: path below its root, and data."""
        argv = [sys.executable, "-m", "tests.lab.tree", ZOOKEEPER, "dump", ROOT]
        found: Tree = json.loads(self.lab.cloud.run(argv))
        return {path.removeprefix(ROOT + "/"): data for path, data in found.items()}

    def put(self, nodes: Tree) -> None:
        """Write nodes by hand, as with a ZooKeeper shell."""
        argv = [sys.executable, "-m", "tests.lab.tree", ZOOKEEPER, "put", ROOT, json.dumps(nodes)]
        self.lab.cloud.run(argv)

    def delete(self, path: str) -> None:
        argv = [sys.executable, "-m", "tests.lab.tree", ZOOKEEPER, "delete", f"{ROOT}/{path}"]
        self.lab.cloud.run(argv)

    def status(self) -> dict[str, Any]:
        argv = [sys.executable, "-m", "gateway.cli", "status", "--json", f"--zookeeper={ZOOKEEPER}"]
        found: dict[str, Any] = json.loads(self.lab.cloud.run(argv))
        return found

    def ask(self, lan: str, path: str) -> bytes:
        """What the metrics port of a LAN's edge answers; that needs `EDGE_METRICS` as settings."""
        relay = self.lab.directory / f"relay-{lan}"
        if lan not in self._relays:
            self._relays[lan] = self.lab.lan(lan).python("tests.lab.relay", str(relay))
            self._relays[lan].wait_for_line("relaying", 10.0)
        with socket.socket(socket.AF_UNIX) as asked, asked.makefile("rb") as answer:
            asked.connect(str(relay))
            request = f"127.0.0.1:{_METRICS_PORT}\nGET {path} HTTP/1.0\r\n\r\n"
            asked.sendall(request.encode())
            text = answer.read()
        head, _, body = text.partition(b"\r\n\r\n")
        assert head.split(b" ")[1:2] == [b"200"], f"{path} of the edge in {lan}: {head!r} {body!r}"
        return body

    def edge_status(self, lan: str) -> dict[str, Any]:
        """/status of a LAN's edge."""
        found: dict[str, Any] = json.loads(self.ask(lan, "/status"))
        return found

    def wait_for_tree(
        self, condition: Callable[[Tree], bool], deadline_s: float, what: str
    ) -> Tree:
        """The first tree that satisfies the condition."""

        def look() -> Tree | None:
            tree = self.tree()
            return tree if condition(tree) else None

        return wait_until(look, deadline_s, what)

    def wait_until_registered(self, deadline_s: float = 30.0) -> None:
        """Every broker started is in the tree, and somebody leads."""
        for process in self.brokers.values():
            # Cheaper than to look into the tree all the time while they need the processors.
            process.wait_for_line(_REGISTERED, deadline_s)
        edges = [f"edges/{id}" for id in self.brokers if id.startswith("e-")]
        routers = [f"routers/{id}" for id in self.brokers if id.startswith("r")]

        def is_complete(tree: Tree) -> bool:
            self.check_running()
            leads = any(path.startswith("leader/") for path in tree)
            return leads and all(path in tree for path in [*edges, *routers])

        self.wait_for_tree(is_complete, deadline_s, "every broker is registered")

    def check_running(self) -> None:
        """A broker that ended by itself is a failure that should be told at once."""
        for process in self.brokers.values():
            if process.has_crashed:
                raise ProcessFailed(
                    f"{process.name} ended with {process.exit_code}:\n{process.tail()}"
                )

    def _ddswan(self, id: str, *arguments: str, lan: str = "") -> Process:
        space = self.lab.lan(lan) if lan else self.lab.cloud
        process = space.python("gateway.cli", *arguments, name=id, env=self._settings)
        self.brokers[id] = process
        return process

    def _spawn_zookeeper(self) -> Process:
        data = self.lab.directory / "zookeeper"
        return self._ddswan("zookeeper", "zookeeper", "--host=0.0.0.0", f"--data={data}")


def edge_of(lan: str) -> str:
    return f"e-{lan}"
