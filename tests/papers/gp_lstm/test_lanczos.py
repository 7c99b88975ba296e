"""Lanczos and its quadrature against dense decompositions and determinants."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.linalg.krylov import LowRank, pivoted_cholesky
from streamgp.papers.gp_lstm.lanczos import lanczos, log_determinant, power, rademacher, stochastic_log_determinant
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


@pytest.mark.sampled
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
    root = eye(size) if p is None else power(p, eye(size), -0.5)
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
@given(size=st.integers(2, 15), rank=st.integers(0, 5), seed=st.integers(0, 99))
def test_powers_and_determinant_of_low_rank_plus_diagonal_are_the_dense_ones(size, rank, seed):
    factor, v = normal(size, min(rank, size), seed=seed), normal(size, 2, seed=seed + 1)
    shift = torch.tensor([0.1, 3.0]).double()
    p = LowRank.of(factor, shift) if rank else LowRank(factor, factor[0], shift)
    for column in range(2):
        dense = factor @ factor.T + shift[column] * eye(size)
        values, vectors = torch.linalg.eigh(dense)
        for exponent in (0.5, -0.5, -1.0):
            oracle = vectors @ (values**exponent * (vectors.T @ v[:, column]))
            torch.testing.assert_close(power(p, v, exponent)[:, column], oracle, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(log_determinant(p)[column], torch.logdet(dense), rtol=1e-8, atol=1e-8)
