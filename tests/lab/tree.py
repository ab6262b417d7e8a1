"""A look into the ZooKeeper tree from inside the lab, with a plain client: what an operator with a
ZooKeeper shell sees and does. Run as a module in a namespace by `tests/lab/fabric.py`.
"""

from __future__ import annotations

import argparse
import json
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("hosts")
    command.add_argument("action", choices=["dump", "put", "delete"])
    command.add_argument("path")
    command.add_argument("data", nargs="?", default="")
    options = command.parse_args()
    client = KazooClient(options.hosts, timeout=10.0)
    client.start(timeout=10.0)
    try:
        if options.action == "dump":
            found: dict[str, str] = {}
            dump(client, options.path, found)
            print(json.dumps(found))
        elif options.action == "put":
            for path, data in json.loads(options.data).items():
                client.ensure_path(f"{options.path}/{path}")
                client.set(f"{options.path}/{path}", data.encode())
        else:
            client.delete(options.path, recursive=True)
    finally:
        client.stop()
        client.close()
    return 0


def dump(client: KazooClient, path: str, found: dict[str, str]) -> None:
    """Every node below `path` and what it holds; nodes may vanish meanwhile."""
    try:
        data, stat = client.get(path)
        found[path] = data.decode(errors="replace")
        if stat.children_count:
            for child in client.get_children(path):
                dump(client, f"{path}/{child}", found)
    except NoNodeError:
        return


if __name__ == "__main__":
    sys.exit(main())
