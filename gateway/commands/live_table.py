"""The live view of `ddswan status` without its terminal: which routes there are, what the keys do,
and which rows are shown in which columns. Pure; drawn by live_screen.py, driven by live.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.commands.rates import Percentile, Route, Traffic
from gateway.commands.report import TopicState, printable
from gateway.model import FabricView, TopicView
from gateway.plan.matching import cross_lan_pairs

# ---------------------------------------------------------------- routes


class Routes:
    """The routes of the tree and their states; looks only at topics that have changed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[TopicView, frozenset[str], dict[Route, TopicState]]] = {}
        self.states: dict[Route, TopicState] = {}
        self.local_topics = 0
        """Topics without a route, because there is nothing to carry."""

    def update(self, view: FabricView) -> None:
        routers = frozenset(view.routers)
        known = self._states
        self._states = {}
        for name, topic in view.topics.items():
            entry = known.get(name)
            if entry is None or entry[1] != routers or entry[0] != topic:
                entry = (topic, routers, states_of(topic, routers))
            self._states[name] = entry
        self.states = {}
        self.local_topics = 0
        for _, _, states in self._states.values():
            self.states.update(states)
            self.local_topics += not states


def states_of(topic: TopicView, live_routers: frozenset[str]) -> dict[Route, TopicState]:
    """The state of each pair of LANs that has a publisher and a subscriber which are not kept
    apart by their partitions."""
    assignment = topic.assignment
    carriers = {assignment.primary, assignment.standby} if assignment is not None else set()
    carried = TopicState.WAITING if carriers.isdisjoint(live_routers) else TopicState.ROUTED
    states: dict[Route, TopicState] = {}
    for pair in cross_lan_pairs(topic):
        route = Route(topic.topic, pair.pub.lan, pair.sub.lan)
        if pair.mismatch is None:
            states[route] = carried
        elif not pair.mismatch.is_separated:
            states.setdefault(route, TopicState.INCOMPATIBLE)
    return states


@dataclass(frozen=True, slots=True)
class Row:
    route: Route
    state: TopicState | None
    """None: what the edges sum up under the name of (other)."""
    traffic: Traffic | None
    """None: the edge there tells nothing."""


def make_rows(
    states: Mapping[Route, TopicState], traffic: Mapping[Route, Traffic], other: str
) -> list[Row]:
    """A row for each route, and for what the edges sum up under `other`, the label of the rest."""
    rows = [Row(route, state, traffic.get(route)) for route, state in states.items()]
    rows += [
        Row(route, None, carried)
        for route, carried in traffic.items()
        if other in route and route not in states and carried.samples_per_s > 0
    ]
    return rows


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    width: int
    """At least; what is left goes to the first column."""
    importance: int
    """A narrow terminal loses the least important ones."""
    cell: Callable[[Row], str]
    order: Callable[[Row], Any]
    """What it is sorted by; None comes last, whatever the order."""
    is_number: bool = True

    @property
    def is_largest_first(self) -> bool:
        return self.is_number


def _of_traffic(get: Callable[[Traffic], Any]) -> Callable[[Row], Any]:
    return lambda row: None if row.traffic is None else get(row.traffic)


def _number(width: int, title: str, importance: int, get: Callable[[Traffic], Any]) -> Column:
    value = _of_traffic(get)
    return Column(title, width, importance, lambda row: format_rate(value(row)), value)


def _latency(title: str, importance: int, get: Callable[[Traffic], Any]) -> Column:
    value = _of_traffic(get)
    return Column(title, 8, importance, lambda row: format_latency(value(row)), value)


COLUMNS = (
    Column("topic", 12, 9, lambda row: printable(row.route.topic), lambda row: row.route, False),
    Column(
        *("from -> to", 12, 8),
        lambda row: f"{printable(row.route.from_lan)} -> {printable(row.route.to_lan)}",
        lambda row: (row.route.from_lan, row.route.to_lan),
        False,
    ),
    Column(
        *("path", 14, 2),
        lambda row: "+".join(row.traffic.paths) if row.traffic and row.traffic.paths else "-",
        lambda row: row.traffic.paths if row.traffic and row.traffic.paths else None,
        False,
    ),
    _number(10, "samples/s", 7, lambda traffic: traffic.samples_per_s),
    _number(8, "bytes/s", 4, lambda traffic: traffic.bytes_per_s),
    _latency("p50", 3, lambda traffic: traffic.p50),
    _latency("p99", 6, lambda traffic: traffic.p99),
    _number(9, "misses/s", 5, lambda traffic: traffic.misses_per_s),
    _number(8, "dupl./s", 1, lambda traffic: traffic.duplicates_per_s),
    Column(
        *("state", 12, 5),
        lambda row: row.state.value if row.state is not None else "-",
        lambda row: row.state,
        False,
    ),
)
GAP = 2


