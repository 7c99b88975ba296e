"""SVGP under likelihood=logistic all the way: trained on, scored, stopped and taken up, forecast; and tuned starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from streamgp_pipelines.forecasting.forecast import load
from tests.pipelines.test_outcomes import outcomes
from tests.pipelines.worlds import append, assert_same_state, make_table, run, scores_of

OPTIONS: dict[str, Any] = {
    "target": "rain",
    "model": "svgp",
    "known": "wind",
    "lags": 1,
    "horizon": 1,
    "season": None,
    "batch": 128,
    "warmup": 256,
    "checkpoint_every": 256,
    "level": None,
    "set": {
        "likelihood": "logistic",
        "points": "24",
        "refresh": "4",
        "rebuild": "600",
        "reservoir": "800",
        "evidence_rows": "200",
        "epochs": "3",
    },
}


@pytest.mark.slow
def test_probabilities_are_learned_stopped_taken_up_and_forecast(tmp_path: Path) -> None:
    whole = outcomes(1500)
    make_table(tmp_path / "one", whole)
    table = make_table(tmp_path / "two", whole.head(900))
    predictions = tmp_path / "a.parquet"
    expected = run(tmp_path / "one", tmp_path / "a", predictions=predictions, **OPTIONS)
    run(tmp_path / "two", tmp_path / "b", predictions=tmp_path / "b.parquet", **OPTIONS)
    append(table, whole.tail(600))
    found = run(tmp_path / "two", tmp_path / "b", predictions=tmp_path / "b.parquet", **OPTIONS)
    assert scores_of(found) == scores_of(expected)
    assert_same_state(tmp_path / "a", tmp_path / "b")
    both = pl.read_parquet(predictions).join(whole, left_on="ds", right_on="t")
    p, chance = both["svgp"].to_numpy(), both["chance"].to_numpy()
    assert np.abs(p - chance).mean() < 0.06 and expected["coverage"] == {}
    last = whole["t"][-1]
    future = pl.DataFrame({"t": [last], "wind": [3.0]}).with_columns(pl.col("t") + pl.duration(hours=1)).to_arrow()
    forecast = load(tmp_path / "a").forecast(future=future)
    assert forecast.binary and forecast.frame["svgp"][0] > 0.9


def test_batch_training_scores_what_was_held_out(tmp_path: Path) -> None:
    make_table(tmp_path / "table", outcomes(2000))
    batch = OPTIONS | {"online": None, "warmup": None, "checkpoint_every": None, "test_tail": 0.25, "epochs": 3}
    found = run(tmp_path / "table", tmp_path / "c", **batch)
    assert found["scored"] == 500 and found["log_loss"] < 0.5 and found["accuracy"] > 0.75
