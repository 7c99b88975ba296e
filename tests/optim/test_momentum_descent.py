"""The residual-cached heavy ball against a dense one that moves every block, and against the dense ridge solution."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from streamgp.optim import momentum_descent
from streamgp.optim.momentum_descent import MomentumDescent, SupportRows, decay
from tests.needs import needs
from tests.optim.descent_toys import Largest, data, everything, fourier_of, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)


def engine(size: int = 26, width: int = 10, dtype: torch.dtype = torch.float64) -> MomentumDescent:
    return MomentumDescent(fourier_of(size, width), 2, dtype=dtype).begin(NOISE)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less momentum, so that few steps converge, and all of that: blocks of ten are noisy, and stable here."""
    monkeypatch.setattr(momentum_descent, "MOMENTUM", 0.9)
    monkeypatch.setattr(momentum_descent, "NOISY", 0.0)


def settled(made: MomentumDescent) -> tuple[Tensor, Tensor]:
    """(m, T) μ and v, every block coasted to now."""
    pairs = [made.moving(block) for block in range(made.features.blocks)]
    return torch.cat([mu for mu, _ in pairs]), torch.cat([velocity for _, velocity in pairs])


def weighting(kind: str, rows: int) -> Tensor | None:
    return {"none": None, "rows": normal(rows, seed=4).exp(), "columns": normal(rows, 2, seed=5).exp()}[kind]


def solution(made: MomentumDescent, x: Tensor, y: Tensor, weight: Tensor | None) -> np.ndarray:
    """(m, T): (ΦᵀW_tΦ + σ_t²I)⁻¹ΦᵀW_t y_t."""
    phi, target = everything(made.features, x).numpy(), np.nan_to_num(y.numpy())
    own = np.ones(y.shape) if weight is None else weight.numpy()
    own = (own if own.ndim == 2 else own[:, None]) * np.isfinite(y.numpy())
    out = []
    for t, noise in enumerate(NOISE.tolist()):
        left = phi * own[:, [t]]
        out.append(np.linalg.solve(left.T @ phi + noise * np.eye(phi.shape[1]), left.T @ target[:, t]))
    return np.stack(out, 1)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["none", "rows", "columns"])
