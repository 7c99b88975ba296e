"""Quantiles that tell a glitch, by a faster sort."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import FLOAT, Inputs
from streamgp.online import glitches


@pytest.mark.parametrize("count", [1, 5, 8, 31, 4800])
def test_quantiles_are_those_of_torch(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(40, count, dtype=FLOAT, generator=generator)
    values[torch.rand(40, count, generator=generator) < 0.2] = torch.nan
    values[0] = torch.nan
    expected = torch.nanquantile(values, torch.tensor(glitches.LEVELS, dtype=FLOAT), dim=1)
    torch.testing.assert_close(glitches._quantiles(values), expected, rtol=0, atol=0, equal_nan=True)


def test_a_glitch_that_is_not_in_the_sample_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glitches, "SAMPLE", 100)
    y = torch.linspace(-1, 1, 301, dtype=FLOAT)[:, None].clone()
    y[1] = 1e9  # the sample has every third row
    nothing = torch.zeros(301, 0, 0, dtype=FLOAT)
    _, kept, left_out = glitches.plausible(Inputs(nothing, nothing), y)
    assert len(kept) == 300 and "1 windows hold a value beyond" in left_out
