"""Bars by group in one SVG file, panels below each other. Pure; used by benchmarks' reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_WIDTH = 1000
_PANEL_HEIGHT = 190
_PLOT_HEIGHT = 130
_LEFT = 70
_TOP = 60
_COLOURS = ("#8da0cb", "#4c6fb1", "#e08a3c", "#2f8f5b", "#a05195", "#7f7f7f")


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    values: Sequence[Sequence[float]]
    """By group, then by series."""
    whiskers: Sequence[Sequence[tuple[float, float]]] = ()
    """Two marks above each bar."""
    is_logarithmic: bool = False


class _Scale:
    def __init__(self, panel: Panel) -> None:
        flat = [value for group in panel.values for value in group]
        most = max([*flat, *(mark for group in panel.whiskers for each in group for mark in each)])
        self._is_logarithmic = panel.is_logarithmic
        if panel.is_logarithmic:
            self._low = floor(log10(max(min(flat), 1e-3)))
            self._high = max(self._low + 1, ceil(log10(max(most, 1e-3))))
            self.ticks = [float(10**each) for each in range(self._low, self._high + 1)]
        else:
            step = _round_step(most / 4)
            self.ticks = [step * each for each in range(ceil(most / step) + 1)] or [0.0, 1.0]

    def height(self, value: float) -> float:
        if self._is_logarithmic:
            share = (log10(max(value, 1e-3)) - self._low) / (self._high - self._low)
        else:
            share = value / self.ticks[-1] if self.ticks[-1] else 0.0
        return _PLOT_HEIGHT * min(1.0, max(0.0, share))


def grouped_panels(
    title: str, groups: Sequence[str], series: Sequence[str], panels: Sequence[Panel]
) -> str:
    height = _TOP + _PANEL_HEIGHT * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 20, title, size=14),
    ]
    for index, name in enumerate(series):
        x = _LEFT + 130 * index
        parts.append(f'<rect x="{x}" y="32" width="10" height="10" fill="{_colour(index)}"/>')
        parts.append(_text(x + 15, 41, name))
    for index, panel in enumerate(panels):
        parts += _draw(panel, groups, _TOP + _PANEL_HEIGHT * index)
    return "\n".join([*parts, "</svg>", ""])


def _draw(panel: Panel, groups: Sequence[str], top: float) -> list[str]:
    scale = _Scale(panel)
    base = top + 20 + _PLOT_HEIGHT
    parts = [_text(_LEFT, top + 12, panel.title)]
    for tick in scale.ticks:
        y = base - scale.height(tick)
        parts.append(_line(_LEFT, y, _WIDTH - 10, y, "#dddddd"))
        parts.append(_text(_LEFT - 6, y + 4, f"{tick:g}", anchor="end"))
    pitch = (_WIDTH - 10 - _LEFT) / len(groups)
    for number, (group, values) in enumerate(zip(groups, panel.values, strict=True)):
        left = _LEFT + pitch * number
        width = 0.8 * pitch / len(values)
        parts.append(_text(left + pitch / 2, base + 15, group, anchor="middle"))
        for index, value in enumerate(values):
            x, tall = left + 0.1 * pitch + width * index, scale.height(value)
            parts.append(
                f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{width * 0.9:.1f}" '
                f'height="{tall:.1f}" fill="{_colour(index)}"><title>{value:.4g}</title></rect>'
            )
            if panel.whiskers:
                middle = x + width * 0.45
                marks = panel.whiskers[number][index]
                tips = [base - scale.height(mark) for mark in marks]
                parts.append(_line(middle, base - tall, middle, min(tips), "#333333"))
                parts += [_line(middle - 4, tip, middle + 4, tip, "#333333") for tip in tips]
    return parts


def _round_step(wanted: float) -> float:
    if wanted <= 0.0:
        return 1.0
    power = 10.0 ** floor(log10(wanted))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= wanted)


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
