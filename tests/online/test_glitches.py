"""Quantiles that tell a glitch, by a faster sort."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import FLOAT
from streamgp.online import glitches


@pytest.mark.parametrize("count", [1, 5, 8, 31, 4800])
def test_quantiles_are_those_of_torch(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(40, count, dtype=FLOAT, generator=generator)
    values[torch.rand(40, count, generator=generator) < 0.2] = torch.nan
    values[0] = torch.nan
    expected = torch.nanquantile(values, torch.tensor(glitches.LEVELS, dtype=FLOAT), dim=1)
    torch.testing.assert_close(glitches._quantiles(values), expected, rtol=0, atol=0, equal_nan=True)
