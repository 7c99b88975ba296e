"""Pictures of forecasts and of runs, drawn by matplotlib without a display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgp.errors import UsageError
from streamgp.forecasting.outcomes import wilson
from streamgp_data.numbers import number
from streamgp_pipelines.files import replaced
from streamgp_pipelines.forecasting.past import recent
from streamgp_pipelines.titles import axis_label

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

    from streamgp_data.moments import Moments
    from streamgp_pipelines.forecasting.results import Forecast

SUFFIXES = (".png", ".svg", ".pdf")
PANELS = 6  # more series than this are not drawn: the title says so
_INK, _FORECAST, _BAND = "#30343b", "#1f5fa8", "#4c8fd6"
COLOURS = ("#1f5fa8", "#c8641a", "#2f8f5b", "#8a4fa3", "#b03a48", "#6b6f76")

Curve = Sequence[tuple[float, float]]
"""Points (rows seen, value)."""


def plot_forecast(
    forecast: pl.DataFrame,
    history: pl.DataFrame,
    path: Path,
    *,
    model: str,
    levels: Sequence[float],
    truth: pl.DataFrame | None = None,
    spikes: pl.DataFrame | None = None,
    unit: str = "",
    binary: bool = False,
    moments: Moments | None = None,
    target: str = "",
) -> Path:
    """Draw each series' recent values, its forecast and the calibrated bands.

    Args:
        forecast: long format: unique_id, ds, the column `model` (mean), `model`-lo-95, `model`-hi-95 and so on, and
            `target` where there are several.
        history: unique_id, ds, y, and `target` where there are several.
        path: file to write; its suffix chooses the format (png, svg, pdf).
        model: name of the column that holds the mean.
        levels: the bands to draw, in percent.
        truth: what happened afterwards, in the columns of `history`; drawn over the bands when given.
        spikes: values that are missing in `history`, in its columns; drawn hollow, at the edge of the axis.
        unit: of the values, for the axis.
        target: column that the values are of, for the axis; the panel's own where there are several.
        binary: whether they are outcomes of 0 and 1, and the forecast is the probability of 1.
        moments: how times are written: epochs are drawn as dates, steps and elapsed time as the numbers that they are.

    Returns:
        `path`.

    Raises:
        UsageError: the suffix is none of SUFFIXES.
        ServiceError: the file cannot be written.
    """
    if moments is not None:
        forecast, history = _on_axis(forecast, moments), _on_axis(history, moments)
        truth, spikes = (None if one is None else _on_axis(one, moments) for one in (truth, spikes))
    keys = [key for key in ("unique_id", "target") if key in forecast.columns]
    panels = forecast.select(keys).unique(maintain_order=True).rows()
    shown = panels[:PANELS]
    figure = figure_of(9.0, 1.2 + 2.9 * len(shown))
    for index, panel in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, index + 1)
        part = _only(forecast, keys, panel).sort("ds")
        past = _only(history, keys, panel).sort("ds")
        _draw_forecast(axes, part, past, model, () if binary else levels, binary)
        if truth is not None:
            after = _only(truth, keys, panel).sort("ds")
            axes.plot(after["ds"].to_list(), after["y"].to_list(), color=_INK, lw=1.2, ls=":", label="what happened")
        if spikes is not None:
            _draw_spikes(axes, _only(spikes, keys, panel), past)
        name = " · ".join(dict.fromkeys(str(part) for part in panel))
        if name != target:
            axes.set_title(name, loc="left", fontsize=10, pad=6 if index else 24)
        axes.set_ylabel(axis_label(target or _named(keys, panel), unit))
        if moments is not None and index == len(shown) - 1:
            axes.set_xlabel(moments.label)
        tidy(axes)
        if index == 0:
            legend_above(axes)
    left_out = f" (the first {PANELS} of {len(panels)} series)" if len(panels) > PANELS else ""
    steps = _steps(forecast, [*keys, "cutoff"] if "cutoff" in forecast.columns else keys)
    beside = " beside what happened" if truth is not None else ""
    title = f"{model}: {steps} step{'s' * (steps != 1)} ahead{beside}{left_out}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return save(figure, path)


def draw_panel(found: Forecast, series: str | None = None, target: str | None = None, axes: Axes | None = None) -> Axes:
    """Draw one series' recent values, its forecast and the calibrated bands.

    Args:
        found: the forecast, and what came before.
        series, target: which; None is the only one.
        axes: to draw on; None makes a figure of pyplot, which a notebook shows.

    Raises:
        UsageError: there is none of that name, or there are several and none was named.
    """
    steps = _steps(found.frame, [key for key in ("unique_id", "target") if key in found.frame.columns])
    past = recent(found.history, steps)
    apart = past.clear() if found.spikes is None else found.spikes
    forecast, history, apart = (_on_axis(one, found.moments) for one in (found.frame, past, apart))
    for key, name in (("unique_id", series), ("target", target)):
        if key not in forecast.columns:
            continue
        there = forecast[key].unique(maintain_order=True).to_list()
        if name not in there and (name is not None or len(there) > 1):
            what = "series" if key == "unique_id" else "target"
            none = "several" if name is None else f"none called {name!r}"
            raise UsageError(f"which {what} is to be drawn? There is {none}", hint=f"{what}={there[0]!r}, for example")
        forecast, history, apart = (part.filter(**{key: name or there[0]}) for part in (forecast, history, apart))
    levels = () if found.binary else found.levels
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=(9.0, 4.0), layout="constrained")
    _draw_forecast(axes, forecast.sort("ds"), history.sort("ds"), found.model, levels, found.binary)
    _draw_spikes(axes, apart, history)
    axes.set_ylabel(axis_label(target or found.target, found.unit))
    axes.set_xlabel(found.moments.label)
    legend_above(axes)
    tidy(axes)
    return axes


def plot_alarms(
    judged: pl.DataFrame,
    path: Path,
    *,
    model: str,
    level: float,
    moments: Moments,
    target: str = "",
    unit: str = "",
) -> Path:
    """Draw the newest values, their bands one step ahead and the rows that raised an alarm, by kind.

    Args:
        judged: unique_id, ds, [target,] y, the bands and `alarm`, by series and time.
        path: file to write.
        model: prefix of the columns. level: of the band that is drawn, in percent.
        moments: how times are written.
        target, unit: of the values, for the axis; the panel's own where there are several.
    """
    keys = [key for key in ("unique_id", "target") if key in judged.columns]
    panels = judged.select(keys).unique(maintain_order=True).rows()
    shown, drawn = panels[:PANELS], _on_axis(judged, moments)
    figure = figure_of(9.0, 1.2 + 2.9 * len(shown))
    for index, panel in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, index + 1)
        own = _only(drawn, keys, panel).sort("ds")
        times, y = own["ds"].to_list(), own["y"].to_list()
        low, high = (own[f"{model}-{side}-{level:g}"].to_list() for side in ("lo", "hi"))
        axes.fill_between(times, low, high, color=_BAND, alpha=0.35, lw=0, label=f"{level:g} %, one step ahead")
        axes.plot(times, y, color=_INK, lw=1.1, label="value")
        for kind, (marker, colour) in _ALARMS.items():
            hit = [at for at, text in enumerate(own["alarm"]) if text is not None and kind in text.split("+")]
            places = [times[at] for at in hit], [y[at] for at in hit]
            style: dict[str, Any] = {"ls": "", "marker": marker, "ms": 9, "mew": 2, "mfc": "none", "mec": colour}
            axes.plot(*places, **style, label=f"{kind} ({len(hit)})")
        name = " · ".join(dict.fromkeys(str(part) for part in panel))
        if name != target:
            axes.set_title(name, loc="left", fontsize=10, pad=24)
        axes.set_ylabel(axis_label(target or _named(keys, panel), unit))
        if index == len(shown) - 1:
            axes.set_xlabel(moments.label)
        tidy(axes)
        legend_above(axes)
    figure.suptitle(f"Alarms of the newest {judged.height // len(panels):,} rows", x=0.01, ha="left", fontsize=11)
    return save(figure, path)


_ALARMS = {"anomaly": ("x", "#b03a48"), "change": ("D", "#c8641a"), "stuck": ("s", "#8a4fa3")}
"""Marker and colour of each kind."""


def plot_curves(
    curves: Mapping[str, Curve], path: Path, *, title: str, ylabel: str, nominal: Mapping[str, float] | None = None
) -> Path:
    """Draw values over rows seen, one line a name; `nominal` draws a dashed line in the colour of its curve.

    Example:
        >>> from tempfile import mkdtemp
        >>> points = [(256, 0.93), (512, 0.95)]
        >>> file = Path(mkdtemp()) / "coverage.png"
        >>> plot_curves({"95 %": points}, file, title="coverage", ylabel="share", nominal={"95 %": 0.95}).exists()
        True
    """
    figure = figure_of(8.0, 4.0)
    axes = figure.add_subplot()
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        rows, values = zip(*points, strict=True) if points else ((), ())
        axes.plot(rows, values, color=colour, lw=1.5, label=name)
        if nominal and name in nominal:
            axes.axhline(nominal[name], color=colour, lw=0.9, ls="--")
    axes.set_xlabel("rows seen")
    axes.set_ylabel(ylabel)
    axes.set_title(title, loc="left", fontsize=11, pad=24)
    tidy(axes)
    if curves:
        legend_above(axes)
    return save(figure, path)


def plot_steps(
    steps: Mapping[str, Sequence[float]],
    path: Path,
    *,
    title: str,
    ylabel: str,
    xlabel: str = "steps ahead",
    bottom: float = 0.0,
) -> Path:
    """Draw values over steps ahead, or over other parts that count from 1, one line a name."""
    figure = figure_of(8.0, 4.0)
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(steps.items()):
        marker = "o" if len(values) <= 48 else ""
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(range(1, len(values) + 1), values, color=colour, lw=1.5, marker=marker, ms=3, label=name)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, loc="left", fontsize=11, pad=24)
    axes.set_ylim(bottom=bottom)
    tidy(axes)
    if steps:
        legend_above(axes)
    return save(figure, path)


def plot_reliability(bins: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> Path:
    """Draw how often outcomes came true over how probable they were said to be, one line a name, with 95 % intervals.

    Args:
        bins: name -> the bins of `streamgp.forecasting.outcomes.reliability`: probability, frequency, forecasts.
        path: file to write.

    Example:
        >>> from tempfile import mkdtemp
        >>> bins = [{"probability": 0.1, "frequency": 0.2, "forecasts": 40}]
        >>> plot_reliability({"rain": bins}, Path(mkdtemp()) / "reliability.png").exists()
        True
    """
    figure = figure_of(5.6, 5.2)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="#9aa0a8", lw=0.9, ls="--", label="calibrated")
    for index, (name, found) in enumerate(bins.items()):
        said, happened = [part["probability"] for part in found], [part["frequency"] for part in found]
        ends = [wilson(part["frequency"], part["forecasts"]) for part in found]
        reach = [[y - low for y, (low, _) in zip(happened, ends, strict=True)]]
        reach.append([high - y for y, (_, high) in zip(happened, ends, strict=True)])
        colour = COLOURS[index % len(COLOURS)]
        axes.errorbar(said, happened, reach, color=colour, lw=1.5, marker="o", ms=4, elinewidth=0.9, label=name)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("probability of 1 as forecast")
    axes.set_ylabel("share of ones")
    axes.set_title("Reliability", loc="left", fontsize=11, pad=24)
    tidy(axes)
    legend_above(axes)
    return save(figure, path)


def _draw_forecast(
    axes: Axes, part: pl.DataFrame, past: pl.DataFrame, model: str, levels: Sequence[float], binary: bool
) -> None:
    """History, bands from the widest to the narrowest, and the mean, joined to the last value seen.

    Outcomes are points, and probabilities are not joined to them.
    """
    style = {"ls": "", "marker": "|", "ms": 7} if binary else {"lw": 1.2}
    axes.plot(past["ds"].to_list(), past["y"].to_list(), color=_INK, label="outcomes" if binary else "history", **style)
    times = part["ds"].to_list()
    for index, level in enumerate(sorted(levels, reverse=True)):
        name = f"{level:g}"
        low, high = part[f"{model}-lo-{name}"].to_list(), part[f"{model}-hi-{name}"].to_list()
        shade = 0.18 + 0.16 * index
        axes.fill_between(times, low, high, color=_BAND, alpha=min(shade, 0.7), lw=0, label=f"{name} %")
    seen = [(ds, y) for ds, y in zip(past["ds"].to_list(), past["y"].to_list(), strict=True) if _finite(y)]
    join = [] if binary else seen[-1:]
    mean_times = [ds for ds, _ in join] + times
    mean = [y for _, y in join] + part[model].to_list()
    marker = "." if binary else ""
    label = "probability of 1" if binary else "forecast"
    axes.plot(mean_times, mean, color=_FORECAST, lw=1.6, marker=marker, label=label)


def _draw_spikes(axes: Axes, spikes: pl.DataFrame, past: pl.DataFrame) -> None:
    """Spikes within the history that is drawn, hollow, at the edge of the axis, which they would flatten."""
    first, middle = past["ds"].min(), sum(axes.get_ylim()) / 2
    for ds, y in spikes.select("ds", "y").rows():
        if first is not None and ds >= first:
            style: dict[str, Any] = {
                "ls": "",
                "marker": "^" if y > middle else "v",
                "ms": 8,
                "mfc": "none",
                "mec": _INK,
            }
            edge, name = 0.96 if y > middle else 0.04, f"spike of {number(y)}, set aside"
            axes.plot([ds], [edge], transform=axes.get_xaxis_transform(), label=name, **style)


def _named(keys: Sequence[str], panel: Sequence[object]) -> str:
    """The target of a panel where the frame names it."""
    return str(panel[keys.index("target")]) if "target" in keys else ""


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _on_axis(frame: pl.DataFrame, moments: Moments) -> pl.DataFrame:
    """The frame with its times as an axis takes them."""
    return frame.with_columns(moments.on_axis(frame["ds"]).alias("ds"))


def _wall(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its times as the clock on the wall showed them: matplotlib would draw them in UTC."""
    import polars as pl

    kind = frame.schema["ds"]
    zoned = isinstance(kind, pl.Datetime) and kind.time_zone is not None
    return frame.with_columns(pl.col("ds").dt.replace_time_zone(None)) if zoned else frame


