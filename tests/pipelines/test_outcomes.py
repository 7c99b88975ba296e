"""A target of 0 and 1 all the way: trained on, scored, stopped and taken up, forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import streamgp
from streamgp.errors import DataError, UsageError
from streamgp_pipelines.forecasting.forecast import load
from streamgp_pipelines.training.dry_run import plan
from tests.pipelines.worlds import (
    START_US,
    Diary,
    append,
    assert_same_state,
    config_of,
    make_table,
    run,
    scores_of,
)
from tests.words import naming

SETS = {
    "likelihood": "logistic",
    "gradient.mean_basis": "64",
    "gradient.covariance_basis": "32",
    "gradient.grow": "32",
    "gradient.batch": "256",
    "gradient.steps": "16",
    "gradient.lengthscale": "5",
}
OPTIONS: dict[str, Any] = {
    "target": "rain",
    "model": "svdgp",
    "known": "wind",
    "lags": 1,
    "horizon": 1,
    "season": None,
    "batch": 256,
    "warmup": 512,
    "checkpoint_every": 1000,
    "level": None,
    "set": SETS,
}

SMALL = {"gradient.mean_basis": "32", "gradient.covariance_basis": "16", "gradient.steps": "8"}
ROWS = 2200


def outcomes(count: int, seed: int = 0, kind: type[pl.DataType] = pl.Boolean) -> pl.DataFrame:
    """Hourly rows: rain is true with the probability σ(2 wind − 1), which is the column chance."""
    generator = np.random.default_rng(seed)
    wind = generator.normal(size=count)
    chance = 1 / (1 + np.exp(1 - 2 * wind))
    rain = pl.Series(generator.random(count) < chance).cast(kind)
    time = pl.Series(START_US + np.arange(count) * 3_600_000_000).cast(pl.Datetime("us"))
    return pl.DataFrame({"t": time, "rain": rain, "wind": wind, "chance": chance})


@pytest.fixture(scope="module")
def rain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("rain")
    make_table(home / "table", outcomes(4000))
    return home / "table"


def trained_on(rain: Path, home: Path, **options: Any) -> dict[str, Any]:
    diary = Diary(home / "c")
    found = run(rain, home / "c", tracker=diary, predictions=home / "p.parquet", **OPTIONS | options)
    return {"found": found, "home": home / "c", "diary": diary, "frame": pl.read_parquet(home / "p.parquet")}


@pytest.fixture(scope="module")
def trained(rain: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained_on(rain, tmp_path_factory.mktemp("trained"), score_from="2000")


@pytest.fixture(scope="module")
def short(rain: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Fewer rows, where no number is looked at closely."""
    return trained_on(rain, tmp_path_factory.mktemp("short"), max_rows=ROWS, set=SETS | SMALL)


@pytest.mark.slow
def test_probabilities_are_near_the_truth_and_calibrated(trained: dict[str, Any]) -> None:
    found, frame = trained["found"], trained["frame"]
    assert frame.columns == ["unique_id", "ds", "cutoff", "step", "y", "svdgp", "svdgp-std", "svdgp-std-latent"]
    both = frame.join(outcomes(4000), left_on="ds", right_on="t")
    p, y, chance = (both[name].to_numpy() for name in ("svdgp", "y", "chance"))
    assert len(p) == found["scored"] > 1900
    loss = -np.log(np.where(y == 1, p, 1 - p)).mean()
    best = -np.log(np.where(y == 1, chance, 1 - chance)).mean()
    share = y.mean()
    guess = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert found["log_loss"] == pytest.approx(loss) and found["brier"] == pytest.approx(((p - y) ** 2).mean())
    assert found["accuracy"] == pytest.approx(((p > 0.5) == (y == 1)).mean())
    assert loss < best + 0.1 * (guess - best)
    assert np.abs(p - chance).mean() < 0.04 and found["calibration_error"] < 0.04
    np.testing.assert_allclose(both["svdgp-std"], np.sqrt(p * (1 - p)), rtol=1e-9)
    assert (both["svdgp-std-latent"] < both["svdgp-std"]).all()
    assert found["warnings"] == [] and found["coverage"] == {}


def test_metrics_over_the_rows(short: dict[str, Any]) -> None:
    points = short["diary"].points
    laps = [values for _, values in points if "log_loss" in values]
    assert len(laps) >= 2 and all({"brier", "accuracy", "calibration_error"} <= values.keys() for values in laps)
    last = points[-1][1]
    assert last["overall_log_loss"] == short["found"]["log_loss"] and "overall_accuracy" in last
    assert not any("coverage" in name for _, values in points for name in values)


