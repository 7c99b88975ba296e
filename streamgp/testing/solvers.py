"""The laws of a solver of Gaussian processes, against a dense one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.solvers import Conditional, Data, Solver
from streamgp.testing.stateful import reborn, same_bits

_ROWS = 40
_PATHS = 4000
"""Draws for the moments of `draw`; they may be five standard errors off."""


class Dense(NamedTuple):
    """What a dense solver says: () NLML, and at M places (M, T) means and (T, M, M) covariances."""

    nlml: Tensor
    mean: Tensor
    covariance: Tensor


def dense(solver: Solver, h: Tensor, y: Tensor, weight: Tensor, at: Tensor) -> Dense:
    """T dense Gaussian processes under the hyper-parameters of `solver`; row i has noise σ_t²/weight_i.

    NLML = ½ Σ_t [y_tᵀC_t⁻¹y_t + log|C_t| − Σ_i log(σ_t²/w_i) + Σ_i w_i log 2πσ_t²], C_t = K + σ_t² diag(1/w): the
    likelihood Π_i N(y_i; f_i, σ²)^w_i integrated over f. Differentiable in h and in the hyper-parameters.

    Args:
        h: (N, d), y: (N, T), weight: (N,) > 0, at: (M, d).
    """
    prior, cross = solver.kernel(h, h), solver.kernel(h, at)
    total, means, covariances = torch.zeros((), dtype=FLOAT), [], []
    for noise, column in zip(solver.noise, y.unbind(1), strict=True):
        own = prior + torch.diag(noise / weight)
        alpha = torch.linalg.solve(own, column)
        spare = weight.sum() * (2 * math.pi * noise).log() - (noise / weight).log().sum()
        total = total + 0.5 * (column @ alpha + torch.linalg.slogdet(own).logabsdet + spare)
        means.append(cross.T @ alpha)
        covariances.append(solver.kernel(at, at) - cross.T @ torch.linalg.solve(own, cross))
    return Dense(total, torch.stack(means, 1), torch.stack(covariances))


def example_rows(rows: int, dims: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Latents (N, d) in [−0.9, 0.9]^d, and (N, T) waves of them with noise."""
    generator = torch.Generator().manual_seed(seed)
    h = 1.8 * torch.rand(rows, dims, dtype=FLOAT, generator=generator) - 0.9
    phase = torch.arange(columns, dtype=FLOAT)
    noise = torch.randn(rows, columns, dtype=FLOAT, generator=generator)
    return h, (2.0 * h.sum(1, keepdim=True) + phase).sin() + 0.3 * noise


def check_solver(
    build: Callable[[int, int], Solver],
    *,
    dims: int = 2,
    value: float = 1e-8,
    gradient: float = 1e-6,
    same: float = 1e-10,
) -> None:
    """The laws of `solvers`.

    Args:
        build: of `dims` and columns; the kernel should be smooth at the scale of [−1, 1].
        dims: latent width.
        value: how far the NLML, the mean and the variance may be from the dense ones: relative to the NLML, to the
            prior standard deviation and to the prior variance.
        gradient: how far gradients may be, relative to the norm of the dense ones.
        same: how far numbers may be that differ in the order of sums alone, likewise relative.

    Raises:
        AssertionError: a law is broken; the message names it.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> from streamgp.solvers import exact
        >>> kernel = lambda dims: squared_exponential.build(squared_exponential.Config(lengthscale=0.6), dims)
        >>> check_solver(lambda dims, columns: exact.build(exact.Config(), kernel(dims), columns))
    """
    for columns in (1, 2):
        h, y = example_rows(_ROWS, dims, columns)
        at, _ = example_rows(7, dims, columns, seed=1)
        _check_prior(build(dims, columns), at, value)
        _check_dense(build(dims, columns), h, y, at, value, gradient)
        _check_pieces(build(dims, columns), h, y, at, same)
        _check_frozen(build(dims, columns), h, y, at)
        _check_majoriser(build(dims, columns), h, y, value)
        _check_draws(build(dims, columns), h, y, at[:4], value)
        _check_state(lambda columns=columns: build(dims, columns), h, y, at)  # type: ignore[misc]
    _check_floor(build(dims, 1), h, y[:, :1])


def _learned(solver: Solver, h: Tensor, y: Tensor) -> Data:
    data = solver.data()
    data.add(h, y)
    return data


def _sight(solver: Solver, data: Data, at: Tensor) -> Tensor:
    """All that can be seen of a solver and its data, as one vector."""
    posterior = solver.condition(data)
    with torch.no_grad():
        parts = (posterior.mean(at), posterior.variance(at), solver.nlml(data), posterior.noise)
    return torch.cat([part.flatten() for part in parts])


