"""Roots against the products that they are roots of, and what they keep where products keep nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.linalg.triangular import absorb, shifted
from tests.properties import examples

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def normals(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@examples(30)
@given(size=st.integers(1, 70), cuts=st.lists(st.integers(0, 90), min_size=1, max_size=5))
def test_any_batches_give_the_product_of_all_rows(size: int, cuts: list[int]) -> None:
    z = normals(sum(cuts), size)
    root = torch.zeros(size, size, dtype=torch.float64)
    for batch in z.split(cuts):
        root = absorb(root, batch)
    assert torch.equal(root, root.tril()) and root.is_contiguous()
    torch.testing.assert_close(root @ root.T, z.T @ z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_is_the_same_in_the_same_memory(device: str) -> None:
    root = torch.linalg.cholesky(normals(9, 9) @ normals(9, 9).T + torch.eye(9, dtype=torch.float64)).to(device)
    rows = normals(4, 9, seed=1).to(device)
    new = absorb(root, rows)
    assert new.data_ptr() != root.data_ptr()
    torch.testing.assert_close(new @ new.T, root @ root.T + rows.T @ rows)
    memory = root.data_ptr()
    assert absorb(root, rows, in_place=True) is root
    assert root.data_ptr() == memory and torch.equal(root, new)
    strided = torch.zeros(9, 18, dtype=torch.float64, device=device)[:, ::2]  # not what LAPACK can write into
    absorb(strided, rows, in_place=True)
    torch.testing.assert_close(strided @ strided.T, rows.T @ rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("leading", [0, 5, 40])
def test_shifted_adds_to_the_leading_diagonal_alone(leading: int, device: str) -> None:
    root = absorb(torch.zeros(40, 40, dtype=torch.float64, device=device), normals(60, 40).to(device))
    wanted = root @ root.T
    wanted[:leading, :leading] += 3.0 * torch.eye(leading, dtype=torch.float64, device=device)
    found = shifted(root, 3.0, leading)
    assert torch.equal(found, found.tril())
    torch.testing.assert_close(found @ found.T, wanted, rtol=1e-12, atol=1e-12)


def test_no_row_changes_nothing() -> None:
    root = absorb(torch.zeros(3, 3, dtype=torch.float64), normals(5, 3))
    assert torch.equal(absorb(root, normals(0, 3)), root)


def test_the_condition_number_is_not_squared() -> None:
    """Singular values from 1 to 1e-10: the root has three digits of the smallest, the product none."""
    left, right = torch.linalg.qr(normals(200, 6))[0], torch.linalg.qr(normals(6, 6, seed=1))[0]
    z = left * torch.logspace(0, -10, 6, dtype=torch.float64) @ right.T
    root = torch.zeros(6, 6, dtype=torch.float64)
    for batch in z.split(7):
        absorb(root, batch, in_place=True)
    assert np.linalg.svd(root.numpy(), compute_uv=False)[-1] == pytest.approx(1e-10, rel=1e-3)
    assert abs(np.linalg.eigvalsh((z.T @ z).numpy())[0]) > 1e-18  # 1e-20 is what it should be
