"""The ensemble: what it mixes, what a failing expert costs, and what it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError

from streamgp.base import FLOAT, Inputs, Shape, Step
from streamgp.errors import UsageError
from streamgp.models.ensemble import Config, build
from streamgp.models.ensemble.model import Ensemble
from streamgp.online.model import StreamModel
from streamgp.online.reference import LearnedReference
from streamgp.testing.models import SHAPES, example_windows
from tests.models.deep_toys import SYSTEM, chunk, series, windows

SMALL = {"basis": 32, "reservoir": 256, "rebuild": 400, "evidence_rows": 64}


def trained(model: Ensemble, shape: Shape, rows: int = 960) -> tuple[list[Step], torch.Tensor]:
    """Learn a stream with forecasts that were issued 64 rows before; (1 + K,) errors of mix and experts."""
    x, y = example_windows(shape, rows)
    list(model.fit(x.rows(slice(0, 192)), y[:192], 1))
    steps, total = [], torch.zeros(1 + model.mixer.experts, dtype=torch.float64)
    waiting = model.predict(x.rows(slice(192, 256)))
    for start in range(192, rows - 64, 64):
        now, ahead = slice(start, start + 64), slice(start + 64, start + 128)
        following = model.predict(x.rows(ahead))
        total += (torch.cat([waiting.mean[None], waiting.experts]) - y[now]).abs().mean((1, 2))
        steps.append(model.update(x.rows(now), y[now], waiting))
        waiting = following
    return steps, total


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES[:2], ids=["one step", "two targets"])
def test_the_mix_is_as_good_as_its_best_expert(shape: Shape) -> None:
    model = build(Config(experts="linear,svdgp,persistence,seasonal_naive", svdgp=SMALL), shape)  # type: ignore[arg-type]
    steps, error = trained(model, shape)
    assert all(step.healthy for step in steps)
    assert float(error[0]) <= 1.01 * float(error[1:].min())
    figures = model.figures()
    assert set(figures) == {f"weight_{name}" for name in model.names}
    assert sum(figures.values()) == pytest.approx(1.0)


def test_a_failing_expert_is_reported_and_the_others_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = (build(Config(experts=("linear", "persistence")), SHAPES[0]) for _ in range(2))
    x, y = example_windows(SHAPES[0], 200)
    broken = model.experts[0].model
    monkeypatch.setattr(broken, "update", lambda *_: Step(float("nan"), 0, False, "update; undone: too bad"))
    step = model.update(x, y)
    assert not step.healthy and "linear" in step.done and "too bad" in step.done
    other.update(x, y)
    assert torch.equal(model.experts[1].means(x, None), other.experts[1].means(x, None))


def test_without_a_season_the_naive_models_are_one() -> None:
    assert build(Config(), SHAPES[0]).names == ("linear", "svdgp", "persistence")


def test_what_an_expert_warns_of_is_told_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(Config(experts=("linear", "svdgp")), SHAPES[0])
    monkeypatch.setattr(model.experts[1].model, "warnings", lambda: ["no signal"])
    model.mixer.weights.zero_()
    for of_svdgp, told in ((0.9, 1), (0.1, 0)):
        model.mixer.weights[:, -1], model.mixer.weights[:, 0] = of_svdgp, 1.0 - of_svdgp
        found = model.warnings()
        assert len(found) == told and all("svdgp" in one and "90%" in one and "no signal" in one for one in found)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(ValidationError, match="experts"):
        Config(experts=("linear", "lineer"))
    with pytest.raises(ValidationError, match="experts"):
        Config(experts=("linear", "linear"))
    with pytest.raises(UsageError, match="svdgp"):
        build(Config(experts=("svdgp",), svdgp={"likelihood": "logistic"}), SHAPES[0])  # type: ignore[arg-type]


def weights_of(x: Inputs, y: torch.Tensor, online: dict[str, float]) -> dict[str, float]:
    """Of linear, gp_lstm and persistence at the end of a stream."""
    net = {"encoder": {"hidden": 8}, "solver": {"name": "kiss", "grid": 16}, "online": online}
    model = build(Config(experts=("linear", "gp_lstm", "persistence"), gp_lstm=net), SYSTEM)  # type: ignore[arg-type]
    for start in range(0, len(y) - 50, 50):
        some, truth = chunk(x, y, start, start + 50)
        assert model.update(some, truth, model.predict(some)).healthy
    return model.figures()


@pytest.mark.slow
def test_a_net_that_loses_to_the_regression_has_no_weight_and_one_that_wins_has_most() -> None:
    """Where the truth is a line, a net that remembers 20 rows learns noise; where none is, one with a memory wins."""
    x, y = windows(SYSTEM, series(1000))
    generator = torch.Generator().manual_seed(0)
    line = x.past[:, -1, :1] + 0.1 * torch.randn(len(y), 1, generator=generator, dtype=FLOAT)
    lost, won = weights_of(x, line, {"window": 40, "memory": 20.0}), weights_of(x, y, {"window": 300})
    assert lost["weight_gp_lstm"] < 0.03 and lost["weight_linear"] > 0.5
    assert won["weight_gp_lstm"] > 0.7


def test_any_model_is_an_expert_and_an_option_may_be_of_one_that_is_not_mixed() -> None:
    config = Config.model_validate({"experts": "linear,svgp", "svgp": {"points": 16}, "narx": {"seed": 3}})
    assert (config.of("svgp").levers(SHAPES[0]), config.of("linear")) == ({"points": 16}, type(config.of("linear"))())
    assert Config.model_validate(config.model_dump()) == config
    model = build(config, SHAPES[0])
    x, y = example_windows(SHAPES[0], 200)
    assert model.update(x, y).healthy and model.names == ("linear", "svgp")
    with pytest.raises(ValidationError):
        Config(experts=("linear", "ensemble"))


def test_only_the_experts_are_imported() -> None:
    code = """
