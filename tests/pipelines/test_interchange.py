"""What forecasts look like to other libraries: utilsforecast scores and plots them, Darts reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import streamgp
from tests.needs import needs
from tests.pipelines.worlds import frame_of, make_table, run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Forecasts beside their truths, as `train --predictions` writes them, and the summary of the run."""
    home = tmp_path_factory.mktemp("scored")
    make_table(home / "table", frame_of(300, ("a", "b")))
    given: dict[str, Any] = {"quantiles": (0.1, 0.9), "predictions": home / "predictions.parquet"}
    summary = run(home / "table", home / "run", **given)
    return pd.read_parquet(home / "predictions.parquet"), summary


def test_utilsforecast_finds_the_scores_of_the_summary(scored: tuple[pd.DataFrame, dict[str, Any]]) -> None:
    from utilsforecast import evaluation, losses

    frame, summary = scored
    metrics = [losses.mae, losses.mse, losses.coverage]
    found = evaluation.evaluate(frame.drop(columns="cutoff"), metrics, models=["linear"], level=[80, 95])
    weight = frame.groupby("unique_id").size()
    mean = {
        name: np.average(part.set_index("unique_id")["linear"], weights=weight)
        for name, part in found.groupby("metric")
    }
    assert_allclose(mean["mae"], summary["mae"], rtol=1e-9)
    assert_allclose(np.sqrt(mean["mse"]), summary["rmse"], rtol=1e-9)
    assert_allclose(mean["coverage_level95"], summary["coverage"]["95"], rtol=1e-9)


def test_utilsforecast_plots_a_forecast_with_its_bands() -> None:
    from utilsforecast import plotting

    data = frame_of(303, ("a", "b"), zone=None)
    fitted = streamgp.Forecaster("y", horizon=3, season=24, every="1h", model="linear", levels=(80, 95), batch=200)
    found = fitted.learn(data.head(600).to_pandas()).forecast()
    past = data.head(600).to_pandas().rename(columns={"t": "ds"})[["unique_id", "ds", "y"]]
    figure = plotting.plot_series(
        past, found.drop(columns="cutoff"), models=["linear"], level=[80], max_insample_length=48
    )
    shown = [axes for axes in figure.axes if axes.lines]
    assert len(shown) == 2 and all(axes.collections for axes in shown)  # a band each


@needs("test-slow")
@pytest.mark.slow
def test_darts_reads_a_forecast() -> None:
    import darts
    from darts import metrics

    data = frame_of(303, zone=None)
    fitted = streamgp.Forecaster("y", horizon=3, season=24, every="1h", model="linear", levels=(95,))
    found = fitted.learn(data.head(300).to_pandas()).forecast()
    names = ["linear-lo-95", "linear", "linear-hi-95"]
    series = darts.TimeSeries.from_dataframe(found, time_col="ds", value_cols=names)
    assert series.freq_str == "h" and list(series.components) == names
    assert_allclose(series.values(), found[names])
    truth = darts.TimeSeries.from_dataframe(data.tail(3).to_pandas(), time_col="t", value_cols="y")
    error = np.abs(found["linear"].to_numpy() - data["y"].to_numpy()[300:]).mean()
    assert_allclose(metrics.mae(truth, series["linear"]), error, rtol=1e-9)
