"""The mixer against NumPy and SciPy's quadratic programs, and what its weights are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.base import FLOAT, Shape
from streamgp.mixing.mixer import (
    AGAIN,
    ASTRAY,
    BETTER,
    FAR,
    LATELY,
    NEAR,
    POOL,
    RIDGE,
    SCALE_ROWS,
    WORST,
    YOUNG,
    Mixer,
)
from streamgp.mixing.simplex import minimise
from streamgp.testing.stateful import check_stateful, same_bits
from tests.properties import examples

SHAPE = Shape(targets=("y", "z"), horizon=3, lags=1, past=("y", "z"), future=())


def toy(rows: int, seed: int, experts: int = 3, shape: Shape = SHAPE) -> tuple[Tensor, Tensor]:
    """Experts with errors of different sizes, partly shared; the targets have different units."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.logspace(-2, 3, shape.columns, dtype=FLOAT)
    y = torch.randn(rows, shape.columns, generator=generator, dtype=FLOAT)
    common = torch.randn(rows, shape.columns, generator=generator, dtype=FLOAT)
    own = torch.randn(experts, rows, shape.columns, generator=generator, dtype=FLOAT)
    size = torch.rand(experts, 1, shape.columns, generator=generator, dtype=FLOAT) + 0.2
    return (y + common + size * own) * unit, y * unit


@given(seed=st.integers(0, 10**6), experts=st.integers(1, 4), glitch=st.sampled_from([0.0, 1e3, 1e6]))
@examples(20)
def test_mean_and_variances_in_one_go_are_those_apart(seed: int, experts: int, glitch: float) -> None:
    means, y = toy(40, seed, experts)
    mixer = Mixer(experts, SHAPE, memory=100.0)
    mixer.learn(means, y)
    means[0, 3] += glitch
    prior = torch.ones_like(y)
    mean, latent, noise = mixer.issue(means, prior)
    plausible = mixer._plausible(means)
    apart = torch.einsum("knt,tk->nt", (plausible - mixer.mean(plausible)).square(), mixer.weights)
    share = (0.5 * mixer.square / mixer.apart.clamp(min=1e-300)).clamp(max=1.0)
    assert same_bits(mean, mixer.mean(means))
    assert torch.allclose(latent, share * apart)
    assert torch.allclose(noise, (mixer.square - share * mixer.apart + prior) / (mixer.count + 1.0))


