"""Settings of the commands that train, tune, compare, forecast and check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from streamgp_data.presence import check_checkpoint, check_file, check_table
from streamgp_pipelines.config.ingest import Follow, FromBroker, MetricsAt
from streamgp_pipelines.config.settings import (
    LARGEST,
    Address,
    AlarmFile,
    AlarmRate,
    Assignments,
    Checkpoint,
    Device,
    Directory,
    Engine,
    File,
    Flag,
    HelpPanel,
    Late,
    Levels,
    MaxMemory,
    Names,
    OnAlarm,
    Part,
    Parts,
    Past,
    Quantiles,
    Ratio,
    Sample,
    Seasons,
    Seconds,
    Seed,
    Sentinels,
    Settings,
    Steps,
    TableUri,
    TrackingUri,
    Workers,
)


class DataConfig(Settings):
    """What windows of a table are made of, which of its rows are held out, and how a run is recorded.

    Shared by `train` and `tune`. Rows and steps are table rows.
    """

    table: Annotated[TableUri, Flag(HelpPanel.DATA, first=True)] = Field(description="Table that ingest made")
    target: Annotated[Names, Flag(HelpPanel.DATA, first=True)] = Field(
        (), description="Target columns, a,b or repeated; default: y"
    )
    inputs: Annotated[Names, Flag(HelpPanel.DATA, first=True)] = Field(
        (), description="Columns whose past values are inputs: names or patterns such as 'a,b*'; default: none"
    )
    known: Annotated[Names, Flag(HelpPanel.DATA, first=True)] = Field(
        (), description="Inputs whose future values are known; here they are read from the table"
    )
    calendar: Annotated[bool | None, Flag(HelpPanel.DATA)] = Field(
        None,
        description="Add hour, weekday and day of the year as inputs; default: where rows are a day or more apart, "
        "or nights or weekends have no rows; never with --fleet, --simulate or --lags 0",
    )
    lags: Annotated[Steps | None, Flag(HelpPanel.DATA, "ROWS")] = Field(
        None,
        ge=0,
        le=LARGEST,
        description="Past rows in a window; default: the shortest season, at most 96, or 24 for nets and finite_rkhs; "
        "24 without one; 0 (regression) for a table without times",
    )
    horizon: Annotated[Steps, Flag(HelpPanel.DATA, first=True)] = Field(1, ge=1, le=LARGEST, description="Steps ahead")
    season: Annotated[Seasons, Flag(HelpPanel.DATA, first=True)] = Field(
        "clock",
        description="Rows in each season: 48,336 for the day and the week of half hours, or 1d,7d where rows have one "
        "interval; clock: the day and the week by the table's clock, if it holds three of each (the day if it is "
        "followed), and the year of monthly rows; auto: these, else what describe shows; not given, --fleet and "
        "--simulate have none",
    )
    gaps: Annotated[Literal["reset", "fill"], Flag(HelpPanel.DATA)] = Field(
        "fill",
        description="Where a window lacks values: fill takes those of the last known season, and widens the bands; "
        "reset skips the window",
    )
    sentinel: Annotated[Sentinels, Flag(HelpPanel.DATA)] = Field(
        (),
        description="Values that stand for a missing one in targets and inputs, -999,9999 or repeated; other such "
        "values, dead sensors and spikes are detected: none switches that off",
    )
    late: Annotated[Late, Flag(HelpPanel.DATA)] = "skip"
    test_column: Annotated[str | None, Flag(HelpPanel.TEST, "COL")] = Field(
        None, description="Test rows are those where this column is not 0: they are not learned"
    )
    test_tail: Annotated[float | None, Flag(HelpPanel.TEST, "SHARE")] = Field(
        None, gt=0, lt=1, description="Test rows are this fraction of the rows, at the end, such as 0.2"
    )
    test_blocks: Annotated[int | None, Flag(HelpPanel.TEST, "COUNT")] = Field(
        None, ge=1, le=LARGEST, description="Take --test-tail from each of this many equal parts; default: 1"
    )
    experiment: Annotated[str, Flag(HelpPanel.RUN, "NAME")] = Field("streamgp", description="MLflow experiment")
    tracking_uri: Annotated[TrackingUri, Flag(HelpPanel.RUN)] = None
    max_memory: Annotated[MaxMemory, Flag(HelpPanel.RUN)] = None
    engine: Engine = "local"
    workers: Workers = None
    address: Address = None

    def check_there(self) -> None:
        """Check the table, unless the messages of a broker make it, and the file of --init."""
        if getattr(self, "source", None) is None:
            check_table(self.table)
        if (init := getattr(self, "init", None)) is not None:
            check_file(init, "--init")

    @model_validator(mode="after")
    def _workers_are_possible(self) -> Self:
        if self.engine == "local" and (self.workers, self.address) != (None, None):
            raise ValueError("--workers and --address need --engine ray")
        return self

    @model_validator(mode="after")
    def _windows_are_possible(self) -> Self:
        if self.test_column is not None and self.test_tail is not None:
            raise ValueError("give --test-column or --test-tail, not both")
        if self.test_blocks is not None and self.test_tail is None:
            raise ValueError("--test-blocks needs --test-tail")
        if self.late == "use" and (self.test_column is not None or self.test_tail is not None):
            raise ValueError("--late use is of streams: leave out --test-column and --test-tail")
        if self.lags == 0 and (self.horizon != 1 or self.season not in ((), "clock", "auto")):
            raise ValueError("--lags 0 is regression: it takes --horizon 1 and no --season")
        return self


AUTO = "auto"
"""The model that fits the run: see `learning.default_model`."""


def micro_batch(seasons: tuple[int, ...] | str) -> int:
    """Rows of a micro-batch by default: a model that learns seldom forecasts with what it knew long ago."""
    return 256 if isinstance(seasons, str) or not seasons else min(256, max(seasons[0], 24))


class RunConfig(DataConfig):
    """What is forecast of a stream, and how it is read. Shared by `train` and `compare`."""

    level: Annotated[Levels, Flag(HelpPanel.DISTRIBUTION)] = (80.0, 90.0, 95.0)
    quantiles: Annotated[Quantiles, Flag(HelpPanel.DISTRIBUTION)] = ()
    point: Annotated[Literal["mean", "median"], Flag(HelpPanel.DISTRIBUTION)] = Field(
        "mean",
        description="Point forecast: mean of the model, best for the squared error, which may lie outside a band where "
        "values repeat; or median of the calibrated distribution, best for the absolute error, which does not",
    )
    lower: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | Literal["none"] | None,
        Flag(HelpPanel.DISTRIBUTION, "VALUE|none"),
    ] = Field(
        None,
        description="Lower bound of the targets: no forecast is below it; default: 0 if targets are never below 0 and "
        "often exactly 0; none: no bound",
    )
    upper: Annotated[float | None, Flag(HelpPanel.DISTRIBUTION, "VALUE")] = Field(
        None, allow_inf_nan=False, description="Upper bound of the targets; default: none"
    )
    transform: Annotated[Names, Flag(HelpPanel.DISTRIBUTION, "KIND")] = Field(
        ("none",),
        description="Learn log of the target (above --lower, or 0), logit (between --lower and --upper) or the target "
        "itself (none), or what the warm-up suggests (auto); TARGET=KIND,... for each of several",
    )
    seed: Annotated[Seed, Flag(HelpPanel.MODEL)] = 0
    device: Annotated[Device, Flag(HelpPanel.MODEL)] = "auto"
    warmup: Annotated[int | None, Flag(HelpPanel.ONLINE, "ROWS")] = Field(
        None,
        ge=0,
        le=LARGEST,
        description="First rows of the table, fitted in batch and not scored; default: three seasons of a series, or "
        "500 windows, at most a fifth of the table",
    )
    batch: Annotated[int, Flag(HelpPanel.ONLINE, "ROWS")] = Field(
        default_factory=lambda given: micro_batch(given.get("season", ())),
        ge=1,
        le=LARGEST,
        description="Rows of a micro-batch; default: 256, or the shortest season where that is shorter, "
        "and at first a sixteenth of the rows so far",
    )
    score_from: Annotated[str | None, Flag(HelpPanel.ONLINE, "ROWS|TIME")] = Field(
        None, description="First row or time that is scored; default: the end of the warm-up"
    )
    max_rows: Annotated[int | None, Flag(HelpPanel.ONLINE, "ROWS")] = Field(
        None,
        ge=1,
        le=2**63 - 1,
        description="Stop after this many rows of the table, counted over restarts; default: all",
    )
    checkpoint_every: Annotated[int, Flag(HelpPanel.OUTPUT, "ROWS")] = Field(
        10_000,
        ge=1,
        le=2**63 - 1,
        description="Rows between checkpoints; unless it is given, also after a minute of work",
    )
    fresh: Annotated[bool, Flag(HelpPanel.OUTPUT)] = Field(
        False, description="Set the old checkpoint aside and start again"
    )

    @property
    def floor(self) -> float | None:
        """The lower bound that was given."""
        return None if self.lower == "none" else self.lower

    @property
    def kinds(self) -> set[str]:
        """Transforms that are named."""
        return {word.rpartition("=")[2] for word in self.transform}

    @model_validator(mode="after")
    def _device_is_possible(self) -> Self:
        if self.engine == "ray" and self.device == "cuda":
            raise ValueError("--engine ray computes on CPUs: leave out --device cuda")
        return self

    @model_validator(mode="after")
    def _distribution_is_possible(self) -> Self:
        if self.floor is not None and self.upper is not None and self.floor >= self.upper:
            raise ValueError("--lower must be less than --upper")
        if not self.kinds or not self.kinds <= {"none", "log", "logit", "auto"}:
            raise ValueError("--transform is none, log, logit or auto, or TARGET=KIND for each of several targets")
        if "logit" in self.kinds and (self.floor is None or self.upper is None):
            raise ValueError("--transform logit needs --lower and --upper")
        return self


class TrainConfig(FromBroker, RunConfig):
    """`streamgp train`, online or in batch.

    Example:
        >>> config = TrainConfig.read({"table": "t", "target": "y", "level": ["80", "95"], "set": {"basis": "64"}})
        >>> config.target, config.level, config.horizon
        (('y',), (80.0, 95.0), 1)
    """

    model: Annotated[Part, Flag(HelpPanel.MODEL, first=True)] = Field(
        AUTO,
        description="Model to train, see streamgp models; auto: ensemble online, and svdgp in batch, for regression "
        "or where options of svdgp are set",
    )
    set: Annotated[Assignments, Flag(HelpPanel.MODEL)] = Field(
        {}, description="Option of the model, repeatable; see streamgp models NAME"
    )
    init: Annotated[File | None, Flag(HelpPanel.MODEL)] = Field(
        None, description="Start from the hyper-parameters in a file of streamgp tune"
    )
    online: Annotated[bool, Flag(HelpPanel.ONLINE, first=True)] = Field(
        False, description="One prequential pass: predict each row, then update"
    )
    simulate: Annotated[int | None, Flag(HelpPanel.MODEL, "STEPS")] = Field(
        None,
        ge=1,
        le=LARGEST,
        description="Train for forecast --paths of up to this many steps; with --online also simulate past rows from "
        "time to time, and calibrate by what came. All inputs count as --known, as a simulation needs them; "
        "default: no",
    )
    fleet: Annotated[bool, Flag(HelpPanel.ONLINE)] = Field(
        False,
        description="A model for each series, learned as if it were alone (except svdgp with --set shared=true); "
        "options in rows count those of one series",
    )
    scale: Annotated[Literal["auto", "series", "all"], Flag(HelpPanel.ONLINE)] = Field(
        "auto",
        description="Units of the series of a panel that share a model: series: each in those of its own standard "
        "deviation; all: one for all; auto: series where one varies ten times as much as another in the warm-up. With "
        "seasons linear and ensemble have units of their own for each window, or series with known inputs",
    )
    follow: Annotated[Follow, Flag(HelpPanel.ONLINE)] = False
    metrics: Annotated[MetricsAt, Flag(HelpPanel.RUN, "HOST:PORT")] = None
    epochs: Annotated[int | None, Flag(HelpPanel.BATCH, "COUNT")] = Field(
        None, ge=1, le=LARGEST, description="Passes over the table; default: chosen by the model"
    )
    sample: Sample = None
    time_budget: Annotated[Seconds | None, Flag(HelpPanel.BATCH)] = Field(
        None, gt=0, allow_inf_nan=False, description="Stop training after this time, such as 60s, 5m or 1h"
    )
    checkpoint: Annotated[Checkpoint, Flag(HelpPanel.OUTPUT, first=True)] = Field(
        Path("checkpoint"), description="Directory of the state, or s3://bucket/run (extra store)"
    )
    durable: Annotated[bool, Flag(HelpPanel.OUTPUT)] = Field(
        False,
        description="Sync rows, scored forecasts and alarms to the disk before their checkpoint, as that always is",
    )
    predictions: Annotated[Path | None, Flag(HelpPanel.OUTPUT, "FILE.parquet", first=True)] = Field(
        None, description="Write every scored forecast with its truth"
    )
    alarm_rate: Annotated[AlarmRate, Flag(HelpPanel.ALARMS)] = None
    alarms: Annotated[AlarmFile, Flag(HelpPanel.ALARMS)] = None
    on_alarm: Annotated[OnAlarm, Flag(HelpPanel.ALARMS)] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = self.model_fields_set
        other = _BATCH_ONLY if self.online else _ONLINE_ONLY
        wrong = [name for name in other if name in given and getattr(self, name) not in (None, False, "skip", "auto")]
        if wrong:
            there = "batch training: leave out --online" if self.online else "--online"
            raise ValueError(f"--{wrong[0].replace('_', '-')} belongs to {there}")
        if self.fleet:
            unfit = {"simulate": None, "init": None, "transform": ("none",)}
            if never := [name for name, usual in unfit.items() if getattr(self, name) != usual]:
                raise ValueError(f"--fleet goes without --{never[0].replace('_', '-')}")
        if self.scale == "series":
            apart = {"--fleet": self.fleet, "--simulate": self.simulate is not None, "--lags 0": self.lags == 0}
            if never := [flag for flag, there in apart.items() if there]:
                raise ValueError(
                    f"--scale series is of series whose past one model looks at: leave it out, or {never[0]}"
                )
        if self.late == "use" and self.simulate is not None:
            raise ValueError("--simulate calibrates by rows in their order: leave out --late use")
        if self.engine == "ray" and self.online and not self.fleet:
            raise ValueError(
                "--engine ray shares the series of a --fleet among workers, or the rows of training in batch: "
                "add --fleet, or leave out --online"
            )
        if self.engine == "ray" and self.sample is not None:
            raise ValueError("--sample reads the table in this process: leave out --engine ray")
        if self.alarm_rate is None and (self.alarms, self.on_alarm) != (None, None):
            raise ValueError("--alarms and --on-alarm need --alarm-rate, such as 0.001")
        if self.init is not None and self.kinds & {"log", "logit"}:
            raise ValueError("the hyper-parameters of --init are of the target itself: leave out --transform")
        return self


class CompareConfig(RunConfig):
    """`streamgp compare`: several models on the same stream."""

    models: Annotated[Parts, Flag(HelpPanel.MODEL, first=True)] = Field(
        (AUTO, "linear"),
        description="Models to compare, see streamgp models; ridge too, and those of the extra peers, "
        "lightgbm, autoets, autoarima, mstl; NAME=MODEL gives one a name of its own",
    )
    set: Annotated[Assignments, Flag(HelpPanel.MODEL, "NAME.KEY=VALUE")] = Field(
        {}, description="Option of one of the models, repeatable; see streamgp models NAME"
    )
    against: Annotated[str | None, Flag(HelpPanel.MODEL, "NAME", first=True)] = Field(
        None,
        description="Model that the others are measured against; default: seasonal_naive, or persistence without a "
        "season, which is then compared too",
    )
    comparison: Annotated[Directory, Flag(HelpPanel.OUTPUT, first=True)] = Field(
        Path("comparison"), description="Directory of the checkpoints, the forecasts and the tables of scores"
    )


class TuneConfig(DataConfig):
    """`streamgp tune`.

    Example:
        >>> config = TuneConfig.read({"table": "t", "method": "cv-admm", "start": "2014-03-01", "rows": 500})
        >>> config.method, config.rows, str(config.output)
        ('cv-admm', 500, 'tuned.json')
    """

    rows: Annotated[int, Flag(HelpPanel.ROWS, "COUNT", first=True)] = Field(
        1000, ge=10, le=LARGEST, description="Number of windows, spread evenly over the rows"
    )
    start: Annotated[str | None, Flag(HelpPanel.ROWS, "ROW|TIME")] = Field(
        None, description="First row (from 0) or time to use; default: the first of the table"
    )
    end: Annotated[str | None, Flag(HelpPanel.ROWS, "ROW|TIME")] = Field(
        None, description="Use only rows before this row or time; default: all"
    )
    method: Annotated[Literal["ml", "cv-admm", "cv-implicit", "auto"], Flag(HelpPanel.METHOD, first=True)] = Field(
        "ml",
        description="ml: maximise the marginal likelihood; cv-admm, cv-implicit: minimise the squared error of "
        "held-out rows, without a matrix factorisation; auto: ml or cv-admm, whichever forecasts held-out rows better",
    )
    set: Annotated[Assignments, Flag(HelpPanel.METHOD)] = Field(
        {}, description="Option of the kernel or the method, repeatable; see --options"
    )
    init: Annotated[File | None, Flag(HelpPanel.METHOD)] = Field(
        None, description="Start from the hyper-parameters in an earlier file"
    )
    seed: Annotated[Seed, Flag(HelpPanel.METHOD)] = 0
    output: Annotated[File, Flag(HelpPanel.OUTPUT, first=True)] = Field(
        Path("tuned.json"), description="File of the hyper-parameters"
    )


class ForecastConfig(Settings):
    """`streamgp forecast`; a simulation where `paths` or `plug_in` is given."""

    checkpoint: Annotated[Checkpoint | None, Flag(HelpPanel.FORECAST, first=True)] = Field(
        None, description="Checkpoint of a training run"
    )
    model_uri: Annotated[str | None, Flag(HelpPanel.FORECAST, "URI", first=True)] = Field(
        None, description="Model of MLflow's registry instead, such as models:/demand-demand_gw-h48@champion"
    )
    tracking_uri: Annotated[str | None, Flag(HelpPanel.FORECAST, "URI")] = Field(
        None, description="MLflow store of --model-uri; default: MLFLOW_TRACKING_URI, else ./mlflow.db"
    )
    table: Annotated[TableUri | None, Flag(HelpPanel.FORECAST, first=True)] = Field(
        None, description="Start at the last row of this table; default: at the last row of the checkpoint"
    )
    horizon: Annotated[Steps | None, Flag(HelpPanel.FORECAST, first=True)] = Field(
        None,
        ge=1,
        le=LARGEST,
        description="Steps ahead; default, and largest without a simulation: the horizon of the training",
    )
    level: Annotated[Levels, Flag(HelpPanel.FORECAST, first=True)] = (80.0, 90.0, 95.0)
    quantiles: Annotated[Quantiles, Flag(HelpPanel.FORECAST)] = ()
    future: Annotated[File | None, Flag(HelpPanel.FORECAST, first=True)] = Field(
        None,
        description="Future values of the known inputs (in a simulation: of all inputs), one row for each step ahead, "
        "matched by time: a file as ingest reads it (.csv, .parquet, .xlsx ...); times as in the source, "
        "or ISO 8601",
    )
    time_format: Annotated[str | None, Flag(HelpPanel.FORECAST, "FORMAT")] = Field(
        None,
        description="How --future writes its times, as of ingest: iso, epoch-ms, '%d.%m.%Y %H:%M' ...; default: as in "
        "the source, or ISO 8601",
    )
    device: Annotated[Device, Flag(HelpPanel.FORECAST)] = "auto"
    strict: Annotated[bool, Flag(HelpPanel.FORECAST)] = Field(
        False, description="Fail if the newest checkpoint is damaged, instead of using the one before"
    )
    max_memory: Annotated[MaxMemory, Flag(HelpPanel.FORECAST)] = None
    paths: Annotated[int | None, Flag(HelpPanel.SIMULATION, "COUNT", first=True)] = Field(
        None,
        ge=2,
        le=LARGEST,
        description="Monte Carlo rollout of a one-step model along this many sample paths, to any horizon. Bands are "
        "calibrated where the training had --simulate, else quantiles of the paths; -std-latent is empty",
    )
    plug_in: Annotated[bool, Flag(HelpPanel.SIMULATION)] = Field(
        False,
        description="Feed back the means along one path instead; bands are those of one step, and too narrow",
    )
    seed: Annotated[Seed, Flag(HelpPanel.SIMULATION)] = 0
    samples: Annotated[Path | None, Flag(HelpPanel.SIMULATION, "FILE.parquet")] = Field(
        None, description="Write every sample path: .parquet, .csv, .xlsx or .json"
    )
    output: Annotated[File | None, Flag(HelpPanel.OUTPUT, first=True)] = Field(
        None, description="Write the forecast: .parquet, .csv, .xlsx (extra excel) or .json"
    )
    plot: Annotated[Path | None, Flag(HelpPanel.OUTPUT, "FILE.png", first=True)] = Field(
        None, description="Plot history, forecast and bands: .png, .svg, .pdf or .html"
    )
    history: Annotated[Past | None, Flag(HelpPanel.OUTPUT, "ROWS|TIME")] = Field(
        None,
        description="How much history --plot draws: rows, or a length of time such as 2d; default: four times the "
        "steps ahead, at least 24 rows",
    )
    follow: Annotated[Follow, Flag(HelpPanel.OUTPUT, first=True)] = False

    @property
    def simulates(self) -> bool:
        """Whether the model is to be run on its own output."""
        return self.paths is not None or self.plug_in

    def check_there(self) -> None:
        """Checkpoint, table and future values."""
        if self.checkpoint is not None:
            check_checkpoint(self.checkpoint)
        if self.table is not None:
            check_table(self.table)
        if self.future is not None:
            check_file(self.future, "--future")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.checkpoint is None) == (self.model_uri is None):
            raise ValueError("give --checkpoint or --model-uri, one of them")
        if self.paths is not None and self.plug_in:
            raise ValueError("give --paths or --plug-in, not both: plug-in has one path")
        if self.history is not None and self.plot is None:
            raise ValueError("--history belongs to --plot")
        if self.time_format is not None and self.future is None:
            raise ValueError("--time-format belongs to --future")
        if self.samples is not None and not self.simulates:
            raise ValueError("--samples belongs to a simulation: give --paths too")
        if self.follow and (self.checkpoint is None or (self.output is None and self.plot is None)):
            raise ValueError("--follow needs --checkpoint, and --output or --plot")
        return self


class CheckConfig(Settings):
    """`streamgp check`."""

    checkpoint: Annotated[Checkpoint, Flag(HelpPanel.LIMITS)] = Field(description="Checkpoint of a training run")
    max_age: Annotated[Seconds | None, Flag(HelpPanel.LIMITS)] = Field(
        None, gt=0, allow_inf_nan=False, description="Greatest age of the newest row, such as 90m or 26h"
    )
    max_silent: Annotated[int | None, Flag(HelpPanel.LIMITS, "COUNT")] = Field(
        None,
        ge=0,
        le=LARGEST,
        description="How many series may have a newest value older than --max-age, of several targets each for itself",
    )
    max_crps_ratio: Annotated[Ratio, Flag(HelpPanel.LIMITS)] = Field(
        None,
        description="Largest ratio of the newest CRPS (log loss, of outcomes of 0 and 1) to that before, such as 1.2",
    )
    max_naive_ratio: Annotated[Ratio, Flag(HelpPanel.LIMITS)] = Field(
        2.0,
        description="Largest ratio of the newest CRPS to the mean error of the seasonal naive forecast, such as 0.9",
    )
    min_coverage: Annotated[float | None, Flag(HelpPanel.LIMITS, "SHARE")] = Field(
        None, gt=0, lt=1, description="Least coverage of the widest band in the newest rows, such as 0.9"
    )
    recent: Annotated[int, Flag(HelpPanel.LIMITS, "ROWS")] = Field(
        1000,
        ge=1,
        le=LARGEST,
        description="Rows that count as the newest, at least; rounded up to a point of the run's curves",
    )
    on_alarm: Annotated[OnAlarm, Flag(HelpPanel.ALARMS)] = None

    @model_validator(mode="after")
    def _silent_for(self) -> Self:
        if self.max_silent is not None and self.max_age is None:
            raise ValueError("--max-silent belongs to --max-age")
        return self

    def check_there(self) -> None:
        """The checkpoint."""
        check_checkpoint(self.checkpoint)


class DoctorConfig(Settings):
    """`streamgp doctor`."""

    table: TableUri | None = Field(None, description="Table to look at")
    checkpoint: Checkpoint | None = Field(None, description="Checkpoint to look at")
    source: Annotated[tuple[str, ...], Flag(metavar="FILE|URL")] = Field(
        (), description="File or broker to look at, repeatable; with --table also whether a file is in there"
    )
    mend: bool = Field(
        False, description="Merge small files, and delete what killed processes left; rows are never changed"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.table is None and self.checkpoint is None and not self.source:
            raise ValueError("give --table, --checkpoint or --source")
        return self


class UiConfig(Settings):
    """`streamgp ui`."""

    tracking_uri: Annotated[str | None, Flag(metavar="URI")] = Field(
        None, description="MLflow store; default: MLFLOW_TRACKING_URI, else ./mlflow.db"
    )
    port: Annotated[int, Flag(metavar="PORT")] = Field(5000, ge=1, le=65535, description="Port to listen on")
    host: Annotated[str, Flag(metavar="ADDRESS")] = Field("127.0.0.1", description="Address to listen on")


class DemoConfig(Settings):
    """`streamgp demo`."""

    directory: Directory = Field(Path("streamgp-demo"), description="Directory for all output")
    tracking_uri: TrackingUri = Field(None, description="MLflow store, or none; default: mlflow.db in the directory")


_BATCH_ONLY = ("test_column", "test_tail", "test_blocks", "time_budget", "epochs", "sample")
_ONLINE_ONLY = ("late", "follow", "source", "fleet", "score_from", "warmup", "checkpoint_every", "alarm_rate", "scale")
