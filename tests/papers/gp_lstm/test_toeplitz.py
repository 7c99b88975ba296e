"""Toeplitz and Kronecker products against SciPy's and NumPy's dense matrices."""

import math
from functools import reduce

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import NotPositiveDefinite
from streamgp.papers.gp_lstm.toeplitz import DENSE, Circulant, KroneckerSum, circulant_eigenvalues, multiply
from tests.properties import examples
from tests.words import naming


def correlation(size: int, lengthscale: float = 3.0) -> torch.Tensor:
    return torch.exp(-torch.arange(size, dtype=torch.float64) / lengthscale)


def terms(sizes: tuple[int, ...], count: int, seed: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes] for _ in range(count)]


def dense(factors: list[list[torch.Tensor]]) -> np.ndarray:
    return sum(reduce(np.kron, [scipy.linalg.toeplitz(c.numpy()) for c in term]) for term in factors)


@examples(25)
@given(size=st.integers(1, 40), columns=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_fft_product_is_the_dense_product(size, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    column = torch.randn(size, generator=generator, dtype=torch.float64)
    right = torch.randn(2, size, columns, generator=generator, dtype=torch.float64)
    oracle = scipy.linalg.toeplitz(column.numpy()) @ right.numpy()
    np.testing.assert_allclose(multiply(column, right).numpy(), oracle, rtol=0, atol=1e-12 * size)


@examples(25)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), count=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_sum_of_kronecker_products_is_the_dense_one(sizes, count, seed):
    factors = terms(tuple(sizes), count, seed)
    for most in (DENSE, 0):  # as matrices, by FFT
        total = KroneckerSum(factors, most)
        assert total.sizes == tuple(sizes) and total.count == np.prod(sizes)
        product = total.detach().multiply(torch.eye(total.count, dtype=torch.float64))
        np.testing.assert_allclose(product.numpy(), dense(factors), rtol=0, atol=1e-11)


def test_long_factors_go_by_fft_and_short_ones_as_matrices_to_the_same_numbers():
    factors = [[correlation(3), correlation(DENSE + 7)], [correlation(3, 1.0), correlation(DENSE + 7, 9.0)]]
    right = torch.randn(3 * (DENSE + 7), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(
        KroneckerSum(factors).multiply(right).numpy(), dense(factors) @ right.numpy(), atol=1e-10
    )


@pytest.mark.parametrize("size", [5, DENSE + 2])
def test_products_are_differentiable_in_the_columns(size):
    column = correlation(size).requires_grad_()
    right = torch.randn(2 * size, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    form = (right * KroneckerSum([[correlation(2), column]]).multiply(right)).sum()
    (slope,) = torch.autograd.grad(form, column)
    # the form is linear in the column: each entry's slope is the form of its own indicator
    units = [KroneckerSum([[correlation(2), unit]]) for unit in torch.eye(size, dtype=torch.float64)[:5]]
    oracle = torch.stack([(right * unit.multiply(right)).sum() for unit in units])
    torch.testing.assert_close(slope[:5], oracle, rtol=1e-10, atol=1e-10)


def test_detach_is_a_constant():
    column = correlation(4).requires_grad_()
    held = KroneckerSum([[column]]).detach()
    with torch.no_grad():
        column.zero_()
    assert held.terms[0][0].requires_grad is False and held.terms[0][0][0] == 1.0


def test_samples_have_the_covariance_of_a_sum_of_terms():
    factors = [[correlation(3), correlation(4)], [0.5 * correlation(3, 1.0), torch.ones(4, dtype=torch.float64)]]
    drawn = KroneckerSum(factors).sample(40_000, torch.Generator().manual_seed(2))
    # the standard error of an entry is at most √2 · 1.5/200 ≈ 0.011: five of them
    np.testing.assert_allclose((drawn @ drawn.T / 40_000).numpy(), dense(factors), rtol=0, atol=0.055)


def test_an_indefinite_factor_is_not_sampled():
    with pytest.raises(NotPositiveDefinite, match=naming("4")):
        KroneckerSum([[torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64)]]).sample(1, torch.Generator())


@examples(25)
@given(size=st.integers(2, 30), seed=st.integers(0, 99))
def test_the_circulant_is_the_nearest_one(size, seed):
    column = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    oracle = np.fft.fft(nearest(column.numpy()))  # the projection in the Frobenius norm
    np.testing.assert_allclose(circulant_eigenvalues(column).numpy(), oracle.real, atol=1e-10)


@pytest.mark.parametrize("sizes", [(7,), (4, 5), (3, 4, 2)])
def test_functions_of_the_circulant_are_those_of_the_dense_one(sizes):
    factors = terms(sizes, 2, 3)
    found, count = Circulant(factors), math.prod(sizes)
    whole = sum(reduce(np.kron, [scipy.linalg.circulant(nearest(c.numpy())) for c in term]) for term in factors)
    values, vectors = np.linalg.eigh(whole)
    oracle = vectors @ np.diag(1 / (1 + 2 * values.clip(min=0))) @ vectors.T
    got = found.apply(lambda c: 1 / (1 + 2 * c), torch.eye(count, dtype=torch.float64))
    np.testing.assert_allclose(got.numpy(), oracle, atol=1e-10)


def nearest(column: np.ndarray) -> np.ndarray:
    """The first column of the circulant matrix nearest to a Toeplitz one: the mean along each wrapped diagonal."""
    place = np.arange(len(column))
    whole = scipy.linalg.toeplitz(column)
    return np.array([whole[place, (place - lag) % len(column)].mean() for lag in place])
