"""Steps of a log-concave likelihood: the bound averaged over all draws, its optimum, and what they cost."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy.optimize import minimize
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.papers.qsgp import site_bounds
from streamgp.papers.qsgp.site_descent import SiteDescent, distinct
from streamgp.papers.qsgp.steps import SiteSteps
from tests.regression.descent_toys import Largest, everything, fourier_of, normal

SCALE = torch.tensor([0.2], dtype=torch.float64)
OPTIMISERS = ("adagrad", "preconditioned")


def laplace(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return site_bounds.laplace(y, mean, variance, SCALE)


LIKELIHOODS = {"logistic": site_bounds.logistic, "laplace": laplace}


def made_of(features: Features, kind: str = "logistic", targets: int = 1, **options: Any) -> SiteDescent:
    return SiteDescent(features, targets, LIKELIHOODS[kind], SiteSteps(**options), dtype=torch.float64)


def outcomes(rows: int) -> tuple[Tensor, Tensor]:
    x = normal(rows, 2, seed=2)
    return x, (torch.sin(2 * x[:, :1]) + 0.3 * normal(rows, 1, seed=3) > 0).double()


def placed(made: SiteDescent) -> Tensor:
    """Weights that are drawn, not learned; returns the C that they mean."""
    size, t, k = made.features.size, made.columns, made.options.columns
    made.weights.copy_(0.3 * normal(size, t + 1 + k, seed=6))
    made.last.fill_(1)
    return root(made)


def root(made: SiteDescent) -> Tensor:
    """(m, m) C, written out."""
    t, k = made.columns, made.options.columns
    diagonal = made.options.start * made.weights[:, t].exp()
    out = torch.diag(diagonal)
    out[:, :k] += made.weights[:, t + 1 :].tril(diagonal=-1)
    return out


def minus_elbo(features: Features, kind: str, x: Tensor, y: Tensor, stands: Tensor, mu: Tensor, c: Tensor) -> Tensor:
    """By its definition, in dense tensors."""
    phi = everything(features, x)
    variance = (phi @ c).square().sum(1, keepdim=True)
    fit = (stands[:, None] * LIKELIHOODS[kind](y, phi @ mu, variance)).sum()
    columns, entries = mu.shape[1], c.diagonal()
    kl = mu.square().sum() + columns * (c.square().sum() - len(mu) - 2.0 * entries.abs().log().sum())
    return 0.5 * kl - fit


def drawn(made: SiteDescent, x: Tensor, y: Tensor, stands: Tensor, draws: list[list[int]]) -> Tensor:
    leaves = {b: made.weights[made.features.span(b)] for b in range(made.features.blocks)}
    phi = {b: made.features.block(x, b) for b in leaves}
    return made.objective(phi, y, stands, draws, leaves)[0]


@pytest.mark.parametrize("dense", [0, 7])
@pytest.mark.parametrize("kind", ["logistic", "laplace"])
def test_with_all_blocks_it_is_the_bound(kind: str, dense: int) -> None:
    """Both forms, whatever the order of the blocks; T = 2, a target missing; the last block is shorter."""
    features, (x, y) = fourier_of(16, 6), outcomes(20)
    y = torch.cat((y, 1.0 - y), 1)
    y[3, 0] = torch.nan
    stands = normal(20, seed=4).exp()
    for draws in ([[2, 0, 1]], [[1, 0, 2], [2, 1, 0], [0, 2, 1]]):
        made = made_of(features, kind, 2, columns=dense, cells=3, form="tight" if len(draws) == 1 else "theorem")
        c = placed(made)
        exact = minus_elbo(features, kind, x, y, stands, made.weights[:, :2], c)
        torch.testing.assert_close(drawn(made, x, y, stands, draws), exact, rtol=1e-9, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["tight", "theorem"])
def test_with_fewer_blocks_it_is_above_minus_the_elbo(form: str) -> None:
    """Averaged over every draw there is; and its KL is unbiased: without rows nothing is left of the difference."""
    features, (x, y) = fourier_of(16, 4), outcomes(20)
    made = made_of(features, columns=2, cells=2, form=form)
    c = placed(made)
    pairs = [list(pair) for pair in combinations(range(4), 2)]
    draws = [[i] for i in pairs] if form == "tight" else [list(d) for d in product(pairs, repeat=3)]
    for stands in (torch.ones(20).double(), torch.zeros(20).double()):
        mean = torch.stack([drawn(made, x, y, stands, draw) for draw in draws]).mean()
        exact = minus_elbo(features, "logistic", x, y, stands, made.weights[:, :1], c)
        if bool(stands.any()):
            assert mean > exact + 0.1
        else:
            torch.testing.assert_close(mean, exact, rtol=1e-9, atol=0)


def test_rows_are_sampled_without_bias() -> None:
    """The mean over every pair of rows, drawn with replacement and weighted by n/ñ, is that over all rows."""
    features, (x, y) = fourier_of(16, 4), outcomes(6)
    made = made_of(features, columns=2, cells=2)
    placed(made)
    own = normal(6, seed=4).exp()
    whole = drawn(made, x, y, own, [[1, 3]])
    pairs = [torch.tensor(p) for p in product(range(6), repeat=2)]
    values = torch.stack([drawn(made, x[p], y[p], 3.0 * own[p], [[1, 3]]) for p in pairs])
    torch.testing.assert_close(values.mean(), whole, rtol=1e-12, atol=0)
    terms = torch.stack([drawn(made, x[[i]], y[[i]], own[[i]], [[1, 3]]) for i in range(6)])
    torch.testing.assert_close(values.var(unbiased=False), 18.0 * terms.var(unbiased=False), rtol=1e-9, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["tight", "theorem"])
@pytest.mark.parametrize("kind", ["logistic", "laplace"])
def test_gradients_are_finite_differences(kind: str, form: str) -> None:
    """For μ, log c and the dense columns of every drawn block, and for the variance of f̂, which κ is made of."""
    features, (x, y) = fourier_of(16, 4), outcomes(5)
    made = made_of(features, kind, columns=2, cells=2, form=form)
    placed(made)
    draws = [[1, 0]] if form == "tight" else [[1, 0], [0, 2], [2, 0]]
    used = sorted({b for draw in draws for b in draw})
    phi, stands = {b: features.block(x, b).detach() for b in used}, normal(5, seed=4).exp()

    def value(*leaves: Tensor) -> Tensor:
        return made.objective(phi, y, stands, draws, dict(zip(used, leaves, strict=True)))[0]

    leaves = [made.weights[features.span(b)].clone().requires_grad_() for b in used]
    assert torch.autograd.gradcheck(value, leaves, atol=1e-6)
    mean, variance = normal(5, 1, seed=8), normal(5, 1, seed=9).exp()
    both = (mean.requires_grad_(), variance.requires_grad_())
    slope, half = torch.autograd.grad(LIKELIHOODS[kind](y, *both).sum(), both, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), mean)
    torch.testing.assert_close(second, 2.0 * half, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimiser", [pytest.param("adagrad", marks=pytest.mark.slow), "preconditioned"])
def test_it_finds_the_optimum_of_the_dense_bound(optimiser: str) -> None:
    """Logistic, mean field, all blocks in a step: against SciPy on all parameters at once."""
    features, (x, y) = fourier_of(12, 4), outcomes(40)
    start, stands = np.concatenate((np.zeros(12), np.full(12, np.log(0.5)))), torch.ones(40).double()

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(z, requires_grad=True)
        bound = minus_elbo(features, "logistic", x, y, stands, leaf[:12, None], torch.diag(leaf[12:].exp()))
        (slope,) = torch.autograd.grad(bound, leaf)
        return float(bound.detach()), slope.numpy()

    best = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    steps = 250 if optimiser == "adagrad" else 60
    rate = 0.3 if optimiser == "adagrad" else 1.0
    made = made_of(features, cells=3, batch=80, rate=rate, start=0.5, optimiser=optimiser)
    rows = made.rows(x, y)
    for step in range(steps):
        made.step(rows, 1.0 - step / steps)
    found = float(minus_elbo(features, "logistic", x, y, stands, made.weights[:, :1], root(made)))
    assert best.fun <= found < best.fun + 0.02 * abs(best.fun)
    assert made.loss == pytest.approx(best.fun / 40, rel=0.15)


@pytest.mark.parametrize("optimiser", [pytest.param("adagrad", marks=pytest.mark.slow), "preconditioned"])
def test_dense_columns_raise_the_bound(optimiser: str) -> None:
    features, (x, y) = fourier_of(12, 12), outcomes(40)
    found = []
    for dense in (0, 6):
        rate = 0.3 if optimiser == "adagrad" else 1.0
        made = made_of(features, cells=1, batch=80, rate=rate, start=0.5, columns=dense, optimiser=optimiser)
        rows, steps = made.rows(x, y), 150 if optimiser == "adagrad" else 80
        for step in range(steps):
            made.step(rows, 1.0 - step / steps)
        found.append(
            float(minus_elbo(features, "logistic", x, y, torch.ones(40).double(), made.weights[:, :1], root(made)))
        )
    assert found[1] < found[0] - 0.1


def test_forecasts_are_those_of_the_dense_chevron() -> None:
    """Blocks that were never drawn have the variance of the prior."""
    features, x = fourier_of(30, 10), normal(7, 2, seed=5)
    made = made_of(features, "laplace", 2, columns=13)
    prior = features.prior_variance(x)
    torch.testing.assert_close(made.image(x).variance, prior, rtol=1e-12, atol=0)
    c, phi = placed(made), everything(features, x)
    found = made.image(x)
    torch.testing.assert_close(found.mean, phi @ made.weights[:, :2], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.variance, (phi @ c).square().sum(1), rtol=1e-10, atol=0)


@pytest.mark.sampled
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("form", ["tight", "theorem"])
def test_outcomes_are_learned_from_part_of_the_features(form: str, optimiser: str) -> None:
    features, (x, y) = fourier_of(400, 50), outcomes(600)
    rate = 0.1 if optimiser == "adagrad" else 0.5
    made = made_of(features, form=form, optimiser=optimiser, rate=rate, batch=200)
    rows = made.rows(x, y)
    for _ in range(150 if optimiser == "adagrad" else 50):
        made.step(rows)
    fresh = normal(500, 2, seed=9)
    truth = torch.sin(2 * fresh[:, :1]) > 0
    assert float(((made.image(fresh).mean > 0.0) == truth).double().mean()) > 0.88 and made.healthy


@pytest.mark.slow
def test_laplace_noise_is_learned_around_its_function() -> None:
    x = normal(1500, 2, seed=2)
    uniform = torch.rand(1500, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) - 0.5
    y = torch.sin(x[:, :1]) - 0.1 * uniform.sign() * torch.log1p(-2.0 * uniform.abs())
    y[::50] += 30.0
    for optimiser, rate, steps in (("adagrad", 0.3, 500), ("preconditioned", 0.5, 150)):
        made = made_of(fourier_of(40, 20), "laplace", cells=2, rate=rate, optimiser=optimiser, support=50)
        rows = made.rows(x, y)
        for step in range(steps):
            made.step(rows, 1.0 - step / steps)
        assert float((made.image(x).mean - torch.sin(x[:, :1])).square().mean().sqrt()) < 0.1


def test_the_image_of_the_support_rows_is_what_the_weights_say() -> None:
    features, (x, y) = fourier_of(60, 10), outcomes(40)
    for optimiser in OPTIMISERS:
        made = made_of(features, cells=2, support=7, batch=20, optimiser=optimiser)
        rows = made.rows(x, y)
        for _ in range(15):
            made.step(rows)
        wanted = everything(features, x)[rows.support] @ made.weights[:, :1]
        torch.testing.assert_close(rows.fit, wanted, rtol=0, atol=1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [0, 3])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("form", ["tight", "theorem"])
def test_a_step_touches_neither_all_rows_nor_all_features(form: str, optimiser: str, columns: int) -> None:
    """The largest tensor that a step reads, writes or makes is the same at m = 10⁵ and 10⁷, n = 10³ and 10⁵: the
    quadrature of a mini-batch, or the features of its blocks."""
    seen = []
    for rows_, size in ((1_000, 100_000), (100_000, 10_000_000)):
        x, y = outcomes(rows_)
        options = SiteSteps(optimiser, 0.1, 50, cells=3, columns=columns, form=form, support=20)  # type: ignore[arg-type]
        made = SiteDescent(fourier_of(size, 100), 1, site_bounds.logistic, options)
        rows = made.rows(x, y)
        made.step(rows)
        with Largest() as largest:
            for _ in range(3):
                made.step(rows)
        seen.append(largest.size)
        assert float(made.image(x[:3]).variance.min()) > 1.0, "nearly all features were never drawn"
    assert seen[0] == seen[1] <= (300 * 300 if form == "theorem" else 50 * 303)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_restored_it_goes_on_bit_for_bit(optimiser: str) -> None:
    x, y = outcomes(60)

    def make() -> SiteDescent:
        return made_of(fourier_of(100, 10), "laplace", cells=2, batch=10, columns=3, support=8, optimiser=optimiser)

    whole, broken = make(), make()
    rows, other = whole.rows(x, y), broken.rows(x, y)
    for _ in range(3):
        for _ in range(3):
            whole.step(rows)
            broken.step(other)
        assert torch.equal(whole.image(x).mean, broken.image(x).mean) and whole.loss == broken.loss
        fresh = make()
        again = fresh.rows(torch.zeros_like(x), torch.zeros_like(y))
        for new, old in ((fresh, broken), (again, other)):
            state = load(save({n: v.detach().contiguous() for n, v in old.state_dict().items()}))
            with torch.no_grad():
                for name, value in new.state_dict().items():
                    value.copy_(state[name])
        again.attach(x)
        broken, other = fresh, again
    whole.begin()
    assert not whole.touched() and not bool(whole.weights.any())


def test_numbers_without_repetition_are_uniform() -> None:
    """χ² of 10 pairs of 5 numbers at 4000 draws: |z| < 5."""
    generator, counts = torch.Generator().manual_seed(0), dict.fromkeys(combinations(range(5), 2), 0)
    for _ in range(4000):
        a, b = sorted(distinct(2, 5, generator))
        counts[a, b] += 1
    chi = sum((count - 400.0) ** 2 / 400.0 for count in counts.values())
    assert abs(chi - 9.0) < 5.0 * 18.0**0.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="13 dense columns of 12 features"):
        made_of(fourier_of(12, 4), columns=13)
