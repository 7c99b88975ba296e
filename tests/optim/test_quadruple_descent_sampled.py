"""Theorem 1's steps: gradients averaged over all draws against the dense bound, and what they lead to."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from streamgp.features import Features
from streamgp.objectives.draws import Cells
from streamgp.optim.quadruple_descent import DescentConfig, SampledDescent, SampledRows, descent
from tests.optim.descent_toys import Largest, data, everything, fourier_of, inducing_of, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)
EXACT = DescentConfig(optimiser="adagrad", dtype="float64", support=7, batch=20)
WEIGHT = {"none": None, "rows": normal(30, seed=4).exp(), "columns": normal(30, 2, seed=5).exp()}


def engine(features: Features, config: DescentConfig = EXACT) -> SampledDescent:
    made = descent(features, 2, config).begin(NOISE)
    assert isinstance(made, SampledDescent)
    return made


def placed(made: SampledDescent, x: Tensor, y: Tensor, weight: Tensor | None) -> SampledRows:
    """Rows at a μ that was drawn, not learned."""
    used = made.features.size
    made.weights[:used] = normal(used, made.weights.shape[1], seed=6)
    for block in range(made.features.blocks):
        made.weights[made.features.span(block)] = made.freeze(block, made.current(block))
    made.last.fill_(1)
    return made.rows(x, y, weight)


def prior_of(features: Features) -> Tensor:
    count = range(features.blocks)
    with torch.no_grad():
        return torch.cat([torch.cat([features.precision(i, j) for j in count], 1) for i in count])


def columns_of(made: SampledDescent, x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """(R, K) targets and precisions of all columns."""
    own = torch.ones_like(y) if weight is None else weight if weight.ndim == 2 else weight[:, None].expand_as(y)
    precision = own * ~y.isnan() / NOISE
    k = made.config.dense_columns
    heads = everything(made.features, x)[:, :k]
    shared = precision.mean(1, keepdim=True).expand(-1, k)
    return torch.cat((y.nan_to_num(), -heads), 1), torch.cat((precision, shared), 1)


@pytest.mark.parametrize("support", [0, 7])
@pytest.mark.parametrize("weights", ["none", "rows", "columns"])
@pytest.mark.parametrize("kind", ["fourier", "inducing", "independent"])
def test_value_and_gradient_are_unbiased(kind: str, weights: str, support: int) -> None:
    """The mean over all pairs of cells, with every row once, is L_μ and its gradient, the control variate's too."""
    features = fourier_of(30, 10) if kind == "fourier" else inducing_of(11, 4, independent=kind == "independent")
    dense = 3 if support and kind == "fourier" else 0  # 30 features in 3 cells; 11 in cells of 4, 4 and 3
    made = engine(features, EXACT.model_copy(update={"support": support, "dense_columns": dense}))
    x, y = data(30, missing=True)
    rows = placed(made, x, y, WEIGHT[weights])
    phi, used = everything(features, x), features.size
    target, precision = columns_of(made, x, y, WEIGHT[weights])
    mu = made.weights[:used].clone().requires_grad_()
    image = phi @ mu
    exact = (precision * (image.square() - 2 * target * image)).sum() + (mu * (prior_of(features) @ mu)).sum()
    (slope,) = torch.autograd.grad(exact, mu)
    cells, value, total = features.blocks, 0.0, torch.zeros_like(slope)
    for i in range(cells):
        for j in range(cells):
            draw = Cells(i, j, float(cells))
            leaves = {b: made.current(b).requires_grad_() for b in draw.touched}
            parts = made.mean_part(rows, made.see(rows, draw, torch.arange(30)), leaves, NOISE)
            for block, gradient in zip(leaves, torch.autograd.grad(sum(parts), list(leaves.values())), strict=True):
                total[features.span(block)] += gradient / cells**2
            value += float(sum(part.detach() for part in parts)) / cells**2
    assert value == pytest.approx(float(exact.detach()), rel=1e-9)
    torch.testing.assert_close(total, slope, rtol=1e-8, atol=1e-8)


