"""The `ddswan` command without its metrics: whatever counts or observes does nothing. The yardstick
of observe.py; nobody else runs it.
"""

from __future__ import annotations

import sys
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from gateway.cli import main
from gateway.observe.metrics import DeadlineMeter


def _nothing(*_: Any, **__: Any) -> None:
    pass


for kind, name in (
    (Counter, "inc"),
    (Gauge, "set"),
    (Histogram, "observe"),
    (DeadlineMeter, "count"),
):
    setattr(kind, name, _nothing)
sys.exit(main())
