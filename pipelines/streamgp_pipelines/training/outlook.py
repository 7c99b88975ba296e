"""What the picture of a run shows: the forecast from its final state, or its last forecasts beside what happened.

A model with known inputs cannot look beyond the table, where what is known ends. Its picture shows the last windows
that were scored: as they were issued, beside the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from streamgp.base import Due
from streamgp.errors import DataError, StateError
from streamgp_data.moments import Moments
from streamgp_pipelines.forecasting.forecast import Forecaster, load
from streamgp_pipelines.forecasting.results import Forecast
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.session import Session

STEPS = 96
"""Truths beside which forecasts are shown: a window that is longer is shown whole."""


class Outlook(NamedTuple):
    """A forecast, and what happened (unique_id, ds, [target,] y); None where that is not known yet."""

    forecast: Forecast
    truth: pl.DataFrame | None


class NewestAlarms(NamedTuple):
    """The newest values of a run that judges them: frame `judged` of `NewestScored`, and how to read it."""

    frame: pl.DataFrame
    model: str
    level: float
    moments: Moments


def judged(session: Session, ahead: Learner, last: Sequence[Due]) -> NewestAlarms | None:
    """None where nothing is or was judged.

    Args:
        session: of a run at its end.
        ahead: its learner, with the rows after its last full micro-batch.
        last: the scored forecasts after its last full micro-batch.
    """
    naming = session.naming
    if session.learner.alarms is None or not naming.levels:
        return None
    found = session.newest.ahead(last).frame("judged", ahead.windows.names, naming)
    return NewestAlarms(found, naming.model, naming.levels[-1], naming.moments) if found.height else None


def outlook(session: Session, scored: Sequence[pl.DataFrame]) -> Outlook | None:
    """The picture's content, or None where nothing can be forecast and nothing was scored.

    Args:
        session: of a run whose checkpoint is written.
        scored: the newest scored forecasts, as `--predictions` has them.
    """
    forecaster = load(session.config.checkpoint)
    spec = forecaster.spec
    if spec.lags and not spec.known:
        try:
            return Outlook(forecaster.forecast(), None)
        except (DataError, StateError):  # a gap at the end of every series, or still in the warm-up
            pass
    kept = [part for part in scored if part.height]
    return _scored(forecaster, pl.concat(kept)) if kept else None


def last_windows(scored: pl.DataFrame, steps: int = STEPS) -> pl.DataFrame:
    """The last windows of each series that do not overlap, until they have `steps` truths; at least one; oldest first.

    Example:
        >>> rows = [(at, at + ahead) for at in range(10) for ahead in (1, 2)]
        >>> frame = pl.DataFrame({"unique_id": "a", "cutoff": [c for c, _ in rows], "ds": [d for _, d in rows]})
        >>> last_windows(frame).select("cutoff", "ds").rows()[-4:]
        [(7, 8), (7, 9), (9, 10), (9, 11)]
    """
    windows = scored.group_by("unique_id", "cutoff").agg(
        first=pl.col("ds").min(), last=pl.col("ds").max(), truths=pl.len()
    )
    chosen: list[dict[str, Any]] = []
    for (name,), own in windows.sort("cutoff", descending=True).group_by("unique_id", maintain_order=True):
        whole = max(own["truths"].to_list())
        until: Any = None
        found = 0
        for window in own.filter(pl.col("truths") == whole).iter_rows(named=True):
            if found and found + whole > steps:
                break
            if until is None or window["last"] < until:
                chosen.append({"unique_id": name, "cutoff": window["cutoff"]})
                until, found = window["first"], found + window["truths"]
    wanted = pl.DataFrame(chosen, schema={name: scored.schema[name] for name in ("unique_id", "cutoff")})
    return scored.join(wanted, on=["unique_id", "cutoff"], how="semi").sort("unique_id", "ds")


def _scored(forecaster: Forecaster, scored: pl.DataFrame) -> Outlook:
    """Issued forecasts beside the truth over half of the history that a checkpoint holds; the other half is before."""
    forecaster.observe()
    naming, rows = forecaster.naming(), forecaster.history()
    longest = max(rows.group_by("unique_id").len()["len"].to_list(), default=0)
    windows = last_windows(scored, min(STEPS, longest // 2))
    begin = windows.group_by("unique_id").agg(begin=pl.col("cutoff").min())
    history = rows.join(begin, on="unique_id").filter(pl.col("ds") <= pl.col("begin")).drop("begin")
    found = Forecast(
        windows.drop("y"),
        history,
        naming.model,
        naming.levels,
        forecaster.unit,
        forecaster.binary,
        forecaster.moments,
        target=forecaster.target,
    )
    keys = [name for name in ("unique_id", "ds", "target", "y") if name in windows.columns]
    return Outlook(found, windows.select(keys))