def test_the_gradient_for_hyper_parameters_is_that_of_the_bound() -> None:
    """Averaged over all cells, against finite differences of the dense bound at the same μ and C."""
    features = fourier_of(30, 10)
    made = engine(features, EXACT.model_copy(update={"hyper_rate": 0.01, "support": 30}))
    x, y = data(30, missing=True)
    rows = placed(made, x, y, WEIGHT["rows"])
    cells = features.blocks

    def bound(noise: Tensor, entries: Tensor) -> float:
        """−2 ELBO by its definition, up to the prior's constant."""
        phi, own = everything(features, x), WEIGHT["rows"][:, None] * ~y.isnan()  # type: ignore[index]
        error = (y.nan_to_num() - phi @ made.weights).square() + (phi.square() @ entries)[:, None]
        return float((own * (error / noise + (2 * torch.pi * noise).log())).sum())

    phi = everything(features, x)
    shared = (WEIGHT["rows"][:, None] * ~y.isnan() / NOISE).mean(1)  # type: ignore[index]
    entries = 1.0 / (1.0 + shared @ phi.square())
    leaves = {b: made.current(b).requires_grad_() for b in range(cells)}
    theta, log_noise = list(features.parameters()), NOISE.log().requires_grad_()
    found = [torch.zeros_like(p) for p in (*theta, log_noise)]
    for i in range(cells):
        for j in range(cells):
            drawn = made.see(rows, Cells(i, j, float(cells)), torch.arange(30), learning=True)
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
            assert float(gradient.flatten()[place]) == pytest.approx((both[0] - both[1]) / (2 * step), rel=1e-5)
    for place in range(2):
        shift = torch.zeros(2).double()
        shift[place] = step
        slope = (bound(NOISE * shift.exp(), entries) - bound(NOISE * (-shift).exp(), entries)) / (2 * step)
        assert float(found[-1][place]) == pytest.approx(slope, rel=1e-5)


def test_the_running_expectation_is_what_the_weights_say() -> None:
    made = engine(fourier_of(60, 10), EXACT.model_copy(update={"dense_columns": 2}))
    x, y = data(40, missing=True)
    rows = made.rows(x, y)
    for _ in range(50):
        made.step(rows)
    phi = everything(made.features, x)
    torch.testing.assert_close(rows.fit, phi[rows.support] @ made.weights, rtol=0, atol=1e-10)
    places = rows.support[:3]
    made.put(rows, places, 2 * x[:3], y[:3], torch.ones(3).double())
    moved = x.clone()
    moved[places] = 2 * x[:3]
    expected = everything(made.features, moved)[rows.support] @ made.weights
    torch.testing.assert_close(rows.fit, expected, rtol=0, atol=1e-10)
    assert bool(rows.residual.isnan().all())  # never taken for known


@pytest.mark.parametrize(("support", "allowed"), [pytest.param(0, 0.16, marks=pytest.mark.slow), (60, 0.06)])
def test_it_descends_towards_the_dense_solution(support: int, allowed: float) -> None:
    features, (x, y) = fourier_of(40, 20), data(200)
    made = engine(features, EXACT.model_copy(update={"support": support, "batch": 100, "adagrad_rate": 0.3}))
    rows = made.rows(x, y)
    for step in range(800):
        made.step(rows, 1.0 - step / 800)
    phi = everything(features, x)
    solution = torch.stack(
        [torch.linalg.solve(phi.T @ phi + s * torch.eye(40).double(), phi.T @ y[:, t]) for t, s in enumerate(NOISE)], 1
    )
    off = (made.mean(x) - phi @ solution).square().mean().sqrt()
    assert off < allowed * (phi @ solution).std()


def best_bound(made: SampledDescent, x: Tensor, y: Tensor) -> float:
    """−ELBO a row and column at the hyper-parameters as they are, with the best μ and diagonal."""
    phi, shared, total = everything(made.features, x), (1.0 / made.noise).mean(), 0.0
    entropy = float(torch.log1p(shared * phi.square().sum(0)).sum())
    for t, noise in enumerate(made.noise.tolist()):
        matrix = phi.T @ phi + noise * torch.eye(phi.shape[1]).double()
        mu = torch.linalg.solve(matrix, phi.T @ y[:, t])
        misfit = float((y[:, t] - phi @ mu).square().sum() / noise + mu @ mu)
        total += misfit + entropy + len(y) * math.log(2.0 * math.pi * noise)
    return total / (4.0 * len(y))


