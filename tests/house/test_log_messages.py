"""What log lines owe to their reader, checked in the source: fixed messages, and warnings that say
what is done about it or what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_LEVELS = {"debug", "info", "warning", "error"}


class Call(NamedTuple):
    place: str
    level: str
    message: ast.expr
    fields: set[str]


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for room in ("gateway", "edge_broker", "routing_broker"):
        for file in sorted((_ROOT / room).rglob("*.py")):
            yield str(file.relative_to(_ROOT)), ast.parse(file.read_text())


def _calls() -> Iterator[Call]:
    for file, tree in _sources():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "_log")
            ):
                fields = {keyword.arg or "" for keyword in node.keywords}
                yield Call(f"{file}:{node.lineno}", node.func.attr, node.args[0], fields)


def test_messages_are_fixed_and_values_are_fields() -> None:
    calls = list(_calls())
    assert len(calls) > 50
    for place, _, message, fields in calls:
        text = message.value if isinstance(message, ast.Constant) else None
        assert isinstance(text, str), f"{place}: put values into fields"
        assert "%" not in text and not text.endswith((".", " ")), f"{place}: {text}"
        assert re.match(r"[a-z]|ZooKeeper|DDS", text), f"{place}: {text}"
        assert "why" not in fields or text == "assignment changed", f"{place}: call it reason"


def test_warnings_say_what_is_done_or_what_to_do() -> None:
    silent = [
        f"{place}: {message.value!r}"
        for place, level, message, _ in _calls()
        if level in ("warning", "error")
        and isinstance(message, ast.Constant)
        and not re.fullmatch(r"[^;]{10,}; [^;]{5,}", str(message.value))
    ]
    assert silent == [], "write `what happened; what is done about it or what to do`"


def test_nobody_goes_past_the_log() -> None:
    importers = {
        file
        for file, tree in _sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and any(name.name == "logging" for name in node.names)
    }
    # The door to ZooKeeper only silences its library.
    assert importers == {"gateway/observe/logs.py", "gateway/coordination/zookeeper.py"}
