"""Every registered model obeys the laws of base.Model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from streamgp import choice, registry
from streamgp.base import Model, Shape, Simulates
from streamgp.model_config import ModelConfig
from streamgp.online.model import StreamModel
from streamgp.papers.qsgp import relevance
from streamgp.testing import check_model, check_recovers
from streamgp.testing.models import SHAPES, example_windows, reborn

PLAIN: dict[str, Any] = {"past": ("y",), "future": ()}
ONLINE = {"window": 256}
NET: dict[str, Any] = {"rebuild": 128, "epochs": 1, "online": ONLINE, "encoder": {"hidden": 8}}
GP: dict[str, Any] = {**NET, "solver": {"name": "kiss", "grid": 10}}
BLOCKS = {"size": 96, "width": 32}
QSGP: dict[str, Any] = {"features": BLOCKS, "reservoir": 300, "rebuild": 500, "seed": 7}  # not that of the rows
EXACT = {"rows": 300, "evidence_rows": 60, "rebuild": 500, "training": {"evaluations": 8}}
REBUILT: dict[str, Any] = {"reservoir": 300, "rebuild": 500, "online": {"epochs": 1, "first": 2}}
FINITE: dict[str, Any] = {"fourier": {"size": 64}, **REBUILT, "evidence_rows": 60}
DROPPED = {"hidden": 6, "layers": 2, "dropout": 0.2, "recurrent_dropout": 0.1}
"""Small enough for some thousand rows in a second: windows, refreshes, nets and grids."""

WISKI: dict[str, Any] = {"solver": {"grid": 10, "rank": 16}, "reservoir": 300, "rebuild": 500, "evaluations": 5}
SVGP: dict[str, Any] = {"points": 24, "reservoir": 300, "rebuild": 500, "refresh": 3, "evidence_rows": 60}

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "exact": [
        EXACT,
        {**EXACT, "kernel": "sum", "linear": False, "ard": "column", "rebuild": 0, "rescale": False},
        {**EXACT, "training": {"method": "adam", "evaluations": 5, "restarts": 1, "noise": "own"}, "target": "level"},
    ],
    "ensemble": [
        {"svdgp": {"basis": 32, "reservoir": 256, "rebuild": 400, "evidence_rows": 64}},
        {"experts": "persistence,linear", "memory": 500.0},
        {"experts": ["svdgp", "linear"], "on_top": True, "svdgp": {"basis": 16, "reservoir": 64, "evidence_rows": 32}},
    ],
    "finite_rkhs": [
        FINITE,
        {**FINITE, "encoder": {"hidden": 12}, "epochs": 3},
        {
            **FINITE,
            "fourier": {"size": 40},
            "online": {"epochs": 1, "settled": 300},
            "form": "root",
            "predictive": "student_t",
        },
        {**FINITE, "encoder": {"name": "lstm", "hidden": 8}, "kernel": "matern", "linear": True, "validation": 0.0},
        {**FINITE, "kernel": "linear", "form": "factor", "learn": "once", "memory": "all"},
    ],
    "gp_gru": [GP],
    "gp_lstm": [
        GP,
        {**NET, "solver": "exact", "target": "level"},
        {**GP, "encoder": DROPPED, "draws": 3},
        {**GP, "kernel": "matern", "rebuild": 0, "online": {**ONLINE, "stale": 1.2, "memory": None}},
    ],
    "gp_narx": [
        {**GP, "encoder": {"hidden": 8, "width": 1}, "training": {"scheme": "algorithm2", "delay": 2}, "pretrain": 2},
        {**NET, "solver": {"name": "kiss_cg", "grid": 10}},
        {**GP, "mode": "regression", "rescale": 0.0},
        {**NET, "solver": "exact", "training": {"scheme": "full"}, "rebuild": 0},
    ],
    "gp_rnn": [GP, {**GP, "encoder": {"hidden": 8, "precision": "float64"}, "target": "change"}],
    "gru": [NET],
    "lstm": [NET, {**NET, "encoder": DROPPED, "mode": "regression"}],
    "narx": [NET, {**NET, "target": "level", "validation": 0.0}],
    "rnn": [NET],
    "iterated": [{}, {"memory": 500.0}],
    "linear": [{}, {"predictive": "student_t", "memory": 500.0}, {"target": "level", "ridge": 10.0}],
    "persistence": [{}, {"memory": 200.0}],
    "qsgp": [
        QSGP,
        # without lags these outcomes are nearly noise: what five batches gain is 0 give or take what the draws decide
        {**QSGP, "likelihood": "logistic", "rebuild": 2000, "seed": 2},
        {**QSGP, "likelihood": "laplace", "covariance": "head"},
        {**QSGP, "covariance": "head", "linear": False, "memory": "all"},
        {**QSGP, "solver": "stochastic", "steps": 60},
        {**QSGP, "solver": "quadruple", "steps": 50, "control_variates": 60, "batch": 60},
        {**QSGP, "solver": "quadruple", "steps": 30, "optimiser": "adagrad", "covariance": "chevron", "columns": 4},
        {**QSGP, "solver": "quadruple", "steps": 20, "optimiser": "adagrad", "learn": "elbo", "batch": 40},
    ],
    "rvm": [
        {"dictionary": 80, "basis": 32, "evidence_rows": 60, "reservoir": 300, "rebuild": 500},
        {"solver": "batched", "dictionary": 60, "evidence_rows": 50, "reservoir": 200, "linear": False},
        {"augment": False, "dictionary": 60, "basis": 30, "reservoir": 200, "rebuild": 400, "evidence_rows": 50},
        {"solver": "quadruple", "dictionary": 60, "basis": 30, "reservoir": 200, "rebuild": 400, "evidence_rows": 50},
    ],
    "svdgp": [  # small, so that its basis is soon as large as it may be
        {"basis": 32, "reservoir": 256, "rebuild": 400, "evidence_rows": 64},
        {"basis": 32},
    ],
    "svgp": [
        SVGP,
        {**SVGP, "likelihood": "logistic", "rebuild": 2000},
        {**SVGP, "likelihood": "laplace", "points": 16, "refresh": 2, "kernel": "matern"},
        {**SVGP, "encoder": {"hidden": 8}, "training": {"batch": 64}},
    ],
    "wiski": [
        WISKI,
        {**WISKI, "dims": 1, "kernel": "matern", "learn": "once"},
        {**WISKI, "projection": "pca", "target": "level", "memory": "all", "rebuild": 0},
        {**WISKI, "dims": 3, "solver": {"grid": 7, "rank": 16}, "temper": 1.0},
    ],
}
OTHERS = {
    "gp_gru",
    "gp_lstm",
    "gp_narx",
    "gp_rnn",
    "gru",
    "narx",
    "rnn",
    "ensemble",
    "exact",
    "finite_rkhs",
    "qsgp",
    "rvm",
    "svgp",
    "wiski",
}
"""The laws of these take seconds each, or are those of `lstm` with another net."""
CASES = [
    pytest.param(name, options, marks=[pytest.mark.slow] if place or name in OTHERS else [])
    for name in registry.names("models")
    for place, options in enumerate(VARIANTS.get(name, [{}]))
]
"""The first variant of most models in `make test`, all in `make test-all`."""
IDS = [f"{name}-{place}" for name in registry.names("models") for place in range(len(VARIANTS.get(name, [{}])))]


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_laws(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(relevance.Draws, steps=100)  # of rvm's 1000: the laws are of what it has found, however good
    monkeypatch.setattr(relevance, "Draws", few)
    module = registry.load("models", name)

    def build(shape: Shape) -> Model:
        model: Model = module.build(module.Config(**options), shape)
        return model

    first = options is VARIANTS.get(name, [options])[0]
    full = (
        1024 if options.get("rebuild") == 0 and options.get("solver") == "exact" else 512
    )  # rows of two windows, late
    check_model(build, SHAPES if first else SHAPES[1:], full=full)  # what the first shape has the second has too


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_fit_that_is_left_is_the_one_that_is_not(name: str) -> None:
    """With truths that are missing, which are no truths for the next epoch either."""
    module, shape = registry.load("models", name), SHAPES[1]
    one, other = (module.build(module.Config(**VARIANTS[name][0]), shape) for _ in range(2))
    x, y = example_windows(shape, 256)
    y[5::7, 0] = torch.nan
    list(one.fit(x, y, epochs=3))
    next(iter(other.fit(x, y, epochs=3)))
    again = reborn(other, module.build(module.Config(**VARIANTS[name][0]), shape))
    list(again.fit(x, y, epochs=2))
    found, wanted = again.predict(x), one.predict(x)
    # qsgp begins the descent of its blocks again, from the same means
    near = 1e-3 if name == "qsgp" else 1e-12
    assert (found.mean - wanted.mean).abs().max() <= near * wanted.variance.sqrt().max()
    torch.testing.assert_close(found.variance, wanted.variance, rtol=near, atol=0.0)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in OTHERS else []) for n in VARIANTS])
@pytest.mark.parametrize(("frequency", "seed"), [(8.0, 0), pytest.param(15.0, 1, marks=pytest.mark.slow)])
def test_no_absorbing_state(name: str, frequency: float, seed: int) -> None:
    module = registry.load("models", name)
    check_recovers(lambda shape: module.build(module.Config(**VARIANTS[name][0]), shape), frequency, seed)


@pytest.mark.parametrize("name", registry.names("models"))
def test_config_is_frozen_strict_and_described(name: str) -> None:
    """The command line lists every field with its unit and default, and refuses misspelt ones."""
    config = registry.load("models", name).Config
    assert config.model_config.get("frozen") and config.model_config.get("extra") == "forbid"
    assert not [field for field, info in config.model_fields.items() if not info.description]
    config()  # everything has a default


@pytest.mark.parametrize("name", registry.names("models"))
def test_facts_hold(name: str) -> None:
    """What the Config says of the model is what the model is."""
    module = registry.load("models", name)
    config: ModelConfig = module.Config()
    shape = Shape(targets=("y",), horizon=1, lags=3, past=("y", "season(y)"), future=("season(y)",), season=7)
    model: Model = module.build(config, shape if name == "seasonal_naive" else replace(shape, season=1, **PLAIN))
    assert isinstance(model, Simulates) == (config.simulates != "no")
    assert not config.process or isinstance(model, StreamModel)
    assert not config.baseline or not config.process
    named = {option.name.split(".")[0] for option in choice.options(type(config))}
    assert set(config.few) | {lever.split(".")[0] for lever in config.levers(shape)} <= named
    assert 0 < config.bytes_of(shape) < 10**9 and config.functions(shape) > 0


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in registry.names("models") if name != "exact"])
def test_a_model_takes_what_is_estimated(name: str) -> None:
    """Within a factor of a few, as beside the state there are factors in work; a model that says nothing may be small.
    That of `exact` is of the rows that it may have."""
    module, shape = registry.load("models", name), SHAPES[1]
    config: ModelConfig = module.Config()
    model = module.build(config, shape)
    x, y = example_windows(shape, 400)
    next(iter(model.fit(x, y, epochs=1)))
    held = sum(tensor.nbytes for tensor in model.state()[0].values())
    said = (type(config).functions, type(config).bytes_of) != (ModelConfig.functions, ModelConfig.bytes_of)
    assert held / 3 < config.bytes_of(shape) < (12 * held if said else 10**7)