def _only(frame: pl.DataFrame, keys: Sequence[str], panel: Sequence[object]) -> pl.DataFrame:
    """The rows of one panel; a key that the frame lacks does not select."""
    import polars as pl

    for key, value in zip(keys, panel, strict=True):
        if key in frame.columns:
            frame = frame.filter(pl.col(key) == pl.lit(value))
    return _wall(frame)


def _steps(forecast: pl.DataFrame, keys: Sequence[str]) -> int:
    """The longest forecast of one panel."""
    return max(forecast.group_by(keys).len()["len"].to_list(), default=0) if keys else forecast.height


def figure_of(width: float, height: float) -> Figure:
    """A figure without pyplot: no global state, no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=110)


def legend_above(axes: Axes) -> None:
    """The legend between the title and the axes, where it covers nothing; no more than six names in a line."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0.2, fontsize=8, frameon=False, ncols=6)


def tidy(axes: Axes) -> None:
    """Leave out the lines that say nothing, draw a light grid, and write numbers and dates as people read them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", lw=0.4, color="#d5d8dc")
    axes.set_axisbelow(True)
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import ScalarFormatter

    for axis in (axes.xaxis, axes.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(_thousands())
    if isinstance(axes.xaxis.get_major_locator(), AutoDateLocator):  # the axis holds times
        locator = AutoDateLocator(minticks=3, maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, **_DATES))


_DATES: dict[str, Any] = {
    "formats": ["%Y", "%b %Y", "%-d %b", "%H:%M", "%H:%M", "%S.%f"],
    "zero_formats": ["", "%b %Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"],
    "offset_formats": ["", "", "%Y", "%-d %b %Y", "%-d %b %Y", "%-d %b %Y, %H:%M"],
}
"""How ticks at years, months, days, hours, minutes and seconds are written, and what stands at the end of the axis."""


def labels(ticks: Sequence[float]) -> list[str]:
    """Numbers at ticks, thousands apart, with the decimals that tell them apart.

    Example:
        >>> labels([0, 5000, 10_000]), labels([-0.5, 0.0, 0.5]), labels([0, 2e-7]), labels([1e15, 2e15])
        (['0', '5,000', '10,000'], ['-0.5', '0.0', '0.5'], ['0', '2e-07'], ['1e+15', '2e+15'])
    """
    largest = max((abs(tick) for tick in ticks), default=0.0)
    apart = min((high - low for low, high in pairwise(sorted(set(ticks)))), default=largest or 1.0)
    digits = next((few for few in range(7) if abs(round(apart, few) - apart) < 1e-3 * apart), 7)
    if digits == 7 or largest >= 1e12:
        return [f"{tick:g}" for tick in ticks]
    return [f"{tick:z,.{digits}f}" for tick in ticks]


def _thousands() -> Formatter:
    """A formatter of `labels`."""
    from matplotlib.ticker import FuncFormatter

    class Thousands(FuncFormatter):
        def __init__(self) -> None:
            super().__init__(lambda value, _: labels([value])[0])

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            return labels([float(value) for value in values])

    return Thousands()


def save(figure: Figure, path: Path) -> Path:
    """Write the figure, whole or not at all."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: a picture is written as {', '.join(SUFFIXES)}", hint="change the suffix to .png")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with replaced(path) as temporary:
        if path.suffix == ".png":  # the same pixels in three quarters of the time: savefig draws twice
            FigureCanvasAgg(figure).print_png(temporary, pil_kwargs={"compress_level": 4})
        else:
            figure.savefig(temporary, format=path.suffix[1:])
    return path
