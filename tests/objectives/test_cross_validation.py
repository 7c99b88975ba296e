"""The error of rows held out: dense against NumPy, by products against dense, gradients, invariance and rescaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel, Tied
from streamgp.linalg.blockwise import Blockwise
from streamgp.objectives.cross_validation import Partition, rescale, splits
from streamgp.objectives.fold import Fold, Reduced, reduced, solve_from
from tests.evidence.cross_validation_toys import dense
from tests.properties import examples

KERNELS: tuple[Any, ...] = (
    "squared_exponential",
    {"name": "locally_periodic", "tied": True, "period": 1.7},
    {"name": "sum", "parts": ["squared_exponential", {"name": "locally_periodic", "period": 1.7}]},
    {"name": "product", "parts": ["linear", "matern"]},
    "spectral_mixture",
)
"""(19), (20) and (21) of Xu et al. 2019 first."""
NOISE = torch.tensor([0.1, 0.3], dtype=FLOAT)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int = 40) -> tuple[Tensor, Tensor]:
    x = 5.0 * torch.rand(n, 1, generator=generator(), dtype=FLOAT)
    noise = torch.randn(n, 2, generator=generator(1), dtype=FLOAT)
    return x, torch.cat((x.sin(), (3.0 * x).cos()), 1) + 0.3 * noise


X, Y = rows()
TWO = splits(len(X), 2, 0.5, "random", generator())


def built(options: Any) -> Tied:
    return Tied(choice.read("kernels", options), torch.zeros(1, dtype=torch.int64))


def by_products(
    kernel: Kernel, noise: Tensor, folds: Sequence[Partition], memory: int = 2**20, rank: int = 20
) -> Reduced:
    """Summed over folds; z and M of the first."""
    found = [reduced(Fold(kernel, noise, X, Y, one, memory=memory, rank=rank), tolerance=1e-12) for one in folds]
    return found[0]._replace(
        loss=sum(one.loss for one in found),
        kernel=[sum(parts[1:], parts[0]) for parts in zip(*(one.kernel for one in found), strict=True)],
        log_noise=torch.stack([one.log_noise for one in found]).sum(0),
    )


def test_the_dense_form_is_that_of_numpy() -> None:
    kernel, expected = built("sum"), 0.0
    for train, held in TWO:
        gram, cross = (kernel(X[part], X[train]).detach().numpy() for part in (train, held))
        for t, noise in enumerate(NOISE.numpy()):
            mean = cross @ np.linalg.solve(gram + noise * np.eye(len(gram)), Y[train, t].numpy())
            expected += float(np.sum((Y[held, t].numpy() - mean) ** 2))
    assert dense(kernel, NOISE, X, Y, TWO).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("options", KERNELS, ids=str)
@pytest.mark.parametrize(("memory", "rank"), [(2**20, 20), (5000, 0)], ids=["kept", "computed anew, no preconditioner"])
def test_the_reduced_gradient_is_that_through_a_dense_solve(options: Any, memory: int, rank: int) -> None:
    kernel, noise = built(options), NOISE.clone().requires_grad_()
    loss = dense(kernel, noise, X, Y, TWO)
    *inner, own = torch.autograd.grad(loss, [*kernel.parameters(), noise])
    found = by_products(kernel, NOISE, TWO, memory, rank)
    tolerance = 1e-6 if memory > 5000 else 1e-3  # what is kept of 5000 bytes is float32
    scale = max(float(part.abs().max()) for part in (*inner, own))
    assert found.loss == pytest.approx(loss.item(), rel=tolerance)
    for got, want in zip((*found.kernel, found.log_noise), (*inner, own * NOISE), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("options", KERNELS[:3], ids=str)
def test_the_reduced_gradient_is_that_of_finite_differences(options: Any) -> None:
    kernel = built(options)
    found = by_products(kernel, NOISE, TWO)
    for parameter, slope in zip(kernel.parameters(), found.kernel, strict=True):
        sides = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter.add_(step)
                sides.append(dense(kernel, NOISE, X, Y, TWO).item())
                parameter.sub_(step)
        assert float(slope.sum()) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-6 * found.loss)
    sides = [dense(kernel, NOISE * np.exp(step), X, Y, TWO).item() for step in (1e-5, -1e-5)]
    assert float(found.log_noise.sum()) == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6)


def test_solves_start_where_they_are_told() -> None:
    fold = Fold(built("squared_exponential"), NOISE, X, Y, TWO[0], rank=0)
    exact = fold.solve(fold.y_fitted, tolerance=1e-12, iterations=1000)
    again = fold.solve(fold.y_fitted, exact.value, tolerance=1e-9, iterations=1000)
    assert exact.iterations > 5 and again.iterations == 0 and torch.equal(again.value, exact.value)
    near = fold.solve(fold.y_fitted, exact.value * (1 + 1e-4), tolerance=1e-6, iterations=1000)
    assert 0 < near.iterations < exact.iterations and near.residual <= 1e-6
    nothing = solve_from(fold.product, torch.zeros_like(Y[:20]), None, None, 1e-8, 10)
    assert nothing.residual == 0.0 and not nothing.value.any()


def test_a_preconditioner_saves_steps_and_is_made_anew_when_stale() -> None:
    kernel = built("squared_exponential")
    plain, fold = (Fold(kernel, NOISE, X, Y, TWO[0], rank=rank) for rank in (0, 20))
    few = fold.solve(fold.y_fitted, tolerance=1e-10, iterations=100).iterations
    assert few < 0.5 * plain.solve(plain.y_fitted, tolerance=1e-10, iterations=100).iterations
    with torch.no_grad():
        dict(kernel.named_parameters())["log_lengthscale"].sub_(1.5)
    fold.refresh(NOISE)
    stale = fold.solve(fold.y_fitted, tolerance=1e-10, iterations=100).iterations
    fold.refresh(NOISE)
    assert fold.solve(fold.y_fitted, tolerance=1e-10, iterations=100).iterations < stale


def test_what_fits_is_kept_and_exact_where_all_fits() -> None:
    kernel = built("squared_exponential")
    sizes = {memory: Fold(kernel, NOISE, X, Y, TWO[0], memory=memory) for memory in (6400, 3200, 2000, 0)}
    kept = {memory: (fold.gram.dtype.itemsize, fold.gram.kept, fold.cross.kept) for memory, fold in sizes.items()}
    assert kept == {6400: (8, 20, 20), 3200: (4, 20, 20), 2000: (4, 20, 5), 0: (4, 0, 0)}
    assert isinstance(sizes[0].cross, Blockwise)


@examples(15)
@given(factor=st.floats(1e-3, 1e3), which=st.integers(0, len(KERNELS) - 1))
def test_the_loss_does_not_know_how_large_variances_are(factor: float, which: int) -> None:
    kernel = built(KERNELS[which])
    before = dense(kernel, NOISE, X, Y, TWO).item()
    rescale(kernel, factor, X)
    assert dense(kernel, factor * NOISE, X, Y, TWO).item() == pytest.approx(before, rel=1e-6)


def test_the_factor_is_where_the_marginal_likelihood_is_largest() -> None:
    kernel, train = built("squared_exponential"), TWO[0].train
    covariance = (kernel(X[train], X[train]) + 0.2 * torch.eye(len(train))).detach()
    best = (Y[train] * torch.linalg.solve(covariance, Y[train])).sum() / Y[train].numel()

    def nlml(factor: Tensor) -> float:
        drawn = torch.distributions.MultivariateNormal(torch.zeros(len(train), dtype=FLOAT), factor * covariance)
        return float(-drawn.log_prob(Y[train].T).sum())

    assert nlml(best) < min(nlml(1.01 * best), nlml(0.99 * best))


def test_a_kernel_that_says_nothing_of_its_variances_stays_as_it_was() -> None:
    kernel = choice.build("kernels", choice.read("kernels", "squared_exponential"), 1)
    names = dict(kernel.named_parameters())

    class Silent(type(kernel)):  # type: ignore[misc]
        units = property(lambda self: dict.fromkeys(names))

    kernel.__class__ = Silent
    with pytest.raises(UsageError):
        rescale(kernel, 2.0, X)
    assert not any(value.any() for value in names.values())


@examples(30)
@given(n=st.integers(2, 60), folds=st.integers(1, 6), arrangement=st.sampled_from(["random", "contiguous"]))
def test_every_row_is_held_out_once(n: int, folds: int, arrangement: Any) -> None:
    if n < folds:
        with pytest.raises(UsageError):
            splits(n, folds, 0.5, arrangement, generator())
        return
    found = splits(n, folds, 0.5, arrangement, generator())
    assert len(found) == folds
    held = torch.cat([split.validation for split in found])
    assert held.sort().values.tolist() == list(range(n)) if folds > 1 else len(held) == round(0.5 * n)
    for train, validation in found:
        assert torch.cat((train, validation)).sort().values.tolist() == list(range(n))
        assert train.tolist() == sorted(train) and validation.tolist() == sorted(validation)
        spans = int((validation.diff() != 1).sum()) + 1
        assert arrangement == "random" or spans == 1


def test_holding_everything_or_nothing_out_is_refused() -> None:
    for part in (0.01, 0.99):
        with pytest.raises(UsageError):
            splits(10, 1, part, "random", generator())
