"""--simulate: simulations of the past are those that could have been made then, and change nothing but their bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal

from streamgp.errors import UsageError
from streamgp.forecasting.simulated import Paths, SimulationBands
from streamgp.models.linear import Linear
from streamgp_data.table import Table
from streamgp_pipelines import load
from streamgp_pipelines.learning import rollout
from streamgp_pipelines.learning.learner import Learner
from tests.pipelines.worlds import append, assert_same_state, frame_of, make_table, run, scores_of
from tests.words import names

ONE: dict[str, Any] = {"horizon": 1, "season": None, "inputs": "x", "warmup": 128, "checkpoint_every": None}


class Spy:
    """What `SimulationBands.learn` was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Paths, torch.Tensor]] = []
        learn = SimulationBands.learn

        def spied(bands: SimulationBands, paths: Paths, truth: torch.Tensor) -> None:
            self.calls.append((paths, truth))
            learn(bands, paths, truth)

        monkeypatch.setattr(SimulationBands, "learn", spied)


def by_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of `linear` is its mean, without noise."""
    monkeypatch.setattr(Linear, "functions", lambda self, paths, generator: lambda x: self.predict(x).mean)


@pytest.mark.sampled
@pytest.mark.parametrize(("series", "transform"), [((), None), (("a", "b", "c"), None), ((), "log")])
def test_a_simulation_of_the_past_is_one_that_could_have_been_made(
    series: tuple[str, ...], transform: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round: the checkpoint at the end of the warm-up, moved on to each origin, goes the same way."""
    by_means(monkeypatch)
    monkeypatch.setattr(Learner, "branch", lambda self, rows: None)  # the row that waits for its inputs is not learned
    wide, steps = max(len(series), 1), 20
    data = frame_of(300, series)
    table = make_table(tmp_path / "t", data)
    options = {**ONE, "warmup": 128 * wide, "batch": 64 * wide, "lags": 4, "transform": transform}
    spy = Spy(monkeypatch)
    run(table, tmp_path / "all", simulate=steps, max_rows=192 * wide, **options)
    ((paths, truth),) = spy.calls
    run(table, tmp_path / "before", simulate=steps, max_rows=128 * wide, **options)
    y = data["y"].to_numpy().reshape(-1, wide)
    starts = np.unique(np.linspace(128, 192 - steps - 1, rollout.ORIGINS // wide).astype(int)).tolist()
    origins = [(at, code) for at in starts for code in range(wide)]
    assert paths.series.tolist() == [code for _, code in origins]
    assert_allclose(paths.first[:, 0], [y[at, code] for at, code in origins])
    assert_allclose(truth[..., 0], [y[at + 1 : at + 1 + steps, code] for at, code in origins])
    rows = Table.open(tmp_path / "t").schema.names
    for place, (at, code) in list(enumerate(origins))[:: 5 if wide == 1 else 7]:
        forecaster = load(tmp_path / "before")
        forecaster.observe()
        seen = data[128 * wide : (at + 1) * wide].select(name for name in rows if name in data.columns)
        forecaster.learner.watch(seen.to_arrow().combine_chunks().to_batches()[0])
        ahead = data[(at + 1) * wide : (at + 1 + steps) * wide].drop("y", "k").to_arrow()
        alone = forecaster.simulate(steps, future=ahead, plug_in=True)
        assert_allclose(paths.y[0, place, :, 0], alone.samples[0, code, :, 0], rtol=1e-12)


@pytest.mark.slow
def test_a_run_is_the_same_with_and_without(tmp_path: Path) -> None:
    """But that all inputs are known, as they are in a simulation, of a model that has no other way to train for it."""
    table = make_table(tmp_path / "t", frame_of(600))
    given = {**ONE, "model": "exact", "set": {"rows": "128", "evidence_rows": "32"}, "lags": 3}
    plain = run(table, tmp_path / "plain", **given | {"inputs": None, "known": "x"})
    rehearsed = run(table, tmp_path / "rehearsed", simulate=12, **given)
    said = [any(names(line, "exact narx") for line in found.pop("warnings")) for found in (plain, rehearsed)]
    assert said == [False, True]
    found: Any = rehearsed.pop("simulation")
    assert plain.pop("simulation") is None and scores_of(plain) == scores_of(rehearsed)
    assert found["scored"] > 100 and [row["step"] for row in found["steps"]] == list(range(1, 13))
    ahead = frame_of(601)[600:].select("t", "x").to_arrow()
    frames = [load(tmp_path / name).forecast(future=ahead).frame for name in ("plain", "rehearsed")]
    assert_frame_equal(*frames)


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["linear", "narx", pytest.param("exact", marks=pytest.mark.slow)])
def test_chunks_and_restarts_change_nothing(model: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {**ONE, "simulate": 10, "model": model, "lags": 3}
    if model == "exact":
        options["set"] = {"rows": "128", "evidence_rows": "32"}
    if model == "narx":
        options["set"] = {"encoder.hidden": "8", "online.window": "100", "rebuild": "100"}
    data = frame_of(150, ("a", "b"))
    whole = run(make_table(tmp_path / "t", data), tmp_path / "whole", **options)
    pieces = make_table(tmp_path / "pieces", data[:270], cuts=[7, 210])
    for stop in (200, 251, None):
        if stop is None:
            append(pieces, data[270:])
        found = run(pieces, tmp_path / "again", max_rows=stop, **options)
    assert found["simulation"] == whole["simulation"] and found["simulation"]["scored"] >= 32
    assert_same_state(tmp_path / "whole", tmp_path / "again")


@pytest.mark.slow
def test_bands_of_a_model_that_drifts_hold_what_they_say(tmp_path: Path) -> None:
    """A lag and a slow, unseen disturbance: the model of one step believes too much of its own output."""
    g, count, steps = np.random.default_rng(1), 3000, 30
    level, y = np.zeros(count), np.zeros(count)
    for t in range(1, count):
        level[t] = 0.9 * level[t - 1] + g.normal()
        y[t] = 0.2 * y[t - 1] + level[t] + 3 * np.sign(np.sin(t / 40)) + 3 * g.normal()
    data = pl.DataFrame({"y": y})
    options = {**ONE, "inputs": None, "lags": 2, "set": {"target": "level"}, "batch": 128}
    run(make_table(tmp_path / "t", data), tmp_path / "c", simulate=steps, max_rows=2000, **options)
    forecaster = load(tmp_path / "c")
    forecaster.observe()
    done, held, raw = forecaster.learner.windows.rows, [], []
    for at in range(2010, count - steps, 24):
        forecaster.learner.watch(data[done:at].to_arrow().combine_chunks().to_batches()[0])
        frame = forecaster.simulate(steps, 100, levels=[90]).frame
        truth, done = data["y"][at : at + steps], at
        held.append(frame["linear-lo-90"].to_numpy() <= truth.to_numpy())
        held[-1] &= frame["linear-hi-90"].to_numpy() >= truth.to_numpy()
        raw.append((frame["linear-raw-lo-90"] <= truth) & (frame["linear-raw-hi-90"] >= truth))
    assert 0.85 <= np.mean(held) <= 0.95
    assert abs(np.mean(held) - 0.9) < abs(np.mean(raw) - 0.9)


def test_paths_are_calibrated_up_to_the_steps_rehearsed(tmp_path: Path) -> None:
    run(make_table(tmp_path / "t", frame_of(600)), tmp_path / "c", simulate=10, **ONE | {"inputs": None})
    forecaster = load(tmp_path / "c")
    found, longer = forecaster.simulate(10, 99), forecaster.simulate(15, 99)
    frame = found.frame
    assert not found.warnings and longer.warnings
    assert (frame["linear-lo-95"] != frame["linear-raw-lo-95"]).all()
    assert_frame_equal(longer.frame[:10], frame)
    for side in ("lo-95", "hi-80"):
        assert_allclose(longer.frame[f"linear-{side}"][10:], longer.frame[f"linear-raw-{side}"][10:])
    quantile = found.samples[:, 0, :, 0].numpy()
    assert_allclose(np.quantile(quantile, 0.9, axis=0, method="weibull"), frame["linear-hi-80"], rtol=1e-9)
    assert_frame_equal(forecaster.simulate(10, plug_in=True).frame, forecaster.simulate(10, plug_in=True).frame)


@pytest.mark.parametrize("change", [{"horizon": 3}, {"model": "persistence"}, {"lags": 0, "inputs": "x"}])
def test_what_cannot_be_simulated_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", frame_of(300))
    with pytest.raises(UsageError) as caught:
        run(table, tmp_path / "c", **ONE | {"simulate": 10} | change)
    assert names(caught.value.hint, "--horizon 1") and "linear" in caught.value.hint


@pytest.mark.parametrize("model", ["exact", "finite_rkhs"])
def test_a_model_that_learns_one_step_says_so(model: str, tmp_path: Path) -> None:
    """In batch there is nothing that --simulate could change; on a stream the bands are calibrated."""
    table = make_table(tmp_path / "t", frame_of(300))
    given: dict[str, Any] = {**ONE, "model": model, "lags": 3, "simulate": 5}
    with pytest.raises(UsageError) as caught:
        run(table, tmp_path / "c", **given | {"online": None, "warmup": None, "batch": None})
    assert names(caught.value.hint, "linear narx --online")


def test_in_batch_nothing_is_calibrated(tmp_path: Path) -> None:
    table, ahead = make_table(tmp_path / "t", frame_of(200)), frame_of(210)[200:].select("t", "x").to_arrow()
    given = {**ONE, "model": "narx", "online": None, "warmup": None, "epochs": 1, "batch": None, "lags": 3}
    assert run(table, tmp_path / "c", simulate=3, **given)["simulation"] is None
    frame = load(tmp_path / "c").simulate(10, 50, ahead).frame
    assert_allclose(frame["narx-lo-95"], frame["narx-raw-lo-95"])


def test_a_model_that_is_not_stable_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that grow beyond all bounds say nothing, and the bands are around the last value."""
    monkeypatch.setattr(
        Linear, "functions", lambda self, paths, generator: lambda x: 1e9 * (1 + x.past[:, -1, :1].abs())
    )
    found: Any = run(make_table(tmp_path / "t", frame_of(900)), tmp_path / "c", simulate=12, **ONE)["simulation"]
    assert found["steps"][-1]["raw_coverage"]["95"] == 0 and np.isfinite(found["steps"][-1]["rmse"])
    frame = load(tmp_path / "c").simulate(2, 50, frame_of(902)[900:].select("t", "x").to_arrow()).frame
    assert (frame["linear"] - frame_of(900)["y"][-1]).abs().max() < 1 and frame["linear-hi-95"].is_finite().all()
