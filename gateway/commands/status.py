"""`ddswan status`: reads the tree once and prints it. Called by the command line; what is said
about it is decided in report.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from gateway.command import add_setting
from gateway.commands.report import Report, format_report, make_report
from gateway.config import Config
from gateway.coordination.election import read_leader
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.observe.logs import set_up_logging

_PATIENCE_S = 5.0


class StatusCommand:
    name = "status"
    help = "show edges, routers, the leader, topics, routes, and why a pair does not match"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_setting(parser, "--zookeeper", "zookeeper.hosts", "H:P[,H:P]")
        parser.add_argument("--json", action="store_true", help="print JSON instead of tables")

    def run(self, config: Config, args: argparse.Namespace) -> int:
        if config.log.level == "info":  # the report is the message; how it was got is not
            set_up_logging("warning", config.log.format)
        report = asyncio.run(read_report(config))
        print(json.dumps(report.to_json(), indent=2) if args.json else format_report(report))
        return 0


async def read_report(config: Config) -> Report:
    """Reads the fabric; raises CoordinationError when ZooKeeper does not answer."""
    zk = ZooKeeper(
        ",".join(config.zookeeper.hosts),
        config.fabric,
        session_timeout_s=config.zookeeper.session_timeout_s,
    )
    await zk.start(_PATIENCE_S)
    try:
        watcher = FabricWatcher(zk, zk.paths)
        watcher.follow(None)
        view = await watcher.refresh()
        leader = await read_leader(zk, zk.paths)
        return make_report(config.fabric, view, leader and leader[0], watcher.malformed)
    finally:
        await zk.stop()


command = StatusCommand()
