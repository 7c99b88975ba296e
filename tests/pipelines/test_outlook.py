"""What the picture of a run shows: the next steps, or the last scored forecasts beside what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.training.outlook import Outlook
from streamgp_pipelines.training.train import train
from tests.pipelines.worlds import config_of, frame_of, make_table


def shown(tmp_path: Path, **options: Any) -> Outlook | None:
    """What a run's picture is drawn from."""
    table = make_table(tmp_path / "t", frame_of(500))
    drawn: list[Outlook | None] = []
    config = config_of(table, tmp_path / "c", **options)
    train(config, NoTracker, draw=lambda curves, summary, outlook, *_: drawn.append(outlook))
    return drawn[0]


def test_without_known_inputs_it_is_the_forecast_from_the_final_state(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert found is not None and found.truth is None
    last = frame_of(500)["t"][-1]
    assert set(found.forecast.frame["cutoff"]) == {last} and found.forecast.frame.height == 3
    assert found.forecast.history["ds"].max() == last and found.forecast.target == "y"


@pytest.mark.sampled
@pytest.mark.parametrize("horizon", [1, 3])
def test_with_known_inputs_it_is_the_last_scored_windows_beside_the_truth(tmp_path: Path, horizon: int) -> None:
    found = shown(tmp_path, known="k", horizon=horizon, predictions=tmp_path / "p.parquet")
    assert found is not None and found.truth is not None
    frame = found.forecast.frame
    data = frame_of(500)
    assert frame["ds"].max() == data["t"][-1] and frame["ds"].is_unique().all()
    assert frame.group_by("cutoff").len()["len"].unique().to_list() == [horizon]
    truth = data.select(ds="t", y="y").join(found.truth, on="ds")
    assert truth.height == frame.height and (truth["y"] == truth["y_right"]).all()
    assert found.forecast.history["ds"].max() == frame["cutoff"].min()
    issued = pl.read_parquet(tmp_path / "p.parquet").join(frame, on=["ds", "cutoff"], suffix="_shown")
    assert issued.height == frame.height and (issued["linear"] == issued["linear_shown"]).all()


def test_in_the_warm_up_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert shown(tmp_path, warmup=600) is None
