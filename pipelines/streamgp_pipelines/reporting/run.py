"""The report of a run, from its checkpoint, the forecasts that it keeps and the table that it has read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from streamgp.base import Decomposes, Due
from streamgp.errors import StreamgpError
from streamgp.forecasting.metrics import Place, series_table, shown
from streamgp.forecasting.metrics import title as called
from streamgp.forecasting.scores import PHASES
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
from streamgp_data.moments import Moments
from streamgp_data.table import Table as Stored
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.forecasting.forecast import learner_of
from streamgp_pipelines.learning.checkpointing import passed_over, refuse_passed_over
from streamgp_pipelines.learning.columns import test_column
from streamgp_pipelines.learning.counts import online_forecasts
from streamgp_pipelines.learning.curves import Curves
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.heldout import HeldOut, asked, held_out
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.newest import NewestScored
from streamgp_pipelines.learning.phases import FEWEST, MOST, Phases
from streamgp_pipelines.learning.predictions import frame, kept
from streamgp_pipelines.learning.restored import moments_of, read_checkpoint
from streamgp_pipelines.learning.session import check_table
from streamgp_pipelines.learning.survey import Survey
from streamgp_pipelines.reporting.alarmed import alarm_section
from streamgp_pipelines.reporting.fans import fan, stamps
from streamgp_pipelines.reporting.figures import Line, lines
from streamgp_pipelines.reporting.page import Figure, HtmlTable, Page, Section
from streamgp_pipelines.reporting.rows import read_inputs, read_times, table_section
from streamgp_pipelines.reporting.scored import (
    error_by_phase,
    issued_quantiles,
    phase_of,
    pit_figure,
    reliability_figure,
    residual_figures,
)
from streamgp_pipelines.reporting.terms import terms, terms_section
from streamgp_pipelines.titles import axis_label, title

SERIES = 20
"""Series whose coverage is listed, at most."""
TARGETS = 4
"""Targets whose errors are drawn by step, at most."""

_PARTS = (("basis", "Size of the basis", "basis functions"), ("loss", "Loss of the updates", "loss"))


@dataclass(frozen=True)
class Run:
    """What is known of a run.

    Attributes:
        about: manifest of its checkpoint.
        learner: in the state of the checkpoint, with the scores of the rows after its last full micro-batch too.
        curves: of its scores over the rows.
        scored: every scored forecast; None where the run keeps none.
        newest: scored forecasts, one of each value.
        table: that it has read; None where it is not at hand.
        notes: what the reader should know.
    """

    about: dict[str, Any]
    learner: Learner
    curves: Curves
    scored: pl.LazyFrame | None
    newest: NewestScored
    table: Stored | None
    notes: tuple[str, ...]

    @property
    def spec(self) -> WindowSpec:
        """Of the windows."""
        return self.learner.windows.spec

    @property
    def moments(self) -> Moments:
        """How times are written."""
        return Moments(**self.about["moments"])

    @property
    def model(self) -> str:
        """Its model, and the prefix of its columns."""
        return self.learner.recipe.model

    @property
    def naming(self) -> Naming:
        """Of the columns of its forecasts."""
        return Naming(self.model, self.learner.calibration, self.moments)

    @property
    def binary(self) -> bool:
        """Whether what it forecasts happens or not."""
        return self.learner.model.family.binary

    @property
    def levels(self) -> tuple[float, ...]:
        """Of its bands, in percent; a binary target has none."""
        return () if self.binary else self.learner.calibration.levels

    @property
    def y(self) -> str:
        """What an axis of values is called."""
        return axis_label(self.spec.targets[0], self.about["unit"]) if len(self.spec.targets) == 1 else "all targets"

    @property
    def online(self) -> bool:
        """Whether it learns as it forecasts."""
        return bool(self.about["fingerprint"]["mode"] == "online")


def open_run(directory: Path, table: str | Path | None = None, strict: bool = False) -> Run:
    """Read a checkpoint and what belongs to it. Nothing is learned or written.

    Args:
        directory: of the checkpoint.
        table: that the run has read; by default where it has read it, if it is still there.
        strict: whether a damaged checkpoint is refused, instead of reading the one before.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
        TableError: the table is not the one that was read.
    """
    saved = read_checkpoint(directory)
    if strict:
        refuse_passed_over(saved)
    about: dict[str, Any] = saved.manifest
    learner, tail = learner_of(saved)
    curves = Curves()
    saved.restore({"curves": curves})
    notes = passed_over(saved)
    stored = _table(saved, table)
    naming = Naming(learner.recipe.model, learner.calibration, moments_of(saved))
    online = about["fingerprint"]["mode"] == "online"
    ahead, last = learner, list[Due]()
    if not online and stored is not None:
        options = {name: about["fingerprint"].get(name.replace("_", "-")) for name in _HELD}
        given = {name: value for name, value in options.items() if value is not None}
        config, spec = TrainConfig.read({"table": stored.path, **given}), learner.windows.spec
        survey = Survey.of(stored, spec, test_column(config, stored.schema), rowwise=True)
        held = held_out(config, survey, learner.rows)
        learner.only = HeldOut(held, asked(survey, spec, held))
    if online or stored is not None:
        ahead, last = learner.preview(tail)
    elif learner.windows.spec.known and learner.windows.spec.lags:
        notes.append("Without its table the scores of the last rows are not known, and are not in this page.")
    newest = NewestScored.of(saved, learner.windows.shape, learner.calibration).ahead(last, ahead.silent())
    parts = [pl.scan_parquet(part) for part in kept(saved.path.parent, saved.rows)]
    frames = [frame(due, ahead.windows.names, naming, ahead.windows.shape).lazy() for due in last]
    scored = pl.concat([*parts, *frames], how="diagonal_relaxed") if parts else None
    if scored is not None:
        found, wanted = int(scored.select(pl.len()).collect().item()), ahead.scores.scored
        if found < wanted:
            notes.append(f"{found:,} of {wanted:,} scored forecasts were kept: the others came without --predictions.")
        scored = scored if found else None
    notes += [*learner.model.warnings(), *ahead.counts.warnings()]
    return Run(about, ahead, curves, scored, newest, stored, tuple(notes))


_HELD = ("test_column", "test_tail", "test_blocks")


def _table(saved: checkpoint.Saved, path: str | Path | None) -> Stored | None:
    """The table that was asked for, or that of the training where it is still there."""
    about: dict[str, Any] = saved.manifest
    if path is not None:
        table = Stored.open(path)
        check_table(saved, table)
        return table
    try:
        table = Stored.open(about["table"]["path"])
        check_table(saved, table)
    except StreamgpError:
        return None
    return table


def run_page(run: Run) -> Page:
    """The report of a run."""
    scores: dict[str, Any] = run.learner.scores.summary()
    breakdown: dict[str, Any] = run.learner.scores.breakdown(run.learner.windows.names)
    times = None if run.table is None else read_times(run.table, run.spec)
    at, x = _axis(run, times)
    parts: list[Section | str] = [  # a section, or how to get one that is missing
        Section("Scores", _scores(scores, run.spec, run.learner.calibration.point), _about_scores(run, scores)),
        *_forecasts(run),
        *_alarms(run),
        _over_time(run, at, x),
        Section("By step ahead", _by_step(run, scores)),
        *_by_phase(run, breakdown),
        Section("By series and stretch", _by_part(run, breakdown)),
        Section("Calibration", _calibration(run, scores)),
        *_residuals(run),
        *_terms(run),
        *_model(run, at, x),
        _rows(run, times),
        *_notes(run),
    ]
    sections = [part for part in parts if isinstance(part, Section)]
    missing = [part for part in parts if isinstance(part, str)]
    return Page(title(run.model, run.spec.targets, run.spec.horizon), _about(run, times), sections, missing)


def _about(run: Run, times: pl.DataFrame | None) -> str:
    """One line of what the run is."""
    spec = run.spec
    said = [f"streamgp {run.about['streamgp']}", f"table {PurePosixPath(run.about['table']['path']).name}"]
    said.append(f"{run.learner.rows:,} rows {'learned online' if run.online else 'in batch'}")
    if times is not None and spec.time is not None and times.height:
        first, last = stamps(run.moments.write(times["ns"][[0, min(run.learner.rows, times.height) - 1]]), run.moments)
        said.append(f"{first} to {last}{f' ({run.moments.label})' if run.moments.label else ''}")
    said.append(f"{spec.lags} lags")
    if spec.seasons:
        said.append(f"seasons of {', '.join(map(str, spec.seasons))} rows")
    return " · ".join(said)


def _about_scores(run: Run, scores: dict[str, Any]) -> str:
    if not scores["scored"]:
        return "Nothing was scored yet."
    if not run.online:
        return f"{scores['scored']:,} forecasts of held-out rows."
    learner, windows = run.learner, run.learner.windows
    counts: Any = online_forecasts(learner.counts, windows.shape, windows, learner.scores, learner.to_come())
    skipped = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts["skipped"].items() if count]
    without = f" Not scored: {', '.join(skipped)}." if skipped else ""
    return f"{scores['scored']:,} forecasts, each made before its truth was seen.{without}"


def _scores(scores: dict[str, Any], spec: WindowSpec, point: str) -> list[HtmlTable]:
    """The figures of the summary, overall and by target; of the MAE of mean and median that which is not `mae`."""
    if not scores["scored"]:
        return []
    names = [*shown(Place.REPORT), *shown(Place.REPORT, binary=True)]
    names = [name for name in names if scores.get(name) is not None and name != f"{point}_mae"]
    name = "all targets" if len(spec.targets) > 1 else spec.targets[0]
    rows = [(name, scores), *(scores.get("targets") or {}).items()]
    heads = ["target", *map(called, names)]
    tables = [HtmlTable("", heads, [[name, *(part[one] for one in names)] for name, part in rows])]
    if scores["coverage"]:
        kinds = shown(Place.REPORT, bands=True)
        heads = ["band", *map(called, kinds)]
        bands = [[f"{level} %", *(scores[kind][level] for kind in kinds)] for level in scores["coverage"]]
        tables.append(HtmlTable("Bands, calibrated and raw", heads, bands))
    return tables


def _axis(run: Run, times: pl.DataFrame | None) -> tuple[list[Any], str]:
    """Where the points of the curves are: at the times of their rows, or at their numbers."""
    rows = run.curves.rows
    if times is None or run.spec.time is None or (rows and rows[-1] > times.height):
        return list(rows), "rows seen"
    return stamps(run.moments.write(times["ns"].gather([row - 1 for row in rows])), run.moments), run.moments.label


def _forecasts(run: Run) -> Iterator[Section | str]:
    """The forecasts beside what happened: all, or the newest where the run keeps no more."""
    scored, note = run.scored, ""
    if scored is None:
        newest = run.newest.frame("windows", run.learner.windows.names, run.naming)
        scored = newest.lazy() if newest.height else None
        steps = f"one every {run.spec.horizon} rows" if run.spec.horizon > 1 else "one of each row"
        note = f"The newest forecasts of the run, {steps}, which its checkpoint keeps."
        yield "PIT, residuals, every forecast beside what happened: train with --predictions FILE."
    if scored is not None:
        fans = fan({run.model: scored}, {run.model: run.model}, run.levels, run.moments, run.y, run.binary)
        yield Section("Forecasts", [fans], note)


def _alarms(run: Run) -> Iterator[Section | str]:
    """The newest alarms, beside the values that were judged."""
    if run.learner.alarms is not None and run.levels:
        names = run.learner.windows.names
        judged, raised = run.newest.frame("judged", names, run.naming), run.newest.alarms(names, run.naming)
        counts = run.learner.raised()
        if judged.height:
            yield alarm_section(judged, raised, counts, run.model, run.levels[-1], run.moments, run.y)
    elif not run.binary:
        yield "Alarms: train --online with --alarm-rate RATE."


def _over_time(run: Run, at: list[Any], x: str) -> Section | str:
    """Errors, coverage and width over the rows."""
    figures = _curve_figures(run, at, x) if len(at) > 1 else []
    if not figures:
        return "Scores and basis over time: train --online, on 2,000 rows or more."
    return Section("Over time", figures, "Each point is of the rows since the one before.")


def _curve_figures(run: Run, at: list[Any], x: str) -> list[Figure]:
    names, y = shown(Place.CURVES, run.binary), run.y
    found = [lines("Error", _curves(run, names, at), x, "per forecast" if run.binary else y)]
    for kind, label in (("coverage", "share of truths inside"), ("width", y)):
        named = {f"{level:g} %": (at, run.curves.values.get(f"{kind}_{level:g}", [])) for level in run.levels}
        nominal = [level / 100 for level in run.levels] if kind == "coverage" else []
        note = "Thin dashed lines: what the bands promise." if nominal else ""
        found.append(lines(f"{kind.capitalize()} of the bands", named, x, label, nominal=nominal, note=note))
    return [one for one in found if any(any(v is not None for v in trace["y"]) for trace in one.data)]


def _curves(run: Run, names: tuple[str, ...], at: list[Any]) -> dict[str, Line]:
    values = run.curves.values
    return {called(name): (at, values[name]) for name in names if name in values}


def _by_step(run: Run, scores: dict[str, Any]) -> list[Figure]:
    """Errors and coverage by step ahead."""
    if run.spec.horizon == 1 or not scores["scored"]:
        return []
    names, levels, y = shown(Place.CURVES, run.binary), run.levels, run.y
    found: list[Figure] = []
    for name, part in [*(scores.get("targets") or {"": scores}).items()][:TARGETS]:
        steps = [step for step in part["steps"] if step["scored"]]
        ahead = [step["step"] for step in steps]
        drawn = {called(kind): (ahead, [step[kind] for step in steps]) for kind in names}
        of = f" of {name}" if name else ""
        left = len(scores.get("targets") or {}) - TARGETS
        note = f"The first {TARGETS} targets; {left} more are not drawn." if left > 0 and not found else ""
        label = "per forecast" if run.binary else name or y
        found.append(lines(f"Error by step{of}", drawn, "steps ahead", label, zero=True, note=note))
    steps = [step for step in scores["steps"] if step["scored"]]
    ahead = [step["step"] for step in steps]
    for kind, label in (("coverage", "share of truths inside"), ("width", y)):
        drawn = {f"{level:g} %": (ahead, [step[kind][f"{level:g}"] for step in steps]) for level in levels}
        if drawn:
            nominal = [level / 100 for level in levels] if kind == "coverage" else []
            found.append(lines(f"{kind.capitalize()} by step", drawn, "steps ahead", label, nominal=nominal))
    if weights := steps[0].get("weights") if steps else None:
        drawn = {name.replace("_", " "): (ahead, [step["weights"][name] for step in steps]) for name in weights}
        found.append(lines("Weights of the experts by step, at the end", drawn, "steps ahead", "weight", zero=True))
    return found


def _by_phase(run: Run, breakdown: dict[str, Any]) -> Iterator[Section | str]:
    """Coverage and error by sixth of the cycle."""
    found: list[Figure] = []
    if run.scored is not None:
        error = error_by_phase(run.scored, run.model, run.spec, run.moments, run.y, run.binary)
        found += [] if error is None else [error]
    phases = breakdown.get("phases") or []
    if phases:
        known, period = phase_of(run.spec, run.moments), run.learner.scores.period
        ticks = [f"row {part['from']}" for part in phases]
        if known is not None:
            ticks = [known[1][part["from"] * PHASES // period] for part in phases]
        found.append(_coverage("Coverage by place in the cycle", phases, run.levels, "begins at", ticks))
    yield Section("By place in the cycle", found)
    if not found:
        yield f"By place in the cycle: {_no_cycle(run.spec)}."


def _no_cycle(spec: WindowSpec) -> str:
    """Why scores have no places in a cycle."""
    if Phases(spec).period > 1:
        return "the scored forecasts do not cover a whole cycle yet"
    if spec.every_ns is None or spec.time is None:
        return "this run has no season, and its table no interval"
    return f"this run has no season, and a day of its table is not a whole number of {FEWEST} to {MOST:,} rows"


def _by_part(run: Run, breakdown: dict[str, Any]) -> list[Figure | HtmlTable]:
    """Coverage by tenth of the stream, and of the series with the lowest; errors of the series where they are worst."""
    found: list[Figure | HtmlTable] = []
    tenths, levels = breakdown.get("tenths") or [], run.levels
    if tenths and run.learner.scores.scored:
        ticks = [str(place + 1) for place in range(len(tenths))]
        found.append(_coverage("Coverage by tenth of the stream", tenths, levels, "tenth", ticks))
    series = breakdown.get("series") or {}
    if series:
        widest = f"{levels[-1]:g}"
        order = sorted(series.items(), key=lambda one: (one[1]["coverage"][widest], one[0]))
        rows = [[name, part["scored"], *part["coverage"].values()] for name, part in order[:SERIES]]
        note = f"The {SERIES} with the lowest coverage of the {widest} % band." if len(order) > SERIES else ""
        heads = ["series", "forecasts", *(f"coverage {level:g} %" for level in levels)]
        found.append(HtmlTable("Coverage by series", heads, rows, note))
    heads, rows = series_table(run.learner.scores.by_series(run.learner.windows.names))
    if rows:
        note = f"The worst {SERIES} beside the naive forecast." if len(rows) > SERIES else ""
        found.append(HtmlTable("Errors by series", heads, rows[:SERIES], note))
    return found


def _coverage(name: str, parts: list[dict[str, Any]], levels: tuple[float, ...], x: str, ticks: list[str]) -> Figure:
    places = list(range(len(parts)))
    drawn = {f"{level:g} %": (places, [part["coverage"][f"{level:g}"] for part in parts]) for level in levels}
    nominal = [level / 100 for level in levels]
    return lines(name, drawn, x, "share of truths inside", nominal=nominal, ticks=ticks)


def _calibration(run: Run, scores: dict[str, Any]) -> list[Figure]:
    """Reliability of probabilities, or the PIT of every scored forecast."""
    if run.binary:
        targets = {name: part["reliability"] for name, part in (scores.get("targets") or {}).items()}
        return reliability_figure(targets or {"forecasts": scores["reliability"]})
    if run.scored is None:
        return []
    quantiles = issued_quantiles(run.scored.collect_schema().names(), run.model, run.levels)
    return [pit_figure({run.model: (run.scored, quantiles)})]


def _residuals(run: Run) -> Iterator[Section]:
    """Of every scored forecast, beside the inputs where the table is at hand."""
    if run.scored is not None:
        rows = None if run.table is None else read_inputs(run.table, run.spec, run.moments)
        figures, note = residual_figures(run.scored, run.model, rows, run.spec, run.y, run.binary)
        yield Section("Residuals", figures, note)


def _terms(run: Run) -> Iterator[Section | str]:
    """The terms that the newest forecast is a sum of."""
    found = None if run.binary else terms(run.learner, run.naming)
    if found is not None:
        yield terms_section(found, run.naming, run.y)
    elif isinstance(run.learner.model, Decomposes):
        yield "What the forecast is made of: Forecaster.contributions(future), with the future of known inputs."


def _model(run: Run, at: list[Any], x: str) -> Iterator[Section | str]:
    """Weights of the experts, the basis and the loss over the rows."""
    values = run.curves.values
    names = sorted(name for name in values if name.startswith("weight_"))
    weights = {name.removeprefix("weight_").replace("_", " "): (at, values[name]) for name in names}
    found = []
    if weights and len(at) > 1:
        found.append(lines("Weights of the experts, mean over the steps", weights, x, "weight", zero=True))
    for name, head, label in _PARTS:
        if name in values and len(at) > 1:
            found.append(lines(head, {name: (at, values[name])}, x, label))
    yield Section("Model", found)
    if not weights:
        yield "Weights of experts: train --online with the model ensemble, the default."


def _rows(run: Run, times: pl.DataFrame | None) -> Section | str:
    """The rows of the table, their gaps and their quarantine."""
    if run.table is None or times is None:
        return "Rows, gaps, quarantine, residuals beside inputs: give --table, the table of the training."
    return table_section(run.table, times, run.spec, run.moments)


def _notes(run: Run) -> Iterator[Section]:
    if run.notes:
        yield Section("Notes", [HtmlTable("", ["note"], [[note] for note in run.notes])])
