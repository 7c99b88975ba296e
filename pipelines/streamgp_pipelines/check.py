"""Whether a run still does what it did: how old its newest row is, and its newest scores beside those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from torch import Tensor

from streamgp.errors import StreamgpError, UsageError
from streamgp.forecasting.scores import Scores
from streamgp.windows.calendar import Ints
from streamgp.windows.rows import numbers, times
from streamgp_data.checkpoint import Saved, fitting
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
    if not moments.clock or moments.elapsed:
        if config.max_age is not None:
            raise UsageError("--max-age: the times of this run are no dates", hint="leave it out")
        return [CheckResult("age", None, None, False, "the times are no dates")]
    clock = now.astimezone().replace(tzinfo=None) if moments.zone is None else now.replace(tzinfo=None)
    latest = int((np.datetime64(clock, "ns") + np.timedelta64(AHEAD, "s")).astype(np.int64))
    seen, future, values = _newest(saved, latest)
    if not seen and not future:
        return [CheckResult("age", None, config.max_age, config.max_age is not None, "no row was read")]

    def age(time: int) -> float:
        return float((np.datetime64(clock, "ns") - np.datetime64(time, "ns")) / np.timedelta64(1, "s"))

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
        what = "series" if len({target for _, target in values}) == 1 else "targets of all series"
        about = f"of {len(values):,} {what}, whose newest value is older than --max-age"
        about += f": {named}{' ...' if len(old) > NAMED else ''}" if old else ""
        about += "; --max-silent 0 raises an alarm" if old and config.max_silent is None else ""
        found.append(CheckResult("silent", len(old), config.max_silent, _beyond(len(old), config.max_silent), about))
    return found


def _newest(saved: Saved, latest: int) -> tuple[dict[str, int], dict[str, int], Newest]:
    """The newest time of each series up to `latest`, and of those that have rows after it; up to it also that of each
    target, of those in whose rows it has a value."""
    tail, spec, least = Tail(), recipe_of(saved).spec, np.iinfo(np.int64).min
    saved.restore({"tail": tail})
    seen, future, values = dict[str, int](), dict[str, int](), Newest()
    one = len(spec.targets) == 1

    def later(found: dict[Any, int], keys: Iterable[Any], ds: Ints) -> None:
        for key, time in zip(keys, ds.tolist(), strict=True):
            if time > least:
                found[key] = max(time, found.get(key, time))

    def note(names: list[str], ds: Ints, has: Any, known: Any = True) -> None:
        """Times (N, L) of series by their names (N,), where they are known, and whether there is a value (N, L, O)."""
        part = known & (ds <= latest)
        later(seen, names, np.where(part, ds, least).max(1))
        later(future, names, np.where(known & (ds > latest), ds, least).max(1))
        for at, target in enumerate(spec.targets):
            keys = [(name, "" if one and spec.series else target) for name in names]
            later(values, keys, np.where(part & has[..., at], ds, least).max(1))

    def rows_of(rows: pa.RecordBatch) -> tuple[Ints, Any]:
        held = numbers(rows, spec.targets)[:, None]
        return times(rows, str(spec.time))[:, None], ~(np.isnan(held) | np.isin(held, spec.sentinels))

    with fitting(f"the windows in {saved.path}"):
        for state in saved.states():
            if (held := state.tensors.get("windows")) is None:
                continue
            about: Any = state.rest["windows"]
            names: list[str] = about["names"] if spec.series else [""]
            ds, known = held["ds"].numpy(), held["step"].numpy() >= 0
            note(names, ds, ~np.isnan(held["values"].numpy()[..., : len(spec.targets)]), known)
            for at, target in enumerate(spec.targets):  # where no row that is kept has a value of it
                keys = [(name, "" if one and spec.series else target) for name in names]
                later(values, keys, _before(held, spec.every_ns, latest, at))
            if "waiting" in state.rest:  # of a fleet
                waiting = PartialBatches()
                state.restore({"waiting": waiting})
                rows, code = waiting.rows()
                if rows is not None:
                    note([names[one] if spec.series else "" for one in code], *rows_of(rows))
    if tail.rows is not None:  # those after the last full micro-batch
        ds, has = rows_of(tail.rows)
        series = tail.rows.column(spec.series).to_pylist() if spec.series else [""] * len(ds)
        note([str(name) for name in series], ds, has)
    return seen, future, values


def _before(held: Mapping[str, Tensor], every: int | None, latest: int, target: int) -> Ints:
    """(S,) the time of the last value of a target by its step, else that of the oldest row that is kept: none is newer
    than the last value."""
    step, ds = held["step"].numpy(), held["ds"].numpy()
    never = np.iinfo(np.int64)
    oldest = np.where(step >= 0, ds, never.max).min(1, initial=never.max)
    found = np.where(oldest <= latest, oldest, never.min)
    if every is not None and len(last := held["latest.step"].numpy()):
        own, (newest, time, _) = last[: len(step), 0, target], held["last"].numpy()[:, : len(step)]
        by_step = time - (newest - np.maximum(own, 0)) * every
        found = np.where((own >= 0) & (by_step <= latest), by_step, found)
    return found


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
