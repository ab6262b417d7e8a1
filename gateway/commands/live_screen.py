"""What the live view of `ddswan status` looks like: a scene, the keys' settings and a size become
lines of styled text. Pure; called by live.py, which owns the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gateway.commands.live_table import (
    COLUMNS,
    GAP,
    HELP,
    Column,
    Controls,
    Row,
    arrange,
    choose_columns,
)
from gateway.commands.report import TopicState, printable

_STATE_STYLES = {
    TopicState.WAITING: "yellow",
    TopicState.INCOMPATIBLE: "red",
}
_KEYS = "q quit  s sort  r reverse  / filter  p pause  ? help"


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be shown, whatever the keys have set."""

    title: str = ""
    notices: tuple[str, ...] = ()
    """What keeps the table from being whole."""
    rows: tuple[Row, ...] = ()


def rows_shown(scene: Scene, height: int) -> int:
    """How many rows there is room for; at least one, so that scrolling moves."""
    return max(1, height - 3 - _notices_shown(scene, height))


def _notices_shown(scene: Scene, height: int) -> int:
    return min(len(scene.notices), max(1, height // 4))


def draw(scene: Scene, controls: Controls, width: int, height: int) -> list[Text]:
    """At most `height` lines of at most `width` cells."""
    if controls.is_help:
        lines = _draw_help(width)
    else:
        rows = arrange(scene.rows, controls)
        page = rows_shown(scene, height)
        top = max(0, min(controls.top, len(rows) - page))
        columns = choose_columns(width)
        lines = [Text(_fit(scene.title, width), "bold")]
        for notice in scene.notices[: _notices_shown(scene, height)]:
            lines.append(Text(_fit(printable(notice), width), "yellow"))
        lines.append(_draw_titles(columns, controls, width))
        lines += [_draw_row(row, columns, width) for row in rows[top : top + page]]
        lines += [Text()] * (page - len(rows))
        lines.append(_draw_foot(controls, len(rows), len(scene.rows), top, page, width))
    return lines[:height]


def _draw_titles(columns: Sequence[tuple[Column, int]], controls: Controls, width: int) -> Text:
    sorted_by = COLUMNS[controls.sort]
    is_falling = sorted_by.is_largest_first != controls.is_reversed
    titles = [
        column.title + (("▼" if is_falling else "▲") if column is sorted_by else "")
        for column, _ in columns
    ]
    return Text(_fit(_join(titles, columns), width), "reverse")


def _draw_row(row: Row, columns: Sequence[tuple[Column, int]], width: int) -> Text:
    text = _fit(_join([column.cell(row) for column, _ in columns], columns), width)
    traffic = row.traffic
    if row.state in _STATE_STYLES:
        return Text(text, _STATE_STYLES[row.state])
    if traffic is not None and traffic.misses_per_s:
        return Text(text, "magenta")
    return Text(text, "dim" if traffic is None or not traffic.samples_per_s else "")


def _draw_foot(controls: Controls, shown: int, all_: int, top: int, page: int, width: int) -> Text:
    if controls.is_typing:
        return Text(_fit(f"topics that contain: {controls.needle}_", width), "bold")
    told = []
    if controls.is_paused:
        told.append("PAUSED")
    if shown > page:
        told.append(f"{top + 1}-{min(top + page, shown)} of {shown}")
    if controls.needle:
        told.append(f"{shown} of {all_} with '{controls.needle}' (Esc: all)")
    told.append(_KEYS)
    return Text(_fit("  ".join(told), width), "bold" if controls.is_paused else "dim")


def _draw_help(width: int) -> list[Text]:
    keys = max(len(key) for key, _ in HELP)
    lines = ["ddswan status", "", *(f"  {key:<{keys}}  {text}" for key, text in HELP), ""]
    lines += [
        "Rates and percentiles are of the last five seconds and of what is written into the LAN",
        "on the right, as its edge tells; - where it does not, or where nothing is to be told.",
        "misses/s: samples later than the deadline their writers offer. dupl./s: samples that",
        "arrived again and were ignored; over direct links that is the slower path's copy.",
        "",
        "any key: back",
    ]
    return [Text(_fit(line, width)) for line in lines]


def _join(cells: Sequence[str], columns: Sequence[tuple[Column, int]]) -> str:
    parts = []
    for cell, (column, width) in zip(cells, columns, strict=True):
        text = _fit(cell, width)
        if column.is_number:
            text = " " * (width - cell_len(text)) + text
        else:
            text = set_cell_size(text, width)
        parts.append(text)
    return (" " * GAP).join(parts)


def _fit(text: str, width: int) -> str:
    """Cut to that many cells, an ellipsis telling so."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""
