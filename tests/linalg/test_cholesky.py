"""Factors against NumPy; the jitter policy at both of its ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp.errors import NotPositiveDefinite
from streamgp.linalg.cholesky import Factor, append, cholesky, log_determinant, solve, whiten
from tests.words import naming


def spd(size: int, seed: int = 0) -> torch.Tensor:
    root = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return root @ root.T + 0.1 * torch.eye(size, dtype=torch.float64)


def test_factor_solve_and_determinant_are_numpys() -> None:
    a, b = spd(7), torch.arange(14, dtype=torch.float64).reshape(7, 2)
    factor = cholesky(a, first=0.0)
    assert factor.jitter == 0.0
    np.testing.assert_allclose(factor.lower, np.linalg.cholesky(a.numpy()), rtol=1e-12)
    np.testing.assert_allclose(solve(factor.lower, b), np.linalg.solve(a.numpy(), b.numpy()), rtol=1e-9)
    np.testing.assert_allclose(whiten(factor.lower, b), np.linalg.solve(factor.lower.numpy(), b.numpy()), rtol=1e-9)
    assert log_determinant(factor.lower).item() == pytest.approx(np.linalg.slogdet(a.numpy())[1])


def test_a_batch_is_its_members() -> None:
    batch = torch.stack([spd(5, seed) for seed in range(3)])
    factor = cholesky(batch)
    for lower, member in zip(factor.lower, batch, strict=True):
        torch.testing.assert_close(lower, cholesky(member).lower)


def test_jitter_is_relative_and_grows_until_it_serves() -> None:
    rank_one = 1e6 * torch.ones(4, 4, dtype=torch.float64)
    assert cholesky(rank_one).jitter == pytest.approx(1e-2)
    indefinite = rank_one - 3.0 * torch.eye(4, dtype=torch.float64)
    assert cholesky(indefinite).jitter == pytest.approx(10.0, rel=1e-4)
    assert cholesky(indefinite, first=0.0).jitter == pytest.approx(10.0, rel=1e-4)


@pytest.mark.parametrize(
    ("matrix", "word"),
    [(torch.diag(torch.tensor([1.0, -0.5])), ""), (torch.full((2, 2), torch.nan), "NaN")],
)
def test_failure_has_a_hint(matrix: torch.Tensor, word: str) -> None:
    with pytest.raises(NotPositiveDefinite, match=naming(word)) as caught:
        cholesky(matrix.double())
    assert caught.value.hint


def test_appending_is_factorising_at_once_and_leaves_old_rows_alone() -> None:
    a = spd(9)
    factor = cholesky(a[:3, :3])
    for start, stop in ((3, 4), (4, 9)):
        grown = append(factor, a[:start, start:stop], a[start:stop, start:stop])
        assert torch.equal(grown.lower[:start, :start], factor.lower)
        factor = grown
    torch.testing.assert_close(factor.lower @ factor.lower.T, a, rtol=0, atol=1e-6)
    empty = Factor(torch.zeros(0, 0, dtype=torch.float64), 0.0)
    assert torch.equal(append(empty, a[:0], a).lower, cholesky(a).lower)


def test_appending_a_point_twice_needs_jitter_but_not_an_error() -> None:
    a = spd(3)
    twice = append(cholesky(a), a[:, :1], a[:1, :1])
    assert twice.lower[3, 3] > 0
    with pytest.raises(NotPositiveDefinite):
        append(cholesky(a), 2.0 * a[:, :1], a[:1, :1])


def test_no_rows_factorise_to_no_rows() -> None:
    assert cholesky(torch.zeros(0, 0, dtype=torch.float64)).lower.shape == (0, 0)
