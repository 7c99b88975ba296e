"""Quadruply stochastic steps: gradients averaged over all samplings against the dense bound, and what they lead to."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from streamgp.features import Features
from streamgp.models.qsgp.features import Basis
from streamgp.papers.qsgp.descent import QuadrupleDescent
from streamgp.papers.qsgp.draws import CellPair
from streamgp.papers.qsgp.rows import SampledRows
from streamgp.papers.qsgp.steps import StepOptions
from tests.regression.descent_toys import Largest, data, everything, fourier_of, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)
WEIGHT = {"none": None, "rows": normal(30, seed=4).exp()}
OPTIMISERS = ("adagrad", "preconditioned")


def made_of(features: Features, **options: Any) -> QuadrupleDescent:
    return QuadrupleDescent(
        features, 2, StepOptions(**{"support": 7, "batch": 20, **options}), dtype=torch.float64
    ).begin(NOISE)


def leaf(made: QuadrupleDescent, block: int) -> Tensor:
    return made.weights[made.features.span(block)].clone().requires_grad_()


def placed(made: QuadrupleDescent, x: Tensor, y: Tensor, weight: Tensor | None) -> SampledRows:
    """Rows at a μ that was drawn, not learned."""
    made.weights[:] = normal(len(made.weights), made.total, seed=6)
    k = made.options.columns
    made.weights[:, 2:] *= torch.ones(len(made.weights), k).tril(-1)
    made.norms.copy_(made.weights[:, 2:].square().sum(0))
    made.last.fill_(1)
    return made.rows(x, y, weight)


@pytest.mark.parametrize("support", [0, 7])
@pytest.mark.parametrize("weights", ["none", "rows"])
def test_value_and_gradient_are_unbiased(weights: str, support: int) -> None:
    """The mean over all pairs of cells, with every row once, is the bound's, for the means and the dense columns."""
    features, k = fourier_of(30, 10), 3 if support else 0
    made = made_of(features, support=support, columns=k)
    x, y = data(30, missing=True)
    rows = placed(made, x, y, WEIGHT[weights])
    phi = everything(features, x)
    own = torch.ones(30).double() if WEIGHT[weights] is None else WEIGHT[weights]
    precision = own[:, None] * ~y.isnan() / NOISE  # type: ignore[index]
    precision = torch.cat((precision, precision.mean(1, keepdim=True).expand(-1, k)), 1)
    target = torch.cat((y.nan_to_num(), -phi[:, :k]), 1)
    mu = made.weights.clone().requires_grad_()
    image = phi @ mu
    exact = (precision * (image.square() - 2 * target * image)).sum() + mu.square().sum()
    (slope,) = torch.autograd.grad(exact, mu)
    cells, value, total = features.blocks, 0.0, torch.zeros_like(slope)
    for i in range(cells):
        for j in range(cells):
            draw = CellPair(i, j, float(cells))
            leaves = {b: leaf(made, b) for b in draw.touched}
            parts = made.mean_part(rows, made.see(rows, draw, torch.arange(30)), leaves, NOISE)
            for block, gradient in zip(leaves, torch.autograd.grad(sum(parts), list(leaves.values())), strict=True):
                total[features.span(block)] += gradient / cells**2
            value += float(sum(part.detach() for part in parts)) / cells**2
    assert value == pytest.approx(float(exact.detach()), rel=1e-9)
    torch.testing.assert_close(total, slope, rtol=1e-8, atol=1e-8)


def test_control_variates_take_the_variance_of_sampled_features() -> None:
    """Over all pairs of cells: with all rows in the support nothing is left of the quadratic term's."""
    features, (x, y) = fourier_of(30, 10), data(30)
    variances = []
    for support in (0, 10, 30):
        made = made_of(features, support=support)
        rows = placed(made, x, y, None)
        found = []
        for i in range(3):
            for j in range(3):
                draw = CellPair(i, j, 3.0)
                leaves = {b: leaf(made, b) for b in draw.touched}
                slopes = torch.autograd.grad(
                    sum(made.mean_part(rows, made.see(rows, draw, torch.arange(30)), leaves, NOISE)), leaves.values()
                )
                whole = torch.zeros_like(made.weights)
                for block, slope in zip(leaves, slopes, strict=True):
                    whole[features.span(block)] = slope / draw.scale
                found.append(torch.where(whole == 0.0, torch.nan, whole))
        stack = torch.stack(found)
        centred = stack - stack.nanmean(0)
        variances.append(float(centred.square().nanmean()))
    assert variances[2] < 0.15 * variances[0] and variances[2] < variances[1]


