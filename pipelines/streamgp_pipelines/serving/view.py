"""What one learned state answers: forecasts, scores and the newest rows, each made once and kept as bytes."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Lock
from typing import Any, Literal, TypeAlias

import polars as pl
import pyarrow as pa
from pydantic_core import to_json

from streamgp.base import Json
from streamgp.errors import StateError, StreamgpError, UsageError
from streamgp.windows.calendar import Ints
from streamgp.windows.timeline import BEFORE
from streamgp_pipelines.check import AHEAD, wall
from streamgp_pipelines.forecasting.forecast import Forecaster
from streamgp_pipelines.forecasting.future import as_future
from streamgp_pipelines.forecasting.results import Forecast, write_csv
from streamgp_pipelines.learning.curves import flat
from streamgp_pipelines.learning.newest import NewestScored
from streamgp_pipelines.learning.whole import NoNewestWindow

Format: TypeAlias = Literal["json", "arrow", "csv"]

KEPT = 64
"""Answers of a state that are kept."""
SERIES = 1000
"""Targets of series whose age is exported, at most: more labels would overload a monitor."""


class LearnerView:
    """A copy of a learner's state that has learned all rows so far; nothing in it changes any more.

    Args:
        forecaster: of the copy, at its newest row.
        name: of the checkpoint.
        rows: that it has learned.
        newest: scored forecasts, up to its last row.
        alarm_counts: `Learner.raised` up to its last row; None where it raises none.
        read: rows of the table that it has seen: of these some may wait for others that come late, or be versions of
            others.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        name: str,
        rows: int,
        newest: NewestScored,
        alarm_counts: dict[str, Json] | None,
        read: int,
    ) -> None:
        self.name, self.rows, self.alarm_counts, self.read = name, rows, alarm_counts, read
        self._newest_scored = newest
        self._forecaster, self._lock = forecaster, Lock()
        self._kept: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._figures: dict[str, float] | None = None
        self._last: Ints | None = None  # times of last values
        self._issued: tuple[tuple[Any, ...], Forecast] | None = None  # the last one, of all series

    @property
    def spec(self) -> Any:
        """Columns and steps of a window."""
        return self._forecaster.spec

    @property
    def forecaster(self) -> Forecaster:
        """Of the state."""
        return self._forecaster

    @property
    def series(self) -> list[str]:
        """Names of the series that it has seen."""
        return self._forecaster.learner.windows.names

    def kept(self, *key: Any) -> bytes | None:
        """An answer that was made before, without waiting."""
        return self._kept.get(key)

    def forecast(
        self,
        form: Format,
        horizon: int | None,
        levels: tuple[float, ...] | None,
        quantiles: tuple[float, ...] | None,
        future: pa.Table | None = None,
        marked: Any = None,
        lagging: bool = False,
        series: tuple[str, ...] | None = None,
    ) -> bytes:
        """The next steps of every series, or of some.

        Args:
            form: of the answer.
            horizon, levels, quantiles, future: of `Forecaster.forecast`.
            marked: tells one future from another.
            lagging: whether to warn that rows of more than a horizon wait to be learned.
            series: names of those that are answered; None: all.

        Raises:
            StateError, UsageError, DataError: as `Forecaster.forecast`.
        """

        def make() -> bytes:
            wanted = (horizon, levels, quantiles, marked)
            try:
                if self._issued is None or self._issued[0] != wanted:
                    whole = self._forecaster.forecast(horizon, levels, self.future(future), quantiles)
                    self._issued = wanted, whole
                found = self._issued[1]
            except NoNewestWindow as error:  # no question would be answered: not the request is wrong
                raise StateError(error.message, hint=f"{error.hint}; {self._newest()}") from None
            except StreamgpError as error:
                if "--future" in error.hint:  # those of the command line have a file
                    error.hint = self._how_to_post()
                raise
            heading = {"name": self.name, "model": found.model, "rows": self.rows, "levels": found.levels}
            warnings = [*found.warnings, *([self._lag()] if lagging else [])]
            frame = found.frame if series is None else found.frame.filter(pl.col("unique_id").is_in(series))
            return write(frame, form, heading | {"warnings": warnings}, "forecast")

        return self._once(("forecast", form, horizon, levels, quantiles, marked, lagging, series), make)

    def _lag(self) -> str:
        return (
            f"learning lags: rows of more than a horizon were received after the {self._newest()}, and wait to be "
            "learned; a model that is faster, such as linear, keeps up with more rows a second"
        )

    def _how_to_post(self) -> str:
        spec = self.spec
        columns = ", ".join(name for name in (spec.time, spec.series, *spec.known) if name is not None)
        steps = f"each of the {spec.horizon} steps after the newest row, {self._newest().rpartition(': ')[2]}"
        return f"POST /forecast with rows of {columns} for {steps}; they are kept"

    def _newest(self) -> str:
        """How far the state is."""
        ds = self._forecaster.learner.windows.newest().ds
        return f"newest row: {self._forecaster.moments.say(int(ds.max()))}" if len(ds) else "there are no rows"

    def scores(self) -> bytes:
        """Scores of all forecasts whose truth has come, as JSON."""

        def make() -> bytes:
            learner = self._forecaster.learner
            found = learner.summary() | {
                "name": self.name,
                "rows": self.rows,
                "warnings": [*learner.model.warnings(), *learner.counts.warnings()],
            }
            return to_json(found, inf_nan_mode="null")

        return self._once(("scores",), make)

    def history(self, form: Format, rows: int) -> bytes:
        """The newest rows of every series."""

        def make() -> bytes:
            found = self._forecaster.history()
            keys = [name for name in ("unique_id", "target") if name in found.columns]
            newest = found.filter(pl.int_range(pl.len(), 0, -1).over(keys) <= rows)
            return write(newest, form, {"name": self.name, "rows": self.rows}, "history")

        return self._once(("history", form, rows), make)

    def scored(self, form: Format, rows: int) -> bytes:
        """The newest scored forecasts of the first series, one of each value."""

        def make() -> bytes:
            naming = self._forecaster.naming()
            found = self._newest_scored.frame("windows", self._forecaster.learner.windows.names, naming)
            keys = [name for name in ("unique_id", "target") if name in found.columns]
            newest = found.filter(pl.int_range(pl.len(), 0, -1).over(keys) <= rows)
            heading = {"name": self.name, "model": naming.model, "rows": self.rows, "levels": naming.levels}
            return write(newest, form, heading, "scored")

        return self._once(("scored", form, rows), make)

    def alarms(self) -> pl.DataFrame:
        """The newest alarms: unique_id, ds, [target,] y, forecast, p, alarm; since and ticks of silent targets."""
        with self._lock:
            return self._newest_scored.alarms(self._forecaster.learner.windows.names, self._forecaster.naming())

    def figures(self) -> dict[str, float]:
        """Scores of everything so far as flat figures, such as rmse and coverage_95."""
        with self._lock:
            if self._figures is None:
                self._figures = flat(self._forecaster.learner.scores.summary())
            return self._figures

    def ages(self, now: datetime) -> list[tuple[str, str, float]]:
        """Series, target and seconds since its last value, of the first SERIES; none where times are no dates. Values
        of more than a day ahead are left out, as in `check`."""
        clock = wall(self._forecaster.moments, now)
        if clock is None:
            return []
        windows = self._forecaster.learner.windows
        with self._lock:
            if self._last is None:
                self._last = windows.last_values(clock + AHEAD * 10**9)[:SERIES]
        keys = [(name, target) for name in windows.names[:SERIES] for target in self.spec.targets]
        last = zip(keys[:SERIES], self._last.reshape(-1).tolist(), strict=False)
        return [(*key, (clock - time) / 1e9) for key, time in last if time > BEFORE]

    def future(self, rows: pa.Table | None) -> pa.Table | None:
        """Values of the known inputs as a request has them, read as those of `--future`."""
        if rows is None:
            return None
        spec = self.spec
        if spec.lags and not spec.known:
            raise UsageError("rows: no input has a future that is known", hint="ask with GET, or train with --known")
        return as_future(pl.DataFrame(pl.from_arrow(rows)), spec, self._forecaster.moments, None, "rows")

    def _once(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = make()
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return found


def write(frame: pl.DataFrame, form: Format, about: dict[str, Any], name: str) -> bytes:
    """A frame as CSV, as an Arrow IPC stream, or as a JSON object with its rows under `name`."""
    if form == "json":
        return to_json({**about, name: frame.to_dicts()}, inf_nan_mode="null")
    sink = io.BytesIO()
    if form == "csv":
        write_csv(frame, sink)
    else:
        frame.write_ipc_stream(sink, compat_level=pl.CompatLevel.oldest())
    return sink.getvalue()


def ordered(values: Sequence[float] | None) -> tuple[float, ...] | None:
    """Levels or quantiles as a key: each once, in order; None where there are none."""
    return tuple(sorted(set(values))) if values else None