def choose_columns(width: int) -> list[tuple[Column, int]]:
    """Those that fit and their widths; what is left over goes to the topic."""
    chosen = list(COLUMNS)
    while len(chosen) > 1 and _width_of(chosen) > width:
        chosen.remove(min(chosen, key=lambda column: column.importance))
    spare = max(0, width - _width_of(chosen))
    for_lans = min(12, spare // 3) if len(chosen) == len(COLUMNS) else 0
    extra = {"topic": spare - for_lans, "from -> to": for_lans}
    return [(column, column.width + extra.get(column.title, 0)) for column in chosen]


def _width_of(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def format_rate(per_s: float | None) -> str:
    """At most six characters up to the terasample: 0, 0.25, 12.3, 450, 1.20k, 3.4M."""
    if per_s is None:
        return "-"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_s >= 0.9995 * size:
            return f"{_three_digits(per_s / size)}{unit}"
    return _three_digits(per_s)


def format_latency(latency: Percentile | None) -> str:
    if latency is None:
        return "-"
    sign = ">" if latency.is_beyond else ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if latency.seconds >= 0.9995 * size:
            return f"{sign}{_three_digits(latency.seconds / size)}{unit}"
    return f"{sign}{_three_digits(latency.seconds / 1e-6)}us"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


# ---------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class Controls:
    """What the keys have set so far."""

    sort: int = 0
    """Place in COLUMNS."""
    is_reversed: bool = False
    needle: str = ""
    """Only topics that contain it are shown, whatever the case."""
    is_typing: bool = False
    is_paused: bool = False
    is_help: bool = False
    top: int = 0
    """The first row shown."""
    is_done: bool = False


HELP = (
    ("q", "quit"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "show only topics that contain a text; Enter keeps it, Esc drops it"),
    ("p", "pause and go on"),
    ("up down PgUp PgDn Home End", "scroll"),
    ("?", "this help"),
)

_SEQUENCES = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), "up"),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), "down"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), "end"),
    **dict.fromkeys(("\r", "\n"), "enter"),
    **dict.fromkeys(("\x7f", "\x08"), "backspace"),
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\x15": "clear",
}
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)|.", re.DOTALL)


def read_keys(text: str) -> list[str]:
    """The keys behind what a terminal sent: characters, and names for the others. A sequence that
    is not known is nothing."""
    return [
        _SEQUENCES.get(sequence, sequence)
        for sequence in _KEY.findall(text)
        if sequence in _SEQUENCES or sequence.isprintable()
    ]


def press(controls: Controls, key: str, rows: int, page: int, width: int) -> Controls:
    """`rows`: how many there are, `page`: how many are shown at once; `width` of the terminal."""
    if controls.is_typing:
        return _type(controls, key)
    if controls.is_help:
        return replace(controls, is_help=False, is_done=key == "q")
    match key:
        case "q":
            return replace(controls, is_done=True)
        case "s":
            return replace(controls, sort=_next(controls.sort, width), is_reversed=False, top=0)
        case "r":
            return replace(controls, is_reversed=not controls.is_reversed, top=0)
        case "/":
            return replace(controls, is_typing=True, top=0)
        case "escape":
            return replace(controls, needle="", top=0)
        case "p":
            return replace(controls, is_paused=not controls.is_paused)
        case "?":
            return replace(controls, is_help=True)
    steps = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -rows, "end": rows}
    top = min(controls.top + steps.get(key, 0), rows - page)
    return replace(controls, top=max(0, top))


def _next(sort: int, width: int) -> int:
    """The next column that is shown; after the last one the first."""
    shown = [COLUMNS.index(column) for column, _ in choose_columns(width)]
    return next((place for place in shown if place > sort), shown[0])


def _type(controls: Controls, key: str) -> Controls:
    match key:
        case "enter":
            return replace(controls, is_typing=False)
        case "escape":
            return replace(controls, is_typing=False, needle="", top=0)
        case "backspace":
            return replace(controls, needle=controls.needle[:-1], top=0)
        case "clear":
            return replace(controls, needle="", top=0)
    return replace(controls, needle=controls.needle + key, top=0) if len(key) == 1 else controls


def arrange(rows: Iterable[Row], controls: Controls) -> list[Row]:
    """Those that are to be seen, in order. Equal ones keep the order of their names."""
    needle = controls.needle.casefold()
    column = COLUMNS[controls.sort]
    keyed = [(column.order(row), row) for row in rows if needle in row.route.topic.casefold()]
    keyed.sort(key=lambda item: item[1].route)
    unknown = [row for value, row in keyed if value is None]
    known = [item for item in keyed if item[0] is not None]
    known.sort(key=lambda item: item[0], reverse=column.is_largest_first != controls.is_reversed)
    return [row for _, row in known] + unknown
