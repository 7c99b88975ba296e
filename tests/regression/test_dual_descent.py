"""Dual steps on drawn blocks against a dense twin of them, ridge regression, and the laws of a stream of any length."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from streamgp.regression import dual_descent
from streamgp.regression.dual_descent import DualDescent, SupportRows
from tests.needs import needs
from tests.regression.descent_toys import Largest, data, everything, fourier_of, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)


def engine(size: int = 26, width: int = 10, dtype: torch.dtype = torch.float64) -> DualDescent:
    return DualDescent(fourier_of(size, width), 2, dtype=dtype).begin(NOISE)


def walk(rows: int, lags: int) -> tuple[Tensor, Tensor]:
    """Windows of a random walk, standardised, and the next change in units of its deviation: (R, lags), (R, 2)."""
    steps = normal(rows + lags + 1, seed=6)
    level = steps.cumsum(0)
    x = level[:-1].unfold(0, lags, 1)[:rows]
    change = steps[lags : lags + rows]
    return (x - x.mean()) / x.std(), torch.stack((change, x[:, -1] / x.std() + 0.1 * change), 1)


def weighting(kind: str, rows: int) -> Tensor | None:
    return {"none": None, "rows": normal(rows, seed=4).exp(), "columns": normal(rows, 2, seed=5).exp()}[kind]


def solution(made: DualDescent, x: Tensor, y: Tensor, weight: Tensor | None) -> np.ndarray:
    """(m, T): (ΦᵀW_tΦ + σ_t²I)⁻¹ΦᵀW_t y_t."""
    phi, target = everything(made.features, x).numpy(), np.nan_to_num(y.numpy())
    own = np.ones(y.shape) if weight is None else weight.numpy()
    own = (own if own.ndim == 2 else own[:, None]) * np.isfinite(y.numpy())
    out = []
    for t, noise in enumerate(NOISE.tolist()):
        left = phi * own[:, [t]]
        out.append(np.linalg.solve(left.T @ phi + noise * np.eye(phi.shape[1]), left.T @ target[:, t]))
    return np.stack(out, 1)


@pytest.mark.sampled
@pytest.mark.parametrize("weights", ["none", "rows", "columns"])
@pytest.mark.parametrize("missing", [False, True])
def test_with_one_block_it_ends_at_ridge_regression(weights: str, missing: bool) -> None:
    """Then nothing is drawn, and μ = Φᵀα exactly; columns have their own weights and noise."""
    made = engine(size=20, width=20)
    x, y = data(50, missing=missing)
    weight = weighting(weights, 50)
    rows = made.rows(x, y, weight)
    for _ in range(500):
        made.step(rows)
    fresh = normal(20, 2, seed=9)
    expected = everything(made.features, fresh).numpy() @ solution(made, x, y, weight)
    np.testing.assert_allclose(made.mean(fresh), expected, atol=1e-3)


@pytest.mark.parametrize("size", [26, 64])
def test_steps_are_those_of_a_dense_twin(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """e, P and M_b as matrices of all rows, the last block being shorter than the others."""
    monkeypatch.setattr(dual_descent, "PILOT", 10)
    made, (x, y) = engine(size=size, width=10), data(30)
    weight = normal(30, seed=4).exp()
    rows = made.rows(x, y, weight)
    phi, blocks, half = everything(made.features, x), made.features.blocks, weight.sqrt()
    pilot = half[:, None] * phi[:, :10] * (size / 10) ** 0.5
    floor = torch.linalg.eigvalsh(pilot.T @ pilot)[-2]  # a quarter of ten
    assert floor > 20.0 * made.variance
    p = torch.linalg.inv(pilot @ pilot.T + floor * torch.eye(30).double())
    mu, dual = torch.zeros(size, 2).double(), torch.zeros(30, 2).double()
    for step in range(60):
        made.step(rows)
        span = made.features.span(int((made.last == step + 1).nonzero()))
        error = half[:, None] * (y - phi @ mu) - NOISE * dual / half[:, None]
        pull = half[:, None] * (p @ error) * (1.5 / rows.curvature)
        mu[span] += blocks * phi[:, span].T @ pull
        dual += pull
    assert len(made.touched()) == blocks
    torch.testing.assert_close(made.weights, mu, rtol=0, atol=1e-10)
    torch.testing.assert_close(rows.dual, dual, rtol=0, atol=1e-10)
    torch.testing.assert_close(y - rows.residual, phi @ mu, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("size", "steps"),
    [(1000, 60), (20_000, 60), pytest.param(100_000, 300, marks=pytest.mark.slow), (1_000_000, 30)],
)
def test_on_windows_of_a_random_walk_what_is_left_falls_at_every_step(size: int, steps: int) -> None:
    """Windows that overlap: a spectrum of five powers of ten. The weights stay what the targets ask for, at any m."""
    x, y = walk(300, 12)
    made = DualDescent(fourier_of(size, 100, dims=12), 2).begin(0.05)
    rows = made.rows(x[:200], y[:200], torch.ones(200).double())
    for start in (200, 232, 264):
        left, squares = [], rows.residual.square().sum()
        for _ in range(steps // 3):
            made.step(rows)
            left.append(float(rows.energy.sum()))
        assert all(later < 1.0001 * before for before, later in pairwise(left)), "it went up"
        assert left[-1] < 0.5 * left[0] and rows.residual.square().sum() < 1.05 * squares
        places = torch.arange(start - 200, start - 168)
        made.put(rows, places, x[start : start + 32], y[start : start + 32], torch.ones(32).double())
    norm = float(made.weights.square().sum()) / made.features.blocks  # a drawn block stands for all
    assert norm < 40.0 * float(y.square().sum()) / 0.05
    assert float(made.mean(x).abs().max()) < 3.0 * float(y.abs().max())


def test_few_blocks_of_very_many_are_near_the_kernels_ridge_regression() -> None:
    """An eightieth of the blocks is drawn, and f is as regular as with all."""
    x, y = data(300)
    made = DualDescent(fourier_of(1_000_000, 200), 2).begin(0.1)
    rows = made.rows(x, y)
    for _ in range(60):
        made.step(rows)
    fresh, kernel = normal(100, 2, seed=9), made.features.kernel
    with torch.no_grad():
        exact = kernel(fresh, x) @ torch.linalg.solve(kernel(x, x) + 0.1 * torch.eye(300), y)
    assert float((made.mean(fresh) - exact).square().mean().sqrt()) < 0.05
    torch.testing.assert_close(rows.residual, 0.1 * rows.dual, rtol=0, atol=0.02)


def test_in_float32_the_cache_stays_what_the_weights_say() -> None:
    made, (x, y) = engine(size=2000, width=100, dtype=torch.float32), data(300)
    rows = made.rows(x, y)
    for _ in range(400):
        made.step(rows)
    exact = (rows.target - rows.residual).clone()
    mu = torch.zeros(2000, 2).double()
    for block in made.touched():
        mu[made.features.span(block)] = made.weights[made.features.span(block)].double()
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
    assert 0 < seen.size <= 500 * 500  # features of the pilot, squared
    assert made.healthy and made.loss(rows) == made.loss(rows)


@needs("linux")
def test_memory_is_taken_as_blocks_are_drawn() -> None:
    """11 columns of 10⁷ weights would be 440 MB."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    x, y = data(60)
    before = resident()
    made = DualDescent(fourier_of(10_000_000, 100), 11).begin(0.1)
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
    kept = torch.ones(30, dtype=torch.bool)
    kept[places] = False
    assert not bool(rows.dual[places].any())
    anew.dual[kept] = rows.dual[kept]
    for name, value in anew.named_buffers():
        torch.testing.assert_close(rows.get_buffer(name), value, rtol=0, atol=1e-12, equal_nan=True)
    twin = engine()
    twin.load_state_dict(made.state_dict())
    for _ in range(20):
        made.step(rows)
        twin.step(anew)
    torch.testing.assert_close(made.mean(x), twin.mean(x), rtol=0, atol=1e-10)


