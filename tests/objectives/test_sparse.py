"""The closed-form kernel gradient of a whitened bound against automatic differentiation through the factorisation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.objectives.sparse import Belief, kernel_gradient
from streamgp.training.natural_gradient import weighted_gram

POINTS, ROWS, COLUMNS = 7, 30, 3


def bound(cross: Tensor, gram: Tensor, diagonal: Tensor, belief: Belief, y: Tensor, noise: Tensor) -> Tensor:
    """Σ_nt E log N(y; f, σ²) without its constant, through autograd."""
    phi = whiten(cholesky(gram, first=0.0).lower, cross.T).T
    mean, variance = belief.moments(phi, diagonal)
    return -0.5 * (((y - mean).square() + variance) / noise).sum()


def belief_of(size: int, generator: torch.Generator) -> Belief:
    root = torch.randn(size, POINTS, POINTS, generator=generator, dtype=torch.float64)
    covariance = root @ root.mT / POINTS
    mean = torch.randn(POINTS, COLUMNS, generator=generator, dtype=torch.float64)
    return Belief(mean, covariance - torch.eye(POINTS, dtype=torch.float64), torch.linalg.slogdet(covariance)[1])


@pytest.mark.parametrize("own", [False, True])
def test_it_is_what_automatic_differentiation_finds(own: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    belief = belief_of(COLUMNS if own else 1, generator)
    root = torch.randn(POINTS, 2 * POINTS, generator=generator, dtype=torch.float64)
    gram = (root @ root.T / POINTS).requires_grad_()
    cross = torch.randn(ROWS, POINTS, generator=generator, dtype=torch.float64, requires_grad=True)
    diagonal = torch.full((ROWS,), 40.0, dtype=torch.float64, requires_grad=True)
    y = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    noise = torch.tensor([0.5, 0.8, 1.1] if own else 0.7, dtype=torch.float64)
    wanted = torch.autograd.grad(bound(cross, gram, diagonal, belief, y, noise), [cross, gram, diagonal])
    with torch.no_grad():
        lower = cholesky(gram, first=0.0).lower
        inverse = whiten(lower, torch.eye(POINTS, dtype=torch.float64))
        phi = cross @ inverse.T
        slope = (y - phi @ belief.mean) / noise
        curve = (-0.5 / noise).expand(ROWS, COLUMNS)
        curve = curve if own else curve.sum(1, keepdim=True)
        outer = torch.stack([weighted_gram(phi, column) for column in curve.T])
        found = kernel_gradient(inverse, phi, belief, slope, curve, outer)
    torch.testing.assert_close(found.cross, wanted[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.gram, 0.5 * (wanted[1] + wanted[1].T), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.diagonal, wanted[2], rtol=1e-12, atol=0)


def test_the_divergence_is_that_of_two_gaussians() -> None:
    generator = torch.Generator().manual_seed(1)
    for own in (False, True):
        belief = belief_of(COLUMNS if own else 1, generator)
        wanted = torch.zeros((), dtype=torch.float64)
        for t in range(COLUMNS):
            covariance = belief.excess[t if own else 0] + torch.eye(POINTS, dtype=torch.float64)
            q = torch.distributions.MultivariateNormal(belief.mean[:, t], covariance)
            p = torch.distributions.MultivariateNormal(
                torch.zeros(POINTS, dtype=torch.float64), torch.eye(POINTS, dtype=torch.float64)
            )
            wanted += torch.distributions.kl_divergence(q, p)
        torch.testing.assert_close(belief.divergence(), wanted, rtol=1e-9, atol=0)
