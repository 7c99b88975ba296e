"""Chevron matrices against the dense ones that they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.linalg.chevron import Chevron, chevron
from tests.properties import examples

FLOAT = torch.float64


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=FLOAT, generator=torch.Generator().manual_seed(seed))


def cells(size: int, width: int) -> list[slice]:
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def dense(c: Chevron) -> np.ndarray:
    """By its definition, number by number."""
    m, k = len(c.diagonal), c.dense.shape[1]
    out = np.zeros((m, m))
    for r in range(m):
        if r < k:
            out[r:, r] = c.dense[r:, r].numpy()
        else:
            out[r, r] = c.diagonal[r]
    return out


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 20), st.integers(0, 9))
@examples(80)
def test_products_by_blocks_are_the_dense_ones(size: int, columns: int, width: int, seed: int) -> None:
    columns = min(columns, size)
    c = Chevron(drawn(size, seed=seed), drawn(size, columns, seed=seed + 1))
    phi, whole = drawn(5, size, seed=seed + 2), dense(c)
    np.testing.assert_array_equal(c.matrix(), whole)
    blocks = [(span, phi[:, span]) for span in cells(size, width)]
    product = phi.numpy() @ whole
    np.testing.assert_allclose(c.variance(blocks), (product**2).sum(1), rtol=1e-11)
    np.testing.assert_allclose(c.variance(blocks[::-1]), (product**2).sum(1), rtol=1e-11)
    projected = sum((c.project(part, span) for span, part in blocks), torch.zeros(()))
    np.testing.assert_allclose(projected, product[:, :columns], rtol=1e-9, atol=1e-11)
    epsilon = drawn(size, 3, seed=seed + 3)
    deviations = torch.cat([c.transform(epsilon[:columns], epsilon[span], span) for span in cells(size, width)])
    np.testing.assert_allclose(deviations, whole @ epsilon.numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(c.log_determinant(), 2 * np.linalg.slogdet(whole).logabsdet, rtol=1e-6, atol=1e-6)


def test_all_columns_dense_is_a_cholesky_factor() -> None:
    """And what stands above the diagonal, or on the diagonal that is not its own, is not read."""
    a = drawn(6, 6, seed=0)
    lower = torch.linalg.cholesky(a @ a.T + torch.eye(6, dtype=FLOAT))
    c = Chevron(torch.full((6,), torch.nan, dtype=FLOAT), lower + drawn(6, 6, seed=1).triu(1))
    assert torch.equal(c.matrix(), lower)
    torch.testing.assert_close(c.log_determinant(), 2 * lower.diagonal().log().sum())


@pytest.mark.parametrize("columns", [0, 2])
def test_gradients_are_those_of_finite_differences(columns: int) -> None:
    phi = drawn(3, 6, seed=0)

    def everything(diagonal: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        c = Chevron(diagonal, table)
        return c.variance((span, phi[:, span]) for span in cells(6, 4)), c.log_determinant()

    free = (drawn(6, seed=1).abs().requires_grad_(), drawn(6, columns, seed=2).requires_grad_())
    assert torch.autograd.gradcheck(everything, free)
    gradient = torch.autograd.grad(everything(*free)[0].sum(), free)
    assert bool((gradient[0][:columns] == 0).all()) and bool((gradient[1].triu(1) == 0).all())


def test_single_precision_features_give_single_precision() -> None:
    c = Chevron(drawn(6, seed=0), drawn(6, 2, seed=1))
    phi = drawn(3, 6, seed=2)
    single = c.variance([(slice(0, 6), phi.float())])
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), c.variance([(slice(0, 6), phi)]), rtol=1e-5, atol=1e-5)


def test_a_diagonal_matrix_is_a_chevron_with_any_number_of_columns() -> None:
    diagonal = drawn(5, seed=0)
    for columns in range(6):
        c = chevron(diagonal, columns)
        assert c.columns == columns and torch.equal(c.matrix(), torch.diag(diagonal))


def test_there_is_no_variance_of_nothing() -> None:
    with pytest.raises(ValueError, match="no blocks"):
        chevron(torch.ones(3), 1).variance([])
