"""Targets that are unlike each other, in one model: each is forecast as by a model of its own."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from streamgp.base import Inputs, Shape
from streamgp.evidence.thinned import JITTER, STEP, LogHyper, noises
from streamgp.models import qsgp, rvm, svdgp
from streamgp.online.model import StreamModel

FAMILIES: dict[str, Any] = {"svdgp": svdgp, "qsgp": qsgp, "rvm": rvm}
OPTIONS: dict[str, dict[str, object]] = {
    "svdgp": {"basis": 128},
    "qsgp": {"features": {"size": 256, "width": 256}},
    "rvm": {},
}
TARGETS, NOISES = ("clean", "noisy"), (0.03, 3.0)
ROWS = 900


def shape(targets: tuple[str, ...]) -> Shape:
    return Shape(targets=targets, horizon=1, lags=0, past=(*targets, "u"), future=("u",))


def toy(seed: int, targets: tuple[str, ...] = TARGETS) -> tuple[Inputs, Tensor]:
    """Windows of u, and two functions of it beside noise: the standard deviations of both functions are 0.7."""
    generator = torch.Generator().manual_seed(seed)
    u = 6.0 * torch.rand(ROWS, generator=generator, dtype=torch.float64) - 3.0
    noise = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64) * torch.tensor(NOISES)
    y = torch.stack((torch.sin(1.5 * u), torch.cos(u)), 1) + noise
    some = [TARGETS.index(target) for target in targets]
    return Inputs(u.new_zeros(ROWS, 0, len(targets) + 1), u.view(ROWS, 1, 1)), y[:, some]


def learned(family: str, targets: tuple[str, ...], batch: bool) -> StreamModel:
    """A model of one's own, that many tests begin with."""
    return copy.deepcopy(_learned(family, targets, batch))


@cache
def _learned(family: str, targets: tuple[str, ...], batch: bool) -> StreamModel:
    torch.set_num_threads(1)
    part = FAMILIES[family]
    model: StreamModel = part.build(part.Config.model_validate(OPTIONS[family]), shape(targets))
    x, y = toy(0, targets)
    if batch:
        for _ in model.fit(x, y, model.epochs_for(ROWS)):
            pass
    for start in range(0, 0 if batch else ROWS, 100):
        assert model.update(x.rows(slice(start, start + 100)), y[start : start + 100]).healthy
    return model


def scored(model: StreamModel, targets: tuple[str, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """(T,) root mean square errors on other rows, the standard deviation of forecasts over these, and the share of
    truths within 1.96 of them."""
    x, y = toy(1, targets)
    issued = model.predict(x)
    error, spread = (y - issued.mean).square().mean(0).sqrt(), issued.variance.sqrt()
    return error, issued.variance.mean(0).sqrt() / error, ((y - issued.mean).abs() < 1.96 * spread).double().mean(0)


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [False, True], ids=["stream", "batch"])
@pytest.mark.parametrize("family", FAMILIES)
def test_raw_bands_are_those_of_each_target(family: str, batch: bool) -> None:
    """With one noise for both, forecasts of the clean one were 1.2 to 26 times too wide."""
    error, wide, inside = scored(learned(family, TARGETS, batch), TARGETS)
    assert bool(((wide > 1 / 1.3) & (wide < 1.3)).all()), wide
    assert bool(((inside > 0.9) & (inside < 0.99)).all()), inside
    for place, target in enumerate(TARGETS):
        alone, _, _ = scored(learned(family, (target,), batch), (target,))
        assert float(error[place]) < 1.1 * float(alone), target


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_it_goes_on_where_it_was_interrupted(family: str) -> None:
    model, part = learned(family, TARGETS, batch=False), FAMILIES[family]
    other: StreamModel = part.build(part.Config.model_validate(OPTIONS[family]), shape(TARGETS))
    tensors, rest = model.state()
    other.restore(tensors, rest)
    x, y = toy(2)
    for one in (model, other):
        one.update(x.rows(slice(0, 50)), y[:50])
    assert model.predict(x).parameters().equal(other.predict(x).parameters())
    noise = {"svdgp": "posterior.noise", "qsgp": "posterior.engine.sites.system", "rvm": "posterior.regression.noise"}
    with pytest.raises(ValueError, match=r"\(1,\)"):
        other.restore(tensors | {noise[family]: torch.ones(1, dtype=torch.float64)}, rest)


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_the_noise_of_each_is_told(family: str) -> None:
    model = learned(family, TARGETS, batch=True)
    kernel = model.kernel
    assert kernel is not None
    for found in (kernel.noise, kernel.noise_of_fit):
        assert np.all(np.abs(np.log2(found / np.array(NOISES))) < 1.0)


def test_the_own_noise_has_the_best_evidence() -> None:
    """Against the density of the rows in NumPy, target by target, at all powers."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    spread = torch.tensor([0.05, 0.05, 1.0, 1.0], dtype=torch.float64)
    y = torch.sin(x[:, :1]) + spread * torch.randn(60, 4, generator=generator, dtype=torch.float64)
    hyper = LogHyper.unpack(torch.tensor([0.1, 0.4, 0.2, -1.5], dtype=torch.float64))
    found = noises(x, y, torch.tensor([0, 1]), hyper, outputs=2)
    assert found[0] == found[1] < 0.01 and found[2] == found[3] > 0.3
    z = (x * (-hyper.lengthscale).exp()).numpy()
    k = np.exp(0.2 - 0.5 * np.square(z[:, None] - z).sum(2))
    for target in (0, 2):
        nats = {}
        for power in range(-6, 4):
            noise = float(hyper.noise.exp()) * STEP**power
            rows = multivariate_normal(cov=k + (noise + JITTER) * np.eye(60))
            nats[noise] = -sum(rows.logpdf(y[:, t].numpy()) for t in (target, target + 1))
        assert float(found[target]) == pytest.approx(min(nats, key=nats.__getitem__))
    holes = torch.cat((y, y.new_full((20, 4), torch.nan)))  # as zeros they would be noise of the clean one
    some = torch.cat((x, x[:20] + 0.01))
    assert noises(some, holes, torch.tensor([0, 1]), hyper, outputs=2).equal(found), "what is missing says nothing"
    assert noises(x, y, torch.tensor([0, 1]), hyper, outputs=1).equal(hyper.noise.exp()), "one target: the common one"
