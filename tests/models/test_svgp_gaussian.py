"""q under Gaussian noise against dense twins, the exact evidence, and GPyTorch; and the invariances of its sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.models.svgp.gaussian import GaussianHead, Spectrum
from streamgp.models.svgp.prior import JITTER, SparsePrior
from streamgp.objectives.sparse import Belief
from tests.kernels.twins import gpytorch
from tests.models import oracles_svdgp as oracle
from tests.models.svgp_toys import COLUMNS, LENGTH, RHO, bound, data, evidence, gram, part, prior


def learned(sparse: SparsePrior, *rows: tuple[Tensor, Tensor], kept: float = 1.0) -> GaussianHead:
    head = GaussianHead(len(sparse.points), COLUMNS)
    for x, y in rows:
        head.absorb(part(sparse, x, y), kept)
    return head


def test_it_is_the_optimal_sparse_posterior_of_every_columns_own_noise() -> None:
    (x, y), (q, _) = data(150), data(30, seed=1)
    sparse = prior(x[:25])
    head = learned(sparse, (x, y))
    mean, variance = head.moments(*sparse.features(q))
    for t in range(COLUMNS):
        noise = np.full(150, float(head.noise[t]))
        arrays = (x.numpy(), q.numpy(), x[:25].numpy(), y[:, t : t + 1].numpy(), noise)
        wanted = oracle.projected(*arrays, (1 / LENGTH).numpy(), RHO, JITTER * RHO)
        np.testing.assert_allclose(mean[:, t], wanted[0][:, 0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(variance[:, t], wanted[1], rtol=1e-6, atol=1e-8)


def test_every_noise_is_where_the_dense_bound_is_largest_and_the_loss_is_that_bound() -> None:
    x, y = data(120)
    head = learned(prior(x[:20]), (x, y))
    best = []
    for t in range(COLUMNS):
        own = y[:, t].numpy()
        found = minimize_scalar(lambda s, own=own: -bound(x, x[:20], own, float(np.exp(s))), bounds=(-8, 1))
        assert head.noise[t].log().item() == pytest.approx(found.x, abs=1e-3)
        best.append(found.fun)
    assert head.loss() == pytest.approx(np.mean(best) / 120, rel=1e-6)
    assert head.noise[0] < head.noise[1]


def test_the_bound_is_below_the_evidence_and_meets_it_where_inducing_inputs_are_the_rows() -> None:
    x, y = data(60)
    exact = [evidence(gram(x, x), y[:, t].numpy(), 0.1) for t in range(COLUMNS)]
    for size, gap in ((15, 1.0), (60, None)):
        head = learned(prior(x[:size]), (x, y))
        spectrum = Spectrum(head.values, head.vectors.T @ head.natural.moment, head.square, head.mass, head.slack)
        found = spectrum.bound(torch.full((COLUMNS,), 0.1, dtype=FLOAT)).numpy()
        assert (found < exact).all()
        if gap is None:
            np.testing.assert_allclose(found, exact, atol=2e-3)  # the jitter, 60 times 1e-6 ρ²/σ²
        else:
            assert (found < np.array(exact) - gap).all()


def test_bound_and_predictions_are_gpytorchs() -> None:
    x, y = data(80)
    z, column, noise = x[:12], y[:, 0], 0.2
    generator = torch.Generator().manual_seed(5)
    mean = torch.randn(12, 1, generator=generator, dtype=FLOAT)
    root = torch.randn(12, 12, generator=generator, dtype=FLOAT).tril() / 4
    root.diagonal().abs_().add_(0.1)

    class Twin(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            family = gpytorch.variational.CholeskyVariationalDistribution(12)
            strategy = gpytorch.variational.VariationalStrategy(self, z.clone(), family, jitter_val=JITTER * RHO)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))

        def forward(self, rows: Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    twin, likelihood = Twin().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    twin.covar_module.outputscale, twin.covar_module.base_kernel.lengthscale = RHO, LENGTH[None]
    likelihood.noise = noise
    family = twin.variational_strategy._variational_distribution
    family.variational_mean.data, family.chol_variational_covar.data = mean[:, 0].clone(), root.clone()
    twin.variational_strategy.variational_params_initialized.fill_(1)
    twin.train()
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(1000):
        wanted = 80 * gpytorch.mlls.VariationalELBO(likelihood, twin, num_data=80)(twin(x), column)
        twin.eval()
        latent = twin(x)
    covariance = root @ root.T
    belief = Belief(mean, (covariance - torch.eye(12, dtype=FLOAT))[None], torch.logdet(covariance)[None])
    head = GaussianHead(12, 1)
    head.start(column[:, None], torch.tensor(noise, dtype=FLOAT))
    rows = part(prior(z), x, column[:, None])
    rows = rows._replace(prior=rows.prior + JITTER * RHO)  # GPyTorch adds its jitter to the rows as well
    with torch.no_grad():
        terms = head.terms(rows, belief)
        found = belief.moments(rows.phi, rows.prior)
    assert float(terms.value - belief.divergence()) == pytest.approx(float(wanted), rel=1e-6)
    torch.testing.assert_close(found[0][:, 0], latent.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found[1][:, 0], latent.variance, rtol=1e-6, atol=1e-8)


def test_learning_in_pieces_and_in_any_order_is_learning_at_once() -> None:
    (x, y), (q, _) = data(90), data(10, seed=1)
    sparse = prior(x[:20], capacity=30)
    whole = learned(sparse, (x, y)).moments(*sparse.features(q))
    pieces = learned(sparse, *((x[rows], y[rows]) for rows in (slice(60, 90), slice(0, 30), slice(30, 60))))
    for one, other in zip(whole, pieces.moments(*sparse.features(q)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
    swept = GaussianHead(30, COLUMNS)
    swept.learn(lambda: iter([part(sparse, x[:50], y[:50]), part(sparse, x[50:], y[50:])]), sweeps=1)
    for one, other in zip(whole, swept.moments(*sparse.features(q)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_forgetting_is_a_weight_and_leaves_the_prior() -> None:
    (x, y), (q, _) = data(60), data(10, seed=1)
    sparse = prior(x[:20])
    faded = learned(sparse, (x[:30], y[:30]), (x[30:], y[30:]), kept=0.25)
    weighed = GaussianHead(20, COLUMNS)
    weighed.absorb(part(sparse, x[:30], y[:30], weight=0.25), 1.0)
    weighed.absorb(part(sparse, x[30:], y[30:]), 1.0)
    for one, other in zip(faded.moments(*sparse.features(q)), weighed.moments(*sparse.features(q)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    for _ in range(400):
        faded.absorb(part(sparse, x[:0], y[:0]), 0.5)
    variance = faded.moments(*sparse.features(q))[1]
    torch.testing.assert_close(variance, torch.full_like(variance, RHO), rtol=1e-9, atol=0)


def test_a_missing_target_teaches_its_column_nothing() -> None:
    (x, y), (q, _) = data(200), data(10, seed=1)
    sparse = prior(x[:20])
    head = learned(sparse, (x[:160], y[:160]))
    before, noise = head.moments(*sparse.features(q))[0], head.noise[1].item()
    holes = y[160:].clone()
    holes[:, 1] = torch.nan
    head.absorb(part(sparse, x[160:], holes), 1.0)
    after = head.moments(*sparse.features(q))[0]
    assert (after[:, 1] - before[:, 1]).abs().max() < 0.05 and (after[:, 0] - before[:, 0]).abs().max() > 1e-3
    assert head.noise[1].item() == pytest.approx(noise, rel=0.3)


def test_the_noise_of_residuals_is_what_the_latent_variance_leaves() -> None:
    x, y = data(150)
    sparse = prior(x[:25])
    head = GaussianHead(25, COLUMNS)
    head.absorb(part(sparse, x, y), 1.0)
    mean, variance = head.moments(*sparse.features(x))
    square = (y - mean).square().mean(0)
    wanted = torch.maximum(square - variance.mean(0), 0.1 * square)
    torch.testing.assert_close(head.served, wanted, rtol=1e-6, atol=0)
    assert bool((head.served < head.noise).all())
