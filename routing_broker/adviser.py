"""With `advice.mode: auto` the leader applies by itself what analyses recommend: reads their file
now and then and writes the advice. Called by the leader; what is chosen is decided in
gateway/plan/advice.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from gateway.config import Advice
from gateway.coordination import advice
from gateway.coordination.election import Leadership
from gateway.coordination.zookeeper import ZooKeeper
from gateway.errors import RecordError
from gateway.model import FabricView
from gateway.observe.logs import get_logger
from gateway.plan.advice import NotRecommendations, plan_advice, read_recommendations

log = get_logger("router.advice")


class Adviser:
    """Of one router, for when it leads."""

    def __init__(self, zk: ZooKeeper, settings: Advice, fabric: str) -> None:
        assert settings.file is not None, "advice by itself without a file"
        self._zk = zk
        self._settings = settings
        self._file = Path(settings.file)
        self._fabric = fabric
        self._due_s = 0.0
        self._told = ""

    async def converge(self, leadership: Leadership, view: FabricView, now_s: float) -> None:
        """Looks at the file when it is time. Raises CoordinationError."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._settings.interval_s
        try:
            text = await asyncio.to_thread(self._file.read_bytes)
            recommended = read_recommendations(text)
            before, version = await advice.read(self._zk)
        except (OSError, NotRecommendations, RecordError) as error:
            self._tell(str(error))
            return
        self._told = ""
        plan = plan_advice(
            before,
            recommended,
            view,
            fabric=self._fabric,
            now_s=int(time.time()),
            limit=self._settings.most_changes,
            hold_s=int(self._settings.hold_s),
        )
        if not plan.steps or not await advice.write(self._zk, plan.advice, version, leadership):
            return
        for step in plan.steps:
            log.info(
                "advice applied",
                topic=step.after.topic,
                what=step.after.what,
                before="none" if step.before is None else step.before.what,
                left=len(plan.left),
                text=step.after.text,
                evidence=json.dumps(dict(step.after.evidence), default=str),
            )

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            log.warning(
                "recommendations cannot be read; advice stays as it is until they can",
                file=str(self._file),
                reason=reason,
            )
