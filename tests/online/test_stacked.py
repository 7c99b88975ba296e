"""States of many series: copies that share until one learns, and quantiles that sort faster."""

from __future__ import annotations

import copy

import pytest
import torch

from streamgp.base import FLOAT
from streamgp.online import stacked
from streamgp.online.stacked import Stacked


def test_a_copy_and_the_original_learn_apart() -> None:
    one = Stacked({"a": torch.full((2,), 7.0, dtype=FLOAT)})
    one.reserve(torch.arange(3))
    one.put(torch.tensor([1]), {"a": torch.ones(1, 2, dtype=FLOAT)})
    two = copy.deepcopy(one)
    two.put(torch.tensor([0]), {"a": torch.zeros(1, 2, dtype=FLOAT)})
    one.put(torch.tensor([2]), {"a": torch.full((1, 2), 5.0, dtype=FLOAT)})
    one.reserve(torch.tensor([40]))
    assert one.take(torch.tensor([0, 1, 2, 39, 99]))["a"][:, 0].tolist() == [7.0, 1.0, 5.0, 7.0, 7.0]
    assert two.state()["a"][:, 0].tolist() == [0.0, 1.0, 7.0]


@pytest.mark.parametrize("count", [1, 5, 8, 31, 4800])
def test_quantiles_are_those_of_torch(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(40, count, dtype=FLOAT, generator=generator)
    values[torch.rand(40, count, generator=generator) < 0.2] = torch.nan
    values[0] = torch.nan
    expected = torch.nanquantile(values, torch.tensor(stacked.LEVELS, dtype=FLOAT), dim=1)
    torch.testing.assert_close(stacked._quantiles(values), expected, rtol=0, atol=0, equal_nan=True)