def quadratic_program(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    k = len(a)
    found = scipy.optimize.minimize(
        lambda w: w @ a @ w - 2 * b @ w,
        np.full(k, 1 / k),
        jac=lambda w: 2 * (a @ w - b),
        bounds=[(0, 1)] * k,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(found.x)


class Oracle:
    """The mixer in NumPy, a column and a row at a time."""

    def __init__(self, experts: int, shape: Shape, memory: float, first: np.ndarray) -> None:
        self.shape, self.memory, self.first = shape, memory, first
        self.rows = np.zeros(shape.columns)
        self.s = np.zeros((shape.columns, experts, experts))
        self.scale, self.count = np.zeros(shape.columns), np.zeros(shape.columns)
        self.square, self.apart = np.zeros(shape.columns), np.zeros(shape.columns)
        self.lately, self.astray = np.zeros_like(self.s), np.zeros(shape.columns)
        self.w = np.tile(first, (shape.columns, 1))
        self.usual = self.w.copy()

    def learn(self, means: np.ndarray, y: np.ndarray) -> None:
        known = dict[int, list[int]]()
        for t in range(self.shape.columns):
            rows = [n for n in range(len(y)) if np.isfinite(y[n, t] - means[:, n, t]).all()]
            known[t] = rows
            if not rows:
                continue
            mixed = np.array([abs(self.w[t] @ (y[n, t] - means[:, n, t])) for n in rows])
            if not self.scale[t]:
                self.scale[t] = np.sort(mixed)[(len(mixed) - 1) // 2] or mixed.mean()
            kept = np.exp(-len(rows) / SCALE_ROWS)
            limited = np.minimum(mixed, FAR * self.scale[t])
            total = kept * self.count[t] * self.scale[t] + limited.sum()
            self.scale[t] = total / (kept * self.count[t] + len(rows))
            squares = np.minimum(mixed, FAR * self.scale[t]) ** 2
            apart = [self.w[t] @ (means[:, n, t] - self.w[t] @ means[:, n, t]) ** 2 for n in rows]
            self.square[t] = kept * self.square[t] + squares.sum()
            self.apart[t] = kept * self.apart[t] + np.minimum(apart, (FAR * self.scale[t]) ** 2).sum()
            self.count[t] = kept * self.count[t] + len(rows)
            by_usual = np.array([abs(self.usual[t] @ (y[n, t] - means[:, n, t])) for n in rows])
            self.s[t] *= np.exp(-len(rows) / self.memory)
            for n, u in zip(rows, by_usual / self.scale[t], strict=True):
                e = np.clip((y[n, t] - means[:, n, t]) / self.scale[t], -FAR, FAR)
                self.s[t] += np.outer(e, e) * (1 / min(max(u, NEAR), FAR))
                right = max(np.abs(e).min(), NEAR)
                self.lately[t] *= np.exp(-1 / LATELY)
                self.lately[t] += (1 - np.exp(-1 / LATELY)) * np.outer(e, e) / right**2
            self.rows[t] += len(rows)
        h = self.shape.horizon
        far = np.zeros(self.shape.columns)
        for t in range(self.shape.columns):
            self.usual[t] = self.solved(self.s, t, RIDGE + YOUNG * h / max(self.rows[t], 1), self.usual[t])
            r, w = self.pooled(self.lately, t), self.usual[t]
            own, best = w @ r @ w, np.diag(r).min()
            far[t] = own > AGAIN**2 * best if self.astray[t] else own > max(ASTRAY**2, BETTER**2 * best)
        self.astray = np.array([self.pooled(far, t) > 0.5 for t in range(self.shape.columns)])
        for t in range(self.shape.columns):
            late = self.solved(self.lately, t, RIDGE + YOUNG / LATELY, self.w[t], BETTER)
            self.w[t] = late if self.astray[t] else self.usual[t]

    def pooled(self, values: np.ndarray, t: int) -> np.ndarray:
        h = self.shape.horizon
        near = range(t // h * h, t // h * h + h)
        return sum(POOL ** abs(t - i) * values[i] for i in near) / sum(POOL ** abs(t - i) for i in near)

    def solved(self, moments: np.ndarray, t: int, ridge: float, start: np.ndarray, worst: float = WORST) -> np.ndarray:
        moment = self.pooled(moments, t)
        size = np.diag(moment)
        if size.max() <= 0:
            return start
        some, found = np.flatnonzero(size <= worst**2 * size.min()), np.zeros(len(size))
        a = (moment / size.min() + ridge * np.eye(len(size)))[np.ix_(some, some)]
        found[some] = quadratic_program(a, ridge * self.first[some])
        return found


@pytest.mark.sampled
@pytest.mark.parametrize("regimes", [3, 1])
def test_it_is_the_oracle(regimes: int) -> None:
    means, y = toy(800, 0)
    y[7, 2], y[30:60] = torch.nan, torch.nan
    y[100, 4] *= 1e9  # a glitch
    if regimes == 3:  # the third expert is far off, and for a while the others are
        off, within = means + 9 * (means - y), slice(600, 660)
        means = torch.stack([means[0], means[1], off[2]])
        means[:, within] = torch.stack([off[0, within], off[1, within], means[0, within]])
    first, astray = torch.tensor([0.5, 0.3, 0.2], dtype=FLOAT), list[bool]()
    mixer, oracle = Mixer(3, SHAPE, 400.0, first), Oracle(3, SHAPE, 400.0, first.numpy())
    for start in range(0, 800, 20):
        rows = slice(start, start + 20)
        mixer.learn(means[:, rows], y[rows])
        oracle.learn(means[:, rows].numpy(), y[rows].numpy())
        astray.append(bool(mixer.astray.any()))
        assert (mixer.astray.numpy() == oracle.astray).all()
        np.testing.assert_allclose(mixer.weights.numpy(), oracle.w, atol=2e-4)
        np.testing.assert_allclose(mixer.scale.numpy(), oracle.scale, rtol=2e-3)
        np.testing.assert_allclose(mixer.moments.numpy(), oracle.s, rtol=2e-2, atol=1e-2)
        oracle.w, oracle.usual = mixer.weights.numpy().copy(), mixer.usual.numpy().copy()
        # so that the two do not drift apart by a solver's tolerance
        oracle.s, oracle.scale = mixer.moments.numpy().copy(), mixer.scale.numpy().copy()
        oracle.lately = mixer.lately.numpy().copy()
    assert any(astray) == (regimes == 3) and not astray[-1]
    np.testing.assert_allclose(mixer.square.numpy(), oracle.square, rtol=1e-2)
    if regimes == 1:  # medians take the place of what is far off
        np.testing.assert_allclose(mixer.apart.numpy(), oracle.apart, rtol=1e-2)


@given(st.integers(2, 7), st.integers(0, 10**6))
@examples(40)
def test_weights_minimise_the_quadratic(experts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(4, experts, experts)) * rng.uniform(0.3, 2, (4, 1, experts))
    a, b = np.einsum("bij,bik->bjk", roots, roots) + 0.1 * np.eye(experts), rng.normal(size=(4, experts))
    start = torch.full((4, experts), 1 / experts, dtype=FLOAT)
    w = minimise(torch.from_numpy(a), start, None, torch.from_numpy(b)).numpy()
    assert (w >= 0).all() and np.allclose(w.sum(1), 1)
    for one, linear, found in zip(a, b, w, strict=True):
        best = quadratic_program(one, linear)
        value, least = (v @ one @ v - 2 * linear @ v for v in (found, best))
        assert value <= least + 1e-7 * max(abs(least), 1.0)


def test_the_mix_is_as_good_as_the_best_expert_of_each_column() -> None:
    means, y = toy(3000, 1, experts=4)
    means[3] = 50 * y.mean(0) + 30 * y.std(0)  # an expert that knows nothing
    mixer, total = Mixer(4, SHAPE, 1000.0), 0.0
    loss = torch.zeros(4, SHAPE.columns, dtype=FLOAT)
    for start in range(0, 3000, 50):
        rows = slice(start, start + 50)
        if start >= 500:
            total = total + (mixer.mean(means[:, rows]) - y[rows]).abs().sum(0)
            loss += (means[:, rows] - y[rows]).abs().sum(1)
        mixer.learn(means[:, rows], y[rows])
    ratio = total / loss.min(0).values
    assert float(ratio.mean()) < 1.0 and float(ratio.max()) < 1.03  # neighbouring steps, which differ here, are pooled
    assert float(mixer.weights[:, 3].max()) == 0.0


def test_weights_follow_a_change_and_forget_a_glitch() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2000, 1, generator=generator, dtype=FLOAT)
    size = torch.ones(2, 2000, 1, dtype=FLOAT)
    size[0, :1000], size[1, 1000:] = 0.2, 0.2
    means = y + size * torch.randn(2, 2000, 1, generator=generator, dtype=FLOAT)
    means[0, 500] = 1e12
    mixer = Mixer(2, shape, 200.0)
    for start in range(0, 2000, 50):
        rows = slice(start, start + 50)
        mixer.learn(means[:, rows], y[rows])
        if start == 950:
            assert mixer.weights[0, 0] > 0.85
    assert mixer.weights[0, 1] > 0.85


@pytest.mark.sampled
@pytest.mark.parametrize(("shift", "chunk", "horizon"), [(20.0, 24, 24), (20.0, 1, 1), (8.0, 24, 24)])
def test_a_new_regime_is_followed_and_the_old_one_again_when_it_ends(shift: float, chunk: int, horizon: int) -> None:
    """An expert three times as bad as the best is right for a week, in which the others are far off."""
    generator, shape = torch.Generator().manual_seed(1), Shape(("y",), horizon, 1, ("y",), ())
    noise = torch.randn(3, 1400, horizon, generator=generator, dtype=FLOAT)
    means = 0.7 * (noise + torch.randn(3, 1400, 1, generator=generator, dtype=FLOAT))
    means *= torch.tensor([1.0, 3.0, 1.2], dtype=FLOAT)[:, None, None]
    means[0::2, 1000:1168] += shift
    mixer, error = Mixer(3, shape, 504.0), torch.zeros(1400, dtype=FLOAT)
    for start in range(0, 1400, chunk):
        rows = slice(start, start + chunk)
        error[rows] = mixer.mean(means[:, rows]).abs().mean(1)
        mixer.learn(means[:, rows], torch.zeros(error[rows].shape[0], horizon, dtype=FLOAT))
    alone = means[1].abs().mean(1)  # within a third of the shift
    assert (
        error[1072:1168].mean() < 1.1 * alone[1072:1168].mean() and error[1264:].mean() < 1.3 * error[500:1000].mean()
    )


def test_the_last_rows_of_a_panel_are_those_of_some_series_and_move_no_weights() -> None:
    """Of 24 series at each time the last twelve jump, which two experts do not follow."""
    y = torch.zeros(2400, SHAPE.columns, dtype=FLOAT)
    noise = torch.randn(3, 2400, SHAPE.columns, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    means = noise * torch.tensor([1.0, 3.0, 1.2], dtype=FLOAT)[:, None, None]
    means[0::2].view(2, 100, 24, -1)[:, 90:, 12:] += 20.0
    astray = dict[bool, bool]()
    for panel in (False, True):
        mixer, astray[panel] = Mixer(3, replace(SHAPE, panel=panel), 1008.0), False
        for start in range(0, 2400, 24):
            mixer.learn(means[:, start : start + 24], y[start : start + 24])
            astray[panel] |= bool(mixer.astray.any())
    assert astray == {False: True, True: False}


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_the_variance_is_that_of_the_errors_in_any_unit(unit: float) -> None:
    means, y = (unit * part for part in toy(4000, 2))
    mixer = Mixer(3, SHAPE, 1000.0)
    for start in range(0, 4000, 100):
        mixer.learn(means[:, start : start + 100], y[start : start + 100])
    latent, noise = mixer.variances(means, y.var(0).expand_as(y))
    assert bool((latent > 0).all()) and bool((noise > 0).all())
    square = (mixer.mean(means) - y).square().mean(0)
    np.testing.assert_allclose((square / (latent + noise).mean(0)).numpy(), 1.0, atol=0.1)


def test_nothing_known_changes_nothing() -> None:
    means, y = toy(50, 3)
    mixer = Mixer(3, SHAPE, 100.0)
    mixer.learn(means, y)
    before = {name: part.clone() for name, part in mixer.state()[0].items()}
    mixer.learn(means, torch.full_like(y, torch.nan))
    mixer.learn(means[:, :0], y[:0])
    assert all(same_bits(part, before[name]) for name, part in mixer.state()[0].items())


def test_experts_without_error_keep_their_weights() -> None:
    mixer = Mixer(2, SHAPE, 100.0)
    y = torch.ones(20, 6, dtype=FLOAT)
    mixer.learn(torch.stack([y, y]), y)
    assert mixer.weights.tolist() == [[0.5, 0.5]] * 6
    latent, noise = mixer.variances(torch.stack([y, y]), y)
    assert bool((latent == 0).all()) and bool((noise > 0).all())


def test_a_forecast_far_from_all_others_is_left_out_of_the_mix() -> None:
    means, y = toy(400, 3)
    mixer = Mixer(3, SHAPE, 500.0)
    mixer.learn(means, y)
    clean, wild = means[:, :1], means[:, :1].clone()
    wild[1] += 1e9
    moved = (mixer.mean(wild) - mixer.mean(clean)).abs()
    assert (moved < 5 * mixer.scale).all()
    latent, noise = mixer.variances(wild, torch.ones_like(clean[0]))
    assert (latent + noise < 100 * mixer.scale.square()).all()


def test_state_goes_on_bit_for_bit() -> None:
    means, y = toy(200, 4)

    def advance(mixer: Mixer, step: int) -> Tensor:
        rows = slice(40 * step, 40 * step + 40)
        mixer.learn(means[:, rows], y[rows])
        return torch.cat([mixer.mean(means), *mixer.variances(means, y.square())])

    check_stateful(lambda: Mixer(3, SHAPE, 100.0), advance, 5, same_bits)


def test_an_expert_that_strays_from_those_of_weight_is_left_out_and_one_that_is_right_is_not_outvoted() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(1500, 1, generator=generator, dtype=FLOAT)
    errors = torch.randn(4, 1500, 1, generator=generator, dtype=FLOAT)
    alike = Mixer(4, shape, 500.0)
    alike.learn(y + 0.1 * errors, y)  # four that are equally good
    one = torch.zeros(4, 1, 1, dtype=FLOAT)
    one[0] = 3.0  # about 60 of their mean errors; and half as much
    assert alike.mean(one).item() == pytest.approx(0.0, abs=1e-12)
    assert alike.mean(0.5 * one).item() == pytest.approx(0.0, abs=1e-12)
    best = Mixer(4, shape, 500.0)
    size = torch.tensor([0.1, 2.0, 2.0, 2.0], dtype=FLOAT)[:, None, None]
    best.learn(y + size * errors, y)
    assert best.weights[0, 0] > 0.95
    assert best.mean(one).item() > 2.8  # about 38 of its mean errors from the median of the three that are not