def test_variances_are_the_dense_chevrons() -> None:
    """Proposition 1 on the diagonal, and c_r = c_rr (e_r + u_r) with the best c_rr given u_r."""
    features, k, (x, y) = fourier_of(30, 10), 3, data(200)
    made = made_of(features, columns=k, support=200)
    rows = placed(made, x, y, None)
    made.weights[:, 2:] *= 0.1
    made.norms.copy_(made.weights[:, 2:].square().sum(0))
    made.renew(rows)
    made.count.fill_(200.0)
    phi = everything(features, x)
    made.squares.copy_(phi.square().mean(0))
    made._note(rows)
    shared = float((1.0 / NOISE).mean())
    matrix = phi.T @ phi * shared + torch.eye(30).double()
    root = torch.diag(1.0 / matrix.diagonal().sqrt())
    for r in range(k):
        column = made.weights[:, 2 + r].clone()
        column[r] += 1.0
        root[:, r] = column / (column @ matrix @ column).sqrt()
    expected = (phi @ root).square().sum(1)
    torch.testing.assert_close(made.image(x).variance, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_dense_columns_find_their_optimum(optimiser: str) -> None:
    """c_r = A_rr⁻¹e₁/√(e₁ᵀA_rr⁻¹e₁): the variance of inputs falls from the mean field's to the closed form's."""
    from streamgp.papers.qsgp.quadruple import dense_optimum

    features, k, (x, y) = fourier_of(20, 10), 10, data(200)
    made = made_of(features, columns=k, support=200, batch=100, optimiser=optimiser, rate=0.2)
    rows = made.rows(x, y)
    for step in range(1500):
        made.step(rows, 0.997**step)
    phi = everything(features, x)
    matrix = phi.T @ phi * float((1.0 / NOISE).mean()) + torch.eye(20).double()
    diagonal = phi.square() @ (1.0 / matrix.diagonal())
    best = (phi @ dense_optimum(matrix, k)).square().sum(1) + (phi.square() / matrix.diagonal())[:, k:].sum(1)
    found = made.image(x).variance
    assert float((found - best).abs().mean()) < 0.1 * float((diagonal - best).abs().mean())


def test_the_gradient_for_hyper_parameters_is_that_of_the_bound() -> None:
    """Averaged over all cells, against finite differences of the dense bound at the same μ and C."""
    features = fourier_of(30, 10)
    made = made_of(features, hyper=0.01, support=30)
    x, y = data(30, missing=True)
    own = WEIGHT["rows"]
    assert own is not None
    rows = placed(made, x, y, own)
    cells, weight = features.blocks, own[:, None] * ~y.isnan()

    def bound(noise: Tensor, entries: Tensor) -> float:
        """−2 ELBO by its definition, up to the prior's constant."""
        phi = everything(features, x)
        error = (y.nan_to_num() - phi @ made.weights).square() + (phi.square() @ entries)[:, None]
        return float((weight * (error / noise + (2 * torch.pi * noise).log())).sum())

    phi = everything(features, x)
    made.squares.copy_(own @ phi.square() / own.sum())
    entries = 1.0 / (1.0 + rows.count.mean() / made.variance * made.squares.double())
    made.last.zero_()
    leaves = {b: leaf(made, b) for b in range(cells)}
    theta, log_noise = list(features.parameters()), NOISE.log().requires_grad_()
    found = [torch.zeros_like(p) for p in (*theta, log_noise)]
    for i in range(cells):
        for j in range(cells):
            drawn = made.see(rows, CellPair(i, j, float(cells)), torch.arange(30), learning=True)
            value = sum(made.mean_part(rows, drawn, leaves, log_noise.exp())) + made.rest(rows, drawn, log_noise.exp())
            for total, gradient in zip(found, torch.autograd.grad(value, (*theta, log_noise)), strict=True):
                total += gradient / cells**2
    step = 1e-6
    for parameter, gradient in zip(theta, found, strict=False):
        for place in range(parameter.numel()):
            both = []
            for side in (step, -step):
                with torch.no_grad():
                    parameter.view(-1)[place] += side
                    both.append(bound(NOISE, entries))
                    parameter.view(-1)[place] -= side
            assert float(gradient.flatten()[place]) == pytest.approx((both[0] - both[1]) / (2 * step), rel=1e-4)
    for place in range(2):
        shift = torch.zeros(2).double()
        shift[place] = step
        slope = (bound(NOISE * shift.exp(), entries) - bound(NOISE * (-shift).exp(), entries)) / (2 * step)
        assert float(found[-1][place]) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_running_expectation_is_what_the_weights_say(optimiser: str) -> None:
    made = made_of(fourier_of(60, 10), columns=2, optimiser=optimiser)
    x, y = data(40, missing=True)
    rows = made.rows(x, y)
    for _ in range(30):
        made.step(rows)
    phi = everything(made.features, x)
    torch.testing.assert_close(rows.fit, phi[rows.support] @ made.weights, rtol=0, atol=1e-9)
    torch.testing.assert_close(made.norms, made.weights[:, 2:].square().sum(0), rtol=0, atol=1e-9)
    assert float(made.weights[:2, 2:].triu().abs().max()) == 0.0  # nothing above the diagonal, and no diagonal
    places = rows.support[:3]
    made.put(rows, places, 2 * x[:3], y[:3], torch.ones(3).double())
    moved = x.clone()
    moved[places] = 2 * x[:3]
    expected = everything(made.features, moved)[rows.support] @ made.weights
    torch.testing.assert_close(rows.fit, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("optimiser", [pytest.param("adagrad", marks=pytest.mark.slow), "preconditioned"])
def test_it_descends_towards_the_dense_solution(optimiser: str) -> None:
    features, (x, y) = fourier_of(40, 20), data(200)
    steps, rate = (800, 0.3) if optimiser == "adagrad" else (150, 0.5)
    made = made_of(features, support=200, batch=100, rate=rate, optimiser=optimiser)
    rows = made.rows(x, y)
    for step in range(steps):
        made.step(rows, 1.0 - step / steps)
    phi = everything(features, x)
    solution = torch.stack(
        [torch.linalg.solve(phi.T @ phi + s * torch.eye(40).double(), phi.T @ y[:, t]) for t, s in enumerate(NOISE)], 1
    )
    off = (made.image(x).mean - phi @ solution).square().mean().sqrt()
    assert off < 0.08 * (phi @ solution).std()


@pytest.mark.slow
def test_hyper_parameters_are_learned() -> None:
    """Noise starts at ten times that of the data, 0.01; with one block the rows are all that is drawn."""
    features, (x, y) = fourier_of(40, 40), data(400)
    made = made_of(features, hyper=0.02, batch=200, support=200, restart=20, rate=0.3).begin(0.1)
    before = [p.detach().clone() for p in features.parameters()]
    rows = made.rows(x, y)
    for step in range(500):
        made.step(rows, 1.0 - step / 500)
    assert made.healthy and all(not p.requires_grad for p in features.parameters())
    assert all(not torch.equal(p, q) for p, q in zip(features.parameters(), before, strict=True))
    assert bool(((made.noise > 0.008) & (made.noise < 0.02)).all()), made.noise


def test_the_running_loss_is_the_bound() -> None:
    """At a fixed μ, averaged over draws: |z| < 5 of 200."""
    made = made_of(fourier_of(30, 10), rate=1e-12, support=30)
    x, y = data(30)
    rows = placed(made, x, y, None)
    made.weights *= 0.3
    made.renew(rows)
    phi = everything(made.features, x)
    made.squares.copy_(phi.square().mean(0))
    c = 1.0 / (1.0 + (1.0 / NOISE).mean() * phi.square().sum(0))
    fit = ((y - phi @ made.weights).square() / NOISE + (2 * torch.pi * NOISE).log()).sum()
    exact = fit + made.weights.square().sum() - 2 * c.log().sum()
    found = []
    for _ in range(200):
        made.steps.zero_()  # the mean then is the last draw
        made.step(rows)
        found.append(made.loss)
    mean, sd = torch.tensor(found).mean(), torch.tensor(found).std() / math.sqrt(200.0)
    assert abs(float(mean - 0.5 * exact / 60)) < 5.0 * float(sd)


@pytest.mark.slow
@pytest.mark.parametrize("support", [0, 100])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_on_windows_of_a_random_walk_weights_stay_bounded(optimiser: str, support: int) -> None:
    """Twelve lags, whose curvature is nearly all in one direction: no step is too long, control variates or none."""
    walk = torch.randn(160, generator=torch.Generator().manual_seed(0)).double().cumsum(0)
    x = walk.unfold(0, 12, 1)[:-1]
    x, y = (x - x.mean()) / x.std(), (walk[12:] - walk[11:-1])[:, None].expand(-1, 2) + x[:, -1:]
    features = fourier_of(400, 40, dims=12)
    made = QuadrupleDescent(features, 2, StepOptions(optimiser, 0.2, 100, support)).begin(NOISE)  # type: ignore[arg-type]
    rows = made.rows(x, y)
    for _ in range(300):
        made.step(rows)
    assert float(made.weights.abs().max()) < 100.0
    assert float(made.image(x).mean.abs().max()) < 30.0 * float(y.abs().max())
    if support:
        assert float((made.image(x).mean - y).square().mean()) < 0.7 * float(y.square().mean())


def test_every_block_is_counted_where_a_linear_part_makes_the_first_the_widest() -> None:
    """43 functions, the first block 7 and the other nine 4: ⌈43/7⌉ would be 7 blocks."""
    basis = Basis(fourier_of(40, 4), linear=True).requires_grad_(False)
    made = made_of(basis, support=0)
    rows = made.rows(*data(30))
    for _ in range(60):
        made.step(rows)
    assert made.touched() == list(range(10))


@pytest.mark.sampled
@pytest.mark.parametrize("hyper", [0.0, 0.01])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_step_touches_neither_all_rows_nor_all_features(optimiser: str, hyper: float) -> None:
    x, y = data(100_000, missing=True)
    made = QuadrupleDescent(fourier_of(10_000_000, 100), 2, StepOptions(optimiser, 0.1, 50, 50, 0, hyper, 7)).begin(
        NOISE
    )  # type: ignore[arg-type]
    rows = made.rows(x, y)
    made.step(rows)
    with Largest() as seen:
        for _ in range(10):
            made.step(rows)
    assert 0 < seen.size <= max(100 * 100, 10_000_000 // 100)  # B step counts are looked through in a restart


@pytest.mark.sampled
@pytest.mark.parametrize("hyper", [0.0, 0.01])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_restored_it_goes_on_bit_for_bit(optimiser: str, hyper: float) -> None:
    options = {
        "optimiser": optimiser,
        "batch": 10,
        "support": 8,
        "hyper": hyper,
        "restart": 5,
        "columns": 2 * (not hyper),
    }
    x, y = data(40, missing=True)
    whole, broken = (made_of(fourier_of(300, 10), **options) for _ in range(2))
    rows, other = whole.rows(x, y), broken.rows(x, y)
    for _ in range(4):
        for _ in range(4):
            whole.step(rows)
            broken.step(other)
        assert torch.equal(whole.image(x).mean, broken.image(x).mean) and whole.loss == broken.loss
        assert torch.equal(whole.noise, broken.noise)
        fresh = made_of(fourier_of(300, 10), **options)
        again = fresh.rows(torch.zeros_like(x), torch.zeros_like(y))
        for new, old in ((fresh, broken), (again, other)):
            state = load(save({name: value.detach().contiguous() for name, value in old.state_dict().items()}))
            for name, value in new.state_dict().items():
                with torch.no_grad():
                    value.copy_(state[name])
        again.attach(x)
        broken, other = fresh, again


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_diagonal_knows_every_block_that_was_stepped(optimiser: str) -> None:
    """One that was only ever the second block of a draw, too, whose entries would be those of the prior."""
    features, (x, y) = fourier_of(60, 10), data(200)
    made = made_of(features, optimiser=optimiser, batch=200, support=0)
    rows = made.rows(x, y, None)
    for _ in range(5):
        made.step(rows)
    precision = made.count / made.variance
    spans = [features.span(block) for block in made.touched()]
    assert len(spans) > 2
    for span, block in zip(spans, made.touched(), strict=True):
        expected = 1.0 / (1.0 + precision * features.block(x, block).square().mean(0))
        torch.testing.assert_close(
            made.entries(block, precision).square(), expected, rtol=0.3, atol=0.0
        )  # rows are drawn
        assert bool((made.squares[span] > 0).all())


@pytest.mark.slow
def test_steps_on_many_blocks_do_not_lead_away() -> None:
    """The noise of a step grows with the number of blocks: what suits one is too long for forty."""
    features, (x, y) = fourier_of(400, 10), data(200)
    made = made_of(features, optimiser="preconditioned", rate=None, batch=50, support=20)
    rows = made.rows(x, y, None)
    for step in range(400):
        made.step(rows, 0.01 ** (step / 400))
    error = (made.image(x).mean - y).square().mean(0).sqrt() / y.std(0)
    assert made.rate == 0.02 and float(error.max()) < 0.6
