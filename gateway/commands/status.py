"""`ddswan status`: on a terminal the live view (live.py), otherwise reads the tree once, asks edges
what only they know, and prints it. Called by the command line; what is said is decided in report.py
and topic_status.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace

from gateway.command import add_setting
from gateway.commands.ask import ask
from gateway.commands.edge_report import express_links
from gateway.commands.live import watch
from gateway.commands.live_terminal import can_be_live
from gateway.commands.report import Report, format_report, make_report
from gateway.commands.topic_status import TopicStatus, format_topic, make_topic_status
from gateway.config import Config
from gateway.coordination.election import read_leader
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.model import EdgeInfo, FabricView
from gateway.observe.logs import set_up_logging

_PATIENCE_S = 5.0


class StatusCommand:
    name = "status"
    help = "show edges, routers, the leader, topics, routes, and why a pair does not match"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_setting(parser, "--zookeeper", "zookeeper.hosts", "H:P[,H:P]")
        parser.add_argument(
            "--once",
            action="store_true",
            help="print tables of what is in ZooKeeper and end, as it does when the output is no "
            "terminal; otherwise the routes and what they carry are shown live until you press q "
            "(? explains the keys)",
        )
        parser.add_argument(
            "--topic",
            metavar="T",
            help="show one topic: who has it, who carries it, and for each edge that publishes it "
            "deadline, mode, the path taken and why, and what is known of the paths",
        )
        parser.add_argument(
            "--json", action="store_true", help="print the same once, as JSON (docs/status.md)"
        )

    def run(self, config: Config, args: argparse.Namespace) -> int:
        # The report is the message; how it was got is not.
        log_level = "warning" if config.log.level == "info" else config.log.level
        set_up_logging(log_level, config.log.format)
        if args.topic is not None:
            topic = asyncio.run(_read_topic(config, args.topic))
            print(json.dumps(topic.to_json(), indent=2) if args.json else format_topic(topic))
            return 0
        if not (args.once or args.json) and can_be_live():
            return watch(config, log_level)
        report = asyncio.run(read_report(config))
        print(json.dumps(report.to_json(), indent=2) if args.json else format_report(report))
        return 0


async def read_report(config: Config) -> Report:
    """Reads the fabric and asks its edges; raises CoordinationError when ZooKeeper does not
    answer."""
    view, report = await _read_tree(config)
    links = express_links((await ask(_with_metrics(view.edges.values()))).statuses)
    return replace(report, express_links=links)


async def _read_topic(config: Config, topic: str) -> TopicStatus:
    """Asks the edges that publish it only."""
    view, report = await _read_tree(config)
    pubs = view.topics[topic].pubs if topic in view.topics else ()
    senders = {pub.edge: view.edges[pub.edge] for pub in pubs if pub.edge in view.edges}
    return make_topic_status(report, topic, *await ask(senders.values()))


def _with_metrics(edges: Iterable[EdgeInfo]) -> list[EdgeInfo]:
    return [edge for edge in edges if edge.metrics is not None]


async def _read_tree(config: Config) -> tuple[FabricView, Report]:
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
        return view, make_report(config.fabric, view, leader and leader[0], watcher.malformed)
    finally:
        await zk.stop()


command = StatusCommand()