def test_it_forecasts_alone_and_without_bands(short: dict[str, Any]) -> None:
    forecaster = load(short["home"])
    last = outcomes(ROWS)["t"][-1]
    future = pl.DataFrame({"t": [last], "wind": [2.0]}).with_columns(pl.col("t") + pl.duration(hours=1)).to_arrow()
    found = forecaster.forecast(future=future)
    assert found.binary and found.levels == ()
    assert found.frame.columns == ["unique_id", "ds", "cutoff", "svdgp", "svdgp-std", "svdgp-std-latent"]
    assert found.frame["svdgp"][0] == pytest.approx(0.953, abs=0.06)
    with pytest.raises(UsageError):
        load(short["home"]).forecast(levels=[80.0], future=future)


@pytest.mark.slow
def test_stopped_and_taken_up_it_ends_the_same(tmp_path: Path) -> None:
    small = SETS | {"gradient.mean_basis": "32", "gradient.covariance_basis": "16", "gradient.steps": "4"}
    options = OPTIONS | {"set": small, "checkpoint_every": 256, "batch": 128, "warmup": 256, "horizon": 2}
    whole, rows = outcomes(1500), outcomes(1500)
    make_table(tmp_path / "one", whole)
    table = make_table(tmp_path / "two", rows.head(900))
    expected = run(tmp_path / "one", tmp_path / "a", predictions=tmp_path / "a.parquet", **options)
    run(tmp_path / "two", tmp_path / "b", predictions=tmp_path / "b.parquet", **options)
    append(table, rows.tail(600))
    found = run(tmp_path / "two", tmp_path / "b", predictions=tmp_path / "b.parquet", **options)
    assert scores_of(found) == scores_of(expected)
    assert_same_state(tmp_path / "a", tmp_path / "b")
    assert pl.read_parquet(tmp_path / "a.parquet").equals(pl.read_parquet(tmp_path / "b.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
def test_numbers_of_0_and_1_are_true_and_false(rain: Path, tmp_path: Path, kind: type[pl.DataType]) -> None:
    make_table(tmp_path / "table", outcomes(4000, kind=kind))
    options = OPTIONS | {"max_rows": 1400}
    one, other = run(tmp_path / "table", tmp_path / "a", **options), run(rain, tmp_path / "b", **options)
    assert scores_of(one) == scores_of(other) and one["scored"] > 0


def test_other_values_are_refused_with_their_name(rain: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=naming("wind")) as refusal:
        run(rain, tmp_path / "c", **OPTIONS | {"target": "wind", "known": "chance"})
    assert "likelihood=logistic" in refusal.value.hint


def test_a_level_that_was_asked_for_is_answered(rain: Path, tmp_path: Path) -> None:
    few = SETS | {"gradient.steps": "4"}
    found = run(rain, tmp_path / "c", **OPTIONS | {"level": "80", "max_rows": 700, "set": few})
    assert any("--level" in warning for warning in found["warnings"])
    assert plan(config_of(rain, tmp_path / "d", **OPTIONS))["model"] == "svdgp"


def test_other_models_take_0_and_1_as_numbers(rain: Path, tmp_path: Path) -> None:
    found = run(rain, tmp_path / "c", **OPTIONS | {"model": "linear", "set": {}, "max_rows": 1400})
    assert "log_loss" not in found and 0.7 < found["coverage"]["80"] < 1


@pytest.mark.slow
def test_batch_training_scores_what_was_held_out(rain: Path, tmp_path: Path) -> None:
    batch = OPTIONS | {"online": None, "warmup": None, "checkpoint_every": None, "test_tail": 0.25, "epochs": 4}
    found = run(rain, tmp_path / "c", **batch)
    assert found["scored"] == 1000 and found["log_loss"] < 0.5 and found["accuracy"] > 0.75
    assert torch.tensor([one["forecasts"] for one in found["reliability"]]).sum() == 1000


def test_a_forecaster_says_nothing_of_flags_that_nobody_gave() -> None:
    sets = {"likelihood": "logistic", "gradient.mean_basis": 8, "gradient.covariance_basis": 4, "gradient.steps": 2}
    sets["evidence_rows"] = 16
    rows = pl.DataFrame({"x": np.arange(120.0), "y": np.arange(120) % 2})
    given: dict[str, Any] = {"known": "x", "lags": 0, "time": "row", "warmup": 60, "model": "svdgp", "options": sets}
    assert not [note for note in streamgp.Forecaster("y", **given).learn(rows).warnings if "level" in note]
    assert [note for note in streamgp.Forecaster("y", levels=[50], **given).learn(rows).warnings if "level" in note]
