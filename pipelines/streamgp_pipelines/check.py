"""Whether a run still does what it did: how old its newest row is, and its newest scores beside those before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from streamgp.errors import StreamgpError, UsageError
from streamgp.forecasting.scores import Scores
from streamgp.windows.calendar import Ints
from streamgp.windows.rows import numbers, times
from streamgp.windows.timeline import BEFORE
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data.checkpoint import Saved, fitting
from streamgp_data.moments import Moments
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import Table
from streamgp_pipelines.config import CheckConfig
from streamgp_pipelines.learning.curves import Curves, lap_metrics, next_lap
from streamgp_pipelines.learning.partial import PartialBatches
from streamgp_pipelines.learning.phases import Phases
from streamgp_pipelines.learning.restored import moments_of, read_checkpoint, recipe_of
from streamgp_pipelines.learning.tail import Tail

AHEAD = 86_400
"""Seconds that a row may be ahead of now, and still count as the newest."""
NAMED = 3
"""Series without new values that are named, those that are silent for longest."""
Newest: TypeAlias = dict[tuple[str, str], int]
"""The time of the newest value of each target of each series, by their names."""


class CheckResult(NamedTuple):
    """One thing that was looked at.

    Attributes:
        name: age, silent (targets without new values), crps_ratio (or log_loss_ratio), naive_ratio, coverage or leaps.
        value: seconds, or the number; None where it is not known (yet).
        limit: what was asked for; None where nothing was.
        alarm: whether the value is beyond the limit.
        about: what the value is of.
    """

    name: str
    value: float | None
    limit: float | None
    alarm: bool
    about: str


def check(config: CheckConfig, now: datetime | None = None) -> list[CheckResult]:
    """Compare a checkpoint with limits. Nothing is learned or written.

    The newest scores are those of the last `--recent` rows at least, up to the newest that was learned: the points of
    the run's curves, which are 1,000 rows apart (more after 512,000 rows), and what was scored since the last of them.
    Those of fewer rows than a point are not known.

    Args:
        config: which checkpoint, and the limits.
        now: the time; by default that of this machine.

    Raises:
        CheckpointError: there is none, or it is damaged.
        UsageError: an age is asked for where times are no dates.
    """
    saved = read_checkpoint(config.checkpoint)
    return [*_ages(saved, config, now or datetime.now(UTC)), *_scores(saved, config), *_leaps(saved)]


def _leaps(saved: Saved) -> list[CheckResult]:
    """Rows whose times are far from all others, where the table of the run is at hand and has put such aside."""
    about: dict[str, Any] = saved.manifest
    try:
        count, last = Quarantine(Table.open(about["table"]["path"])).leaps()
    except (StreamgpError, OSError):
        return []
    said = f"rows in the quarantine whose time is far from all others; the last: {last}"
    return [CheckResult("leaps", float(count), None, False, said)] if count else []


def _ages(saved: Saved, config: CheckConfig, now: datetime) -> list[CheckResult]:
    """How long ago the newest row was, and how many targets of all series have no newer value than --max-age."""
    moments = moments_of(saved)
    clock = wall(moments, now)
    if clock is None:
        if config.max_age is not None:
            raise UsageError("--max-age: the times of this run are no dates", hint="leave it out")
        return [CheckResult("age", None, None, False, "the times are no dates")]
    seen, future, values = _newest(saved, clock + AHEAD * 10**9)
    if not seen and not future:
        return [CheckResult("age", None, config.max_age, config.max_age is not None, "no row was read")]

    def age(time: int) -> float:
        return (clock - time) / 1e9

    newest = max((seen or future).values())
    about = f"the newest row is of {moments.say(newest)}"
    about += ": is a clock or a time zone wrong?" if age(newest) < -60 else ""
    if seen and future:
        about += "; rows of the future are left out: is a clock wrong?"
    alarm = _beyond(age(newest), config.max_age) or (config.max_age is not None and not seen)
    found = [CheckResult("age", age(newest), config.max_age, alarm, about)]
    if config.max_age is not None:
        old = sorted(
            (time, ", ".join(filter(None, keys))) for keys, time in values.items() if age(time) > config.max_age
        )
        if len(values) < 2 and not old:
            return found
        named = ", ".join(f"{name} since {moments.say(time)}" for time, name in old[:NAMED])
        what = "series" if len({target for _, target in values}) == 1 else "targets of series"
        about = f"of {len(values):,} {what} whose newest value is older than --max-age"
        about += f": {named}{' ...' if len(old) > NAMED else ''}" if old else ""
        about += "; --max-silent 0 raises an alarm" if old and config.max_silent is None else ""
        found.append(CheckResult("silent", len(old), config.max_silent, _beyond(len(old), config.max_silent), about))
    return found


def wall(moments: Moments, now: datetime) -> int | None:
    """An instant as the rows of a run have their times, ns; None where those are no dates."""
    if not moments.clock or moments.elapsed:
        return None
    clock = now.astimezone() if moments.zone is None else now.astimezone(UTC)
    return int(np.datetime64(clock.replace(tzinfo=None), "ns").astype(np.int64))


def _newest(saved: Saved, latest: int) -> tuple[dict[str, int], dict[str, int], Newest]:
    """The newest time of each series up to `latest`, and of those that have rows after it; up to it also that of each
    target, of the rows in which it has a value."""
    tail, spec, least = Tail(), recipe_of(saved).spec, int(BEFORE)
    saved.restore({"tail": tail})
    seen, future, values = dict[str, int](), dict[str, int](), Newest()

    def later(found: dict[Any, int], keys: Iterable[Any], ds: Ints) -> None:
        for key, time in zip(keys, ds.tolist(), strict=True):
            if time > least:
                found[key] = max(time, found.get(key, time))

    def note(names: list[str], ds: Ints, last: Ints, known: Any = True) -> None:
        """Times (N, L) of series by their names (N,), where they are known, and of the last values (N, O)."""
        later(seen, names, np.where(known & (ds <= latest), ds, least).max(1))
        later(future, names, np.where(known & (ds > latest), ds, least).max(1))
        for at, target in enumerate(labels(spec)):
            later(values, [(name, target) for name in names], last[:, at])

    def rows(names: list[str], rows: pa.RecordBatch) -> None:
        """Rows that have not been learned."""
        ds, held = times(rows, str(spec.time))[:, None], numbers(rows, spec.targets)
        has = ~(np.isnan(held) | np.isin(held, spec.sentinels)) & (ds <= latest)
        note(names, ds, np.where(has, ds, least))

    with fitting(f"the windows in {saved.path}"):
        for state in saved.states():
            if (held := state.tensors.get("windows")) is None:
                continue
            windows = Windows(spec)
            windows.restore(held, state.rest["windows"])
            names, ds = windows.names if spec.series else [""], held["ds"].numpy()
            some = slice(len(ds))  # those of a fleet that only wait have no windows yet
            note(names[some], ds, windows.last_values(latest)[some], held["step"].numpy() >= 0)
            if "waiting" in state.rest:  # of a fleet
                waiting = PartialBatches()
                state.restore({"waiting": waiting})
                more, code = waiting.rows()
                if more is not None:
                    rows([names[one] if spec.series else "" for one in code], more)
    if tail.rows is not None:  # those after the last full micro-batch
        count = tail.rows.num_rows
        series = tail.rows.column(spec.series).to_pylist() if spec.series else [""] * count
        rows([str(name) for name in series], tail.rows)
    return seen, future, values


def labels(spec: WindowSpec) -> tuple[str, ...]:
    """Labels of the targets of a series: their names, or an empty one where there is one target."""
    return ("",) if len(spec.targets) == 1 and spec.series else spec.targets


def _scores(saved: Saved, config: CheckConfig) -> list[CheckResult]:
    """The newest loss over that of all rows before, and over the naive one; the newest coverage of the widest band."""
    curves = _curves(saved)
    rows, weight = np.array(curves.rows), np.array(curves.weight)
    new = rows > rows[-1] - config.recent if len(rows) else np.zeros(0, bool)

    def mean(name: str, part: Any) -> float | None:
        values = np.array(curves.values.get(name, []))
        known = part[: len(values)] & np.isfinite(values) if len(values) else np.zeros(0, bool)
        total = weight[: len(values)][known].sum()
        return float(weight[: len(values)][known] @ values[known] / total) if total else None

    loss = "log_loss" if "log_loss" in curves.values else "calibrated_crps"
    recent, before = mean(loss, new), mean(loss, ~new)
    ratio = recent / before if recent is not None and before else None
    name = f"{loss.removeprefix('calibrated_')}_ratio"
    first = int(rows[~new][-1]) if (~new).any() else 0
    about = (
        f"rows {first:,} to {int(rows[-1]):,} over those before" if ratio is not None else "too few rows were scored"
    )
    found = [CheckResult(name, ratio, config.max_crps_ratio, _beyond(ratio, config.max_crps_ratio), about)]
    past = mean("naive_mae", new)
    if past or config.max_naive_ratio is not None:
        ratio = recent / past if recent is not None and past else None
        about = "the newest CRPS over the mean error of the seasonal naive forecast"
        about = about if past else "no error of the naive forecast is known"
        found.append(
            CheckResult("naive_ratio", ratio, config.max_naive_ratio, _beyond(ratio, config.max_naive_ratio), about)
        )
    bands = [key for key in curves.values if key.startswith("coverage_")]
    if not bands and config.min_coverage is not None:
        found.append(CheckResult("coverage", None, config.min_coverage, False, _no_bands(saved, curves)))
    if bands:
        widest = max(bands, key=lambda key: float(key.removeprefix("coverage_")))
        share = mean(widest, new)
        low = share is not None and config.min_coverage is not None and share < config.min_coverage
        level = widest.removeprefix("coverage_")
        found.append(
            CheckResult("coverage", share, config.min_coverage, low, f"of the {level} % band, in the same rows")
        )
    return found


def _curves(saved: Saved) -> Curves:
    """The points of the run's curves, and one more of the rows since the last of them."""
    curves = Curves()
    saved.restore({"curves": curves})
    if curves.rows and saved.rows > curves.rows[-1]:
        spec, calibration = recipe_of(saved).spec, recipe_of(saved).calibration
        scores = Scores(spec.shape, calibration, calibration.none, Phases(spec).period)
        saved.restore({"scores": scores})
        lap = scores.lap()
        if lap["scored"]:
            curves.add(saved.rows, float(lap["scored"]), lap_metrics(lap, None))  # type: ignore[arg-type]
    return curves


def _no_bands(saved: Saved, curves: Curves) -> str:
    """Why no point of the curves has a coverage."""
    about: dict[str, Any] = saved.manifest
    if not recipe_of(saved).calibration.levels:
        return "this run has no bands"
    if about["fingerprint"]["mode"] != "online":
        return "only runs with --online have newest scores; the summary has the coverage of this one"
    needed = next_lap((curves.rows or [0])[-1])
    return f"too few rows since scores began: it is known from row {needed:,} on, and {saved.rows:,} were read"


def _beyond(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit
