"""What the newest forecast of a run is made of: terms that add up to the model's mean, by step ahead."""

from __future__ import annotations

import polars as pl

from streamgp.base import Decomposes
from streamgp.errors import DataError, StateError
from streamgp.models.linear.columns import REFERENCE
from streamgp_pipelines.forecasting.issued import contributions
from streamgp_pipelines.learning.frames import Naming
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.reporting.fans import stamps
from streamgp_pipelines.reporting.figures import lines
from streamgp_pipelines.reporting.page import Section

SMALL = 1e-6
"""Terms that are nowhere larger than this share of the largest are not drawn."""


def terms(learner: Learner, naming: Naming) -> pl.DataFrame | None:
    """The frame of `contributions` at the newest row of each series, with known inputs at the newest whose future has
    come; None where the model has no terms, or no series has a whole window."""
    spec = learner.windows.spec
    if not isinstance(learner.model, Decomposes) or spec.transforms or not spec.lags:
        return None
    try:
        asks = learner.windows.ask_known() if spec.known else learner.windows.ask_last()
        return contributions(learner, asks, naming) if len(asks.origin) else None
    except (DataError, StateError):
        return None


def terms_section(found: pl.DataFrame, naming: Naming, y: str) -> Section:
    """The forecast beside its reference, and what is added to that.

    Args:
        found: of `terms`; the first series and target are drawn.
        naming: of the run.
        y: what the axis of values is called, where there is one target.
    """
    keys = [name for name in ("unique_id", "target") if name in found.columns]
    panels = found.select(keys).unique(maintain_order=True)
    own = found.filter(**panels.row(0, named=True)).sort("ds")
    at, y = stamps(own["ds"], naming.moments), own["target"][0] if "target" in keys else y
    named = own.drop("ds", "cutoff", "mean", *keys)
    largest = max(float(column.abs().max() or 0.0) for column in named)  # type: ignore[arg-type]
    drawn = [column for column in named if float(column.abs().max() or 0.0) > SMALL * largest]  # type: ignore[arg-type]
    added = {column.name: (at, column.to_list()) for column in drawn if column.name != REFERENCE}
    parts = []
    if REFERENCE in named.columns:
        both = {"forecast": (at, own["mean"].to_list()), REFERENCE: (at, own[REFERENCE].to_list())}
        parts.append(lines("Forecast and its reference", both, naming.moments.label, y))
    title = "What is added to the reference" if parts else "Weighted forecasts of the experts"
    parts.append(lines(title, added, naming.moments.label, y))
    of = " · ".join(str(part) for part in panels.row(0))
    issued = stamps(own["cutoff"].head(1), naming.moments)[0]
    now = ", by the model as it is now" if any(column.startswith("known ") for column in named.columns) else ""
    note = f"The forecast of {of} from {issued}{now}: its mean is the sum of these terms."
    return Section("What the forecast is made of", parts, note)
