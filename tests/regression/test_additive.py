"""Additive regression against dense closed forms in NumPy: the covariance of rows written out, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from torch import Tensor

from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.batched import halved, whole
from streamgp.regression import additive
from streamgp.regression.additive import Held, Regression

K, N, P, T = 3, 40, 9, 2
NOISE = torch.tensor(0.3, dtype=torch.float64)


def drawn(seed: int, models: int = K) -> tuple[Tensor, Tensor, Tensor]:
    """(K, N, P), (K, N, T), (K, N): features, targets, and weights of which some are 0."""
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(models, N, P, generator=generator, dtype=torch.float64)
    y = torch.randn(models, N, T, generator=generator, dtype=torch.float64)
    weight = torch.rand(models, N, generator=generator, dtype=torch.float64)
    return phi, y, torch.where(weight < 0.2, 0.0, weight)


def empty(models: int = K) -> Held:
    shapes = {"outer": (P, P), "moment": (P, T), "square": (T,), "weight": (), "coefficients": (P, T)}
    return {name: torch.zeros(models, *shape, dtype=torch.float64) for name, shape in shapes.items()}


def learned(held: Held, prior: Tensor | None = None, mean: Tensor | None = None) -> Held:
    held["root"], failed = additive.root(held["outer"], NOISE, prior)
    assert not failed.any()
    additive.settle(held, NOISE, prior, mean)
    assert additive.finite(held).all()
    return held


def dense(
    phi: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    prior: NDArray[np.float64],
    mean: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """w, the covariance A⁻¹, and the negative log density of the rows a row and column: all by the rows' covariance.

    A row of weight v is one whose noise has the variance σ²/v.
    """
    some = weight > 0
    phi, y, weight = phi[some], y[some], weight[some]
    covariance = np.diag(1.0 / prior)
    rows = phi @ covariance @ phi.T + np.diag(float(NOISE) / weight)
    gain = covariance @ phi.T @ np.linalg.inv(rows)
    w = mean + gain @ (y - phi @ mean)
    nats = [-multivariate_normal(phi @ mean[:, t], rows).logpdf(y[:, t]) for t in range(T)]
    # the additive form counts log 2πσ² a unit of weight, the density log 2πσ²/v a row
    constant = 0.5 * (weight.sum() - len(weight)) * np.log(2 * np.pi * float(NOISE)) + 0.5 * np.log(weight).sum()
    return w, covariance - gain @ phi @ covariance, (np.mean(nats) + constant) / weight.sum()


@pytest.mark.parametrize("given", ["nothing", "precisions", "means", "both"])
def test_the_posterior_and_the_evidence_are_those_of_the_dense_gaussian(given: str) -> None:
    phi, y, weight = drawn(0)
    generator = torch.Generator().manual_seed(1)
    prior = (
        0.5 + 2.0 * torch.rand(P, generator=generator, dtype=torch.float64) if given in ("precisions", "both") else None
    )
    mean = torch.randn(K, P, T, generator=generator, dtype=torch.float64) if given in ("means", "both") else None
    held = empty()
    for part in (slice(0, 7), slice(7, 8), slice(8, N)):
        additive.absorb(held, phi[:, part], y[:, part], weight[:, part])
    learned(held, prior, mean)
    found = additive.loss(held, NOISE, prior, mean)
    for k in range(K):
        own = np.ones(P) if prior is None else prior.numpy()
        center = np.zeros((P, T)) if mean is None else mean[k].numpy()
        w, covariance, nats = dense(phi[k].numpy(), y[k].numpy(), weight[k].numpy(), own, center)
        np.testing.assert_allclose(held["coefficients"][k], w, rtol=1e-10, atol=1e-12)
        root = held["root"][k].numpy()
        np.testing.assert_allclose(np.linalg.inv(root @ root.T), covariance, rtol=1e-10, atol=1e-12)
        assert float(found[k]) == pytest.approx(nats, rel=1e-10)
        errors = weight[k, :, None] * (y[k] - phi[k] @ held["coefficients"][k]).square()
        torch.testing.assert_close(
            held["residual"][k], errors.sum(0) / weight[k].sum().clamp(min=1.0), rtol=1e-10, atol=0.0
        )


def test_many_models_are_single_ones() -> None:
    phi, y, weight = drawn(2)
    y[0, 3, 0] = y[1, 5, 1] = y[2, 9] = torch.nan
    kept = torch.tensor([1.0, 0.9, 0.5], dtype=torch.float64)
    together = learned(empty())
    apart = [learned(empty(1)) for _ in range(K)]
    for part in (slice(0, 20), slice(20, N)):
        additive.absorb(together, phi[:, part], y[:, part], weight[:, part], kept)
        learned(together)
        for k, one in enumerate(apart):
            own = slice(k, k + 1)
            additive.absorb(one, phi[own, part], y[own, part], weight[own, part], kept[own])
            learned(one)
    for k, one in enumerate(apart):
        for name, value in one.items():
            both = together[name][k], value[0]
            if name == "outer":  # its lower triangle counts
                both = both[0].tril(), both[1].tril()
            torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


def test_the_module_is_the_functions_with_one_model() -> None:
    phi, y, weight = drawn(3, 1)
    y[0, 4, 1] = torch.nan
    held, one = learned(empty(1)), Regression(T, P, P)
    one.noise = NOISE
    one.empty(P, NOISE)
    for part, kept in ((slice(0, 30), 1.0), (slice(30, N), 0.7)):
        additive.absorb(held, phi[:, part], y[:, part], weight[:, part], torch.tensor([kept], dtype=torch.float64))
        learned(held)
        one.absorb(phi[0, part], y[0, part], weight[0, part], kept)
        one.solve()
    torch.testing.assert_close(one.coefficients, held["coefficients"][0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.residual, held["residual"][0], rtol=1e-12, atol=1e-12)
    assert one.loss() == pytest.approx(float(additive.loss(held, NOISE)), rel=1e-12)
    root = one.root
    torch.testing.assert_close(one.known(phi[0])[:, 0], (phi[0] @ torch.linalg.inv(root @ root.T) * phi[0]).sum(1))
    inverse = torch.linalg.inv(root @ root.T)
    torch.testing.assert_close(one.determined(), (P - inverse.trace()).expand(T))


def test_columns_with_a_noise_each_are_models_of_their_own() -> None:
    """Against the dense Gaussian of each column, and against a module of that column."""
    phi, y, weight = drawn(8, 1)
    both = torch.cat((y[0], -y[0, :, :1]), 1)
    noise = torch.tensor([0.3, 0.004, 0.3], dtype=torch.float64)
    one = Regression(3, P, P, apart=True)
    one.empty(P, noise)
    one.absorb(phi[0], both, weight[0])
    one.solve()
    assert one.root.shape == (2, P, P), "columns of one noise share a factor"
    losses, alone = [], Regression(1, P, P)
    for t in range(3):
        alone.empty(P, noise[t])
        alone.absorb(phi[0], both[:, t : t + 1], weight[0])
        alone.solve()
        root = torch.diag(weight[0].clamp(min=1e-12).rsqrt()) * noise[t].sqrt()  # rows of weight 0 say nothing
        rows = (phi[0] @ phi[0].T + root @ root.T).numpy()
        wanted = phi[0].numpy().T @ np.linalg.solve(rows, both[:, t].numpy())
        np.testing.assert_allclose(one.coefficients[:, t], wanted, rtol=1e-8, atol=1e-10)
        spread = np.eye(P) - phi[0].numpy().T @ np.linalg.solve(rows, phi[0].numpy())
        known = (phi[0] @ torch.from_numpy(spread) * phi[0]).sum(1)
        torch.testing.assert_close(one.known(phi[0])[:, t], known, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(one.residual[t], alone.residual[0], rtol=1e-10, atol=0.0)
        torch.testing.assert_close(one.determined()[t], alone.determined()[0], rtol=1e-10, atol=0.0)
        losses.append(alone.loss())
    assert one.loss() == pytest.approx(np.mean(losses), rel=1e-10)
    again = Regression(3, P, P, apart=True)
    again.restore(*one.state())
    assert again.root.equal(one.root) and again.known(phi[0]).equal(one.known(phi[0]))
    with pytest.raises(ValueError, match="noise is"):
        again.restore(one.state()[0] | {"noise": noise[:2]}, one.state()[1])


def test_forgetting_leaves_the_prior_alone() -> None:
    phi, y, weight = drawn(4)
    held = empty()
    additive.absorb(held, phi, y, weight)
    nothing = torch.zeros(K, dtype=torch.float64)
    additive.absorb(held, phi[:, :0], y[:, :0], weight[:, :0], nothing)
    learned(held)
    torch.testing.assert_close(held["root"], torch.eye(P, dtype=torch.float64).expand(K, P, P))
    assert not held["coefficients"].any()


def test_a_missing_target_leaves_the_mean_of_its_column_as_it_is() -> None:
    phi, y, weight = drawn(5)
    held = empty()
    additive.absorb(held, phi, y, weight)
    before = learned(held)["coefficients"].clone()
    fresh, hidden = phi[:, :5] + 0.1, y[:, :5].clone()
    hidden[..., 1] = torch.nan
    additive.absorb(held, fresh, hidden, torch.ones(K, 5, dtype=torch.float64))
    learned(held)
    torch.testing.assert_close(held["coefficients"][..., 1], before[..., 1], rtol=1e-9, atol=1e-10)
    assert (held["coefficients"][..., 0] - before[..., 0]).abs().max() > 1e-4


def test_sums_that_are_not_finite_are_told() -> None:
    phi, y, weight = drawn(6)
    phi[1, 0, 0] = torch.inf
    held = empty()
    additive.absorb(held, phi, y, weight)
    held["root"], failed = additive.root(held["outer"], NOISE)
    additive.settle(held, NOISE)
    assert ((failed == 0) & additive.finite(held)).tolist() == [True, False, True]
    one = Regression(T, P, P)
    one.absorb(phi[1], y[1], weight[1])
    with pytest.raises(NotPositiveDefinite):
        one.solve()


def test_lower_triangles_come_back() -> None:
    phi, y, weight = drawn(7)
    held = empty()
    additive.absorb(held, phi, y, weight)
    torch.testing.assert_close(whole(halved(held["outer"]), P).tril(), held["outer"].tril())
    wanted = torch.einsum("kn,knp,knq->kpq", weight, phi, phi)
    torch.testing.assert_close(whole(halved(held["outer"]), P), wanted, rtol=1e-12, atol=1e-12)