def _near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Every number within `tolerance` of the larger of 1 and itself."""
    return bool(((one - other).abs() <= tolerance * other.abs().clamp(min=1.0)).all())


def _check_prior(solver: Solver, at: Tensor, value: float) -> None:
    data = solver.data()
    posterior = solver.condition(data)
    prior = solver.kernel.diagonal(at).detach()[:, None]
    assert data.count == 0 and bool((posterior.mean(at) == 0).all()), "without rows the mean is not 0"
    assert bool(((posterior.variance(at) - prior).abs() <= value * prior).all()), "without rows it is not the prior"
    assert abs(float(solver.nlml(data).detach())) <= 1e-9, "without rows the NLML is not 0"


def _check_dense(solver: Solver, h: Tensor, y: Tensor, at: Tensor, value: float, gradient: float) -> None:
    """NLML, moments and gradients are a dense solver's, with and without forgetting."""
    data, half = solver.data(), len(h) // 2
    weight = torch.ones(len(h), dtype=FLOAT)
    data.add(h[:half], y[:half])
    for kept in (1.0, 0.7):
        data.forget(kept)
        weight[:half] *= kept
        if kept == 1.0:
            data.add(h[half:], y[half:])
        else:
            weight[half:] *= kept
        _compare(solver, data, h, y, weight, at, value, gradient)
    for _ in range(2):
        data.forget(0.5)
    data.add(h[:half], y[:half])
    rows, weights = torch.cat([h, h[:half]]), torch.cat([0.25 * weight, torch.ones(half, dtype=FLOAT)])
    _compare(solver, data, rows, torch.cat([y, y[:half]]), weights, at, value, gradient)


def _compare(
    solver: Solver, data: Data, h: Tensor, y: Tensor, weight: Tensor, at: Tensor, value: float, gradient: float
) -> None:
    assert math.isclose(data.count, float(weight.sum()), rel_tol=1e-12), "count is not the sum of the weights"
    free = h.clone().requires_grad_()
    truth, found = dense(solver, free, y, weight, at), solver.nlml(data)
    one, other = float(found.detach()), float(truth.nlml.detach())
    assert abs(one - other) <= value * max(1.0, abs(other)), f"NLML {one}, dense {other}"
    posterior = solver.condition(data)
    assert posterior.noise.shape == (y.shape[1],) and not posterior.mean(at).requires_grad, "condition keeps a graph"
    scale = float(solver.kernel.diagonal(at).detach().max())
    error = (posterior.mean(at) - truth.mean.detach()).abs().max()
    assert float(error) <= value * scale**0.5, f"the mean is {float(error)} from the dense one"
    spread = posterior.variance(at)
    error = (spread - truth.covariance.detach().diagonal(dim1=1, dim2=2).T).abs().max()
    assert float(error) <= value * scale and bool((spread >= 0).all()), f"variance {float(error)} from the dense one"
    parameters = list(solver.parameters())
    *wanted, rows = torch.autograd.grad(truth.nlml, [*parameters, free])
    got = torch.autograd.grad(found, parameters)
    slope, dense_slope = (torch.cat([part.flatten() for part in parts]) for parts in (got, wanted))
    error = (slope - dense_slope).norm() / dense_slope.norm()
    assert float(error) <= gradient, f"the gradient of the NLML is {float(error)} (relative) from the dense one"
    (own,) = torch.autograd.grad((weight * _expected(posterior, free, y)).sum(), free)
    error = (own - rows).norm() / rows.norm()
    assert float(error) <= gradient, f"row gradients are {float(error)} (relative) from the dense ones"


def _expected(posterior: Conditional, h: Tensor, y: Tensor) -> Tensor:
    """(N,) e_i = Σ_t [(y_it − m_t(h_i))² + v_t(h_i)]/(2σ_t²)."""
    return (((y - posterior.mean(h)).square() + posterior.variance(h)) / (2 * posterior.noise)).sum(1)


def _check_pieces(solver: Solver, h: Tensor, y: Tensor, at: Tensor, same: float) -> None:
    """Neither the batches nor the order of rows matter; one place alone gives its row of the batch."""
    whole = _sight(solver, _learned(solver, h, y), at)
    pieces = solver.data()
    for start in range(0, len(h), 7):
        pieces.add(h[start : start + 7], y[start : start + 7])
    assert _near(_sight(solver, pieces, at), whole, same), "rows in pieces differ from rows at once"
    assert _near(_sight(solver, _learned(solver, h.flip(0), y.flip(0)), at), whole, same), "the order of rows matters"
    posterior = solver.condition(pieces)
    for name in ("mean", "variance"):
        batch, alone = getattr(posterior, name)(at), getattr(posterior, name)(at[2:3])
        assert batch.dtype == FLOAT and batch.shape == (len(at), y.shape[1]), f"{name} gives float64 (N, T)"
        assert _near(alone, batch[2:3], 1e-10), f"{name}: one row alone differs from its row of the batch"