import sys
from streamgp import registry
from streamgp.testing.models import SHAPES
module = registry.load("models", "ensemble")
module.build(module.Config(), SHAPES[0])
print(*sorted({name.split(".")[2] for name in sys.modules if name.startswith("streamgp.models.")}))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"linear", "svdgp", "iterated"} <= set(found)
    assert not {"qsgp", "finite_rkhs", "rvm", "svgp", "exact", "wiski"} & set(found)


def test_first_weights_are_those_of_the_references() -> None:
    """After six windows of a random walk, persistence has weight beside what departs from the season."""
    walk = torch.randn(15, generator=torch.Generator().manual_seed(0), dtype=FLOAT).cumsum(0)
    shape = Shape(("y",), horizon=2, lags=1, past=("y", "season(y)"), future=("season(y)",), season=7)
    rows = torch.arange(7, 13)
    past = torch.stack([walk[rows], walk[rows - 7]], 1)[:, None]
    ahead = rows[:, None] + torch.tensor([1, 2])
    x, y = Inputs(past, walk[ahead - 7][..., None]), walk[ahead]
    model = build(Config(experts=("linear", "persistence")), shape)
    assert not bool(model.mixer.weights[:, 1].any())
    list(model.fit(x, y, 1))
    assert bool((model.mixer.weights[:, 1] > 0.2).all())


@pytest.mark.parametrize("horizon", [1, 6])
def test_references_of_many_windows_leave_no_expert_out(horizon: int) -> None:
    """The level is all that persistence has to say, and no more than 0 what a regression of it has not learned yet."""
    noise = torch.randn(600 + horizon, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    level, rows = 100.0 + noise, torch.arange(600)
    x = Inputs(level[rows].view(-1, 1, 1), torch.zeros(600, horizon, 0, dtype=FLOAT))
    y = level[rows[:, None] + 1 + torch.arange(horizon)]
    config = Config(experts=("svdgp", "persistence"), svdgp=SMALL | {"target": "level"})  # type: ignore[arg-type]
    model = build(config, Shape(("y",), horizon=horizon, lags=1, past=("y",), future=()))
    list(model.fit(x, y, 1))
    assert bool((model.mixer.weights[:, 0] > 0.6).all()), model.mixer.weights


def test_references_fade_with_the_windows_of_the_warm_up() -> None:
    walk = torch.randn(1300, generator=torch.Generator().manual_seed(0), dtype=FLOAT).cumsum(0)
    shape = Shape(("y",), horizon=1, lags=1, past=("y", "season(y)"), future=("season(y)",), season=7)
    weight = dict[int, float]()
    for count in (5, 1200):
        rows = torch.arange(7, 7 + count)
        past = torch.stack([walk[rows], walk[rows - 7]], 1)[:, None]
        model = build(Config(experts=("linear", "persistence")), shape)
        list(model.fit(Inputs(past, walk[rows - 6].view(-1, 1, 1)), walk[rows + 1, None], 1))
        weight[count] = float(model.mixer.weights[0, 1])
    assert weight[5] > 0.05 and weight[1200] < 1e-4


def test_a_process_far_from_what_it_learned_is_taken_near_its_reference() -> None:
    model = build(Config(experts=("svdgp", "persistence"), svdgp=SMALL), SHAPES[0])  # type: ignore[arg-type]
    x, y = example_windows(SHAPES[0], 400)
    list(model.fit(x, y, 1))
    process = model.experts[0].model
    assert isinstance(process, StreamModel) and isinstance(process.reference, LearnedReference)
    assert torch.equal(process.cautious(x, process.predict(x)), process.predict(x).mean)
    far = Inputs(x.past + 1e4, x.future)
    issued, plain = process.predict(far).mean, process.reference.base(far)
    found = model.experts[0].means(far, None)[0]
    assert bool(((found - plain).abs() < 0.1 * (issued - plain).abs()).all())
    process.widening = torch.full_like(process.widening, 4.0)
    torch.testing.assert_close(model.experts[0].means(far, None)[0], found)
