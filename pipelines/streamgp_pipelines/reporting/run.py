"""The report of a run, from its checkpoint, the forecasts that it keeps and the table that it has read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from streamgp.base import Decomposes, Due
from streamgp.errors import StreamgpError
from streamgp.forecasting.metrics import Place, shown
from streamgp.forecasting.metrics import title as called
from streamgp.forecasting.scores import PHASES
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint
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
from streamgp_pipelines.moments import Moments
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
        learner: in the state of the checkpoint, with the scores of the rows behind its last full micro-batch too.
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
    newest = NewestScored.of(saved, learner.windows.shape, learner.calibration).ahead(last)
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
    spec, moments, binary = run.spec, run.moments, run.learner.model.family.binary
    scores: dict[str, Any] = run.learner.scores.summary()
    parts: dict[str, Any] = run.learner.scores.breakdown(run.learner.windows.names)
    levels = () if binary else run.learner.calibration.levels
    unit = run.about["unit"]
    target = "+".join(spec.targets)
    y = axis_label(target, unit)
    y = "all targets" if len(spec.targets) > 1 else y
    missing = []
    times = None if run.table is None else read_times(run.table, spec)
    at, x = _axis(run, times)
    sections = [Section("Scores", _scores(scores, spec), _about_scores(run, scores))]
    scored = run.scored
    if scored is None:
        newest = run.newest.frame("windows", run.learner.windows.names, run.naming)
        scored = newest.lazy() if newest.height else None
        missing.append("PIT, residuals, every forecast beside what happened: train with --predictions FILE.")
    if scored is not None:
        fans = fan({run.model: scored}, {run.model: run.model}, levels, moments, y, binary)
        steps = f"one every {spec.horizon} rows" if spec.horizon > 1 else "one of each row"
        note = f"The newest forecasts of the run, {steps}, which its checkpoint keeps." if run.scored is None else ""
        sections.append(Section("Forecasts", [fans], note))
    if run.learner.alarms is not None and levels:
        names = run.learner.windows.names
        judged, raised = (run.newest.frame(kind, names, run.naming) for kind in ("judged", "raised"))
        counts = run.learner.alarms.summary()
        if judged.height:
            sections.append(alarm_section(judged, raised, counts, run.model, levels[-1], moments, y))
    elif not binary:
        missing.append("Alarms: train --online with --alarm-rate RATE.")
    over = _over_time(run, at, x, y, levels, binary)
    if over:
        sections.append(Section("Over time", over, "Each point is of the rows since the one before."))
    else:
        missing.append("Scores and basis over time: train --online, on 2,000 rows or more.")
    sections.append(Section("By step ahead", _by_step(scores, spec, levels, y, binary)))
    phases = _by_phase(run, parts, levels, y)
    sections.append(Section("By place in the cycle", phases))
    if not phases:
        missing.append(f"By place in the cycle: {_no_cycle(spec)}.")
    sections.append(Section("By series and stretch", _by_part(run, parts, levels)))
    calibration: list[Figure] = []
    if binary:
        parts = {name: part["reliability"] for name, part in (scores.get("targets") or {}).items()}
        calibration += reliability_figure(parts or {"forecasts": scores["reliability"]})
    elif run.scored is not None:
        quantiles = issued_quantiles(run.scored.collect_schema().names(), run.model, levels)
        calibration.append(pit_figure({run.model: (run.scored, quantiles)}))
    sections.append(Section("Calibration", calibration))
    if run.scored is not None:
        rows = None if run.table is None else read_inputs(run.table, spec, moments)
        figures, note = residual_figures(run.scored, run.model, rows, spec, y, binary)
        sections.append(Section("Residuals", figures, note))
    found = None if binary else terms(run.learner, run.naming)
    if found is not None:
        sections.append(terms_section(found, run.naming, y))
    elif isinstance(run.learner.model, Decomposes):
        missing.append(
            "What the forecast is made of: Forecaster.contributions(future), with the future of known inputs."
        )
    sections.append(Section("Model", _model(run, at, x)))
    if not any(name.startswith("weight_") for name in run.curves.values):
        missing.append("Weights of experts: train --online with the model ensemble, the default.")
    if run.table is None or times is None:
        missing.append("Rows, gaps, quarantine, residuals beside inputs: give --table, the table of the training.")
    else:
        sections.append(table_section(run.table, times, spec, moments))
    if run.notes:
        sections.append(Section("Notes", [HtmlTable("", ["note"], [[note] for note in run.notes])]))
    return Page(title(run.model, spec.targets, spec.horizon), _about(run, times), sections, missing)


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


def _scores(scores: dict[str, Any], spec: WindowSpec) -> list[HtmlTable]:
    """The figures of the summary, overall and by target."""
    if not scores["scored"]:
        return []
    names = [*shown(Place.REPORT), *shown(Place.REPORT, binary=True)]
    names = [name for name in names if scores.get(name) is not None]
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


def _over_time(run: Run, at: list[Any], x: str, y: str, levels: tuple[float, ...], binary: bool) -> list[Figure]:
    """Errors, coverage and width over the rows."""
    names = shown(Place.CURVES, binary)
    if len(at) < 2:
        return []
    found = [lines("Error", _curves(run, names, at), x, "per forecast" if binary else y)]
    for kind, label in (("coverage", "share of truths inside"), ("width", y)):
        named = {f"{level:g} %": (at, run.curves.values.get(f"{kind}_{level:g}", [])) for level in levels}
        nominal = [level / 100 for level in levels] if kind == "coverage" else []
        note = "Thin dashed lines: what the bands promise." if nominal else ""
        found.append(lines(f"{kind.capitalize()} of the bands", named, x, label, nominal=nominal, note=note))
    return [one for one in found if any(any(v is not None for v in trace["y"]) for trace in one.data)]


def _curves(run: Run, names: tuple[str, ...], at: list[Any]) -> dict[str, Line]:
    values = run.curves.values
    return {called(name): (at, values[name]) for name in names if name in values}


def _by_step(scores: dict[str, Any], spec: WindowSpec, levels: tuple[float, ...], y: str, binary: bool) -> list[Figure]:
    """Errors and coverage by step ahead."""
    if spec.horizon == 1 or not scores["scored"]:
        return []
    names = shown(Place.CURVES, binary)
    found: list[Figure] = []
    for name, part in [*(scores.get("targets") or {"": scores}).items()][:TARGETS]:
        steps = [step for step in part["steps"] if step["scored"]]
        ahead = [step["step"] for step in steps]
        drawn = {called(kind): (ahead, [step[kind] for step in steps]) for kind in names}
        of = f" of {name}" if name else ""
        left = len(scores.get("targets") or {}) - TARGETS
        note = f"The first {TARGETS} targets; {left} more are not drawn." if left > 0 and not found else ""
        label = "per forecast" if binary else name or y
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


def _by_phase(run: Run, parts: dict[str, Any], levels: tuple[float, ...], y: str) -> list[Figure]:
    """Coverage and error by sixth of the cycle."""
    found: list[Figure] = []
    if run.scored is not None:
        error = error_by_phase(run.scored, run.model, run.spec, run.moments, y, run.learner.model.family.binary)
        found += [] if error is None else [error]
    phases = parts.get("phases") or []
    if phases:
        known, period = phase_of(run.spec, run.moments), run.learner.scores.period
        ticks = [f"row {part['from']}" for part in phases]
        if known is not None:
            ticks = [known[1][part["from"] * PHASES // period] for part in phases]
        found.append(_coverage("Coverage by place in the cycle", phases, levels, "begins at", ticks))
    return found


def _no_cycle(spec: WindowSpec) -> str:
    """Why scores have no places in a cycle."""
    if Phases(spec).period > 1:
        return "the scored forecasts do not cover a whole cycle yet"
    if spec.every_ns is None or spec.time is None:
        return "this run has no season, and its table no interval"
    return f"this run has no season, and a day of its table is not a whole number of {FEWEST} to {MOST:,} rows"


def _by_part(run: Run, parts: dict[str, Any], levels: tuple[float, ...]) -> list[Figure | HtmlTable]:
    """Coverage by tenth of the stream, and of the series with the lowest."""
    found: list[Figure | HtmlTable] = []
    tenths = parts.get("tenths") or []
    if tenths and run.learner.scores.scored:
        ticks = [str(place + 1) for place in range(len(tenths))]
        found.append(_coverage("Coverage by tenth of the stream", tenths, levels, "tenth", ticks))
    series = parts.get("series") or {}
    if series:
        widest = f"{levels[-1]:g}"
        order = sorted(series.items(), key=lambda one: (one[1]["coverage"][widest], one[0]))
        rows = [[name, part["scored"], *part["coverage"].values()] for name, part in order[:SERIES]]
        note = f"The {SERIES} with the lowest coverage of the {widest} % band." if len(order) > SERIES else ""
        heads = ["series", "forecasts", *(f"coverage {level:g} %" for level in levels)]
        found.append(HtmlTable("Coverage by series", heads, rows, note))
    return found


def _coverage(name: str, parts: list[dict[str, Any]], levels: tuple[float, ...], x: str, ticks: list[str]) -> Figure:
    places = list(range(len(parts)))
    drawn = {f"{level:g} %": (places, [part["coverage"][f"{level:g}"] for part in parts]) for level in levels}
    nominal = [level / 100 for level in levels]
    return lines(name, drawn, x, "share of truths inside", nominal=nominal, ticks=ticks)


def _model(run: Run, at: list[Any], x: str) -> list[Figure]:
    """Weights of the experts, the basis and the loss over the rows."""
    values = run.curves.values if len(at) > 1 else {}
    names = sorted(name for name in values if name.startswith("weight_"))
    weights = {name.removeprefix("weight_").replace("_", " "): (at, values[name]) for name in names}
    found = []
    if weights:
        found.append(lines("Weights of the experts, mean over the steps", weights, x, "weight", zero=True))
    for name, head, label in _PARTS:
        if name in values:
            found.append(lines(head, {name: (at, values[name])}, x, label))
    return found
