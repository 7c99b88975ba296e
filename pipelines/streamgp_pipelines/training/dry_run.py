"""What `train --dry-run` says: what a run would look at and keep, found without writing anything."""

from __future__ import annotations

import torch

from streamgp.base import FLOAT, Inputs, Json
from streamgp.forecasting.issued import feature_count
from streamgp_data.remote import shown
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.files import check_writable
from streamgp_pipelines.learning.columns import unused
from streamgp_pipelines.learning.session import open_session

_BYTES = torch.finfo(FLOAT).bits // 8


def plan(config: TrainConfig) -> dict[str, Json]:
    """The columns, the windows, the model and the memory of a run.

    The ledger keeps, for each series, the H questions that still wait for a truth and those of one micro-batch: each
    with its window, and for each of the T columns P parameters, Q quantiles, F features and the truth.

    Raises:
        StreamgpError: whatever training would refuse before its first row.
    """
    if config.predictions is not None:
        check_writable(config.predictions, "--predictions", (".parquet",), make=True)
    if config.alarms is not None:
        check_writable(config.alarms, "--alarms", (".parquet",), make=True)
    session = open_session(config)
    learner = session.learner
    spec, shape = learner.windows.spec, learner.windows.shape
    nothing = torch.zeros(1, shape.lags, len(shape.past), dtype=FLOAT, device=learner.device)
    ahead = torch.zeros(1, shape.horizon, len(shape.future), dtype=FLOAT, device=learner.device)
    more = nothing.new_zeros(1, shape.context.width) if shape.context else None
    parameters = len(learner.model.predict(Inputs(nothing, ahead, more)).parameters())
    waiting = shape.horizon + config.batch
    calibrated = len(learner.calibration.probabilities) + feature_count(learner.calibration)
    one = shape.numbers + (parameters + calibrated + 1) * shape.columns
    weights = sum(tensor.numel() * tensor.element_size() for tensor in learner.model.state()[0].values())
    return {
        "table": str(config.table),
        "rows": session.table.readable,
        "table_version": session.table.version,
        "goes_on_from_row": learner.rows,
        "mode": "online" if config.online else "batch",
        "target": list(spec.targets),
        "inputs": list(spec.inputs),
        "known": list(spec.known),
        "unused": list(unused(config, spec, session.table.schema)),
        "past_channels": list(shape.past),
        "future_channels": list(shape.future),
        "lags": spec.lags,
        "horizon": spec.horizon,
        "season": list(spec.seasons) or [spec.season],
        "transforms": {name: one.kind for name, one in zip(spec.targets, spec.transforms, strict=False)},
        "window_width": shape.width,
        "columns_forecast": shape.columns,
        "warmup": learner.schedule.warmup,
        "batch": config.batch,
        "model": session.config.model,
        "model_mb": weights / 1e6,
        "ledger_mb_per_series": waiting * one * _BYTES / 1e6,
        "device": learner.device.type,
        "threads": torch.get_num_threads(),
        "checkpoint": shown(config.checkpoint),
    }
