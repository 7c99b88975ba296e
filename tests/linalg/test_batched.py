"""Products of many small matrices are those of torch, whatever multiplies them."""

from __future__ import annotations

import pytest
import torch

from streamgp.linalg.batched import LARGEST, THIN, product


@pytest.mark.parametrize(("rows", "inner", "columns"), [(7, 3, 4), (THIN, 2, 1), (1, 5, 6), (LARGEST // 8, 2, 5)])
def test_products_are_those_of_torch(rows: int, inner: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(2, *size, generator=generator, dtype=torch.float64) for size in ((inner, rows), (inner, columns))
    )
    expected = torch.einsum("kir,kic->krc", a, b)
    torch.testing.assert_close(product(a.mT, b), expected)
    torch.testing.assert_close(product(a.mT.contiguous(), b), expected)
