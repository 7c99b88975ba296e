"""Latent means and variances of a QSGP beside the dense posterior on the same features, rows and weights, in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Model, Shape
from streamgp.models import qsgp
from streamgp.models.qsgp.blocks import BlockEngine
from streamgp.models.qsgp.hyper import forecast, mode
from streamgp.models.qsgp.posterior import QsgpPosterior
from streamgp.online.model import StreamModel

BATCH = Shape(targets=("y",), horizon=1, lags=0, past=("y", "a", "b"), future=("a", "b"))
STREAM = Shape(targets=("y",), horizon=3, lags=4, past=("y", "a"), future=("a",))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def engine_of(model: Model) -> BlockEngine:
    assert isinstance(model, StreamModel) and isinstance(model.posterior, QsgpPosterior)
    assert isinstance(model.posterior.engine, BlockEngine)
    return model.posterior.engine


class Posterior(NamedTuple):
    mean: np.ndarray  # (N,) without the offset
    variance: np.ndarray  # (N,)


def features(engine: BlockEngine, z: Tensor) -> np.ndarray:
    return torch.cat([engine.basis.block(z.to(FLOAT), b) for b in range(engine.basis.blocks)], 1).numpy()


def oracle(engine: BlockEngine, x: Tensor, y: Tensor, share: Tensor, z: Tensor) -> Posterior:
    """Ridge regression, or Newton's method to the mode and Laplace's approximation there; of the first column."""
    there = (share > 0).numpy()
    phi, test = features(engine, x[torch.from_numpy(there)]), features(engine, z)
    target, weight, eye = y[:, 0].numpy()[there], share.numpy()[there] / engine.temper, np.eye(test.shape[1])
    mu, noise, offset = np.zeros(len(eye)), float(engine.solver.noise[0]), float(engine.sites.offset[0])
    for _ in range(60):
        if engine.sites.moving:
            p = 1.0 / (1.0 + np.exp(-(phi @ mu + offset)))
            curvature, slope = weight * p * (1.0 - p), weight * (target - p)
        else:
            curvature, slope = weight / noise, weight * (target - phi @ mu) / noise
        precision = eye + (phi.T * curvature) @ phi
        mu = mu + np.linalg.solve(precision, phi.T @ slope - mu)
    return Posterior(test @ mu, (test * np.linalg.solve(precision, test.T).T).sum(1))


def windows(shape: Shape, rows: int, outcomes: bool) -> tuple[Inputs, Tensor]:
    draws = torch.Generator().manual_seed(0)
    n = rows + shape.lags + shape.horizon
    u = 4.0 * torch.rand(n, 2, generator=draws, dtype=FLOAT) - 2.0
    noise = torch.randn(n, generator=draws, dtype=FLOAT)
    if not shape.lags:
        f = torch.sin(2.0 * u[:, 0]) * torch.cos(u[:, 1])
        chance = torch.rand(n, generator=draws, dtype=FLOAT)
        y = (chance < torch.sigmoid(4.0 * f)).to(FLOAT) if outcomes else f + 0.3 * noise
        return Inputs(torch.zeros(rows, 0, 3, dtype=FLOAT), u[:rows, None]), y[:rows, None]
    y = torch.zeros(n, dtype=FLOAT)
    for t in range(1, n):
        y[t] = 0.8 * torch.tanh(2.0 * y[t - 1]) + 0.5 * u[t, 0] + 0.2 * noise[t]
    both, origins = torch.stack((y, u[:, 0]), 1), range(shape.lags, shape.lags + rows)
    past = torch.stack([both[t - shape.lags : t] for t in origins])
    future = torch.stack([u[t : t + shape.horizon, :1] for t in origins])
    return Inputs(past, future), torch.stack([y[t : t + shape.horizon] for t in origins])


@pytest.mark.sampled
@pytest.mark.parametrize("online", [False, True], ids=["batch", "stream"])
@pytest.mark.parametrize(
    ("shape", "options"),
    [(BATCH, {}), (STREAM, {}), (BATCH, {"likelihood": "logistic"})],
    ids=["gaussian", "lags", "logistic"],
)
def test_means_and_variances_are_those_of_the_posterior(shape: Shape, options: dict[str, Any], online: bool) -> None:
    """With no covariance named: within a tenth and 0.02 standard deviations, inside the data and far outside."""
    small = {"features": {"size": 192, "width": 64}, "evidence_rows": 100, "kernel": "squared_exponential"}
    model = qsgp.build(qsgp.Config.model_validate({**small, "reservoir": 512, **options}), shape)
    assert isinstance(model, StreamModel)
    engine = engine_of(model)
    x, y = windows(shape, 420, "likelihood" in options)
    rows, test = slice(0, 400), x.rows(slice(400, None))
    far = Inputs(test.past + 6.0, test.future + 6.0)
    z_of = model.inputs
    if online:
        for start in range(0, 400, 80):
            assert model.update(x.rows(slice(start, start + 80)), y[start : start + 80]).healthy
        training = engine.current
        known, target, share = training.x, training.y, training.share
    else:
        for _ in model.fit(x.rows(rows), y[rows], model.epochs_for(400)):
            pass
        known, target, share = z_of(x.rows(rows)), model.targets(x.rows(rows), y[rows]), torch.ones(400, dtype=FLOAT)
    z = torch.cat((z_of(test), z_of(far)))
    wanted = oracle(engine, known, target, share, z)
    ratio = engine.variance(z)[:, 0].numpy() / wanted.variance
    off = np.abs(engine.mean(z)[:, 0].numpy() - wanted.mean) / np.sqrt(wanted.variance)
    assert ratio.min() > 0.9 and ratio.max() < 1.1
    assert off.max() < 0.02


def test_probabilities_are_averaged_over_the_posterior() -> None:
    """∫ σ(f) N(f; m, v) df by quadrature, with the oracle's m and v."""
    small = {"features": {"size": 64, "width": 32}, "evidence_rows": 100, "kernel": "squared_exponential"}
    model = qsgp.build(qsgp.Config.model_validate({**small, "likelihood": "logistic"}), BATCH)
    assert isinstance(model, StreamModel)
    engine = engine_of(model)
    x, y = windows(BATCH, 160, True)
    for _ in model.fit(x.rows(slice(0, 150)), y[:150], model.epochs_for(150)):
        pass
    test = x.rows(slice(150, None))
    known = model.inputs(x.rows(slice(0, 150)))
    wanted = oracle(engine, known, y[:150], torch.ones(150, dtype=FLOAT), model.inputs(test))
    issued, offset = model.predict(test).mean[:, 0].numpy(), float(engine.sites.offset[0])
    for p, m, v in zip(issued, wanted.mean + offset, wanted.variance, strict=True):
        own = quad(lambda f, m=m, v=v: norm.pdf(f, m, np.sqrt(v)) / (1.0 + np.exp(-f)), m - 40, m + 40, limit=400)[0]
        assert abs(p - own) < 2e-3


