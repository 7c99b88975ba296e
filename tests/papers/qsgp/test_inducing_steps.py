"""Quadruply stochastic steps on inducing functions, Φ = S = K, against the dense bound and the exact GP."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.features.inducing import Config, Inducing, augmentation, build
from streamgp.kernels import squared_exponential
from streamgp.papers.qsgp.descent import QuadrupleDescent
from streamgp.papers.qsgp.draws import CellPair
from streamgp.papers.qsgp.rows import SampledRows
from streamgp.papers.qsgp.steps import StepOptions
from tests.regression.descent_toys import Largest, data, everything, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)


def inducing_of(points: Tensor, width: int, capacity: int = 0) -> Inducing:
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.8, outputscale=1.5), 2)
    made = build(Config(size=capacity or len(points), width=width), kernel).place(points)
    made.requires_grad_(False)
    return made


def made_of(features: Inducing, **options: object) -> QuadrupleDescent:
    steps = StepOptions(**{"support": 7, "batch": 20, **options})  # type: ignore[arg-type]
    return QuadrupleDescent(features, 2, steps, dtype=torch.float64).begin(NOISE)


def gram(features: Inducing) -> Tensor:
    order = range(features.blocks)
    return torch.cat([torch.cat([features.precision(i, j) for j in order], 1) for i in order])


def placed(made: QuadrupleDescent, x: Tensor, y: Tensor) -> SampledRows:
    """Rows at a μ that was drawn, not learned."""
    made.weights[:] = normal(len(made.weights), 2, seed=6)
    made.last.fill_(1)
    return made.rows(x, y)


def slopes(made: QuadrupleDescent, rows: SampledRows) -> tuple[Tensor, list[Tensor]]:
    """Mean of the value over all pairs of cells with every row once, and the gradient of each pair, 0 elsewhere."""
    features, count = made.features, made.features.blocks
    value, found = torch.zeros(()).double(), []
    for i in range(count):
        for j in range(count):
            draw = CellPair(i, j, float(count))
            leaves = {b: made.weights[features.span(b)].clone().requires_grad_() for b in draw.touched}
            part = made.mean_part(rows, made.see(rows, draw, torch.arange(len(rows.x))), leaves, NOISE)[0]
            whole = torch.zeros_like(made.weights)
            for block, slope in zip(leaves, torch.autograd.grad(part, list(leaves.values())), strict=True):
                whole[features.span(block)] = slope
            value, found = value + part.detach() / count**2, [*found, whole]
    return value, found


@pytest.mark.parametrize("support", [0, 7])
def test_value_and_gradient_are_unbiased(support: int) -> None:
    """Theorem 1 with a full S, with the control variates of eq. 3 and F.2 and without."""
    x, y = data(30, missing=True)
    features = inducing_of(x[:22], 8)
    made = made_of(features, support=support)
    rows = placed(made, x, y)
    phi, s = everything(features, x), gram(features)
    mu = made.weights.clone().requires_grad_()
    precision, image = ~y.isnan() / NOISE, phi @ mu
    exact = (precision * (image.square() - 2.0 * y.nan_to_num() * image)).sum() + (mu * (s @ mu)).sum()
    (slope,) = torch.autograd.grad(exact, mu)
    value, found = slopes(made, rows)
    torch.testing.assert_close(value, exact.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(torch.stack(found).mean(0), slope, rtol=1e-8, atol=1e-7)


def test_the_priors_control_variate_takes_variance() -> None:
    """Data without weight, so that μᵀSμ is all there is, as support rows near the functions."""
    x, _ = data(30)
    features = inducing_of(x[:24], 8)
    spread = []
    for support in (0, 30):
        made = made_of(features, support=support)
        made.noise.fill_(1e12)
        rows = placed(made, x, torch.zeros(30, 2).double())
        count, values = features.blocks, []
        for i in range(count):
            for j in range(count):
                draw = CellPair(i, j, float(count))
                leaves = {b: made.weights[features.span(b)] for b in draw.touched}
                drawn = made.see(rows, draw, torch.arange(30))
                values.append(made.mean_part(rows, drawn, leaves, made.noise)[0])
        spread.append(float(torch.stack(values).std()))
    assert spread[1] < 0.05 * spread[0]


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["adagrad", "preconditioned"])
def test_it_finds_the_exact_gaussian_process(optimiser: str) -> None:
    """With a function on every row the optimum is its posterior mean; rows drawn ten times over leave little noise."""
    x, y = data(60)
    features = inducing_of(x, 20)
    rate, steps, most = (0.3, 1000, 0.35) if optimiser == "adagrad" else (0.5, 500, 0.1)
    made = made_of(features, support=60, batch=600, rate=rate, optimiser=optimiser)
    rows = made.rows(x, y)
    for step in range(steps):
        made.step(rows, 1.0 - step / steps)
    k, at = gram(features), normal(40, 2, seed=9)
    cross = features.kernel(at, x)
    eye = torch.eye(60).double()
    exact = torch.stack([cross @ torch.linalg.solve(k + s * eye, y[:, t]) for t, s in enumerate(NOISE)], 1)
    off = (made.image(at).mean - exact).square().mean().sqrt()
    assert off < most * exact.std()


def test_variances_are_the_dense_ones_with_augmentation() -> None:
    """c_rr by proposition 1, then proposition 4; far away the prior. Half of the functions stand for all of them."""
    x, y = data(40)
    features = inducing_of(x, 10)
    at = torch.cat((normal(9, 2, seed=5), torch.full((1, 2), 50.0).double()))
    prior = features.prior_variance(at)
    for augment in (True, False):
        made = made_of(features, augment=augment, support=40)
        torch.testing.assert_close(made.image(at).variance, prior, rtol=0, atol=0)
        placed(made, x, y)
        phi = everything(features, x)
        made.squares.copy_(phi.square().mean(0))
        made.count.fill_(40.0)
        shared = made.variance
        diagonal = 1.0 / ((phi.square().sum(0)) / shared + 1.5)
        cross = everything(features, at)
        wanted = cross.square() @ diagonal
        if augment:
            wanted = wanted + augmentation(prior, cross.square().sum(1), shared.reshape(1))[:, 0]
        torch.testing.assert_close(made.image(at).variance, wanted, rtol=1e-6, atol=1e-9)
        assert float(made.image(at).variance[-1]) == pytest.approx(1.5 * augment, abs=1e-6)
    made.last[2:] = 0
    half = cross[:, :20].square() @ diagonal[:20] * 2.0
    torch.testing.assert_close(made.image(at).variance, half, rtol=1e-6, atol=1e-9)


def test_a_step_touches_neither_all_rows_nor_all_functions() -> None:
    x, y = data(30_000)
    made = QuadrupleDescent(inducing_of(x, 50), 2, StepOptions("preconditioned", 0.2, 40, 30)).begin(NOISE)
    rows = made.rows(x, y)
    made.step(rows)
    with Largest() as seen:
        for _ in range(5):
            made.step(rows)
    assert 0 < seen.size <= 80 * 80  # the state of a generator has 5,056 bytes


def test_functions_move_and_their_number_with_them() -> None:
    """As at a rebuild: fewer functions than were stepped, then more."""
    x, y = data(60)
    features = inducing_of(x[:45], 10, capacity=60)
    made = made_of(features, optimiser="preconditioned")
    for count in (45, 12, 60):
        features.place(x[:count])
        made.begin(NOISE)
        assert not bool(made.weights.any()) and not made.touched()
        rows = made.rows(x, y)
        for _ in range(10):
            made.step(rows)
        assert not bool(made.weights[count:].any()) and made.healthy
        wanted = everything(features, x)[rows.support] @ made.weights[:count]
        torch.testing.assert_close(rows.fit, wanted, rtol=0, atol=1e-8)


def test_what_needs_independent_weights_is_refused() -> None:
    from streamgp.papers.qsgp import site_bounds
    from streamgp.papers.qsgp.site_descent import SiteDescent

    features = inducing_of(normal(9, 2, seed=1), 4)
    for options in (StepOptions(columns=3), StepOptions(hyper=0.1)):
        with pytest.raises(UsageError, match="depend on each other"):
            QuadrupleDescent(features, 2, options)
    with pytest.raises(UsageError, match="independent weights"):
        SiteDescent(features, 2, site_bounds.logistic)