@pytest.mark.parametrize("missing", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.usefixtures("quickly")
def test_it_converges_to_the_dense_solution_at_a_constant_rate(weights: str, missing: bool) -> None:
    """The choice of the block is all that is random, and at the solution no block has a gradient."""
    made = engine()
    x, y = data(50, missing=missing)
    weight = weighting(weights, 50)
    rows = made.rows(x, y, weight)
    for _ in range(1500):
        made.step(rows)
    expected = solution(made, x, y, weight)
    fresh = normal(20, 2, seed=9)
    np.testing.assert_allclose(made.mean(fresh), everything(made.features, fresh).numpy() @ expected, atol=1e-4)
    np.testing.assert_allclose(settled(made)[0], expected, atol=1e-3)


def test_lazy_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense twin that coasts all blocks in every step, with Φμ and Φv computed afresh."""
    monkeypatch.setattr(momentum_descent, "MOMENTUM", 0.8)
    monkeypatch.setattr(momentum_descent, "NOISY", 0.0)
    monkeypatch.setattr(momentum_descent, "RATE", 0.4)
    made, (x, y) = engine(size=64, width=10), data(40)
    rows = made.rows(x, y)
    phi, blocks = everything(made.features, x), made.features.blocks
    mu, velocity, drawn = torch.zeros(64, 2).double(), torch.zeros(64, 2).double(), []
    for step in range(120):
        made.step(rows, decay(step, 120))
        block = int((made.last == step + 1).nonzero())
        drawn.append(block)
        ahead, span = mu + 0.8 * velocity, made.features.span(block)
        slope = phi[:, span].T @ (phi @ ahead - y) / 40 + NOISE / 40 * ahead[span]
        rate = decay(step, 120) * 0.4 / made.curvature * blocks
        velocity *= 0.8
        velocity[span] -= rate * slope / (1 + rate * NOISE / 40)
        mu += velocity
        torch.testing.assert_close(y - rows.residual, phi @ mu, rtol=0, atol=1e-11)
        torch.testing.assert_close(rows.drift, phi @ velocity, rtol=0, atol=1e-11)
    assert set(drawn) == set(range(blocks))
    torch.testing.assert_close(made.mean(x), phi @ mu, rtol=0, atol=1e-11)
    for found, eager in zip(settled(made), (mu, velocity), strict=True):
        torch.testing.assert_close(found, eager, rtol=0, atol=1e-11)


def test_in_float32_the_cache_stays_what_the_weights_say() -> None:
    made, (x, y) = engine(size=2000, width=100, dtype=torch.float32), data(300)
    rows = made.rows(x, y)
    for step in range(400):
        made.step(rows, decay(step, 400))
    exact = (rows.target - rows.residual).clone()
    mu = torch.zeros(2000, 2).double()
    for block in made.touched():
        mu[made.features.span(block)] = made.moving(block)[0].double()
    image = everything(made.features, rows.x).double() @ mu
    assert float((exact - image).abs().max()) < 1e-4


def test_blocks_that_were_not_drawn_are_zero_and_left_out() -> None:
    made, (x, y) = engine(size=10_000, width=10), data(30)
    rows = made.rows(x, y)
    for _ in range(60):
        made.step(rows)
    touched = made.touched()
    assert 50 <= len(touched) <= 60
    rest = torch.ones(10_000, dtype=torch.bool)
    for block in touched:
        rest[made.features.span(block)] = False
    assert not bool(made.weights[rest].any())
    asked: list[int] = []
    inner = made.features.block
    made.features.block = lambda x, b: asked.append(b) or inner(x, b)  # type: ignore[method-assign, func-returns-value]
    made.mean(x)
    made.covariance(rows).variance(made.features, x)
    assert set(asked) == set(touched)


def test_a_step_touches_nothing_of_the_size_of_the_basis() -> None:
    made, (x, y) = engine(10_000_000, 100, torch.float32), data(80, missing=True)
    rows = made.rows(x, y)
    made.step(rows)
    with Largest() as seen:
        for _ in range(20):
            made.step(rows)
        made.loss(rows)
    assert 0 < seen.size <= 130 * 100  # rows of a step times features of a block
    assert made.healthy and made.loss(rows) == made.loss(rows)


@needs("linux")
def test_memory_is_taken_as_blocks_are_drawn() -> None:
    """11 columns of 10⁷ weights and velocities would be 880 MB."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    x, y = data(60)
    before = resident()
    made = MomentumDescent(fourier_of(10_000_000, 100), 11).begin(0.1)
    rows = made.rows(x, y[:, :1].expand(-1, 11))
    for _ in range(100):
        made.step(rows)
    made.begin(0.1)
    assert resident() - before < 50.0


def test_rows_replaced_in_place_are_as_if_taken_anew() -> None:
    made, (x, y) = engine(), data(40, missing=True)
    rows = made.rows(x[:30], y[:30], torch.ones(30).double())
    for _ in range(25):
        made.step(rows)
    places = torch.tensor([3, 29, 7, 0, 11, 12, 13, 28, 1, 2])
    made.put(rows, places, x[30:], y[30:], torch.full((10,), 2.0).double())
    now_x, now_y, weight = x[:30].clone(), y[:30].clone(), torch.ones(30).double()
    now_x[places], now_y[places], weight[places] = x[30:], y[30:], 2.0
    anew = made.rows(now_x, now_y, weight)
    anew.fit.copy_(rows.fit)  # rows taken anew have not been looked at
    for name, value in anew.named_buffers():
        torch.testing.assert_close(rows.get_buffer(name), value, rtol=0, atol=1e-12, equal_nan=True)
    twin = engine()
    twin.load_state_dict(made.state_dict())
    for _ in range(20):
        made.step(rows)
        twin.step(anew)
    torch.testing.assert_close(made.mean(x), twin.mean(x), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("quickly")
def test_working_targets_and_weights_may_change_between_steps() -> None:
    """As the majorisation of a logistic likelihood does: the fixed point is its mode."""
    made, (x, _) = engine(), data(60)
    made.begin(1.0)
    outcome = (normal(60, 2, seed=8) + x > 0).double()
    rows = made.rows(x, outcome, torch.full((60,), 0.25).double())
    for _ in range(1500):
        fit = rows.fitted
        rows.retarget(fit + 4.0 * (outcome - fit.sigmoid()), rows.weight)
        made.step(rows)
    slope = everything(made.features, x).T @ (outcome - rows.fitted.sigmoid()) - settled(made)[0]
    assert float(slope.abs().max()) < 1e-4


def reborn(made: MomentumDescent, rows: SupportRows, x: Tensor, y: Tensor) -> tuple[MomentumDescent, SupportRows]:
    fresh = MomentumDescent(fourier_of(made.features.size, made.features.width), 2, dtype=made.dtype)
    other = fresh.rows(torch.zeros_like(x), torch.zeros_like(y))
    for new, old in ((fresh, made), (other, rows)):
        state = load(save({name: value.contiguous() for name, value in old.state_dict().items()}))
        for name, value in new.state_dict().items():
            value.copy_(state[name])
    other.attach(x)
    return fresh, other


def test_restored_it_goes_on_bit_for_bit() -> None:
    whole, broken = (engine(size=300, dtype=torch.float32) for _ in range(2))
    x, y = data(40, missing=True)
    rows, other = whole.rows(x, y), broken.rows(x, y)
    for _ in range(12):
        for _ in range(11):
            whole.step(rows)
            broken.step(other)
        assert torch.equal(whole.mean(x), broken.mean(x)) and whole.loss(rows) == broken.loss(other)
        assert torch.equal(whole.weights, broken.weights) and torch.equal(rows.drift, other.drift)
        broken, other = reborn(broken, other, x, y)


def test_begin_starts_anew() -> None:
    made, (x, y) = engine(size=300), data(40)
    rows = made.rows(x, y)
    for _ in range(30):
        made.step(rows)
    first = made.mean(x)
    made.begin(NOISE)
    assert not bool(made.weights.any()) and not bool(made.velocity.any()) and not made.touched()
    rows = made.rows(x, y)
    for _ in range(30):
        made.step(rows)
    assert torch.equal(made.mean(x), first)


def test_rows_taken_anew_forget_the_features_of_other_hyper_parameters() -> None:
    made, (x, y) = engine(size=10), data(40)  # a single block, which every step asks for again
    rows = made.rows(x, y)
    for _ in range(20):
        made.step(rows)
    with torch.no_grad():
        made.features.kernel.log_lengthscale += 0.7
    made.begin(NOISE)
    rows = made.rows(x, y)
    for _ in range(20):
        made.step(rows)
    torch.testing.assert_close(rows.residual, y - made.mean(x), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("quickly")
def test_loss_is_the_bound_where_one_block_is_all() -> None:
    """With one block nothing is drawn: at the solution the running mean is −ELBO at the best diagonal."""
    made, (x, y) = engine(size=20, width=20), data(50)
    rows = made.rows(x, y)
    for _ in range(1000):
        made.step(rows)
    phi, mu = everything(made.features, x).numpy(), solution(made, x, y, None)
    both = []
    for t, noise in enumerate(NOISE.tolist()):
        shared = 1 / np.mean(1 / NOISE.numpy())
        cov = 1 / (1 + (phi**2).sum(0) / shared)
        misfit = ((y[:, t].numpy() - phi @ mu[:, t]) ** 2).sum() / noise
        both.append((misfit + mu[:, t] @ mu[:, t] - np.log(cov).sum()) / 50 + np.log(2 * np.pi * noise))
    assert made.loss(rows) == pytest.approx(0.5 * np.mean(both), rel=1e-6)


def test_nothing_observed_and_columns_never_observed() -> None:
    made, (x, y) = engine(), data(20)
    rows = made.rows(x, y, torch.zeros(20).double())
    made.step(rows)
    assert not made.touched()
    y[:, 1] = torch.nan
    rows = made.rows(x, y)
    for _ in range(50):
        made.step(rows)
    assert made.healthy and not bool(made.mean(x)[:, 1].any()) and bool(made.mean(x)[:, 0].all())
    y[3, 0] = torch.inf
    rows = made.rows(x, y)  # taken as not observed
    made.step(rows)
    assert made.healthy


@pytest.mark.parametrize("size", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("batch", [4, 64])
@pytest.mark.parametrize("known", [True, False])
def test_a_flat_spectrum_does_not_make_it_diverge(
    size: int, batch: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows far apart: what a block says of them is not what another does. Also where only the residuals tell."""
    if not known:
        monkeypatch.setattr(momentum_descent, "NOISY", 0.5)
    x = normal(328, 12, seed=2)
    y = torch.stack((torch.sin(x[:, 0]), x[:, 1].cos()), 1) + 0.1 * normal(328, 2, seed=5)
    made = MomentumDescent(fourier_of(size, 50, dims=12), 2, dtype=torch.float32).begin(0.1)
    rows = made.rows(x[:200], y[:200])
    for _ in range(300):
        made.step(rows)
    for start in range(200, 328, batch):  # as a stream, a few steps a batch
        some = slice(start, start + batch)
        made.put(rows, torch.arange(start - 200, start - 200 + batch), x[some], y[some], torch.ones(batch).double())
        for _ in range(batch):
            made.step(rows)
    for _ in range(600):
        made.step(rows)
    assert rows.squares() < 0.2 * rows.target.square().sum() if known else rows.squares() < 1e6
    assert not known or settled(made)[0].abs().max() < 5.0


def test_a_diverged_run_is_not_healthy() -> None:
    made, (x, y) = engine(), data(20)
    rows = made.rows(x, y)
    rows.residual[0] = torch.nan
    for _ in range(3):
        made.step(rows)
    assert not made.healthy


def test_the_variance_is_that_of_the_best_diagonal() -> None:
    """Proposition 1 for blocks that were drawn; of the others the expectation, k(x, x)/m a feature."""
    made, (x, y) = engine(size=2000, width=20), data(60)
    rows = made.rows(x, y)
    for _ in range(40):
        made.step(rows)
    phi = everything(made.features, x)
    every = phi.square() @ (1.0 / (phi.square().sum(0) / made.variance + 1.0))
    found = made.covariance(rows)
    assert len(found.blocks) == len(made.touched()) < 40
    torch.testing.assert_close(found.variance(made.features, x), every, rtol=0.02, atol=0)