def test_a_trial_in_the_space_of_rows_ends_at_the_mode_of_weights() -> None:
    """With K = ΦΦᵀ the two are one; weights of rows, an offset and a missing outcome included."""
    draws = torch.Generator().manual_seed(3)
    phi, test = (torch.randn(n, 6, generator=draws, dtype=FLOAT) for n in (40, 5))
    y = (torch.rand(40, 2, generator=draws, dtype=FLOAT) < 0.4).to(FLOAT)
    y[3, 1] = torch.nan
    weight, offset = 0.5 + torch.rand(40, generator=draws, dtype=FLOAT), torch.tensor([0.3, -1.0], dtype=FLOAT)
    found = mode(phi @ phi.T, y, weight, offset)
    mean, variance = forecast(found, test @ phi.T, (test @ test.T).diagonal())
    for column in range(2):
        seen = torch.isfinite(y[:, column])
        own, share, mu = phi[seen], weight[seen], torch.zeros(6, dtype=FLOAT)
        for _ in range(50):
            p = torch.sigmoid(own @ mu + offset[column])
            precision = torch.eye(6, dtype=FLOAT) + own.T @ (own * (share * p * (1.0 - p))[:, None])
            mu = mu + torch.linalg.solve(precision, own.T @ (share * (y[seen, column] - p)) - mu)
        assert (mean[:, column] - test @ mu).abs().max() < 1e-6
        assert (variance[:, column] - (test @ torch.linalg.inv(precision) * test).sum(1)).abs().max() < 1e-6
