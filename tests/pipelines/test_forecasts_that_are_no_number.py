"""A forecast that is no number is not learned from: the bands after it are as good as before."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch

from streamgp.base import Inputs
from streamgp.models.linear.direct import DirectLinear
from streamgp.predictives.mixed import Mixed
from tests.pipelines.worlds import frame_of, make_table, run


def test_bands_go_on_after_forecasts_that_are_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict, calls = DirectLinear.predict, list[int]()

    def failing(self: DirectLinear, x: Inputs) -> Mixed:
        found = predict(self, x)
        calls.append(len(x.past))
        scale = torch.full_like(found.mean, torch.nan if 6 <= len(calls) <= 7 else 1.0)
        return found.affine(scale, torch.zeros_like(scale))

    monkeypatch.setattr(DirectLinear, "predict", failing)
    cells = tmp_path / "cells.parquet"
    options = {"season": "24", "horizon": 2, "batch": 24, "warmup": 96, "predictions": cells}
    run(make_table(tmp_path / "table", frame_of(400)), tmp_path / "run", **options)
    found = pl.read_parquet(cells).sort("cutoff", "ds")
    lost = found.filter(pl.col("linear").is_nan())
    assert len(lost) and found["linear-lo-95"][-100:].is_finite().all()
    late = found[-100:].filter(pl.col("y").is_between(pl.col("linear-lo-95"), pl.col("linear-hi-95")))
    assert len(late) > 80
