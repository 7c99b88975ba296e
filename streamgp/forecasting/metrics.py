"""The scores of forecasts: what each is, and where it is shown. A score is a row of `METRICS`.

A row says how a score is computed from forecasts and truths (`Scored`): as a mean over the forecasts, which is kept by
step ahead and by target in constant memory. Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from streamgp.forecasting.scored import Scored


class Kind(StrEnum):
    """What a score needs.

    POINT: a point forecast and a distribution. QUANTILES: quantiles of the calibrated distribution, which outcomes have
    none of. BAND: these too, one value a level. OUTCOME: forecasts of outcomes 0 and 1.
    """

    POINT = "point"
    QUANTILES = "quantiles"
    BAND = "band"
    OUTCOME = "outcome"


class Place(StrEnum):
    """Where scores are shown.

    SUMMARY: table of a run. STEPS: its table by step ahead. SERIES: tables by series, of a run and a report. CURVES: of
    a report, over the rows and by step ahead. REPORT: table of a report. PICTURES: of a run in MLflow. RUNS: columns of
    MLflow's list. COMPARISON: table of compare. LOSSES: differences between models, with their intervals. DRAWN: losses
    of models by time and by part, and the picture of a comparison.
    """

    SUMMARY = "summary"
    STEPS = "steps"
    SERIES = "series"
    CURVES = "curves"
    REPORT = "report"
    PICTURES = "pictures"
    RUNS = "runs"
    COMPARISON = "comparison"
    LOSSES = "losses"
    DRAWN = "drawn"


class Metric(NamedTuple):
    """A score.

    Attributes:
        name: its key.
        title: as people write it.
        kind: what it needs.
        unit: "target", that of the target; "" a share, or a number without unit.
        best: "low", "high", "level" (the level of the band), or "" where neither is better.
        value: (R,) or (K, R) what each forecast adds to the mean; None where the score is no mean.
        root: whether it is the square root of that mean.
        shown: places.
        loss: name of its mean where models are compared; "" where they are not compared by it.
    """

    name: str
    title: str
    kind: Kind
    unit: str
    best: str
    value: Callable[[Scored], Tensor] | None = None
    root: bool = False
    shown: frozenset[Place] = frozenset()
    loss: str = ""


def _at(*places: Place) -> frozenset[Place]:
    return frozenset(places)


_TABLES = _at(Place.SUMMARY, Place.REPORT)
_ERROR = _TABLES | _at(Place.STEPS, Place.CURVES, Place.RUNS, Place.COMPARISON, Place.LOSSES)
_POINT, _QUANTILES, _BAND, _OUTCOME = Kind.POINT, Kind.QUANTILES, Kind.BAND, Kind.OUTCOME
METRICS = (
    Metric(
        "rmse", "RMSE", _POINT, "target", "low",
        lambda one: one.error.square(), True, _ERROR | {Place.PICTURES}, "mse",
    ),
    Metric(
        "mae", "MAE", _POINT, "target", "low",
        lambda one: one.error.abs(), shown=_ERROR | {Place.SERIES, Place.PICTURES, Place.DRAWN}, loss="mae",
    ),
    Metric(
        "mean_mae", "MAE of the mean", _QUANTILES, "target", "low",
        lambda one: one.mean_error, shown=_at(Place.REPORT, Place.COMPARISON),
    ),
    Metric(
        "median_mae", "MAE of the median", _QUANTILES, "target", "low",
        lambda one: one.median_error, shown=_at(Place.REPORT, Place.COMPARISON, Place.LOSSES),
    ),
    Metric("mase", "MASE", _POINT, "", "low", shown=_TABLES | {Place.SERIES, Place.RUNS, Place.COMPARISON}),
    Metric(
        "calibrated_crps", "calibrated CRPS", _QUANTILES, "target", "low",
        lambda one: one.crps, shown=_ERROR | {Place.DRAWN}, loss="calibrated_crps",
    ),
    Metric(
        "nlpd", "raw NLPD", _POINT, "", "low",
        lambda one: -one.raw.log_prob(one.y[:, None])[:, 0], shown=_TABLES | {Place.COMPARISON},
    ),
    Metric(
        "crps", "raw CRPS", _POINT, "target", "low",
        lambda one: one.raw.crps(one.y[:, None])[:, 0], shown=_TABLES | {Place.PICTURES, Place.RUNS},
    ),
    Metric(
        "pinball", "pinball", _QUANTILES, "target", "low",
        lambda one: one.pinball, shown=_at(Place.REPORT, Place.COMPARISON, Place.LOSSES), loss="pinball",
    ),
    Metric("raw_pinball", "raw pinball", _QUANTILES, "target", "low", lambda one: one.raw_pinball),
    Metric(
        "coverage", "coverage", _BAND, "", "level",
        lambda one: one.inside(one.low, one.high), shown=_at(Place.REPORT, Place.COMPARISON, Place.LOSSES),
    ),
    Metric(
        "raw_coverage", "raw coverage", _BAND, "", "level",
        lambda one: one.inside(one.raw_low, one.raw_high), shown=_at(Place.REPORT),
    ),
    Metric(
        "width", "width", _BAND, "target", "low",
        lambda one: one.high - one.low, shown=_at(Place.REPORT, Place.COMPARISON, Place.LOSSES),
    ),
    Metric(
        "raw_width", "raw width", _BAND, "target", "low",
        lambda one: one.raw_high - one.raw_low, shown=_at(Place.REPORT),
    ),
    Metric(
        "interval_score", "interval score", _BAND, "target", "low",
        lambda one: one.interval_score(one.low, one.high), shown=_at(Place.REPORT),
    ),
    Metric(
        "raw_interval_score", "raw interval score", _BAND, "target", "low",
        lambda one: one.interval_score(one.raw_low, one.raw_high), shown=_at(Place.REPORT),
    ),
    Metric("log_loss", "log loss", _OUTCOME, "", "low", shown=_ERROR | {Place.PICTURES, Place.DRAWN}, loss="log_loss"),
    Metric("brier", "Brier score", _OUTCOME, "", "low", shown=_TABLES | {Place.STEPS, Place.CURVES, Place.PICTURES}),
    Metric("accuracy", "accuracy", _OUTCOME, "", "high", shown=_TABLES | {Place.STEPS, Place.RUNS}),
    Metric(
        "calibration_error", "calibration error", _OUTCOME, "", "low",
        shown=_TABLES | {Place.STEPS, Place.CURVES, Place.PICTURES},
    ),
    Metric("base_rate", "base rate", _OUTCOME, "", "", shown=_TABLES),
)  # fmt: skip
"""In the order in which they are shown."""
_BY_NAME = {metric.name: metric for metric in METRICS}


def shown(place: Place, binary: bool = False, bands: bool = False) -> tuple[str, ...]:
    """The names of the scores of a place, in order.

    Args:
        place: where.
        binary: those of outcomes 0 and 1, in place of those of numbers.
        bands: those that there is one of for each level.

    Example:
        >>> shown(Place.STEPS), shown(Place.CURVES, binary=True)
        (('rmse', 'mae', 'calibrated_crps'), ('log_loss', 'brier', 'calibration_error'))
    """
    kinds = {Kind.OUTCOME} if binary else {Kind.BAND} if bands else {Kind.POINT, Kind.QUANTILES}
    return tuple(metric.name for metric in METRICS if place in metric.shown and metric.kind in kinds)


def of_kind(*kinds: Kind) -> tuple[str, ...]:
    """The names of all scores of some kinds."""
    return tuple(metric.name for metric in METRICS if metric.kind in kinds)


def series_table(by_series: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Scores of each of several series as heads and rows: first the worst beside the naive forecast or, where that is
    not known, the one with the largest errors.

    Args:
        by_series: `Scores.by_series`.

    Example:
        >>> one = {"scored": 9, "mae": 2.0, "mase": 1.0, "mase_scale": 2.0, "naive_mae": 4.0, "ratio": 0.5}
        >>> series_table({"a": one, "b": one | {"mae": 3.0, "mase": 1.5, "ratio": 0.75}})[1]
        [['b', 9, 3.0, 1.5, 4.0, 0.75], ['a', 9, 2.0, 1.0, 4.0, 0.5]]
    """
    scores = shown(Place.SERIES)
    each = [
        (name if one is own else f"{name}, {target}", one)
        for name, own in by_series.items()
        for target, one in ({"": own} if "mae" in own else own).items()
        if one["mae"] is not None
    ]
    each.sort(key=lambda pair: (-1.0 if pair[1]["ratio"] is None else pair[1]["ratio"], pair[1]["mae"]), reverse=True)
    rows = [[name, one["scored"], *(one[key] for key in (*scores, "naive_mae", "ratio"))] for name, one in each]
    return ["series", "forecasts", *map(title, scores), "naive MAE", "MAE / naive"], rows


def losses(place: Place = Place.LOSSES) -> dict[str, str]:
    """Losses that models are compared by, with their titles.

    Example:
        >>> losses(Place.DRAWN)
        {'mae': 'MAE', 'calibrated_crps': 'calibrated CRPS', 'log_loss': 'log loss'}
    """
    found = [metric for metric in METRICS if metric.loss and place in metric.shown]
    return {metric.loss: title(metric.loss) for metric in found}


def title(name: str) -> str:
    """A score as people write it; also that of a level, and of what is no score.

    Example:
        >>> title("calibrated_crps"), title("coverage_95"), title("cpu_seconds")
        ('calibrated CRPS', 'coverage 95', 'CPU seconds')
    """
    stem, _, level = name.rpartition("_")
    if name in _BY_NAME:
        return _BY_NAME[name].title
    if stem in _BY_NAME and level[:1].isdigit():
        return f"{_BY_NAME[stem].title} {level}"
    return " ".join(part.upper() if part in ("cpu", "mb", "mse") else part for part in name.split("_"))
