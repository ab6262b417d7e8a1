"""The live view without its terminal: routes, keys, order, and what fits on a screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands.live_screen import Scene, draw, rows_shown
from gateway.commands.live_table import (
    COLUMNS,
    Controls,
    Routes,
    Row,
    arrange,
    choose_columns,
    format_latency,
    format_rate,
    make_rows,
    press,
    read_keys,
)
from gateway.commands.rates import Percentile, Route, Traffic
from gateway.commands.report import TopicState
from gateway.model import (
    Announcement,
    Assignment,
    Direction,
    FabricView,
    Profile,
    Qos,
    Reliability,
    RouterInfo,
    TopicView,
)

_RELIABLE = Profile("T", None, False, Qos(reliability=Reliability.RELIABLE))
_BEST_EFFORT = Profile("T", None, False, Qos())
_APART = Profile("T", None, False, Qos(partitions=("apart",)))
_SORTS = {column.title: place for place, column in enumerate(COLUMNS)}


def _topic(name: str, pubs: dict[str, Profile], subs: dict[str, Profile]) -> TopicView:
    def announced(lan: str, direction: Direction, profile: Profile) -> Announcement:
        return Announcement(f"edge-{lan}", lan, 1, name, direction, ((profile, ("0" * 32,)),))

    return TopicView(
        name,
        Assignment("r1", None, 1),
        pubs=tuple(announced(lan, Direction.PUB, profile) for lan, profile in pubs.items()),
        subs=tuple(announced(lan, Direction.SUB, profile) for lan, profile in subs.items()),
    )


def test_the_routes_of_a_fabric_and_their_states() -> None:
    topics = (
        _topic("t", {"a": _BEST_EFFORT}, {"b": _RELIABLE, "c": _BEST_EFFORT, "d": _APART}),
        _topic("local", {"a": _RELIABLE}, {"a": _RELIABLE}),
    )
    view = FabricView(
        routers={"r1": RouterInfo("r1", "h:1")}, topics={topic.topic: topic for topic in topics}
    )
    routes = Routes()
    routes.update(view)
    assert routes.states == {
        Route("t", "a", "b"): TopicState.INCOMPATIBLE,
        Route("t", "a", "c"): TopicState.ROUTED,
    }
    assert routes.local_topics == 1
    routes.update(replace(view, routers={}))
    assert routes.states[Route("t", "a", "c")] is TopicState.WAITING
    routes.update(FabricView())
    assert (routes.states, routes.local_topics) == ({}, 0)


def _traffic(samples_per_s: float, p99_s: float | None = None) -> Traffic:
    p99 = None if p99_s is None else Percentile(p99_s)
    return Traffic(samples_per_s, 0.0, 0.0, None, None, p99, ())


def test_what_edges_sum_up_has_a_row_of_its_own() -> None:
    known, other = Route("t", "a", "b"), Route("(other)", "a", "b")
    gone = Route("gone", "a", "b")
    traffic = {known: _traffic(1.0), other: _traffic(2.0), gone: _traffic(3.0)}
    rows = make_rows({known: TopicState.ROUTED}, traffic, "(other)")
    assert [(row.route, row.state) for row in rows] == [(known, TopicState.ROUTED), (other, None)]


_ROWS = [
    Row(Route("beta", "a", "b"), TopicState.ROUTED, _traffic(5.0, 0.2)),
    Row(Route("Alpha", "a", "b"), TopicState.WAITING, None),
    Row(Route("alphabet", "a", "b"), TopicState.ROUTED, _traffic(7.0)),
    Row(Route("beta", "a", "c"), TopicState.ROUTED, _traffic(5.0, 0.1)),
]


def _order(controls: Controls) -> list[int]:
    return [_ROWS.index(row) for row in arrange(_ROWS, controls)]


def test_rows_are_sorted_largest_first_and_the_unknown_come_last() -> None:
    assert _order(Controls()) == [1, 2, 0, 3]
    rate = Controls(sort=_SORTS["samples/s"])
    assert _order(rate) == [2, 0, 3, 1]
    assert _order(replace(rate, is_reversed=True)) == [0, 3, 2, 1]
    assert _order(Controls(sort=_SORTS["p99"])) == [0, 3, 1, 2]
    assert _order(Controls(sort=_SORTS["state"])) == [2, 0, 3, 1]
    assert _order(Controls(needle="ALPHA")) == [1, 2]


def _after(text: str, controls: Controls = Controls(), rows: int = 50) -> Controls:  # noqa: B008
    for key in read_keys(text):
        controls = press(controls, key, rows, page=10, width=200)
    return controls


def test_keys() -> None:
    assert _after("q").is_done
    assert _after("s" * 3).sort == 3 and _after("s" * len(COLUMNS)).sort == 0
    assert _after("r").is_reversed and not _after("rs").is_reversed
    assert _after("p").is_paused and not _after("pp").is_paused
    assert _after("?").is_help and not _after("?x").is_help
    assert _after("/rt/q\r") == Controls(needle="rt/q")
    assert _after("/rtx\x7f").needle == "rt" and _after("/rt").is_typing
    assert _after("/rt\x1b") == Controls() == _after("/rt\r\x1b")
    assert _after("/größe\r").needle == "größe"
    assert _after("\x1b[6~\x1b[B").top == 11 and _after("\x1bOB\x1bOA\x1b[A").top == 0
    assert _after("\x1b[F").top == 40 and _after("\x1b[F\x1b[H").top == 0
    assert _after("\x1b[6~", rows=3).top == 0
    assert _after("\x1b[15~\x1b[1;5Cé\x00") == Controls(), "keys that are none"


@given(st.text())
def test_no_input_breaks_the_keys(text: str) -> None:
    controls = _after(text)
    assert 0 <= controls.top <= 50 and controls.needle.isprintable()


def test_sorting_by_what_is_not_shown_is_passed_over() -> None:
    controls = Controls()
    seen = []
    for _ in range(3):
        seen.append(COLUMNS[controls.sort].title)
        controls = press(controls, "s", 1, 1, width=50)
    assert seen == ["topic", "from -> to", "samples/s"]


@given(
    st.lists(
        st.builds(
            Row,
            st.builds(Route, st.text(max_size=40), st.text(max_size=9), st.text(max_size=9)),
            st.none() | st.sampled_from(TopicState),
            st.none()
            | st.builds(
                Traffic,
                *[st.floats(0, 1e14)] * 3,
                st.none() | st.floats(0, 1e9),
                *[st.none() | st.builds(Percentile, st.floats(0, 10), st.booleans())] * 2,
                st.sampled_from([(), ("routed",), ("express", "routed", "standby")]),
            ),
        ),
        max_size=30,
    ),
    st.lists(st.text(max_size=300), max_size=5),
    st.builds(
        Controls,
        sort=st.integers(0, len(COLUMNS) - 1),
        needle=st.just("") | st.text("ab", max_size=3),
        is_typing=st.booleans(),
        is_paused=st.booleans(),
        is_help=st.booleans(),
        top=st.integers(0, 99),
    ),
    st.integers(1, 200),
    st.integers(1, 40),
)
def test_nothing_is_drawn_outside_the_screen_nor_steers_it(
    rows: list[Row], notices: list[str], controls: Controls, width: int, height: int
) -> None:
    scene = Scene("fabric f", tuple(notices), tuple(rows))
    lines = draw(scene, controls, width, height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert line.plain.isprintable()
    if not controls.is_help and height > 3 + len(notices):
        assert len(lines) == height, "the foot stays at the bottom"
        shown = min(len(arrange(rows, controls)), rows_shown(scene, height))
        assert sum(bool(line.plain) for line in lines) >= 3 + shown


def test_numbers_and_their_titles_are_never_cut() -> None:
    for width in range(1, 160):
        chosen = choose_columns(width)
        assert sum(room for _, room in chosen) + 2 * (len(chosen) - 1) <= max(width, 12)
        for column, room in chosen:
            assert not column.is_number or room >= max(len(column.title) + 1, len(">99.9ms"))


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        *[(None, "-"), (0.0, "0"), (0.25, "0.25"), (9.996, "10.0"), (99.96, "100")],
        *[(999.4, "999"), (999.6, "1.00k"), (123_456.0, "123k"), (4.2e9, "4.20G")],
    ],
)
def test_rates(rate: float | None, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("latency", "text"),
    [
        *[(None, "-"), (Percentile(0.00029), "290us"), (Percentile(0.0213), "21.3ms")],
        *[(Percentile(0.9999), "1.00s"), (Percentile(10.0, True), ">10.0s")],
    ],
)
def test_latencies(latency: Percentile | None, text: str) -> None:
    assert format_latency(latency) == text
