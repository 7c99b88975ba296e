"""Whether a run still does what it did: how old its newest row is, and its newest scores beside those before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from streamgp.errors import StreamgpError, UsageError
from streamgp.forecasting.scores import Scores
from streamgp.windows.calendar import Ints
from streamgp.windows.rows import times
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
"""Series without new rows that are named, those that are silent for longest."""


class CheckResult(NamedTuple):
    """One thing that was looked at.

    Attributes:
        name: age, silent (of several series), crps_ratio (or log_loss_ratio), naive_ratio, coverage or leaps.
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
    """How long ago the newest row was, and in how many of several series that of their own is too old."""
    moments = moments_of(saved)
    if not moments.clock or moments.elapsed:
        if config.max_age is not None:
            raise UsageError("--max-age: the times of this run are no dates", hint="leave it out")
        return [CheckResult("age", None, None, False, "the times are no dates")]
    clock = now.astimezone().replace(tzinfo=None) if moments.zone is None else now.replace(tzinfo=None)
    latest = int((np.datetime64(clock, "ns") + np.timedelta64(AHEAD, "s")).astype(np.int64))
    seen, future = _newest(saved, latest)
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
    if config.max_age is not None and len(seen) > 1:
        old = sorted((time, name) for name, time in seen.items() if age(time) > config.max_age)
        named = ", ".join(f"{name} since {moments.say(time)}" for time, name in old[:NAMED])
        about = f"of {len(seen):,} series whose newest row is older than --max-age"
        about += f": {named}{' ...' if len(old) > NAMED else ''}" if old else ""
        about += "; --max-silent 0 raises an alarm" if old and config.max_silent is None else ""
        found.append(CheckResult("silent", len(old), config.max_silent, _beyond(len(old), config.max_silent), about))
    return found


def _newest(saved: Saved, latest: int) -> tuple[dict[str, int], dict[str, int]]:
    """The newest time of each series up to `latest`, and of those that have rows after it."""
    tail, spec, least = Tail(), recipe_of(saved).spec, np.iinfo(np.int64).min
    saved.restore({"tail": tail})
    seen, future = dict[str, int](), dict[str, int]()

    def note(names: list[str], ds: Ints, known: Any = True) -> None:
        """Times (N, L) of series by their names (N,), where they are known."""
        for found, part in ((seen, ds <= latest), (future, ds > latest)):
            for name, time in zip(names, np.where(known & part, ds, least).max(1).tolist(), strict=False):
                if time > least:
                    found[name] = max(time, found.get(name, time))

    with fitting(f"the windows in {saved.path}"):
        for state in saved.states():
            if (held := state.tensors.get("windows")) is None:
                continue
            about: Any = state.rest["windows"]
            names: list[str] = about["names"] if spec.series else [""]
            note(names, held["ds"].numpy(), held["step"].numpy() >= 0)
            if "waiting" in state.rest:  # of a fleet
                waiting = PartialBatches()
                state.restore({"waiting": waiting})
                rows, code = waiting.rows()
                if rows is not None:
                    note([names[one] if spec.series else "" for one in code], times(rows, str(spec.time))[:, None])
    if tail.rows is not None:  # those after the last full micro-batch
        ds = times(tail.rows, str(spec.time))[:, None]
        note([str(name) for name in tail.rows.column(spec.series).to_pylist()] if spec.series else [""] * len(ds), ds)
    return seen, future


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
