"""Bound E lies above the evidence, and touches it where the posterior was taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.kernels import squared_exponential
from streamgp.objectives import evidence, majoriser
from streamgp.solvers import kiss
from tests.objectives.oracles_deep_kernel import bound as bound_of
from tests.objectives.oracles_deep_kernel import constant, dense_nlml, dense_row_gradients, problem
from tests.properties import examples

KERNELS = ("squared_exponential", "matern", "linear", "spectral_mixture")


@examples(60)
@given(
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from(KERNELS),
    st.floats(0, 5),
    st.integers(0, 10**6),
)
def test_it_is_an_upper_bound_wherever_the_latents_go(n: int, columns: int, kernel: str, far: float, seed: int) -> None:
    at = problem(n, columns, kernel, seed)
    posterior = at.solver.condition(at.data())
    moved = at.h + far * torch.randn(at.h.shape, dtype=at.h.dtype, generator=torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        bound = bound_of(posterior, moved, at.y)
        truth = dense_nlml(at.solver.kernel, at.solver.noise, moved, at.y)
    assert bound >= truth - 1e-9 * (1 + truth.abs())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("columns", [1, 3])
def test_it_touches_the_evidence_at_the_stale_latents(kernel: str, columns: int) -> None:
    at = problem(40, columns, kernel)
    posterior = at.solver.condition(at.data())
    leaf = at.h.clone().requires_grad_()
    bound = bound_of(posterior, leaf, at.y)
    (gradient,) = torch.autograd.grad(bound, leaf)
    truth = dense_nlml(at.solver.kernel, at.solver.noise, at.h, at.y)
    torch.testing.assert_close(bound.detach(), truth.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, dense_row_gradients(at), rtol=1e-9, atol=1e-9)


def test_it_is_strict_away_from_there() -> None:
    at = problem(40, 1)
    posterior = at.solver.condition(at.data())
    with torch.no_grad():
        bound = bound_of(posterior, 1.3 * at.h, at.y)
        truth = dense_nlml(at.solver.kernel, at.solver.noise, 1.3 * at.h, at.y)
    assert bound > truth + 0.1


def test_rows_are_each_their_own() -> None:
    at = problem(20, 2)
    posterior = at.solver.condition(at.data())
    whole = majoriser.rows(posterior, at.h, at.y)
    part = majoriser.rows(posterior, at.h[3:7], at.y[3:7])
    torch.testing.assert_close(part, whole[3:7], rtol=1e-11, atol=1e-12)


def test_the_noise_needs_the_constant_and_the_encoder_does_not() -> None:
    """Why only the encoder may step on the sum over rows: its gradient in σ² even has the other sign."""
    at = problem(30, 1)
    posterior = at.solver.condition(at.data())
    noise = at.solver.noise.detach().clone().requires_grad_()
    posterior.noise = noise
    rows = majoriser.rows(posterior, at.h, at.y).sum()
    (alone,) = torch.autograd.grad(rows, noise, retain_graph=True)
    (whole,) = torch.autograd.grad(rows + constant(posterior, len(at.y)), noise)
    (true,) = torch.autograd.grad(dense_nlml(at.solver.kernel, noise, at.h, at.y), noise)
    torch.testing.assert_close(whole, true, rtol=1e-9, atol=1e-9)
    assert alone < 0 < true


def test_it_bounds_and_touches_the_evidence_of_the_grid_model_too() -> None:
    """`kiss` is exact for its own truncated kernel: directional derivatives by differences of its own NLML."""
    generator = torch.Generator().manual_seed(0)
    h = torch.empty(60, 2, dtype=torch.float64).uniform_(-0.9, 0.9, generator=generator)
    y = torch.sin(4 * h) + 0.2 * torch.randn(60, 2, dtype=torch.float64, generator=generator)
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.5), 2)
    solver = kiss.build(kiss.Config(noise=0.05), kernel, 2)

    @torch.no_grad()
    def nlml(at: Tensor) -> Tensor:
        data = solver.data()
        data.add(at, y)
        return solver.nlml(data)

    data = solver.data()
    data.add(h, y)
    posterior = solver.condition(data)
    torch.testing.assert_close(bound_of(posterior, h, y).detach(), nlml(h), rtol=1e-8, atol=1e-8)
    slope = evidence.row_gradients(posterior, h, y)
    for _ in range(3):
        along = torch.randn(h.shape, dtype=h.dtype, generator=generator)
        difference = (nlml(h + 1e-5 * along) - nlml(h - 1e-5 * along)) / 2e-5
        torch.testing.assert_close((slope * along).sum(), difference, rtol=1e-5, atol=1e-5)
        moved = (h + 0.1 * along).clamp(-1, 1)
        assert bound_of(posterior, moved, y).detach() > nlml(moved)
