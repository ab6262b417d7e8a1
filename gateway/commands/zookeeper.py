"""`ddswan zookeeper`: the embedded single-node ZooKeeper in the foreground. Called by the command
line; the server itself is in gateway/coordination/embedded.py.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile

from gateway.config import Config
from gateway.coordination.embedded import EmbeddedZooKeeper
from gateway.errors import CoordinationError
from gateway.observe.logs import get_logger

_log = get_logger("zookeeper")


class ZooKeeperCommand:
    name = "zookeeper"
    help = "run a single-node ZooKeeper, for development and trials"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--port", type=int, default=2181, metavar="N", help="port to listen on (2181)"
        )
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            metavar="HOST",
            help="address to listen on (127.0.0.1: this machine only; 0.0.0.0: every interface)",
        )
        parser.add_argument(
            "--data",
            metavar="DIR",
            help="directory of its data (a temporary one: the tree holds what live brokers put "
            "there)",
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.ExitStack() as stack:
            data = args.data or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="ddswan-zookeeper-")
            )
            server = EmbeddedZooKeeper(args.port, data, args.host)
            stack.callback(server.stop)
            try:
                server.start()
                _log.info("zookeeper serving", address=server.address, data=data)
                code = server.wait()
            except KeyboardInterrupt:
                _log.info("zookeeper stopping")
                return 0
            raise CoordinationError(
                f"ZooKeeper ended by itself with code {code}; see {server.log_file}"
            )


command = ZooKeeperCommand()