@pytest.mark.parametrize(
    ("width", "rate", "gain"), [pytest.param(40, 0.02, 0.55, marks=pytest.mark.slow), (20, 0.005, 0.05)]
)
def test_hyper_parameters_are_learned(width: int, rate: float, gain: float) -> None:
    """Noise starts at ten times that of the data, 0.01. With one block the rows are all that is drawn; with two the
    basis is too, and the gradient's noise is what keeps the rate low."""
    features, (x, y) = fourier_of(40, width), data(400)
    config = {"hyper_rate": rate, "batch": 200, "support": 200, "restart": 20, "adagrad_rate": 0.3}
    made = descent(features, 2, EXACT.model_copy(update=config)).begin(0.1)
    assert isinstance(made, SampledDescent)
    start, before = best_bound(made, x, y), [p.detach().clone() for p in features.parameters()]
    rows = made.rows(x, y)
    for step in range(500):
        made.step(rows, 1.0 - step / 500)
    assert best_bound(made, x, y) < start - gain
    assert made.healthy and all(not p.requires_grad for p in features.parameters())
    assert all(not torch.equal(p, q) for p, q in zip(features.parameters(), before, strict=True))
    if width == 40:
        assert bool(((made.noise > 0.008) & (made.noise < 0.02)).all()), made.noise


def test_the_running_loss_is_the_bound() -> None:
    """At a fixed μ, averaged over draws: |z| < 5 of 400."""
    made = engine(fourier_of(30, 10), EXACT.model_copy(update={"adagrad_rate": 1e-12, "support": 30}))
    x, y = data(30)
    rows = placed(made, x, y, None)
    made.weights *= 0.3
    made.renew(rows)
    phi = everything(made.features, x)
    shared = (1.0 / NOISE).mean()
    c = 1.0 / (1.0 + shared * phi.square().sum(0))
    fit = ((y - phi @ made.weights).square() / NOISE + (2 * torch.pi * NOISE).log()).sum()
    exact = fit + made.weights.square().sum() - 2 * c.log().sum()
    found = []
    for _ in range(400):
        made.steps.zero_()  # the mean then is the last draw
        made.step(rows)
        found.append(made.loss(rows))
    mean, sd = torch.tensor(found).mean(), torch.tensor(found).std() / 20.0
    assert abs(float(mean - 0.5 * exact / 60)) < 5.0 * float(sd)


@pytest.mark.parametrize("hyper_rate", [0.0, 0.01])
def test_a_step_touches_neither_all_rows_nor_all_features(hyper_rate: float) -> None:
    config = DescentConfig(optimiser="adagrad", batch=50, support=50, hyper_rate=hyper_rate, restart=7)
    x, y = data(300_000, missing=True)
    made = descent(fourier_of(10_000_000, 100), 2, config).begin(NOISE)
    rows = made.rows(x, y)
    made.step(rows)
    with Largest() as seen:
        for _ in range(20):
            made.step(rows)
    assert 0 < seen.size <= max(100 * 100, 10_000_000 // 100)  # B step counts are looked through in a restart


@pytest.mark.parametrize("hyper_rate", [0.0, 0.01])
def test_restored_it_goes_on_bit_for_bit(hyper_rate: float) -> None:
    config = DescentConfig(optimiser="adagrad", batch=10, support=8, hyper_rate=hyper_rate, restart=5)
    x, y = data(40, missing=True)
    whole, broken = (engine(fourier_of(300, 10), config) for _ in range(2))
    rows, other = whole.rows(x, y), broken.rows(x, y)
    for _ in range(6):
        for _ in range(4):
            whole.step(rows)
            broken.step(other)
        assert torch.equal(whole.mean(x), broken.mean(x)) and whole.loss(rows) == broken.loss(other)
        assert torch.equal(whole.noise, broken.noise)
        fresh = engine(fourier_of(300, 10), config)
        again = fresh.rows(torch.zeros_like(x), torch.zeros_like(y))
        for new, old in ((fresh, broken), (again, other)):
            state = load(save({name: value.detach().contiguous() for name, value in old.state_dict().items()}))
            for name, value in new.state_dict().items():
                with torch.no_grad():
                    value.copy_(state[name])
        again.attach(x)
        broken, other = fresh, again
