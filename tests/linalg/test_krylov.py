"""Conjugate gradients and their preconditioner against dense solves and determinants."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.linalg.krylov import LowRank, conjugate_gradients, pivoted_cholesky
from tests.properties import examples


def spd(size: int, seed: int, least: float = 0.1) -> torch.Tensor:
    root = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T / size + least * eye(size)


def eye(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.float64)


def smooth(size: int, lengthscale: float = 0.3) -> torch.Tensor:
    x = torch.linspace(0, 1, size, dtype=torch.float64)
    return torch.exp(-0.5 * ((x[:, None] - x) / lengthscale).square())


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def enough_steps(a: torch.Tensor, tolerance: float) -> int:
    """Steps k with 2√κ ((√κ − 1)/(√κ + 1))^k ≤ tolerance (Golub & Van Loan 2013, section 11.3), and one for rounding.

    The bound survives rounding, as that of a matrix whose eigenvalues are spread by some ulp (Greenbaum 1989). That N
    steps suffice does not: it is so in exact arithmetic alone.
    """
    root = float(torch.linalg.cond(a)) ** 0.5
    rate = (root - 1) / (root + 1)
    return 2 + int(math.log(tolerance / (2 * root)) / math.log(rate)) if rate > 1e-8 else 2


@examples(25)
@given(size=st.integers(1, 25), columns=st.integers(1, 4), seed=st.integers(0, 99))
def test_conjugate_gradients_reach_the_dense_solution_within_the_steps_of_the_condition_number(size, columns, seed):
    a, b = spd(size, seed), normal(size, columns, seed=seed + 1)
    found = conjugate_gradients(lambda v: a @ v, b, tolerance=1e-10, iterations=enough_steps(a, 1e-10))
    assert found.converged and bool((found.residual <= 1e-10).all())
    torch.testing.assert_close(found.value, torch.linalg.solve(a, b), rtol=1e-7, atol=1e-7)


def test_conjugate_gradients_need_as_many_steps_as_there_are_eigenvalues():
    basis = torch.linalg.qr(normal(40, 40, seed=2))[0]
    a = basis @ torch.diag(torch.tensor([1.0, 2.0, 4.0, 7.0]).double().repeat(10)) @ basis.T
    found = conjugate_gradients(lambda v: a @ v, normal(40, 3), tolerance=1e-10)
    assert found.converged and found.iterations.tolist() == [4, 4, 4]


def test_columns_stop_apart_and_a_zero_column_at_once():
    a = torch.diag(torch.tensor([1.0, 2.0, 3.0]).double())
    b = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]).double()
    found = conjugate_gradients(lambda v: a @ v, b)
    assert found.iterations.tolist() == [1, 3, 0]
    torch.testing.assert_close(found.value, torch.linalg.solve(a, b))


def test_a_column_alone_is_its_column_of_the_batch():
    a, b = spd(30, 5), normal(30, 4)
    together = conjugate_gradients(lambda v: a @ v, b).value
    for column in range(4):
        alone = conjugate_gradients(lambda v: a @ v, b[:, column : column + 1]).value
        torch.testing.assert_close(alone[:, 0], together[:, column], rtol=1e-6, atol=1e-8)


def test_too_few_iterations_are_told():
    a, b = spd(30, 1, least=1e-3), normal(30, 1)
    found = conjugate_gradients(lambda v: a @ v, b, iterations=3)
    assert not found.converged and found.iterations.tolist() == [3]
    residual = (b - a @ found.value).norm() / b.norm()
    assert found.residual.item() == pytest.approx(residual.item(), rel=1e-8) and residual > 1e-8


def test_each_column_may_have_its_own_matrix():
    k, b, shift = smooth(40), normal(40, 3), torch.tensor([0.1, 0.5, 2.0]).double()
    found = conjugate_gradients(lambda v: k @ v + shift * v, b, tolerance=1e-10)
    for column, own in enumerate(shift):
        oracle = torch.linalg.solve(k + own * eye(40), b[:, column])
        torch.testing.assert_close(found.value[:, column], oracle, rtol=1e-7, atol=1e-7)


def test_a_pivoted_cholesky_preconditioner_saves_steps():
    k, b, shift = smooth(200, 0.05), normal(200, 2), torch.tensor(1e-3, dtype=torch.float64)
    p = LowRank.of(pivoted_cholesky(lambda i: k[i], k.diagonal(), 40), shift)

    def product(v: torch.Tensor) -> torch.Tensor:
        return k @ v + shift * v

    plain = conjugate_gradients(product, b)
    helped = conjugate_gradients(product, b, precondition=p.solve)
    assert helped.converged and 3 * int(helped.iterations.max()) < int(plain.iterations.max())
    torch.testing.assert_close(helped.value, torch.linalg.solve(k + shift * eye(200), b), rtol=1e-5, atol=1e-5)


@examples(25)
@given(size=st.integers(2, 15), rank=st.integers(1, 5), seed=st.integers(0, 99))
def test_low_rank_plus_diagonal_is_woodbury(size, rank, seed):
    factor, v = normal(size, min(rank, size), seed=seed), normal(size, 2, seed=seed + 1)
    shift = torch.tensor([0.1, 3.0]).double()
    p = LowRank.of(factor, shift)
    for column in range(2):
        dense = factor @ factor.T + shift[column] * eye(size)
        torch.testing.assert_close(p.solve(v)[:, column], torch.linalg.solve(dense, v[:, column]), rtol=1e-8, atol=1e-8)


@examples(20)
@given(size=st.integers(2, 20), seed=st.integers(0, 99))
def test_pivoted_cholesky_leaves_a_positive_semi_definite_rest_that_shrinks(size, seed):
    k, before = spd(size, seed, least=0.0), np.inf
    for rank in range(1, size + 1):
        factor = pivoted_cholesky(lambda i: k[i], k.diagonal(), rank)
        rest = k - factor @ factor.T
        assert torch.linalg.eigvalsh(rest)[0] > -1e-9
        assert rest.trace() <= before + 1e-9
        before = float(rest.trace())
    assert before < 1e-8


def test_pivoted_cholesky_stops_at_its_tolerance():
    k = smooth(100)
    factor = pivoted_cholesky(lambda i: k[i], k.diagonal(), 100, tolerance=1e-6)
    assert factor.shape[1] < 15
    assert float((k - factor @ factor.T).diagonal().max()) <= 1e-6
