"""Writes the Grafana dashboards into the folder given: `dashboards/` by `./dev generate`, another
one by `./dev lint` to see whether they have drifted. Each is said in a file of its own; a panel's
place follows from its place in the list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import coordination
import fleet
import lan_pair
import one_topic
from grafana import to_json

DASHBOARDS = (fleet.DASHBOARD, lan_pair.DASHBOARD, one_topic.DASHBOARD, coordination.DASHBOARD)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        text = json.dumps(to_json(dashboard), indent=2, ensure_ascii=False) + "\n"
        (folder / f"{dashboard.uid}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
