"""What a run says at its end and on its way."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from streamgp.base import Json, Model, Step
from streamgp.windows.windows import Windows
from streamgp_data.instants import ELAPSED
from streamgp_data.moments import Moments
from streamgp_data.numbers import number
from streamgp_data.remote import shown
from streamgp_data.table import KNOWN, Table
from streamgp_pipelines.learning.checkpointing import unit_of
from streamgp_pipelines.learning.columns import unused
from streamgp_pipelines.learning.counts import held_out_forecasts, online_forecasts
from streamgp_pipelines.learning.curves import Curves, flat, lap_metrics, next_lap
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.session import Session
from streamgp_pipelines.learning.survey import Survey
from streamgp_pipelines.learning.whole import advice, span, without_values

NAMED = 3
"""Rows that decide the RMSE, of which a note names as many."""
WORSE = 2.0
"""Times the error of the naive forecast from which on a run says so."""
LOST = 0.1
"""Part of the rows without a whole window from which on a run says so."""


def summary(session: Session, learner: Learner, run_id: str) -> dict[str, Json]:
    """The scores and the figures of a run (design: the command line).

    Args:
        session: of the run.
        learner: the run's, or its preview that has scored the last rows too.
        run_id: of the tracker.

    Returns:
        beside the scores and times: `point`, which forecast `mae` is of; `new_rows`, those of `rows` that were
        not in the checkpoint that the run went on from, if it did; `warmup`, rows of warm-up; `forecasts`, the
        T = targets · horizon forecasts at every row: `all` of them, those `scored`, and those `skipped` by the first
        reason that holds, which add up;
        `coverage_by`, coverage in parts (`Scores.breakdown`); `by_series`, errors of each series (`Scores.by_series`);
        `mase_scale`, what MASE divides by; `naive_mae`, the
        error of repeating the last season (or value) in the rows that are scored, None where only a bound is known;
        `batch`, most rows of a micro-batch, None of training in batch; `snapped`, rows off the grid of --every by no
        more than the --tolerance;
        `late`, rows that were left out because they came after a newer one, `late_used`, those that --late use took;
        `unused`, columns of numbers of a run that names no inputs; `simulation`, of --simulate; `weights`, of the
        experts of a mix at the end, {} where the model mixes none, and by step in `steps`; `alarms`, of --alarm-rate
        (`Learner.raised`); `transforms`, of each target, {} where none was asked for.
    """
    scores = learner.summary()
    naive, spec = learner.scores.past_naive_mae(), learner.windows.spec
    warnings = _warnings(session, learner, scores, naive)
    kinds: Json = {}
    if any(word != "none" for word in session.config.transform):
        kinds = dict.fromkeys(spec.targets, "none")
        kinds |= {name: one.kind for name, one in zip(spec.targets, spec.transforms, strict=False)}
    return {
        "run_id": run_id,
        "model": session.config.model,
        "point": session.config.point,
        "target": list(spec.targets),
        "unit": unit_of(session.table, spec),
        "rows": learner.rows,
        "new_rows": learner.rows - session.before,
        "warmup": learner.warmed,
        "forecasts": _forecasts(learner),
        "snapped": learner.windows.snapped,
        **scores,
        "mase_scale": learner.scores.naive(),
        "naive_mae": naive if spec.horizon <= learner.scores.shape.season else None,  # else an upper bound
        "simulation": simulation(learner),
        "weights": weights(learner.model),
        **({} if learner.alarms is None else {"alarms": learner.raised()}),
        **session.learner.clock.summary(learner.rows),
        "batch": session.config.batch if session.config.online else None,
        "peak_mb": peak_mb(),
        "checkpoint": shown(session.config.checkpoint),
        "offset": dict(session.offset),
        "table_version": session.table.version,
        "known": list(spec.known),
        "unused": list(unused(session.config, spec, session.table.schema)),
        "lags": spec.lags,
        "seasons": list(spec.seasons),
        "transforms": kinds,
        "warnings": list(warnings),
    }


def _warnings(session: Session, learner: Learner, scores: dict[str, Any], naive: float | None) -> list[str]:
    """What was wrong, and what to do; naive: mean absolute error of the naive forecast, where it is known."""
    warnings = [*session.warnings, *learner.notes, *learner.model.warnings(), *learner.counts.warnings()]
    if not scores["scored"]:
        warnings.append(f"nothing was scored: {_why_unscored(session, learner)}")
    counts, spec = learner.counts, learner.windows.spec
    if spec.lags and spec.gaps == "reset" and counts.broken > LOST * (counts.whole + counts.broken):
        part = counts.broken / (counts.whole + counts.broken)
        warnings.append(
            f"at {part:.0%} of the rows nothing was forecast, because a value of the window was missing: "
            "--gaps fill forecasts there too"
        )
    warnings += _worse_than_naive(scores["mae"], naive)
    warnings += _outliers(learner, Moments.of(session.table.meta))
    warnings += _heaviest(learner)
    if learner.windows.late:
        newest = Moments.of(session.table.meta).say(int(learner.windows.newest().ds.max()))
        why = _why_late(learner.windows, session.table)
        warnings.append(f"{learner.windows.late} rows were not learned: {why}. The newest row is of {newest}")
    if versions := session.table.versions_since(int(session.offset.get(KNOWN, session.table.rows))):
        warnings.append(
            f"{versions} rows with other values for times that the table had came after this run began. Where the row "
            "had been learned by then, the run continues with that: --fresh learns it as it is now"
        )
    return warnings


def _worse_than_naive(mae: float | None, naive: float | None) -> list[str]:
    """Whether repeating the last value, or that of a season ago, would have been far better.

    Example:
        >>> _worse_than_naive(1.0, 0.6), len(_worse_than_naive(1.3, 0.6))
        ([], 1)
    """
    if mae is None or not naive or mae <= WORSE * naive:
        return []
    return [
        f"MAE {number(mae)} is {number(mae / naive)} times that of the naive forecast, {number(naive)}: this model "
        "does not describe the stream; `streamgp compare` scores others on the same forecasts"
    ]


def _outliers(learner: Learner, moments: Moments) -> list[str]:
    """Which rows decide the RMSE alone, where there are such."""
    names, found = learner.windows.names, []
    for target, one in learner.scores.outliers().items():
        count = len(one.ds)
        rows = [
            moments.say(ds) + (f" ({names[code]})" if len(names) > 1 else "")
            for code, ds in zip(one.series.tolist(), one.ds.tolist(), strict=True)
        ]
        named = ", ".join(rows[:NAMED]) + (" ..." if count > NAMED else "")
        make, them = ("make", "them") if count > 1 else ("makes", "it")
        share = f"{min(one.share, 0.9999):.2%}"
        found.append(
            f"{count} of {one.truths:,} truths of {target} {make} {share} or more of the squared error: {named}. "
            f"Without {them} RMSE is {number(one.rmse)}; MAE, CRPS and quantile scores depend on such rows far less"
        )
    return found


def _heaviest(learner: Learner) -> list[str]:
    """Which one of several series decides the scores of all, where there is one."""
    names, found = learner.windows.names, []
    for target, one in learner.scores.heaviest().items():
        others = f"MAE {number(one.mae)}" + (f", MASE {number(one.mase)}" if one.mase is not None else "")
        found.append(
            f"{names[one.series]} makes {min(one.share, 0.9999):.2%} of the absolute error of {target}, and decides "
            f"the scores of all series; those of the others: {others}. Did its numbers come in another unit?"
        )
    return found


def simulation(learner: Learner) -> dict[str, Json] | None:
    """Scores of the simulations of the past, where there are any (`SimulationBands.summary`)."""
    return None if learner.rehearsal is None else learner.rehearsal.bands.summary()


def weights(model: Model) -> dict[str, Json]:
    """Of the experts that it mixes, the mean over targets and steps.

    Example:
        >>> from types import SimpleNamespace
        >>> weights(SimpleNamespace(figures=lambda: {"weight_linear": 0.75, "weight_svdgp": 0.25, "basis": 3.0}))
        {'linear': 0.75, 'svdgp': 0.25}
    """
    found = model.figures().items()
    return {name.removeprefix("weight_"): value for name, value in found if name.startswith("weight_")}


def _forecasts(learner: Learner) -> dict[str, Json]:
    shape, scores = learner.windows.shape, learner.scores
    if learner.only is not None:
        return held_out_forecasts(learner.counts, shape, int(learner.only.rows.sum()), scores)
    return online_forecasts(learner.counts, shape, learner.windows, scores, learner.to_come())


def _why_late(windows: Windows, table: Table) -> str:
    if windows.spec.late == "use" and windows.spec.lags:
        return "they were late, and their place was taken, before the first row of their series or no longer kept"
    if table.meta.lateness is not None:
        instead = "; --late use takes such rows as past values of later forecasts" if windows.spec.every_ns else ""
        return f"they came later than the lateness of the table, after a newer row of their series was learned{instead}"
    spec, dated = windows.spec, table.meta.clock and table.meta.time_format not in ELAPSED
    if dated and int(windows.newest().ds.max()) > (time.time() + 86_400) * 1e9:
        return "they came after a row of the future: ingest the source into a new table with --max-ahead 1d"
    ordered = "ingest the source into a new table with --lateness D, and rows up to D late are learned in their order"
    if spec.every_ns is None:
        return f"their time is not after that of the row before them in their series: {ordered}"
    late = (
        f"late, or in the same step of --every as an earlier row: {ordered}; or begin again with --fresh --late use, "
    )
    late += "and they are past values of later forecasts"
    return late if spec.tolerance_ns is not None else f"{late}; for a clock that jitters, with --tolerance"


def _why_unscored(session: Session, learner: Learner) -> str:
    warmup = learner.schedule.warmup
    if learner.only is not None:
        held = int(learner.only.rows.sum())
        if not held:
            return "no rows were held out: --test-tail 0.2 holds some, --online scores each row before it is learned"
        return f"no window before the {held} rows held out is whole"
    if learner.rows <= warmup:
        targets = learner.windows.spec.targets
        if nothing := without_values(
            [name for name in session.survey.empty if name in targets] if session.survey else []
        ):
            return nothing
        most = session.config.max_rows
        if most is not None and most <= learner.rows < session.table.rows:
            return f"{most} rows were read, and {warmup} are warm-up; give a larger --max-rows, or a smaller --warmup"
        least = span(learner.windows.spec)
        if least < learner.rows:
            shorter = f"--warmup {least + (learner.rows - least) // 2} --fresh leaves some to score"
        else:
            shorter = advice(Survey.of(session.table, learner.windows.spec), learner.windows.spec)
        return f"the table has {learner.rows} rows, and {warmup} are warm-up; {shorter}"
    if learner.warmup.done_at is None:
        why = advice(Survey.of(session.table, learner.windows.spec), learner.windows.spec)
        return f"no window was whole in {learner.rows} rows, and the warm-up continues until one is; {why}"
    unless = "if streamgp describe shows gaps, try --gaps fill, or a table without --every"
    return f"no window was whole after the warm-up, or scoring starts after the last row; {unless}"


def add_point(curves: Curves, learner: Learner, step: Step | None, rows: int) -> dict[str, Json] | None:
    """After a micro-batch of `rows`: a point of the curves, where one is due; returns the scores since the last one."""
    if learner.rows < next_lap(learner.rows - rows):
        return None
    lap = learner.scores.lap()
    curves.add(learner.rows, float(lap["scored"]), lap_metrics(lap, step) | learner.model.figures())  # type: ignore[arg-type]
    return lap


def overall_metrics(scores: dict[str, Any]) -> dict[str, float]:
    """Scores of everything scored so far as flat metrics, overall_rmse, ...; none before anything was scored."""
    if not scores["scored"]:
        return {}
    return {f"overall_{name}": value for name, value in flat(scores).items()} | {"overall_scored": scores["scored"]}


def simulation_metrics(simulation: dict[str, Any] | None) -> dict[str, float]:
    """Scores of the simulations of the past at their last step as flat metrics: simulation_rmse, ..."""
    steps = (simulation or {}).get("steps") or [{}]
    last = steps[-1]
    more = {name: last[name] for name in ("raw_rmse", "persistence_rmse") if name in last}
    return {f"simulation_{name}": value for name, value in (flat(last) | more).items()}


def alarm_metrics(learner: Learner) -> dict[str, float]:
    """Alarms so far as flat metrics, alarms_anomaly, alarms_share, ...; none where nobody asked for alarms."""
    found = learner.raised()
    return {f"alarms_{name}": float(value) for name, value in found.items() if isinstance(value, int | float)}


def late_metrics(learner: Learner) -> dict[str, float]:
    """Rows that came late so far as flat metrics: late_rows, left out, and late_rows_used; none where none came."""
    found = {"late_rows": learner.windows.late, "late_rows_used": learner.windows.late_used}
    return {name: float(count) for name, count in found.items() if count}


def note(lap: dict[str, Any]) -> str:
    """The newest scores in a few words."""
    if not lap["scored"]:
        return "warm-up"
    if "log_loss" in lap:
        return f"log loss {number(lap['log_loss'])}, accuracy {lap['accuracy']:.3f}"
    level, coverage = list(lap["coverage"].items())[-1]
    return f"rmse {number(lap['rmse'])}, coverage({level}) {coverage:.3f}"


def peak_mb() -> float:
    """Most memory that this process has held, MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
