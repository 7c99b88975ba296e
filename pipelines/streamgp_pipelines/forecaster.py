"""`streamgp.Forecaster`: learn from data frames as they come, without a table on disk."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl

from streamgp import registry
from streamgp.errors import DataError, StateError, UsageError
from streamgp_data.numbers import several
from streamgp_data.versions import Policy
from streamgp_pipelines.assembly import find_device
from streamgp_pipelines.config import AUTO, TrainConfig
from streamgp_pipelines.forecasting import forecast as forecasting
from streamgp_pipelines.forecasting.issued import contributions, drawn
from streamgp_pipelines.forecasting.rolling import RollingPlan, folds
from streamgp_pipelines.frame_stream import ALARMS, FrameStream
from streamgp_pipelines.learned import LearnedModel
from streamgp_pipelines.memory import Frame, as_arrow, back
from streamgp_pipelines.options import OptionValue
from streamgp_pipelines.ordering import places
from streamgp_pipelines.showing import Overview, Shown
from streamgp_pipelines.wording import checked, in_python

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PATHS = 200


class Forecaster(Shown):
    """Learns from data frames as they come, and forecasts the next steps with calibrated bands.

    Every row is forecast before it is learned, so that `scores` are honest. The same rows in the same order give the
    same numbers as `streamgp train --online` on a table of them, however they are cut into frames; only what is found
    from the first rows (the warm-up, `season="clock"`) is found from the first frame.

    `fit`, `update` and `predict` learn rows in the order of their times; `learn`, `learn_one` and `forecast` are the
    same in the order of the frames. `cross_validation` forecasts from several cutoffs, `model_` has what was learned.

    Args:
        target: column or columns to forecast; default: y.
        horizon: steps ahead.
        season: rows in each season, such as [48, 336], or its length, such as "1d"; "clock": the day and the week of
            frames with a clock, of which the first frame has three, or the year of months; "auto": these, else what the
            values show; "none".
        known: inputs whose future values are known.
        inputs: columns whose past values are inputs.
        time: column of times, or row for rows without; default: ds, or the only one of times. A date and a time of day,
            or the number of a period, in two columns are ["Date", "Time"]. Days, weeks and years begin by the clock of
            their zone.
        series: column that names the series; default: unique_id, else a single series.
        every: interval between rows, such as "30m"; default: rows are counted.
        timezone: of times without an offset; where others have one, that of the first frame.
        tolerance: as that of `streamgp ingest`.
        lateness: as that of `streamgp ingest`, such as "10m": rows of all frames are learned in the order of their
            times.
        duplicates: as that of `streamgp ingest`: what is read of rows with the same series and time and other values.
            Those of the first frame are known from the start, later ones while the row waits (lateness). The newest
            16,384 rows are remembered; one that repeats an older row is late.
        late: as that of `streamgp train`: with use, a late row is a past value of later forecasts.
        time_format: of times that are text or numbers, as that of `streamgp ingest`; default: detected.
        model: see `streamgp models`.
        options: of the model, such as {"ridge": 0.5}.
        levels: bands in percent.
        quantiles: probabilities of quantiles beside them.
        point: what the point forecast is.
        lower: bound of the targets from below; None: 0 where they show it, "none": no bound.
        upper: bound of the targets from above.
        transform: none, log, logit or auto.
        lags: past rows in a window.
        calendar: whether the calendar is an input; None: where rows are a day or more apart, or
            nights or weekends have none.
        gaps: fill or reset.
        sentinel: values that stand for a missing one, such as -999; "none": no others are found.
        warmup: rows that are fitted in batch and not scored.
        batch: rows of a micro-batch; default: the shortest season or 256, and fewer while there are few rows.
        simulate: steps up to which simulations are calibrated.
        scale: auto: series of unlike scale are learned in units of their own; series, all: they are, or never. With
            seasons both act alike for linear and ensemble, whose windows have units of their own.
        alarm_rate: nominal false-alarm rate of `alarms`, those of silent targets too; default: none are raised.
        seed: of every draw.
        device: to compute on. Of these, the flags of `streamgp train` say more.

    Raises:
        UsageError: an option is wrong.

    Example:
        >>> import numpy as np, polars as pl
        >>> from datetime import datetime
        >>> hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 1, 31), "1h", closed="left", eager=True)
        >>> y = 10 + np.sin(np.arange(720) / 24 * 2 * np.pi) + 0.1 * np.random.default_rng(0).standard_normal(720)
        >>> forecaster = Forecaster("load", horizon=3, season=24, every="1h", model="linear")
        >>> _ = forecaster.learn(pl.DataFrame({"ds": hours, "load": y}))
        >>> found = forecaster.forecast(levels=[95])
        >>> found["linear"].round(0).to_list(), found["linear-hi-95"].is_between(10, 12).all()
        ([10.0, 10.0, 10.0], True)
        >>> 0.1 < forecaster.scores["rmse"] < 0.2, forecaster
        (True, Forecaster('load', horizon=3, season=24, every='1h', model='linear'): 720 rows)
    """

    @checked
    def __init__(
        self,
        target: str | Sequence[str] = (),
        horizon: int = 1,
        *,
        season: int | str | Sequence[int | str] = "clock",
        known: str | Sequence[str] = (),
        inputs: str | Sequence[str] = (),
        time: str | Sequence[str] | None = None,
        series: str | None = None,
        every: str | None = None,
        timezone: str | None = None,
        tolerance: str | None = None,
        lateness: str | None = None,
        duplicates: Policy = "first",
        late: Literal["skip", "use"] = "skip",
        time_format: str | None = None,
        model: str = "auto",
        options: Mapping[str, OptionValue] | None = None,
        levels: Sequence[float] = (80.0, 90.0, 95.0),
        quantiles: Sequence[float] = (),
        point: Literal["mean", "median"] = "mean",
        lower: float | Literal["none"] | None = None,
        upper: float | None = None,
        transform: str | Sequence[str] = "none",
        lags: int | None = None,
        calendar: bool | None = None,
        gaps: Literal["reset", "fill"] = "fill",
        sentinel: float | Sequence[float | Literal["none"]] | Literal["none"] = (),
        warmup: int | None = None,
        batch: int | None = None,
        simulate: int | None = None,
        scale: Literal["auto", "series", "all"] = "auto",
        alarm_rate: float | None = None,
        seed: int = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        if hasattr(target, "columns"):
            raise UsageError("target= names columns, and this is a frame", hint="Forecaster('y').learn(frame)")
        given: dict[str, Any] = {"target": target, "season": season, "known": known, "inputs": inputs}
        given |= {"quantiles": quantiles, "transform": transform, "level": levels, "sentinel": sentinel}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        given |= {"horizon": horizon, "model": model, "set": dict(options or {}), "point": point, "lower": lower}
        given |= {"upper": upper, "lags": lags, "calendar": calendar, "gaps": gaps, "warmup": warmup, "batch": batch}
        given |= {"simulate": simulate, "alarm_rate": alarm_rate, "seed": seed, "device": device, "late": late}
        given |= {"scale": scale}
        fields = TrainConfig.model_fields  # what is as it would be anyway was not asked for: no run warns of it
        given = {name: value for name, value in given.items() if value not in ((), fields[name].default)}
        self._device = device
        self._config: TrainConfig | None = TrainConfig.read(given | {"table": "memory", "online": True})
        if model != AUTO:
            registry.check("models", model)
        one = time if time is None or isinstance(time, str) else ",".join(time)
        self._columns = {"time": one, "series": series, "every": every, "timezone": timezone}
        self._columns |= {"tolerance": tolerance, "time_format": time_format, "lateness": lateness}
        self._columns |= {"duplicates": duplicates} if duplicates != "first" else {}
        self._stream = FrameStream(self._config, self._columns)

    @classmethod
    @checked
    def load(cls, path: str | Path, device: Literal["auto", "cpu", "cuda"] = "auto") -> Self:
        """The forecaster that was saved, or that `streamgp train --online` trained; it learns on.

        Its frames are of the kind that the saved one learned last; those of `streamgp train` are of polars.

        Raises:
            CheckpointError: there is none, or it is damaged.
            StateError: it was trained in batch.
        """
        found = cls(device=device)
        found._config, found._stream = None, FrameStream.loaded(Path(path), find_device(device))
        return found

    @checked
    def learn(self, frame: Frame) -> Self:
        """Forecast and then learn each row, in the order of the frame.

        A micro-batch is learned when it is full; what `forecast` and `scores` say holds the rows after it too. Without
        lateness a frame must be sorted by time: a row after a newer one of its series is late, and not learned. What
        should be known, such as their count, is issued as a StreamgpWarning, each once; `warnings` has it all.

        Args:
            frame: rows that follow those before: a polars or pandas data frame (the index is a column if it has a
                name or holds times), an Arrow table, or a mapping of columns to values.

        Raises:
            SchemaError: a column is missing or of another kind than in the first frame.
            DataError: a cell cannot be read, or most rows of the frame are late. Nothing of it was learned then.
        """
        self._stream.read(frame)
        return self

    @checked
    def learn_one(self, row: Mapping[str, Any]) -> Self:
        """`learn` of one row.

        A forecast after each row costs much more than the row: in a copy, it learns the rows that wait for a full
        micro-batch. The copy is made once until rows come, whatever is asked of it.
        """
        if not isinstance(row, Mapping):
            raise UsageError(f"a {type(row).__name__} is no row", hint="give a mapping of columns to values")
        return self.learn({name: [value] for name, value in row.items()})

    @checked
    def fit(self, df: Frame) -> Self:
        """Learn a frame from the beginning: what was learned before is forgotten, as by `fit` of scikit-learn.

        Rows are learned in the order of their times, so that the series of a panel may follow one another, as Nixtla
        has them; `learn` keeps the order of the frame, and continues. If the frame cannot be learned, nothing changes.

        Args:
            df: as `frame` of `learn`.

        Raises:
            StateError: the forecaster was loaded: its options are not known.
            SchemaError, DataError, UsageError: as `learn`.

        Example:
            >>> import numpy as np, pandas as pd
            >>> hours = pd.date_range("2024-01-01", periods=720, freq="h")
            >>> df = pd.DataFrame({"unique_id": "a", "ds": hours, "y": 10 + np.sin(np.arange(720) / 24 * 2 * np.pi)})
            >>> made = Forecaster("y", horizon=24, season=24, every="1h", model="linear")
            >>> made.fit(df[:600]).update(df[600:]).predict(h=6)["linear"].round(1).tolist()
            [10.0, 10.3, 10.5, 10.7, 10.9, 11.0]
        """
        fresh = self._anew()
        fresh.read(df, sort=True)
        if not fresh.rows:
            fresh.note("the frame has no row: nothing was learned")
            fresh.told(fresh.noted())
        self._stream = fresh
        return self

    @checked
    def update(self, df: Frame) -> Self:
        """Learn the rows of a frame that follow those before, in the order of their times; the first ones as `fit`.

        Args:
            df: as `frame` of `learn`.

        Raises:
            SchemaError, DataError, UsageError: as `learn`.
        """
        self._stream.read(df, sort=True)
        return self

    @checked
    def predict(
        self,
        h: int | None = None,
        future: Frame | None = None,
        levels: Sequence[float] | float | None = None,
        quantiles: Sequence[float] | float | None = None,
    ) -> Any:
        """`forecast`: the next h steps of every series, one row a series and step.

        The columns are those of `forecast`, which are Nixtla's: unique_id, ds, then the model's name with the point
        forecast and MODEL-lo-95, MODEL-hi-95 with the band of each level; beside them cutoff, the time of the newest
        row, MODEL-std and MODEL-std-latent.

        Args:
            h: steps, at most the `horizon` that the forecaster was made with, which is the default.
            future: as of `forecast`, of every series.
            levels: as of `forecast`.
            quantiles: as of `forecast`.

        Raises:
            UsageError: h is beyond the horizon.
            StateError, DataError: as `forecast`; or `future` has no row of a series.
        """
        self._stream.ready()
        if h is not None:
            self._check_steps(h)
        if future is not None:
            self._stream.names_all(future)
        return self.forecast(h, future, levels, quantiles)

    @checked
    def cross_validation(
        self,
        df: Frame,
        h: int | None = None,
        n_windows: int = 1,
        step_size: int | None = None,
        levels: Sequence[float] | float | None = None,
        quantiles: Sequence[float] | float | None = None,
    ) -> Any:
        """Forecasts from several cutoffs of a frame beside their truths: rolling-origin evaluation (Tashman 2000).

        The last cutoff is h steps before the newest row, each other one `step_size` steps before the next. At a cutoff
        the model has learned the rows up to it and no other, as after `fit` of these. The frame is learned once,
        whatever the number of windows: what the first rows decide, such as the warm-up or `season="clock"`, is decided
        by the rows up to the first cutoff. The forecaster itself does not change: another one with its options is
        fitted.

        Args:
            df: as `frame` of `learn`.
            h: steps ahead, at most the `horizon` of the forecaster, which is the default; of a regression without lags
                rows, any number of them.
            n_windows: cutoffs.
            step_size: steps from one cutoff to the next; default: h.
            levels: as of `forecast`.
            quantiles: as of `forecast`.

        Returns:
            unique_id, ds, cutoff, step, [target,] y and the forecast columns, one row a series, cutoff and step, as a
            frame of the kind that was given. Steps whose truth is not in the frame are left out.

        Raises:
            UsageError: h is beyond the horizon, or less than it where inputs are known, which a window has of every
                step; or a number is less than 1.
            DataError: there are fewer steps than the windows need.
            StateError: the first window comes before the end of the warm-up, or the forecaster was loaded.
            SchemaError: as `learn`.

        Example:
            >>> import numpy as np, pandas as pd
            >>> hours = pd.date_range("2024-01-01", periods=720, freq="h")
            >>> df = pd.DataFrame({"ds": hours, "y": 10 + np.sin(np.arange(720) / 24 * 2 * np.pi)})
            >>> made = Forecaster("y", horizon=24, season=24, every="1h", model="linear")
            >>> found = made.cross_validation(df, h=12, n_windows=5, step_size=24)
            >>> len(found), bool((found["y"] - found["linear"]).abs().mean() < 0.1), made
            (60, True, Forecaster('y', horizon=24, season=24, every='1h', model='linear'): no rows yet)
        """
        fresh = self._anew()
        given, kind = as_arrow(df)
        fresh.kind = kind
        reader = fresh.first(given)
        h = self._horizon if h is None else h
        plan = RollingPlan(h, n_windows, h if step_size is None else step_size)
        assert self._config is not None
        lags = self._config.lags if reader.meta.time is None or self._config.lags is not None else 1
        if lags:
            self._check_steps(h)
            if self._config.known and h < self._horizon:
                raise UsageError(
                    f"h={h} with known inputs: a window has those of all horizon={self._horizon} steps",
                    hint=f"use h={self._horizon}, or a Forecaster with horizon={h}",
                )
        parts = []
        for fold in folds(given, reader.rows, places(reader.rows, reader.meta), reader.meta, plan):
            fresh.read(fold.fresh)
            view = fresh.view()
            view.observe()
            windows = view.learner.windows
            asked = fold.known(windows, h) if view.spec.known or not view.spec.lags else None
            if asked is not None and not asked.num_rows:
                continue  # no series has a future here
            steps, future = h if view.spec.lags else None, fresh.future(asked, view, None)
            found = view.forecast(steps, several(levels), future, several(quantiles))
            fresh.told(found.warnings)
            parts.append(fold.scored(found.frame, windows, view.moments, h))
        if not parts:
            raise DataError("no series of the data frame has rows on both sides of a cutoff", hint="give more rows")
        keys = [name for name in ("unique_id", "cutoff", "step", "target", "ds") if name in parts[0].columns]
        return back(pl.concat(parts).unique(keys, keep="first", maintain_order=True), kind)

    @checked
    def forecast(
        self,
        horizon: int | None = None,
        future: Frame | None = None,
        levels: Sequence[float] | float | None = None,
        quantiles: Sequence[float] | float | None = None,
    ) -> Any:
        """The steps after the newest row of each series, with everything learned.

        Args:
            horizon: steps ahead, at most those of the forecaster.
            future: values of the known inputs at these steps, with their times; series without a row there are left
                out.
            levels: of the bands, in %, such as 95 or (80, 95); others than those of the forecaster.
            quantiles: such as 0.5; others than those of the forecaster.

        Returns:
            unique_id, ds, cutoff, [target,] and the forecast columns (the model's name, -lo-95, -hi-95, -std, ...), one
            row a step: a frame of the kind that was learned last.

        Raises:
            StateError: nothing was learned yet.
            UsageError, DataError: as `streamgp forecast`.
        """
        view = self._stream.view()
        known = self._stream.future(future, view, None)
        found, warnings = view.steps(horizon, several(levels), known, several(quantiles))
        self._stream.told(warnings)
        return back(found, self._stream.kind)

    @checked
    def predict_one(self, future: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The next step of the only series, as a mapping of the columns of `forecast`.

        Args:
            future: values of the known inputs at that step, with its time.

        Raises:
            UsageError: there are several series, or known inputs and a horizon of several steps, which are asked about
                together.
        """
        given = None if future is None else {name: [value] for name, value in future.items()}
        view = self._stream.view()
        if given is not None and view.spec.horizon > 1:
            raise UsageError(
                f"a forecast of {view.spec.horizon} steps takes the known inputs of all of them",
                hint="forecast(future=frame) has all steps, or make the forecaster with horizon=1",
            )
        if len(view.learner.windows.names) > 1:
            raise UsageError("there are several series", hint="forecast has the steps of all")
        return view.steps(1, future=self._stream.future(given, view, None))[0].row(0, named=True)

    @checked
    def simulate(
        self,
        horizon: int,
        paths: int = _PATHS,
        future: Frame | None = None,
        seed: int = 0,
        levels: Sequence[float] | float | None = None,
    ) -> Any:
        """Run a model of one step on its own output, to any horizon; `future` has all inputs. As `forecast --paths`."""
        view = self._stream.view()
        found = view.simulate(
            horizon, paths, self._stream.future(future, view, view.spec.inputs), seed, levels=several(levels)
        )
        self._stream.told(found.warnings)
        return back(found.frame, self._stream.kind)

    @checked
    def posterior(self, frame: Frame | None = None, samples: int = 0, seed: int = 0) -> Any:
        """The model's own distribution at the steps after the newest rows, or at the rows of a regression.

        It is what the model says, not calibrated: mean, what is not known of the function, and the noise.

        Args:
            frame: as `future` of `forecast`; of a regression (`lags=0`) rows of inputs.
            samples: S, draws of observations. Of a regression on a model that draws functions, a sample is one function
                and its noise, at all rows; else draws are independent.
            seed: of the draws.

        Returns:
            unique_id, ds, cutoff, [target,] mean, std_latent, std_noise and sample_1, ..., sample_S, a row a step, as a
            frame of the kind that was learned last.

        Raises:
            StateError, UsageError, DataError: as `forecast`.

        Example:
            >>> import numpy as np, polars as pl
            >>> x = np.random.default_rng(0).uniform(-3, 3, 300)
            >>> rows = pl.DataFrame({"x": x, "y": np.sin(x)})
            >>> fitted = Forecaster("y", inputs="x", time="row", lags=0, model="exact", warmup=200).learn(rows)
            >>> found = fitted.posterior(pl.DataFrame({"x": [0.0, 1.5, 9.0]}), samples=2)
            >>> found["mean"].round(1).abs().to_list()[:2], found["std_latent"][2] > 10 * found["std_latent"][0]
            ([0.0, 1.0], True)
        """
        view = self._stream.view()
        found = drawn(view.learner, view.ask(self._stream.future(frame, view, None)), view.naming(), samples, seed)
        return back(found, self._stream.kind)

    @checked
    def contributions(self, future: Frame | None = None) -> Any:
        """What the forecast is made of: terms that add up to the model's mean, which has no bounds yet.

        reference: the season before, or the last value; what is added to it: own past (departures from the seasons),
        `known NAME` and `input NAME`, other targets, calendar, constant, each other expert of a mix. outvoted: where
        a forecast of a mix was none. For `linear` and the default, on a stream with a season.

        Args:
            future: as that of `forecast`.

        Returns:
            unique_id, ds, cutoff, [target,] mean, and a column a term, in target units; a row a step, as a frame of the
            kind that was learned last.

        Raises:
            StateError, DataError: as `forecast`.
            UsageError: the mean of the model is no such sum, or it learns a transform of the target.

        Example:
            >>> import numpy as np, polars as pl
            >>> hour = np.arange(600)
            >>> rows = pl.DataFrame({"t": hour, "y": 10 + np.sin(hour * np.pi / 12)})
            >>> fitted = Forecaster("y", time="t", season=24, lags=4, model="linear", warmup=200).fit(rows)
            >>> found = fitted.contributions()
            >>> found.columns
            ['unique_id', 'ds', 'cutoff', 'mean', 'reference', 'own past', 'calendar', 'constant']
            >>> round(found["mean"][0] - found[:, 4:].sum_horizontal()[0], 6) == 0
            True
        """
        view = self._stream.view()
        return back(
            contributions(view.learner, view.ask(self._stream.future(future, view, None)), view.naming()),
            self._stream.kind,
        )

    @checked
    def plot(
        self,
        future: Frame | None = None,
        levels: Sequence[float] | None = None,
        series: str | None = None,
        target: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the newest rows, the forecast and its bands, with matplotlib.

        Args:
            future: as that of `forecast`.
            levels: as those of `forecast`.
            series: to draw; where there are several it must be named.
            target: likewise.
            ax: to draw on; default: those of a new figure of pyplot.

        Raises:
            StateError, UsageError, DataError: as `forecast`, or which series or target is not said.
        """
        from streamgp_pipelines.adapters.plots import draw_panel

        if isinstance(future, str | Path):
            raise UsageError("plot draws on axes, and writes no file", hint=f"plot().figure.savefig({str(future)!r})")
        view = self._stream.view()
        found = view.forecast(None, levels, self._stream.future(future, view, None))
        return draw_panel(found, series, target, ax)

    @property
    @checked
    def model_(self) -> LearnedModel:
        """What the model has learned: kernel, hyper-parameters, inducing points, evidence trace, posterior.

        It is a copy with all rows learned, as a forecast sees it: looking changes nothing, and it stays as it is when
        more rows are learned.

        Raises:
            StateError: nothing was fitted yet, or each series has a model of its own.

        Example:
            >>> import numpy as np, polars as pl
            >>> x = np.random.default_rng(0).uniform(-3, 3, 300)
            >>> rows = pl.DataFrame({"x": x, "y": np.sin(x)})
            >>> fitted = Forecaster("y", inputs="x", time="row", model="svdgp", warmup=200).fit(rows)
            >>> found = fitted.model_
            >>> found.name, found.columns, found.inducing_points.shape[1]
            ('svdgp', ('x',), 1)
            >>> bool(1 < found.hyperparameters["lengthscale"][0] < 5), found.kernel([[0.0], [1.0]]).shape
            (True, (2, 2))
        """
        view = self._stream.view()
        view.observe()
        learner = view.learner
        if learner.windows.spec.fleet:
            raise StateError("each series has a model of its own", hint="learn the rows of one series")
        if learner.warmup.done_at is None:
            raise StateError(forecasting.unfitted(learner), hint="learn more rows, or with a shorter warmup=")
        return LearnedModel(learner.recipe.model, learner.model, self._stream.trace.get("evidence"), self.posterior)

    @property
    @checked
    def scores(self) -> dict[str, Any]:
        """Of every forecast so far whose truth has come: rmse, mae, mase, coverage by level, `steps`, ...

        `late` counts rows that were left out because they came late, `late_used` those that late="use" took.
        `calibrated_crps`, `pinball`, `coverage` and `width` are of the distribution that `forecast` issues; `crps`,
        `nlpd` and what is named `raw_` are of the model's own, before calibration. Printed, long parts such as `steps`
        are only counted.
        """
        ahead, _ = self._stream.ready().preview(self._stream.behind())
        return Overview(ahead.summary())

    @property
    @checked
    def alarms(self) -> Any:
        """Rows that raised an alarm, and targets that fell silent, since this object was made, the newest 10,000.

        Returns:
            unique_id, ds, [target,] y, forecast, p (its tail probability), alarm (anomaly, change, stuck, silent), and
            of what is silent since when and for how many ticks, a frame of the kind that was learned last.

        Raises:
            StateError: nothing was read yet, or there is no alarm_rate.
        """
        learner = self._stream.ready()
        if learner.alarms is None:
            raise StateError("this forecaster raises no alarms", hint="give alarm_rate, such as 0.001")
        ahead, last = learner.preview(self._stream.behind())
        newest = self._stream.raised(ahead, last, ahead.silent())
        return back(pl.concat([*self._stream.alarms, newest]).tail(ALARMS), self._stream.kind)

    @property
    def rows(self) -> int:
        """Rows read so far, each once."""
        return self._stream.rows

    @property
    @checked
    def warnings(self) -> list[str]:
        """What should be known of the stream and the model, such as rows that were not learned."""
        return [in_python(text) for text in self._stream.noted()]

    @checked
    def save(self, path: str | Path) -> Path:
        """Write a checkpoint, which `streamgp.load` and `streamgp forecast` read; returns the directory. Of several
        that are saved there, also at once, the last is read.

        Raises:
            StateError: nothing was read yet, or a run of `streamgp train` has its checkpoint there, with more rows.
            ServiceError: it cannot be written.
        """
        self._stream.save(Path(path))
        return Path(path)

    def __getstate__(self) -> dict[str, Any]:
        """To be pickled: its options, and the checkpoint of `save`. A pickle runs code: open none but your own."""
        held = {"config": self._config, "columns": self._columns, "device": self._device, "files": None}
        if self._stream.learner is None:
            return held
        with TemporaryDirectory() as name:
            self._stream.save(place := Path(name) / "saved")
            files = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
        return held | {"files": files, "alarms": self._stream.alarms, "warnings": self._stream.warnings}

    def __setstate__(self, held: dict[str, Any]) -> None:
        self._config, self._columns, self._device = held["config"], held["columns"], held["device"]
        if held["files"] is None:
            self._stream = self._anew()
            return
        with TemporaryDirectory() as name:
            for file, content in held["files"].items():
                (to := Path(name, file)).parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(content)
            self._stream = FrameStream.loaded(Path(name), find_device(self._device))
        self._stream.alarms, self._stream.warnings = held["alarms"], held["warnings"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        found = object.__new__(type(self))
        found.__dict__.update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        return found

    def _anew(self) -> FrameStream:
        """One with the same options, that has learned nothing.

        Raises:
            StateError: they are not known.
        """
        if self._config is None:
            raise StateError(
                "this forecaster was loaded: a checkpoint holds its stream, not the options it was made with",
                hint="call update(df) to learn more rows, or make a new Forecaster with these options and call fit(df)",
            )
        return FrameStream(self._config, self._columns)

    @property
    def _horizon(self) -> int:
        return self._stream.ready().windows.spec.horizon if self._config is None else self._config.horizon

    def _check_steps(self, h: int) -> None:
        """See that h steps can be forecast.

        Raises:
            UsageError: they are less than one, or beyond the horizon.
        """
        if h < 1:
            raise UsageError(f"h={h}: a forecast has one step or more", hint=f"at most h={self._horizon}")
        if h > self._horizon:
            raise UsageError(
                f"h={h} is beyond horizon={self._horizon}, the steps that this forecaster was made for",
                hint=f"make it with Forecaster(..., horizon={h}), or ask for h={self._horizon} at most",
            )
