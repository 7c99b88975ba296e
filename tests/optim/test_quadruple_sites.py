"""Stochastic steps with log-concave likelihoods: the bound averaged over all draws, its optimum, and what they cost."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy.optimize import minimize
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.likelihoods import Likelihood, gaussian, laplace, logistic
from streamgp.linalg.chevron import Chevron
from streamgp.optim.quadruple_sites import SiteConfig, SiteDescent, distinct
from tests.optim.descent_toys import Largest, everything, fourier_of, inducing_of, normal

EXACT = {"dtype": "float64", "likelihood_rate": 0.0}


def likelihood_of(kind: str, columns: int = 1) -> Likelihood:
    made: Likelihood = {
        "logistic": lambda: logistic.build(logistic.Config(), columns),
        "laplace": lambda: laplace.build(laplace.Config(), columns),
        "gaussian": lambda: gaussian.build(gaussian.Config(), columns),
    }[kind]()
    return made


def outcomes(rows: int) -> tuple[Tensor, Tensor]:
    x = normal(rows, 2, seed=2)
    return x, (torch.sin(2 * x[:, :1]) + 0.3 * normal(rows, 1, seed=3) > 0).double()


def placed(made: SiteDescent) -> Chevron:
    """Weights that are drawn, not learned, and the C that they mean."""
    size, t, k = made.features.size, made.columns, made.config.dense_columns
    made.weights.copy_(0.3 * normal(size, t + 1 + k, seed=6))
    made.last.fill_(1)
    diagonal = made.config.start * made.weights[:, t].exp()
    dense = made.weights[:, t + 1 :].tril(diagonal=-1)
    dense[range(k), range(k)] = diagonal[:k]
    return Chevron(diagonal, dense)


def minus_elbo(
    features: Features, likelihood: Likelihood, x: Tensor, y: Tensor, stands: Tensor, mu: Tensor, c: Tensor
) -> Tensor:
    """By its definition, in dense tensors."""
    phi = everything(features, x)
    variance = (phi @ c).square().sum(1, keepdim=True)
    fit = (stands[:, None] * likelihood.expected_log_prob(y, phi @ mu, variance)).sum()
    columns, entries = mu.shape[1], c.diagonal()
    kl = mu.square().sum() + columns * (c.square().sum() - len(mu) - 2.0 * entries.abs().log().sum())
    return 0.5 * kl - fit


@pytest.mark.parametrize("dense", [0, 7])
@pytest.mark.parametrize("kind", ["logistic", "laplace"])
def test_with_all_cells_it_is_the_bound(kind: str, dense: int) -> None:
    """Both forms, whatever the order of the cells; T = 2, a target missing; the last cell is shorter."""
    features, likelihood, (x, y) = fourier_of(16, 6), likelihood_of(kind, 2), outcomes(20)
    y = torch.cat((y, 1.0 - y), 1)
    y[3, 0] = torch.nan
    stands = normal(20, seed=4).exp()
    for form, draws in (("tight", [[2, 0, 1], [2, 0, 1]]), ("drawn", [[1, 0, 2], [2, 1, 0], [0, 2, 1]])):
        made = SiteDescent(features, likelihood, SiteConfig(form=form, cells=3, dense_columns=dense, **EXACT))
        c = placed(made).matrix()
        leaves = {b: made.current(b) for b in range(3)}
        exact = minus_elbo(features, likelihood, x, y, stands, made.mu, c)
        found = made.objective(x, y, stands, draws, leaves)
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize("form", ["tight", "drawn"])
def test_with_fewer_cells_it_is_above_minus_the_elbo(form: str) -> None:
    """Averaged over every draw there is; and its KL is unbiased: without rows nothing is left of the difference."""
    features, likelihood, (x, y) = fourier_of(16, 4), likelihood_of("logistic"), outcomes(20)
    made = SiteDescent(features, likelihood, SiteConfig(form=form, cells=2, dense_columns=2, **EXACT))  # type: ignore[arg-type]
    c = placed(made).matrix()
    leaves = {b: made.current(b) for b in range(4)}
    pairs = [list(pair) for pair in combinations(range(4), 2)]
    draws = [[i, i] for i in pairs] if form == "tight" else [list(d) for d in product(pairs, repeat=3)]
    for stands in (torch.ones(20).double(), torch.zeros(20).double()):
        mean = torch.stack([made.objective(x, y, stands, draw, leaves) for draw in draws]).mean()
        exact = minus_elbo(features, likelihood, x, y, stands, made.mu, c)
        if bool(stands.any()):
            assert mean > exact + 0.1
        else:
            torch.testing.assert_close(mean, exact, rtol=1e-9, atol=0)


def test_it_finds_the_optimum_of_the_dense_bound() -> None:
    """Logistic, mean field, all cells in a step: against SciPy on all parameters at once."""
    features, likelihood, (x, y) = fourier_of(12, 4), likelihood_of("logistic"), outcomes(40)
    start = np.concatenate((np.zeros(12), np.full(12, np.log(0.5))))

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(z, requires_grad=True)
        bound = minus_elbo(
            features, likelihood, x, y, torch.ones(40).double(), leaf[:12, None], torch.diag(leaf[12:].exp())
        )
        (slope,) = torch.autograd.grad(bound, leaf)
        return float(bound.detach()), slope.numpy()

    best = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    made = SiteDescent(features, likelihood, SiteConfig(cells=3, batch=40, rate=0.3, start=0.5, **EXACT))
    for step in range(250):
        made.step(x, y, decay=1.0 - step / 250)
    c = made.covariance().matrix(features)
    found = minus_elbo(features, likelihood, x, y, torch.ones(40).double(), made.mu, c)
    assert best.fun <= float(found) < best.fun + 0.02 * abs(best.fun)
    assert made.loss == pytest.approx(best.fun / 40, rel=0.1)


def test_dense_columns_raise_the_bound() -> None:
    features, likelihood, (x, y) = fourier_of(12, 12), likelihood_of("logistic"), outcomes(40)
    found = []
    for dense in (0, 6):
        made = SiteDescent(
            features, likelihood, SiteConfig(cells=1, batch=40, rate=0.3, start=0.5, dense_columns=dense, **EXACT)
        )
        for step in range(150):
            made.step(x, y, decay=1.0 - step / 150)
        c = made.covariance().matrix(features)
        found.append(float(minus_elbo(features, likelihood, x, y, torch.ones(40).double(), made.mu, c)))
    assert found[1] < found[0] - 0.1


@pytest.mark.parametrize("form", ["tight", pytest.param("drawn", marks=pytest.mark.slow)])
def test_outcomes_are_learned_from_part_of_the_features(form: str) -> None:
    features, likelihood, (x, y) = fourier_of(400, 50), likelihood_of("logistic"), outcomes(600)
    made = SiteDescent(features, likelihood, SiteConfig(form=form))  # type: ignore[arg-type]
    for _ in range(150):
        made.step(x, y)
    fresh = normal(500, 2, seed=9)
    truth = (torch.sin(2 * fresh[:, :1]) > 0).double()
    p = likelihood.predictive(made.mean(fresh), made.covariance().variance(features, fresh)[:, None]).mean
    assert float(((p > 0.5).double() == truth).double().mean()) > 0.88 and made.healthy


def test_the_scale_of_laplace_noise_is_learned() -> None:
    """With few features against rows, from too much to nearly that of the data: mean distance 0.1."""
    x = normal(1500, 2, seed=2)
    uniform = torch.rand(1500, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) - 0.5
    y = torch.sin(x[:, :1]) - 0.1 * uniform.sign() * torch.log1p(-2.0 * uniform.abs())
    likelihood = likelihood_of("laplace")
    likelihood.start(torch.ones(1).double() * 10.0)
    assert float(likelihood.scale.detach()) > 0.5
    features = fourier_of(40, 20)
    made = SiteDescent(features, likelihood, SiteConfig(cells=2, rate=0.3, likelihood_rate=0.03))
    for step in range(500):
        made.step(x, y, decay=1.0 - step / 500)
    assert 0.09 < float(likelihood.scale.detach()) < 0.13
    assert float((made.mean(x) - torch.sin(x[:, :1])).square().mean().sqrt()) < 0.1


def test_hyper_parameters_move_if_they_may() -> None:
    features, likelihood, (x, y) = fourier_of(40, 20), likelihood_of("logistic"), outcomes(100)
    before = [p.detach().clone() for p in features.parameters()]
    SiteDescent(features, likelihood).step(x, y)
    assert all(torch.equal(p, q) for p, q in zip(features.parameters(), before, strict=True))
    made = SiteDescent(features, likelihood, SiteConfig(hyper_rate=0.01))
    for _ in range(3):
        made.step(x, y)
    assert all(not torch.equal(p, q) for p, q in zip(features.parameters(), before, strict=True))
    for p in features.parameters():
        p.mul_(1.0)  # as a rebuild does: in place, without a graph


@pytest.mark.parametrize("form", ["tight", "drawn"])
def test_a_step_touches_neither_all_rows_nor_all_features(form: str) -> None:
    x, y = outcomes(300_000)
    made = SiteDescent(fourier_of(10_000_000, 100), likelihood_of("logistic"), SiteConfig(form=form, dense_columns=3))  # type: ignore[arg-type]
    made.step(x, y)
    with Largest() as seen:
        for _ in range(5):
            made.step(x, y)
    assert 0 < seen.size <= 420 * 420
    rest = made.covariance().rest
    assert float(rest) == pytest.approx(1.0, rel=1e-3)


def test_blocks_never_drawn_have_the_variance_of_the_prior() -> None:
    """Those of the dense columns, those of a diagonal S other than 1, and all others."""
    x = normal(7, 2, seed=5)
    for features, dense in ((fourier_of(40, 10), 12), (inducing_of(11, 4, independent=True), 0)):
        made = SiteDescent(features, likelihood_of("logistic"), SiteConfig(cells=1, dense_columns=dense, **EXACT))
        precision = torch.cat([made.prior(b) for b in range(features.blocks)])
        prior = (everything(features, x).square() / precision).sum(1)
        torch.testing.assert_close(made.covariance().variance(features, x), prior, rtol=1e-9, atol=0)
        made.step(*outcomes(20))
        assert bool((made.covariance().variance(features, x) < prior).all())


def test_restored_it_goes_on_bit_for_bit() -> None:
    x, y = outcomes(60)
    config = SiteConfig(cells=2, batch=10, hyper_rate=0.01)

    def make() -> SiteDescent:
        return SiteDescent(fourier_of(100, 10), likelihood_of("laplace"), config)

    whole, broken = make(), make()
    for _ in range(5):
        for _ in range(3):
            whole.step(x, y, torch.ones(60))
            broken.step(x, y, torch.ones(60))
        assert torch.equal(whole.mean(x), broken.mean(x)) and whole.loss == broken.loss
        fresh, state = make(), load(save({n: v.detach().contiguous() for n, v in broken.state_dict().items()}))
        with torch.no_grad():
            for name, value in fresh.state_dict().items():
                value.copy_(state[name])
        broken = fresh
    whole.forget()
    assert not whole.touched() and not bool(whole.weights.any()) and not bool(whole.sums.any())


def test_numbers_without_repetition_are_uniform() -> None:
    """χ² of 10 pairs of 5 numbers at 4000 draws: |z| < 4."""
    generator, counts = torch.Generator().manual_seed(0), dict.fromkeys(combinations(range(5), 2), 0)
    for _ in range(4000):
        a, b = sorted(distinct(2, 5, generator))
        counts[a, b] += 1
    chi = sum((count - 400.0) ** 2 / 400.0 for count in counts.values())
    assert abs(chi - 9.0) < 4.0 * 18.0**0.5


def test_weights_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="independent weights"):
        SiteDescent(inducing_of(11, 4, independent=False), likelihood_of("logistic"))
    with pytest.raises(UsageError, match="dense_columns=13 of 12 features"):
        SiteDescent(fourier_of(12, 4), likelihood_of("logistic"), SiteConfig(dense_columns=13))
