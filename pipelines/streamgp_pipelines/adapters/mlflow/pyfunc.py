"""The code of the MLflow model: its `checkpoint` artifact is all that it needs to forecast.

MLflow stores this file with the model and runs it when the model is loaded.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import mlflow
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from streamgp_pipelines import Forecaster, load

if TYPE_CHECKING:  # the file is kept with every registered model: it imports public names alone
    from streamgp.windows.windows import WindowSpec
    from streamgp_data.moments import Moments


class StreamgpModel(PythonModel):
    """Forecasts the steps after the newest row of every series, in the long format of `streamgp forecast`."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the checkpoint, and learn its last rows, once."""
        self.forecaster = load(context.artifacts["checkpoint"])
        self.forecaster.observe()

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Forecast; the model itself does not change.

        Args:
            context: of MLflow.
            model_input: pandas frame of rows after those the checkpoint has seen, in the columns of the table; they
                move the windows and nothing is learned from them. Rows without a target are the future values of the
                known inputs. May be empty: the forecast then starts at the checkpoint's own newest row. Epochs and
                elapsed time are numbers, as in the source. Naive times of a table that has a zone are UTC.
            params: `horizon` (steps ahead), `levels` (bands in percent) and `quantiles` (probabilities); outcomes have
                neither of the last two.

        Returns:
            pandas frame: unique_id, ds, cutoff, [target,] and the forecast columns.
        """
        asked = params or {}
        recent, future = split(model_input, self.forecaster.spec, self.forecaster.moments)
        ahead = _copy(self.forecaster)
        for batch in recent.to_batches():
            ahead.learner.watch(batch)
        found = ahead.forecast(asked.get("horizon"), asked.get("levels"), future, asked.get("quantiles"))
        return found.frame.to_pandas()


def split(rows: pd.DataFrame, spec: WindowSpec, moments: Moments) -> tuple[pa.Table, pa.Table | None]:
    """Rows of a pandas frame that have a target, and the known future (None without one), as the windows read them."""
    names = [name for name in (spec.time, spec.series, *spec.columns) if name is not None]
    if not len(rows):
        return pa.table({}), None
    rows = rows.reindex(columns=names)
    if spec.time is not None and spec.zone is not None and rows[spec.time].dtype.kind == "M":
        stamps = rows[spec.time]
        rows[spec.time] = stamps.dt.tz_localize("UTC") if stamps.dt.tz is None else stamps.dt.tz_convert("UTC")
    if spec.time is not None and moments.clock and moments.numbers and rows[spec.time].dtype.kind in "iuf":
        stamps = moments.read(pl.Series(rows[spec.time].to_numpy()), None, "the model's input", 1).to_pandas()
        rows[spec.time] = stamps.set_axis(rows.index)
    for name in spec.columns:
        rows[name] = rows[name].astype("float64")
    seen = rows[list(spec.targets)].notna().any(axis=1)
    recent, future = rows[seen], rows[~seen]
    ahead = pa.Table.from_pandas(future, preserve_index=False) if len(future) else None
    return pa.Table.from_pandas(recent, preserve_index=False), ahead


def _copy(forecaster: Forecaster) -> Forecaster:
    """A forecaster whose windows and bands move on their own; the model, which nobody updates, is shared."""
    ahead = copy.copy(forecaster)
    ahead.learner = copy.copy(forecaster.learner)
    for part in ("windows", "ledger", "bands"):
        setattr(ahead.learner, part, copy.deepcopy(getattr(forecaster.learner, part)))
    return ahead


mlflow.models.set_model(StreamgpModel())
