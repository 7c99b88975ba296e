"""SVDGP as a model: the laws of base.Model for both ways of inference, and what Config promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from streamgp.base import Inputs, Shape
from streamgp.encoders import mlp
from streamgp.errors import UsageError
from streamgp.models import svdgp
from streamgp.registry import names
from streamgp.testing.models import SHAPES, check_model, example_windows
from tests.needs import needs
from tests.words import naming

SMALL = {"basis": 48, "reservoir": 256, "rebuild": 200, "evidence_rows": 60}
GRADIENT = {"mean_basis": 24, "covariance_basis": 16, "grow": 8, "batch": 64, "steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        svdgp.Config(**SMALL, linear=False, memory=100, temper=2.0, target="level"),
        svdgp.Config(inference="gradient", gradient=GRADIENT),
        svdgp.Config(likelihood="student_t", encoder={"hidden": 8}, gradient=GRADIENT),
        svdgp.Config(likelihood="laplace", gradient=GRADIENT),
        svdgp.Config(likelihood="logistic", gradient=GRADIENT),
    ],
    ids=["closed form, forgetting", "gradient", "student-t behind a perceptron", "laplace", "logistic"],
)
def test_the_laws_of_a_model_hold(config: svdgp.Config) -> None:
    torch.set_num_threads(1)
    check_model(lambda shape: svdgp.build(config, shape), SHAPES[1:], full=512)  # all of them: tests/contracts


def test_a_covariance_of_fewer_functions_leaves_the_mean_and_widens_the_band() -> None:
    x, y = example_windows(SHAPES[0], 200, seed=1)
    given: dict[str, Any] = {"basis": 64, "limit": None, "evidence_rows": 60, "rebuild": 150}
    found = []
    for own in ({}, {"covariance_basis": 64}, {"covariance_basis": 8}):
        model = svdgp.build(svdgp.Config.model_validate(given | own), SHAPES[0])
        for at in range(0, 200, 50):
            model.update(x.rows(slice(at, at + 50)), y[at : at + 50])
        found.append(model.predict(x))
    usual, same, fewer = found
    assert torch.equal(same.parameters(), usual.parameters()) and torch.equal(fewer.mean, usual.mean)
    assert float(fewer.variance.mean()) > 1.05 * float(usual.variance.mean())


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match=naming("inference=gradient")):
        svdgp.Config(inference="conjugate", likelihood="student_t")
    for own in ({"inference": "gradient"}, {"shared": True}):
        with pytest.raises(ValidationError, match=naming("covariance_basis closed")):
            svdgp.Config.model_validate({"covariance_basis": 8} | own)
    with pytest.raises(ValidationError, match=naming("evidence closed")):
        svdgp.Config.model_validate({"inference": "gradient", "evidence": "scgd"})
    with pytest.raises(ValidationError, match=naming("likelihood.noise inference=gradient")):
        svdgp.Config.model_validate({"likelihood": {"name": "gaussian", "noise": 0.3}})
    svdgp.Config.model_validate({"likelihood": {"name": "gaussian", "noise": 0.3}, "inference": "gradient"})
    with pytest.raises(UsageError, match=naming("target=change likelihood=logistic")):
        svdgp.build(svdgp.Config(likelihood="logistic", target="change"), SHAPES[0])
    for name in ("memory", "temper"):
        with pytest.raises(ValidationError, match=naming("0")):
            svdgp.Config.model_validate({name: 0})
    with pytest.raises(ValidationError):
        svdgp.Config.model_validate({"bases": 3})


def test_any_encoder_may_stand_before_the_kernel() -> None:
    config = svdgp.Config.model_validate({"encoder": {"hidden": "32"}, "memory": "5000"})
    assert config.encoder == mlp.Config(hidden=32) and config.memory == 5000
    assert not svdgp.Config().by_gradient and not svdgp.Config.model_validate({"encoder": "identity"}).by_gradient
    for name in set(names("encoders")) - {"identity"}:
        config = svdgp.Config.model_validate({"encoder": name, "gradient": GRADIENT})
        assert config.by_gradient
        for shape in SHAPES[:2]:
            x, y = example_windows(shape, 40)
            model = svdgp.build(config, shape)
            assert model.update(x, y).healthy and model.predict(x).mean.isfinite().all()
    with pytest.raises(UsageError):
        svdgp.build(svdgp.Config.model_validate({"encoder": "lstm"}), SHAPES[2])
    with pytest.raises(ValidationError, match=naming("inference=gradient")):
        svdgp.Config.model_validate({"encoder": "gru", "inference": "conjugate"})


@needs("gpu")
@pytest.mark.parametrize(
    "options", [{}, {"inference": "gradient", "gradient": GRADIENT}], ids=["closed form", "gradient"]
)
def test_the_gpu_computes_what_the_cpu_does(options: dict[str, object]) -> None:
    x, y = example_windows(SHAPES[1], 400)
    issued = []
    for device in ("cpu", "cuda"):
        model = svdgp.build(svdgp.Config.model_validate({**SMALL, **options}), SHAPES[1]).to(device)
        for start in range(0, 300, 50):
            part = slice(start, start + 50)
            assert model.update(x.rows(part).to(torch.device(device)), y[part].to(device)).healthy
        issued.append(model.predict(x.rows(slice(300, 400)).to(torch.device(device))).parameters().cpu())
    torch.testing.assert_close(issued[1], issued[0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_outcomes_begin_at_their_share_of_ones_and_become_probabilities() -> None:
    """P(y = 1) = σ(2u − 3): seldom 1, and the first batch alone already says how seldom."""
    torch.set_num_threads(1)
    gradient = {"mean_basis": 128, "covariance_basis": 64, "grow": 32, "batch": 256, "steps": 16, "lengthscale": 5.0}
    config = svdgp.Config(likelihood="logistic", gradient=gradient)
    shape = SHAPES[2]
    model = svdgp.build(config, shape)
    generator = torch.Generator().manual_seed(0)
    x, _ = example_windows(shape, 4096)
    chance = torch.sigmoid(2 * x.future[:, 0, :1] - 3)
    y = (torch.rand(chance.shape, generator=generator) < chance).double()
    for start in range(0, 3072, 256):
        rows = slice(start, start + 256)
        assert model.update(x.rows(rows), y[rows]).healthy
        if not start:
            assert model.predict(x.rows(rows)).mean.mean().item() == pytest.approx(y[rows].mean().item(), abs=0.05)
    held = slice(3072, None)
    issued = model.predict(x.rows(held))
    truth = torch.where(y[held] == 1, chance[held], 1 - chance[held]).log()
    loss, best = -issued.log_prob(y[held]).mean(), -truth.mean()
    share = y[:3072].mean()
    guess = -(y[held] * share.log() + (1 - y[held]) * (1 - share).log()).mean()
    assert best < loss < best + 0.1 * (guess - best)  # of what is to be gained over the share of ones, nine tenths
    assert (issued.mean - chance[held]).abs().mean() < 0.03


def test_raw_bands_of_a_batch_hold_outside_of_its_rows() -> None:
    """Few rows in eight dimensions: by the residuals of the rows that were fitted a 95 % band would cover 0.907."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(1300, 8, generator=generator, dtype=torch.float64)
    y = (2 * u).sin().sum(1, keepdim=True) + 0.5 * torch.randn(1300, 1, generator=generator, dtype=torch.float64)
    x, new = Inputs(y.new_zeros(1300, 0, 1), u[:, None]), slice(300, None)
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=tuple(f"u{column}" for column in range(8)))
    model = svdgp.build(svdgp.Config(evidence_rows=150), shape)
    for _ in model.fit(x.rows(slice(0, 300)), y[:300], 1):
        pass
    issued = model.predict(x.rows(new))
    inside = ((issued.mean - y[new]).abs() < 1.96 * issued.variance.sqrt()).double().mean()
    assert 0.935 <= inside <= 0.965
