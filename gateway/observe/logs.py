"""Structured logging: a fixed message plus key=value fields, one event one line, as text or JSON on
standard error. Every module that acts calls `get_logger`; the command line calls `set_up_logging`
once. Warnings and errors read `what happened; what is done about it or what to do`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

_ROOT = "ddswan"
_BURST = 10
_PERIOD_S = 60.0
_SECRET_NAME = re.compile(r"passw|secret|token|credential|private_key", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")
_SECRET_IN_TEXT = re.compile(
    r"((?:passw|secret|token|credential)\w*[\"']?\s*[=:]\s*)(?!\s)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)",
    re.IGNORECASE,
)
_HIDDEN = "(hidden)"
_OF_EVERY_LINE = ("time", "level", "logger", "message")


class Repeats:
    """Lets the same warning through `_BURST` times per `_PERIOD_S` and counts the rest, so that a
    fault at data rate cannot fill a disk. Messages are fixed texts (those of libraries count by the
    place in their code), so the table stays small."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, int, int]] = {}

    def admit(self, logger: str, message: str) -> int | None:
        """How many were held back before this one, or None when this one is held back too."""
        now = self._clock()
        with self._lock:
            since, passed, held = self._seen.get((logger, message), (now, 0, 0))
            if now - since >= _PERIOD_S:
                since, passed = now, 0
            if passed >= _BURST:
                self._seen[logger, message] = (since, passed, held + 1)
                return None
            self._seen[logger, message] = (since, passed + 1, 0)
            return held


_repeats = Repeats()


class Logger:
    """Fixed messages and fields; never put a value into the message."""

    def __init__(self, name: str, repeats: Repeats) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")
        self._name = name
        self._repeats = repeats

    def is_debug(self) -> bool:
        """Whether it is worth computing fields for `debug`."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, message: str, **fields: Any) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: Any) -> None:
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: Any) -> None:
        self._limited(logging.WARNING, message, fields, None)

    def error(self, message: str, *, error: BaseException | None = None, **fields: Any) -> None:
        """`error` adds its one line; its traceback follows at level debug only."""
        self._limited(logging.ERROR, message, fields, error)

    def _limited(
        self, level: int, message: str, fields: dict[str, Any], error: BaseException | None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        held = self._repeats.admit(self._name, message)
        if held is None:
            return
        if error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"
        if held:
            fields["repeated"] = held
        self._logger.log(
            level, message, extra={"fields": fields}, exc_info=error if self.is_debug() else None
        )


def get_logger(name: str) -> Logger:
    """`name` is the room and activity, such as `edge.ingress`."""
    return Logger(name, _repeats)


def set_up_logging(level: str, style: str, stream: TextIO | None = None) -> None:
    """Sends every log line of the process to `stream` (standard error): ours from `level` on,
    those of libraries from warning on. Calling it again replaces the first setting."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.addFilter(_shorten_foreign)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(_ROOT).setLevel(level.upper())


def _shorten_foreign(record: logging.LogRecord) -> bool:
    """What libraries say obeys the same rules: repeats are held back, an exception is one line and
    its traceback is for level debug."""
    if hasattr(record, "fields"):
        return True
    held = _repeats.admit(record.name, f"{record.pathname}:{record.lineno}")
    if held is None:
        return False
    fields: dict[str, Any] = {}
    if record.exc_info is not None and record.exc_info[1] is not None:
        fields["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
        if not logging.getLogger(_ROOT).isEnabledFor(logging.DEBUG):
            record.exc_info = None
    if held:
        fields["repeated"] = held
    record.fields = fields
    return True


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO  edge.ingress reader opened topic=/chatter`"""

    def format(self, record: logging.LogRecord) -> str:
        entry = _fields(record)
        if record.exc_info:
            entry["traceback"] = _without_secret(self.formatException(record.exc_info))
        fields = "".join(f" {key}={_plain(value)}" for key, value in entry.items())
        return (
            f"{_timestamp(record)} {record.levelname:<7} {_short_name(record)} "
            f"{_one_line(_message(record))}{fields}"
        )


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            **_fields(record),
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": _short_name(record),
            "message": _message(record),
        }
        # What says what the line is comes first, and no field can take its place.
        entry = {name: entry[name] for name in (*_OF_EVERY_LINE, *entry)}
        if record.exc_info:
            entry["traceback"] = _without_secret(self.formatException(record.exc_info))
        try:
            return json.dumps(entry, default=str, allow_nan=False)
        except (TypeError, ValueError):  # infinite, or a mapping with keys JSON does not know
            return json.dumps({name: str(value) for name, value in entry.items()})


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """A copy, without what is nobody's business."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {
        key: _HIDDEN if _SECRET_NAME.search(key) else _without_secret(value)
        for key, value in fields.items()
    }


def _message(record: logging.LogRecord) -> str:
    return str(_without_secret(record.getMessage()))


def _without_secret(value: Any) -> Any:
    """Numbers and the like as they are; a text without the password of a URL or `password=…`."""
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    hidden = _SECRET_IN_URL.sub(rf"\1{_HIDDEN}@", text)
    hidden = _SECRET_IN_TEXT.sub(rf"\1{_HIDDEN}", hidden)
    return value if hidden == text else hidden


def _short_name(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{_ROOT}.")


def _timestamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _one_line(text: str) -> str:
    """Nothing in it ends a line or speaks to the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: Any) -> str:
    text = str(value)
    if text and text.isprintable() and not set(text) & set(' ="'):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
