"""The figures of a report as plotly reads them.

What tells lines apart is never colour alone: each has its dash and its marker too. The colours are those of Okabe & Ito
(2008), which the colour-blind tell apart, without the yellow, which is too pale on white.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Literal

from streamgp_data.numbers import number
from streamgp_pipelines.reporting.page import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond-open", "cross", "triangle-up", "circle-open", "x")
_MARKED = 12
"""Markers on a line, at most."""
_LONGEST = 40
"""Signs of the name of an axis."""
_SAID = 6
"""Lines whose extremes the text for screen readers has."""

Line = tuple[Sequence[Any], Sequence[float | None]]
"""Places, and the value at each."""


def rounded(value: float | None) -> float | None:
    """Six significant digits; None for what is no number.

    Example:
        >>> rounded(1 / 3), rounded(float("nan")), rounded(1234567.0)
        (0.333333, None, 1234570.0)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def style(place: int) -> dict[str, Any]:
    """Of the line at a place: colour, dash and marker, which repeat after 7, 5 and 7 lines."""
    colour = COLOURS[place % len(COLOURS)]
    marker = {"symbol": MARKERS[place % len(MARKERS)], "size": 8, "color": colour, "maxdisplayed": _MARKED}
    return {"line": {"color": colour, "width": 2, "dash": DASHES[place % len(DASHES)]}, "marker": marker}


def lines(
    title: str,
    named: Mapping[str, Line],
    x: str,
    y: str,
    *,
    nominal: Sequence[float] = (),
    ticks: Sequence[str] = (),
    zero: bool = False,
    note: str = "",
) -> Figure:
    """Lines over an axis.

    Args:
        title: of the figure.
        named: the lines.
        x, y: what the axes are called.
        nominal: heights of thin dashed lines across the figure.
        ticks: names of the places 0, 1, ... on the axis; places are numbers or times without them.
        zero: whether the axis begins at 0.
        note: below.
    """
    data: list[dict[str, Any]] = []
    said = []
    for place, (name, (places, values)) in enumerate(named.items()):
        heights = [rounded(value) for value in values]
        data.append({"x": list(places), "y": heights, "name": name, "mode": "lines+markers"} | style(place))
        known = [value for value in heights if value is not None]
        if known and place < _SAID:
            said.append(f"{name} from {number(min(known))} to {number(max(known))}, at last {number(known[-1])}")
    layout = _axes(x, y, ticks)
    layout["showlegend"] = len(named) > 1
    if zero:
        layout["yaxis"]["rangemode"] = "tozero"
    layout["shapes"] = [_across(height) for height in nominal]
    shape: Literal["", "tall"] = "tall" if len(named) > _SAID else ""
    return Figure(title, f"{title}. {'; '.join(said)}.", data, layout, note, shape)


def intervals(
    title: str,
    named: Mapping[str, tuple[Sequence[Any], Sequence[float], Sequence[float], Sequence[float]]],
    x: str,
    y: str,
    *,
    across: Sequence[float] = (),
    diagonal: bool = False,
    ticks: Sequence[str] = (),
    sideways: bool = False,
    note: str = "",
) -> Figure:
    """Points with intervals.

    Args:
        title: of the figure.
        named: name -> places, values, and the lower and upper ends of their intervals.
        x, y: what the axes are called.
        across: values that have a thin dashed line.
        diagonal: whether there is one from (0, 0) to (1, 1).
        ticks: names of the places 0, 1, ...
        sideways: whether the values are on the axis x, and the places below one another.
        note: below.
    """
    data: list[dict[str, Any]] = []
    said = []
    for place, (name, (places, values, low, high)) in enumerate(named.items()):
        shift = 0.22 * place if ticks and len(named) > 1 else 0.0
        at = [where + shift for where in places] if shift else list(places)
        middle = [rounded(value) for value in values]
        ends = {
            "type": "data",
            "symmetric": False,
            "array": [rounded(end - value) for value, end in zip(values, high, strict=True)],
            "arrayminus": [rounded(value - end) for value, end in zip(values, low, strict=True)],
            "color": COLOURS[place % len(COLOURS)],
        }
        mode = "markers" if sideways or ticks else "lines+markers"
        drawn: dict[str, Any] = {"name": name, "mode": mode, "meta": {"sideways": sideways}}
        drawn |= {"y": at, "x": middle, "error_x": ends} if sideways else {"x": at, "y": middle, "error_y": ends}
        data.append(drawn | style(place))
        if values and place < _SAID:
            said.append(f"{name} from {number(min(values))} to {number(max(values))}")
    layout = _axes(x, y, () if sideways else ticks)
    layout["showlegend"] = len(named) > 1
    layout["shapes"] = [_across(value, sideways) for value in across]
    if sideways:
        layout["yaxis"] |= _ticks(ticks) | {"autorange": "reversed"}
    if diagonal:
        layout["shapes"].append({"type": "line", "x0": 0, "y0": 0, "x1": 1, "y1": 1, "line": _THIN})
        layout["xaxis"]["range"] = layout["yaxis"]["range"] = [-0.02, 1.02]
    return Figure(title, f"{title}. {'; '.join(said)}.", data, layout, note)


def bars(
    title: str,
    named: Mapping[str, Line],
    x: str,
    y: str,
    *,
    widths: Sequence[float] = (),
    nominal: Sequence[float] = (),
    note: str = "",
    alt: str = "",
    shape: Literal["", "wide"] = "",
) -> Figure:
    """Bars, or the outlines of their tops where there are several kinds.

    Args:
        title: of the figure.
        named: name -> middles of the bars, and their heights.
        x, y: what the axes are called.
        widths: of the bars; of equal width without.
        nominal: heights of thin dashed lines.
        note: below.
        alt: for readers who do not see it; the extremes without.
        shape: of the figure.
    """
    if len(named) > 1:
        return lines(title, named, x, y, nominal=nominal, zero=True, note=note)
    ((name, (places, heights)),) = named.items()
    marker = {"color": "#9cc7e2", "line": {"color": "#00507f", "width": 1.2}}
    data = {"type": "bar", "name": name, "x": list(places), "y": [rounded(one) for one in heights], "marker": marker}
    if widths:
        data["width"] = list(widths)
    layout = _axes(x, y) | {"shapes": [_across(height) for height in nominal], "bargap": 0.0 if widths else 0.1}
    known = [value for value in heights if value is not None]
    text = alt or (f"{name} from {number(min(known))} to {number(max(known))}." if known else "")
    return Figure(title, f"{title}. {text}", [data], layout, note, shape)


_THIN = {"color": "#30343b", "width": 1.2, "dash": "dash"}


def _across(value: float, upright: bool = False) -> dict[str, Any]:
    """A thin dashed line through the whole figure."""
    along, at = ("y", "x") if upright else ("x", "y")
    ends = {f"{along}0": 0, f"{along}1": 1, f"{along}ref": "paper", f"{at}0": value, f"{at}1": value}
    return {"type": "line", "layer": "below", "line": _THIN} | ends


def _axes(x: str, y: str, ticks: Sequence[str] = ()) -> dict[str, Any]:
    """Titles of the axes; the upright one in lines, as what is higher than the figure moves the legend into it.

    Example:
        >>> _axes("steps ahead", "consumption of the grid [MWh]")["yaxis"]["title"]["text"]
        'consumption of the grid\\n[MWh]'
    """
    x, y = (name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in (x, y))
    return {
        "xaxis": {"title": {"text": x}} | (_ticks(ticks) if ticks else {}),
        "yaxis": {"title": {"text": "\n".join(wrap(y, 26))}},
    }


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    """Names in place of numbers."""
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}
