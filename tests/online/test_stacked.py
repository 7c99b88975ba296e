"""States of many series: copies share until one learns."""

from __future__ import annotations

import copy

import torch

from streamgp.base import FLOAT
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
    assert two.state()[0]["a"][:, 0].tolist() == [0.0, 1.0, 7.0]
