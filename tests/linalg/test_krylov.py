"""Conjugate gradients, Lanczos and its quadrature against dense solves and determinants."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.linalg.krylov import (
    conjugate_gradients,
    lanczos,
    rademacher,
    stochastic_log_determinant,
)
from streamgp.linalg.preconditioner import LowRank, pivoted_cholesky
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
@given(size=st.integers(1, 20), seed=st.integers(0, 99))
def test_lanczos_reduces_the_matrix(size, seed):
    a, start = spd(size, seed), normal(size, 2, seed=seed + 7)
    found = lanczos(lambda v: a @ v, start, size + 5)
    assert found.diagonal.shape == (2, size)  # never more steps than rows
    for basis, tri in zip(found.basis, found.matrices(), strict=True):
        torch.testing.assert_close(basis @ basis.T, eye(size), rtol=0, atol=1e-9)
        torch.testing.assert_close(basis @ a @ basis.T, tri, rtol=0, atol=1e-9)


def test_an_exhausted_space_ends_in_a_decoupled_identity():
    a = torch.diag(torch.tensor([2.0, 2.0, 5.0, 5.0]).double())
    found = lanczos(lambda v: a @ v, torch.ones(4, 1).double(), 4)
    values = torch.linalg.eigvalsh(found.matrices()[0])
    torch.testing.assert_close(values, torch.tensor([1.0, 1.0, 2.0, 5.0]).double())
    assert float(found.basis[0, 2:].abs().max()) == 0.0 and found.off[0, 1] == 0.0


def test_without_reorthogonalisation_no_basis_is_kept_and_quadrature_still_holds():
    k = smooth(100, 0.1) + 0.01 * eye(100)
    probes = rademacher(100, 4, torch.Generator().manual_seed(0))
    assert lanczos(lambda v: k @ v, probes, 5, reorthogonalise=False).basis.shape == (4, 0, 100)
    values, vectors = torch.linalg.eigh(k)
    oracle = ((vectors.T @ probes).square() * values.log()[:, None]).sum(0)  # zᵀ log(A) z
    for reorthogonalise in (True, False):
        found = stochastic_log_determinant(lambda v: k @ v, probes, 60, reorthogonalise=reorthogonalise)
        torch.testing.assert_close(found, oracle, rtol=1e-6, atol=1e-6)


def test_rademacher_probes_are_fixed_by_their_generator():
    probes = rademacher(50, 4, torch.Generator().manual_seed(3))
    assert set(probes.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(probes, rademacher(50, 4, torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("rank", [0, 30])
def test_the_log_determinant_is_unbiased_with_the_variance_that_is_stated(rank):
    size, shift = 80, torch.tensor(0.05, dtype=torch.float64)
    k = smooth(size, 0.05)
    a = k + shift * eye(size)
    p = LowRank.of(pivoted_cholesky(lambda i: k[i], k.diagonal(), rank), shift) if rank else None
    draws = torch.stack(
        [
            stochastic_log_determinant(
                lambda v: a @ v, rademacher(size, 10, torch.Generator().manual_seed(seed)), 60, preconditioner=p
            )
            for seed in range(40)
        ]
    ).flatten()
    root = eye(size) if p is None else p.inverse_root(eye(size))
    values, vectors = torch.linalg.eigh(root @ a @ root.T)
    log = vectors @ torch.diag(values.log()) @ vectors.T
    variance = 2 * (log.square().sum() - log.diagonal().square().sum())
    error = (draws.mean() - torch.logdet(a)).abs() / (variance / len(draws)).sqrt()
    assert error < 5  # standard errors
    assert 0.7 < draws.var() / variance < 1.4  # 400 draws: 7 % of standard error for a normal
    assert (variance < 1) == (rank > 0)  # without a preconditioner it is 162


def test_a_complete_preconditioner_leaves_no_error():
    k, shift = smooth(60), torch.tensor(0.01, dtype=torch.float64)
    p = LowRank.of(pivoted_cholesky(lambda i: k[i], k.diagonal(), 60, tolerance=1e-12), shift)
    probe = rademacher(60, 1, torch.Generator().manual_seed(0))
    found = stochastic_log_determinant(lambda v: k @ v + shift * v, probe, 5, preconditioner=p)
    assert found.item() == pytest.approx(torch.logdet(k + shift * eye(60)).item(), abs=1e-7)


@examples(25)
@given(size=st.integers(2, 15), rank=st.integers(1, 5), seed=st.integers(0, 99))
def test_low_rank_plus_diagonal_is_woodbury(size, rank, seed):
    factor, v = normal(size, min(rank, size), seed=seed), normal(size, 2, seed=seed + 1)
    shift = torch.tensor([0.1, 3.0]).double()
    p = LowRank.of(factor, shift)
    determinants = p.log_determinant()
    for column in range(2):
        dense = factor @ factor.T + shift[column] * eye(size)
        torch.testing.assert_close(p.solve(v)[:, column], torch.linalg.solve(dense, v[:, column]), rtol=1e-8, atol=1e-8)
        assert determinants[column].item() == pytest.approx(torch.logdet(dense).item(), rel=1e-9, abs=1e-9)
        torch.testing.assert_close(p.root(p.root(v))[:, column], dense @ v[:, column], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(p.inverse_root(p.root(v)), v, rtol=1e-9, atol=1e-9)


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