def reborn(made: DualDescent, rows: SupportRows, x: Tensor, y: Tensor) -> tuple[DualDescent, SupportRows]:
    fresh = DualDescent(fourier_of(made.features.size, made.features.width), 2, dtype=made.dtype)
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
        rows.changed()  # what is made of rows is no part of the state
        for _ in range(11):
            whole.step(rows)
            broken.step(other)
        assert torch.equal(whole.mean(x), broken.mean(x)) and whole.loss(rows) == broken.loss(other)
        assert torch.equal(whole.weights, broken.weights) and torch.equal(rows.dual, other.dual)
        broken, other = reborn(broken, other, x, y)


def test_begin_starts_anew() -> None:
    made, (x, y) = engine(size=300), data(40)
    rows = made.rows(x, y)
    for _ in range(30):
        made.step(rows)
    first = made.mean(x)
    made.begin(NOISE)
    assert not bool(made.weights.any()) and not made.touched()
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


def test_loss_is_the_bound_where_one_block_is_all() -> None:
    """With one block nothing is drawn: at the solution the running mean is −ELBO at the best diagonal."""
    made, (x, y) = engine(size=20, width=20), data(50)
    rows = made.rows(x, y)
    for _ in range(200):
        made.step(rows)
    phi, mu = everything(made.features, x).numpy(), solution(made, x, y, None)
    both = []
    for t, noise in enumerate(NOISE.tolist()):
        shared = 1 / np.mean(1 / NOISE.numpy())
        cov = 1 / (1 + (phi**2).sum(0) / shared)
        misfit = ((y[:, t].numpy() - phi @ mu[:, t]) ** 2).sum() / noise
        both.append((misfit + mu[:, t] @ mu[:, t] - np.log(cov).sum()) / 50 + np.log(2 * np.pi * noise))
    assert made.loss(rows) == pytest.approx(0.5 * np.mean(both), rel=1e-5)


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


def test_of_what_changed_a_part_can_be_kept() -> None:
    made, (x, y) = engine(size=300), data(40)
    rows = made.rows(x, y)
    for _ in range(20):
        made.step(rows)
    before, keep = made.weights.clone(), made.watch("visit")
    for _ in range(20):
        made.step(rows)
    after = made.weights.clone()
    keep(0.25)
    torch.testing.assert_close(made.weights, 0.75 * before + 0.25 * after)
    keep(0.0)
    assert torch.equal(made.weights, before)


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
