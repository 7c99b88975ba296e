"""What learns rows, against dense twins: ridge regression, SciPy's minimiser, dense covariances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.features import fourier
from streamgp.likelihoods import gaussian, laplace, logistic
from streamgp.models.qsgp.blocks import BlockEngine
from streamgp.models.qsgp.config import Config
from streamgp.models.qsgp.features import AUTO, basis, candidates, orthogonal
from streamgp.models.qsgp.posterior import engine_of, sites_of
from streamgp.models.qsgp.sites import within

SHAPE = Shape(targets=("y", "z"), horizon=1, lags=0, past=("y", "z", "a", "b"), future=("a", "b"))
NOISE = torch.tensor(0.2, dtype=FLOAT)
BLOCKS = {"size": 24, "width": 8}


def rows(count: int, outcomes: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    z = torch.randn(count, 2, generator=draws, dtype=FLOAT)
    f = torch.stack((torch.sin(2.0 * z[:, 0]), z.sum(1)), 1)
    y = f + 0.3 * torch.randn(count, 2, generator=draws, dtype=FLOAT)
    y = (y > 0.3).to(FLOAT) if outcomes else y
    return z, y, 0.5 + torch.rand(count, generator=draws, dtype=FLOAT)


def engine(name: str = "gaussian", **options: object) -> BlockEngine:
    config = Config.model_validate({"features": BLOCKS, "likelihood": name, "reservoir": 60, **options})
    likelihood = {"gaussian": gaussian, "laplace": laplace, "logistic": logistic}[name]
    made = engine_of(config, SHAPE, 2, likelihood.build(likelihood.Config(), 2))
    assert isinstance(made, BlockEngine)
    return made


def dense(part: BlockEngine, z: Tensor) -> Tensor:
    """Φ, whole."""
    return torch.cat([part.basis.block(z, b) for b in range(part.basis.blocks)], 1)


def test_sweeps_end_at_ridge_regression() -> None:
    z, y, share = rows(80)
    y[::5, 1] = torch.nan
    part = engine()
    part.begin(NOISE, y)
    training = part.training_rows(z, y, share)
    for place in range(200):
        part.epoch(training, place, 200)
    phi = dense(part, z)
    for column in range(2):
        seen = torch.isfinite(y[:, column])
        weighted = phi[seen] * share[seen, None]
        mu = torch.linalg.solve(phi[seen].T @ weighted + NOISE * torch.eye(phi.shape[1]), weighted.T @ y[seen, column])
        assert (phi @ mu - part.mean(z)[:, column]).abs().max() < 1e-3


@pytest.mark.parametrize("covariance", ["exact", "none"])
def test_outcomes_end_at_the_mode(covariance: str) -> None:
    """SciPy's minimiser of Σ w log(1 + e^∓(f + offset)) + ½‖μ‖², by Newton's steps and by the bound."""
    z, y, share = rows(80, outcomes=True)
    part = engine("logistic", temper=2.0, covariance=covariance)
    part.begin(NOISE, y)
    training = part.training_rows(z, y, share)
    part.accumulate(z, y, share, 0.0)
    epochs = 12 if covariance == "exact" else 150
    for place in range(epochs):
        part.epoch(training, place, epochs)
    assert part.converged
    phi = dense(part, z).numpy()
    side = np.where(y[:, 0].numpy() > 0.5, -1.0, 1.0)
    weight, offset = share.numpy() / 2.0, float(part.sites.offset[0])

    def objective(mu: np.ndarray) -> tuple[float, np.ndarray]:
        f = phi @ mu + offset
        slope = weight * side / (1.0 + np.exp(-side * f))
        return float((weight * np.logaddexp(0.0, side * f)).sum() + 0.5 * mu @ mu), phi.T @ slope + mu

    found = minimize(objective, np.zeros(phi.shape[1]), jac=True, method="L-BFGS-B", options={"gtol": 1e-9})
    assert np.abs(phi @ found.x - part.mean(z)[:, 0].numpy()).max() < 1e-3


def test_absolute_errors_are_majorised() -> None:
    """−log p + ½ μᵀSμ falls with every sweep, at a given b; an outlier moves the mean less than squares let it."""
    z, y, share = rows(80)
    part = engine("laplace")
    part.begin(NOISE, y)
    training = part.training_rows(z, y, share)
    values = []
    for place in range(30):
        part.epoch(training, place, 30)
        values.append(
            float(part.sites.misfit(y, training.fitted, training.weight).sum() + 0.5 * part.solver.mu.square().sum())
        )
    assert all(late <= early + 1e-6 for early, late in itertools.pairwise(values)) and values[-1] < values[0]
    spoiled = y.clone()
    spoiled[3] += 100.0
    moved = {}
    for name in ("gaussian", "laplace"):
        means = []
        for truth in (y, spoiled):
            part = engine(name)
            part.begin(NOISE, truth)
            training = part.training_rows(z, truth, share)
            for place in range(60):
                part.epoch(training, place, 60)
            means.append(part.mean(z))
        moved[name] = float((means[0] - means[1]).abs().mean())
    assert moved["laplace"] < 0.1 * moved["gaussian"]


@pytest.mark.parametrize("family", ["exact", "head"])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic"])
def test_variances_are_those_of_dense_covariances(family: str, name: str) -> None:
    """With what rows tell of f on average: 1/σ², 1/b², p(1 − p)."""
    z, y, share = rows(30, outcomes=name == "logistic")
    part = engine(name, covariance=family, linear=family != "head")
    assert (part.variance(z)[:, 0] - part.basis.prior_variance(z)).abs().max() < 1e-9, "before anything is learned"
    part.begin(NOISE, y)
    training = part.training_rows(z, y, share)
    part.accumulate(z, y, share, 0.0)
    for place in range(40 if name == "logistic" else 1):  # until f and its curvature move no more
        part.epoch(training, place, 1)
    if name == "logistic":
        part.accumulate(z, y, share, 0.0)
    before = part.sites.level()
    part.refresh_noise(training, 0.0)
    p = torch.sigmoid(part.mean(z) + part.sites.offset)
    told = {"gaussian": 1.0 / NOISE, "laplace": before.pow(-2).mean(), "logistic": (p * (1.0 - p)).mean(1)}[name]
    weight = (share * told)[:, None]
    phi = dense(part, z)
    a = phi.T @ (phi * weight) + torch.eye(phi.shape[1])
    if family == "exact":
        wanted = (phi @ torch.linalg.inv(a) * phi).sum(1)
    else:
        stretched = phi[:, :8] * (24 / 8) ** 0.5
        own = stretched.T @ (stretched * weight) + torch.eye(8, dtype=FLOAT)
        wanted = (stretched @ torch.linalg.inv(own) * stretched).sum(1)
    assert (part.variance(z)[:, 0] / wanted - 1).abs().max() < (1e-3 if name == "logistic" else 1e-4)


def test_the_scale_of_forecasts_errors_is_without_their_own_variance() -> None:
    """e + g, e ~ Laplace(0.5), g ~ N(0, v): at once, and in a stream."""
    draws = torch.Generator().manual_seed(4)
    uniform = torch.rand(20_000, 1, generator=draws, dtype=FLOAT) - 0.5
    latent = 0.5 * torch.rand(20_000, 1, generator=draws, dtype=FLOAT)
    error = -0.5 * uniform.sign() * torch.log1p(-2.0 * uniform.abs())
    error += latent.sqrt() * torch.randn(20_000, 1, generator=draws, dtype=FLOAT)
    for batch, left in ((20_000, 0.0), (50, 1.0)):
        sites = sites_of(laplace.build(laplace.Config(), 1), 1.0)
        sites.noise.fill_(0.1)
        for start in range(0, 20_000, batch):
            part = slice(start, start + batch)
            sites.update_noise(error[part], latent[part], left)
        assert abs(float(sites.level()) - 0.5) < 0.02


@pytest.mark.sampled
@pytest.mark.parametrize(("covariance", "updates"), [("head", 300), ("exact", 1)])
def test_a_visited_stream_comes_to_where_a_batch_does(covariance: str, updates: int) -> None:
    """Kept rows, and the sums of the head of those very rows: visits lead to the same means as sweeps; so does one
    solution of all at once."""
    z, y, share = rows(60)
    part = engine(covariance=covariance)
    part.begin(NOISE, y)
    part.keep(z, y, share, torch.arange(60))
    part.accumulate(z, y, share, 0.0)
    for _ in range(updates):
        part.learn(10)
    batch = engine(covariance=covariance)
    batch.begin(NOISE, y)
    training = batch.training_rows(z, y, share)
    batch.accumulate(z, y, share, 0.0)
    for place in range(200):
        batch.epoch(training, place, 200)
    assert (part.mean(z) - batch.mean(z)).abs().max() < 1e-3
    assert abs(part.loss(part.current) - batch.loss(training)) < 1e-2


def test_a_basis_carries_the_prior_with_orthogonal_frequencies() -> None:
    kernel = candidates(AUTO, 3)
    part = basis(fourier.Config(size=40, width=12), kernel, True, 0)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    both = [part.block(x, b) @ part.block(x, b).T for b in range(part.blocks)]
    assert (sum(both, torch.zeros(5, 5)).diagonal() / part.prior_variance(x) - 1).abs().max() < 1e-9
    assert not basis(fourier.Config(size=40, width=2), kernel, True, 0).extra, "more columns than a block"
    normals = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    turned = orthogonal(normals)
    product = turned[:3] @ turned[:3].T
    assert (product - torch.diag(product.diagonal())).abs().max() < 1e-9
    assert torch.allclose(turned.norm(dim=1), normals.norm(dim=1))


def test_the_quadratic_bounds_hold() -> None:
    """½ c (f' − t)² − ½ c (f − t)² is at least what −log p rises by, for any f'."""
    draws = torch.Generator().manual_seed(2)
    f, other = (3.0 * torch.randn(500, 2, generator=draws, dtype=FLOAT) for _ in range(2))
    for name, module in (("laplace", laplace), ("logistic", logistic)):
        sites = sites_of(module.build(module.Config(), 2), 1.0)
        y = (f > 1).to(FLOAT) if name == "logistic" else f + torch.randn(500, 2, generator=draws, dtype=FLOAT)
        sites.begin(NOISE, y)
        target, curvature = sites.working(y, f)
        rise = 0.5 * curvature * ((other - target).square() - (f - target).square())
        one = torch.ones(1, 2, dtype=FLOAT)
        each = [sites.misfit(y[i : i + 1], at[i : i + 1], one) for at in (other, f) for i in range(500)]
        actual = torch.stack(each[:500]) - torch.stack(each[500:])
        assert (rise - actual).min() > -1e-2 if name == "laplace" else (rise - actual).min() > -1e-9


def test_outliers_count_as_so_much() -> None:
    value = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    weight = torch.ones(4000, 3, dtype=FLOAT)
    assert torch.equal(within(value, weight, 25.0), value.mean(0)), "nothing is clipped where nothing is far out"
    spoiled = value.clone()
    spoiled[7] = 1e15
    assert (within(spoiled, weight, 25.0) / value.mean(0) - 1).abs().max() < 0.02
