"""What is computed once for windows that come again with newer ones."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.recalled import Recalled
from tests.properties import examples

NUMBERS = st.sampled_from([0.0, 1.0, -2.5, float("nan"), float("inf")])


class Asked:
    """Two results of windows (N,), and how many windows they were computed for."""

    def __init__(self) -> None:
        self.recalled, self.rows = Recalled(), list[int]()

    def __call__(self, x: Tensor) -> list[Tensor]:
        def make(some: slice) -> list[Tensor]:
            self.rows.append(len(x[some]))
            return [2.0 * x[some], x[some].expand(3, -1) + 1.0]

        return self.recalled.of([x, None], make, [0, 1])


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.lists(NUMBERS, min_size=1, max_size=8))
@examples(50)
def test_results_are_those_of_the_windows_whatever_was_asked_before(first: list[float], second: list[float]) -> None:
    asked = Asked()
    for values in (first, second, first + second, first):
        x = torch.tensor(values, dtype=FLOAT)
        double, more = asked(x)
        assert torch.equal(double.nan_to_num(7.0), (2.0 * x).nan_to_num(7.0))
        assert torch.equal(more.nan_to_num(7.0), (x.expand(3, -1) + 1.0).nan_to_num(7.0))


def test_windows_are_asked_about_once() -> None:
    asked, x = Asked(), torch.tensor([1.0, float("nan"), 3.0, 4.0], dtype=FLOAT)
    for rows in (2, 3, 3, 4, 1):
        asked(x[:rows])
    assert asked.rows == [2, 1, 1]
    asked(x.flip(0))  # others at the beginning
    assert asked.rows == [2, 1, 1, 4]