def _check_frozen(solver: Solver, h: Tensor, y: Tensor, at: Tensor) -> None:
    """Later data and later hyper-parameters do not change a posterior; nor does reading change the data."""
    data = _learned(solver, h, y)
    posterior = solver.condition(data)
    before = [posterior.mean(at), posterior.variance(at), posterior.noise.clone()]
    data.add(h, -y)
    data.forget(0.5)
    with torch.no_grad():
        for parameter in solver.parameters():
            parameter.add_(0.3)
    after = [posterior.mean(at), posterior.variance(at), posterior.noise]
    assert all(map(same_bits, before, after)), "a posterior changes with the data or the hyper-parameters"


def _check_majoriser(solver: Solver, h: Tensor, y: Tensor, value: float) -> None:
    """Σ_i e_i + (N/2) Σ_t log 2πσ_t² + Σ_t KL₀ = NLML at the posterior's own rows."""
    data = _learned(solver, h, y)
    posterior = solver.condition(data)
    try:
        divergence = posterior.divergence()
    except UsageError:
        return
    bound = _expected(posterior, h, y).sum() + 0.5 * len(h) * (2 * math.pi * posterior.noise).log().sum()
    nlml = float(solver.nlml(data).detach())
    assert divergence.shape == posterior.noise.shape, "divergence gives one number a column"
    # the identity holds within the solver's own model, whatever that model's distance from the dense one
    assert abs(float(bound + divergence.sum()) - nlml) <= min(value, 1e-8) * abs(nlml), "the majoriser is not tight"


def _check_draws(solver: Solver, h: Tensor, y: Tensor, at: Tensor, value: float) -> None:
    """Draws have the posterior's moments, jointly over places and calls, and are functions."""
    posterior = solver.condition(_learned(solver, h, y))
    truth = dense(solver, h, y, torch.ones(len(h), dtype=FLOAT), at)
    function = posterior.draw(_PATHS, Generator().manual_seed(0))
    places = at.expand(_PATHS, *at.shape)
    first = function(places[:, :2])
    values = torch.cat([first, function(places[:, 2:])], 1)  # (P, 4, T)
    assert values.shape == (_PATHS, len(at), y.shape[1]), "a draw gives (P, S, T)"
    spread = truth.covariance.diagonal(dim1=1, dim2=2).T.detach()  # (4, T)
    again = (function(places[:, :2]) - first).abs().max()
    assert float(again) <= 1e-2 * float(spread.min().sqrt()), f"asked again, a draw is {float(again)} off"
    scale = float(solver.kernel.diagonal(at).detach().max())
    slack = value * scale**0.5
    error = (values.mean(0) - truth.mean.detach()).abs()
    assert bool((error <= 5 * (spread / _PATHS).sqrt() + slack).all()), "draws have another mean"
    centred = values - values.mean(0)
    sampled = torch.einsum("pit,pjt->tij", centred, centred) / (_PATHS - 1)
    wanted = truth.covariance.detach()
    error = (sampled - wanted).abs()
    allowed = 5 * ((spread.T[:, :, None] * spread.T[:, None, :] + wanted.square()) / _PATHS).sqrt()
    assert bool((error <= allowed + value * scale).all()), "draws have another covariance"
    repeat = posterior.draw(_PATHS, Generator().manual_seed(0))
    assert same_bits(repeat(places[:, :2]), first), "the generator does not decide a draw"


def _check_state(make: Callable[[], Solver], h: Tensor, y: Tensor, at: Tensor) -> None:
    """Saving and restoring the data at any moment changes no bit of what comes later."""
    solver, other, half = make(), make(), len(h) // 2
    whole, broken = solver.data(), other.data()
    for step in range(3):
        for data in (whole, broken):
            data.forget(0.9)
            data.add(h[step:half], y[step:half])
        assert same_bits(_sight(solver, whole, at), _sight(other, broken, at)), f"step {step} differs after a restore"
        assert whole.count == broken.count, "the count differs after a restore"
        broken = reborn(broken, other.data())


def _check_floor(solver: Solver, h: Tensor, y: Tensor) -> None:
    with torch.no_grad():
        solver.log_noise.fill_(-100.0)
    posterior = solver.condition(_learned(solver, h, y))
    assert bool((posterior.noise >= solver.floor).all()), "the noise falls below the floor"
    assert bool(torch.isfinite(posterior.variance(h)).all()), "at the noise floor numbers are not finite"
