"""`ddswan recommend`: applies what `ddswan analyze` recommends, shows what is applied and takes it
back. Called by the command line; what is chosen is decided in gateway/plan/advice.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from gateway.command import add_setting
from gateway.commands.report import printable
from gateway.config import Config
from gateway.coordination import advice
from gateway.coordination.view import FabricWatcher
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import ConfigError, CoordinationError
from gateway.model import Advice, Advised
from gateway.observe.logs import get_logger
from gateway.plan.advice import NotRecommendations, plan_advice, read_recommendations, without

_log = get_logger("recommend")

_PATIENCE_S = 5.0
_CHANGED = "the advice was changed by somebody else meanwhile; try again"


class RecommendCommand:
    name = "recommend"
    help = "apply what an analysis recommends, show what is applied, take it back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "action",
            choices=["apply", "show", "clear"],
            help="apply the most urgent of a FILE; show what is applied now, and why; clear it, "
            "all or that of some TOPICs",
        )
        parser.add_argument(
            "what",
            nargs="*",
            metavar="FILE|TOPIC",
            help="the recommendations.json `ddswan analyze` wrote; the topics to clear",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="with apply: only say what would be done"
        )
        parser.add_argument("--json", action="store_true", help="with show: with the evidence")
        add_setting(parser, "--limit", "advice.most_changes", "N")
        add_setting(parser, "--zookeeper", "zookeeper.hosts", "H:P[,H:P]")

    def run(self, config: Config, args: argparse.Namespace) -> int:
        if args.action == "apply":
            if len(args.what) != 1:
                raise ConfigError("recommend apply needs one FILE, a recommendations.json")
            recommended = _read(args.what[0])
            return _with_zookeeper(config, lambda zk: _apply(zk, config, recommended, args.dry_run))
        if args.action == "show":
            return _with_zookeeper(config, lambda zk: _show(zk, args.json))
        return _with_zookeeper(config, lambda zk: _clear(zk, args.what or None))


command = RecommendCommand()


def _read(file: str) -> list[dict[str, Any]]:
    try:
        return read_recommendations(Path(file).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except NotRecommendations as error:
        raise ConfigError(
            f"{file} holds no recommendations: {error}; name the recommendations.json that "
            "`ddswan analyze` wrote"
        ) from error


def _with_zookeeper(config: Config, work: Callable[[ZooKeeper], Coroutine[Any, Any, int]]) -> int:
    async def connected() -> int:
        zk = ZooKeeper(
            ",".join(config.zookeeper.hosts),
            config.fabric,
            session_timeout_s=config.zookeeper.session_timeout_s,
        )
        await zk.start(_PATIENCE_S)
        try:
            return await work(zk)
        finally:
            await zk.stop()

    return asyncio.run(connected())


async def _apply(
    zk: ZooKeeper,
    config: Config,
    recommended: list[dict[str, Any]],
    is_dry_run: bool,
) -> int:
    before, version = await advice.read(zk)
    watcher = FabricWatcher(zk, zk.paths)
    watcher.follow(None)
    view = await watcher.refresh()
    plan = plan_advice(
        before,
        recommended,
        view,
        fabric=config.fabric,
        now_s=int(time.time()),
        limit=config.advice.most_changes,
    )
    if plan.steps and not is_dry_run and not await advice.write(zk, plan.advice, version):
        raise CoordinationError(_CHANGED)
    for step in plan.steps:
        print(f"{'would apply' if is_dry_run else 'applied'}: {_line(step.after)}")
        if not is_dry_run:
            _log.info(
                "advice applied",
                topic=step.after.topic,
                what=step.after.what,
                before="none" if step.before is None else step.before.what,
                evidence=json.dumps(dict(step.after.evidence), default=str),
            )
    for each in plan.left:
        print(f"left for another time: {_line(each)}")
    if not plan.steps:
        print("nothing to apply: " + ("see above" if plan.left else "all that can be is already"))
    return 0


async def _show(zk: ZooKeeper, is_json: bool) -> int:
    known, _ = await advice.read(zk)
    if is_json:
        rows = [
            {
                "topic": each.topic,
                "express": each.express,
                "avoid": each.avoid,
                "since_s": each.since_s,
                "text": each.text,
                "evidence": dict(each.evidence),
            }
            for each in known.entries
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for each in known.entries:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.since_s))
        print(f"{since}  {_line(each)}")
    if not known.entries:
        print("nothing is applied")
    return 0


async def _clear(zk: ZooKeeper, topics: list[str] | None) -> int:
    before, version = await advice.read(zk)
    after: Advice = without(before, topics)
    gone = [each for each in before.entries if each not in after.entries]
    if gone and not await advice.write(zk, after, version):
        raise CoordinationError(_CHANGED)
    for each in gone:
        print(f"taken back: {_line(each)}")
        _log.info("advice taken back", topic=each.topic, what=each.what)
    if not gone:
        print("nothing of it is applied")
    return 0


def _line(each: Advised) -> str:
    return printable(f"{each.topic}: {each.what} ({each.text})")
