"""What log lines look like and when they are held back."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.logs import JsonLines, Logger, Repeats, TextLines, get_logger, set_up_logging


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Where log lines go; the settings of the run are put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_text_line(output: io.StringIO) -> None:
    set_up_logging("info", "text", output)
    get_logger("edge.ingress").info(
        "reader opened", topic="/chatter", reason='say "hi"', empty="", count=3
    )
    line = output.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    edge\.ingress reader opened "
        r'topic=/chatter reason="say \\"hi\\"" empty="" count=3\n',
        line,
    )


def test_a_json_line(output: io.StringIO) -> None:
    set_up_logging("info", "json", output)
    get_logger("edge.ingress").info("reader opened", topic="/chatter\n", count=3)
    entry = json.loads(output.getvalue())
    assert entry.pop("time")
    assert entry == {
        "level": "info",
        "logger": "edge.ingress",
        "message": "reader opened",
        "topic": "/chatter\n",
        "count": 3,
    }


@pytest.mark.parametrize("style", ["text", "json"])
def test_nothing_from_the_network_makes_a_second_line(output: io.StringIO, style: str) -> None:
    set_up_logging("info", style, output)
    get_logger("x").info("seen", topic="a\nb\x1b[31m\r")
    logging.getLogger("gateway.other").warning("a\nb")
    assert len(output.getvalue().splitlines()) == 2
    assert "\x1b" not in output.getvalue()


def test_levels_are_ours_only(output: io.StringIO) -> None:
    set_up_logging("debug", "text", output)
    get_logger("x").debug("ours")
    logging.getLogger("somebody").info("theirs")
    logging.getLogger("somebody").warning("theirs, important")
    assert [line.split(maxsplit=2)[2] for line in output.getvalue().splitlines()] == [
        "x ours",
        "somebody theirs, important",
    ]


def test_a_traceback_at_debug_only(output: io.StringIO) -> None:
    log = Logger("x", Repeats(_Clock()))
    for level in ("info", "debug"):
        set_up_logging(level, "text", output)
        try:
            raise ValueError("bad")
        except ValueError as error:
            log.error("it failed", error=error)
    text = output.getvalue()
    assert text.count('it failed error="ValueError: bad"') == 2
    assert text.count("Traceback") == 1
    assert len(text.splitlines()) == 2, "one event, one line"


@pytest.mark.parametrize("style", ["text", "json"])
def test_libraries_are_held_to_the_same_rules(output: io.StringIO, style: str) -> None:
    set_up_logging("info", style, output)
    theirs = logging.getLogger(f"library.{style}")
    for number in range(1000):
        try:
            raise ValueError("bad")
        except ValueError:
            theirs.exception("it failed\nat %d", number)
    text = output.getvalue()
    assert len(text.splitlines()) == 10
    assert text.count("ValueError: bad") == 10
    assert "Traceback" not in text


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_stay_secret(output: io.StringIO, style: str) -> None:
    set_up_logging("info", style, output)
    url = "https://somebody:hunter2@host:1/path"
    get_logger("x").info("seen", keystore_password="hunter2", auth_token="hunter2", address=url)
    get_logger("x").error("it failed", error=ValueError(f"cannot reach {url}"))
    logging.getLogger("somebody").warning("cannot reach %s", url)
    for text in ("password=hunter2", "Token: hunter2, next", '{"secret_key": "hunter2"}'):
        get_logger("x").error("it failed", error=ValueError(text), tried=[text])
        logging.getLogger("somebody").warning("bad line %s", text)
    assert "hunter2" not in output.getvalue()
    assert output.getvalue().count("https://somebody:(hidden)@host:1/path") == 3


def test_a_repeated_warning_is_held_back_and_counted(output: io.StringIO) -> None:
    clock = _Clock()
    log = Logger("x", Repeats(clock))
    set_up_logging("info", "text", output)
    for number in range(1000):
        log.warning("bad frame", number=number)
    assert output.getvalue().count("bad frame") == 10
    log.warning("another message")
    assert "another message" in output.getvalue()
    clock.now_s = 61.0
    log.warning("bad frame", number=1000)
    assert output.getvalue().endswith("bad frame number=1000 repeated=990\n")


_ANYTHING = st.recursive(
    st.none()
    | st.floats()
    | st.integers()
    | st.text(st.characters())
    | st.binary()
    | st.just(float("inf")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.tuples(st.integers()), inner),
    max_leaves=5,
)


@given(
    message=st.text(st.characters()),
    fields=st.dictionaries(
        st.from_regex(r"[a-z_]{1,9}", fullmatch=True)
        | st.sampled_from(["time", "level", "message"]),
        _ANYTHING,
    ),
)
def test_any_event_is_one_line_that_can_be_read(message: str, fields: dict[str, Any]) -> None:
    record = logging.LogRecord("ddswan.x", logging.WARNING, "f", 1, message, None, None)
    record.fields = fields
    for line in (TextLines().format(record), JsonLines().format(record)):
        assert len(line.splitlines()) <= 1
        assert line.isprintable()

    def no_constant(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    entry = json.loads(JsonLines().format(record), parse_constant=no_constant)
    assert entry["level"] == "warning" and entry["logger"] == "x"
    assert list(entry)[:4] == ["time", "level", "logger", "message"]
    assert entry.keys() == {*fields, "time", "level", "logger", "message"}


def test_formatters_take_records_without_fields() -> None:
    record = logging.LogRecord("kazoo", logging.WARNING, "f", 1, "count %d", (3,), None)
    assert TextLines().format(record).endswith("WARNING kazoo count 3")
    assert json.loads(JsonLines().format(record))["message"] == "count 3"
