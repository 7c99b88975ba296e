"""The references that models learn differences from, against loops."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import Inputs, Shape
from streamgp.errors import UsageError
from streamgp.online.reference import LearnedReference, Reference
from streamgp.testing import SHAPES, example_windows


def test_every_kind_against_a_loop() -> None:
    shape = SHAPES[1]
    x, _ = example_windows(shape, 10)
    found = {kind: Reference(kind, shape, decay=0.7)(x) for kind in ("level", "change", "season")}
    for n in range(10):
        for o in range(2):
            for h in range(1, 4):
                column, now, ago = o * 3 + h - 1, x.past[n, -1, o], x.past[n, -1, 4 + o]
                assert found["level"][n, column] == 0
                assert found["change"][n, column] == now
                season = x.future[n, h - 1, o] + 0.7 ** (h / 4) * (now - ago)
                assert found["season"][n, column] == pytest.approx(season.item())


@pytest.mark.parametrize(("shape", "kind"), list(zip(SHAPES, ("change", "season", "level"), strict=True)))
def test_auto(shape: Shape, kind: str) -> None:
    assert Reference("auto", shape).kind == kind


def test_what_cannot_be_referred_to_is_refused() -> None:
    with pytest.raises(UsageError):
        Reference("change", SHAPES[2])
    with pytest.raises(UsageError):
        Reference("season", SHAPES[0])


def test_a_window_without_a_present_value_takes_nothing_of_a_learned_reference() -> None:
    """It says nothing, as one without a truth does, and a fleet learns the same."""
    shape, learned = SHAPES[1], []
    x, y = example_windows(shape, 40)
    for drop in (False, True):
        reference = LearnedReference(shape, 0.9)
        lags, truths = x.past.clone(), y.clone()
        truths[:3] = torch.nan
        lags[:3] = torch.nan if drop else 0.0
        reference.fit(Inputs(lags, x.future), truths, torch.ones(40).double())
        learned.append(reference(x))
    torch.testing.assert_close(learned[1], learned[0])


def test_a_few_windows_that_overlap_say_little_of_a_reference() -> None:
    """The prior counts for one independent window, H rows: 12 rows a third of it, 1,200 thirty-three times as many."""
    shape, share = Shape(("y",), horizon=36, lags=1, past=("y",), future=()), []
    for rows in (12, 1200):
        last = torch.linspace(-1, 1, rows, dtype=torch.float64)
        reference = LearnedReference(shape, 0.9)
        x = Inputs(last.view(rows, 1, 1), torch.zeros(rows, 36, 0, dtype=torch.float64))
        reference.fit(x, 3.0 * last[:, None].expand(-1, 36), torch.ones(rows, dtype=torch.float64))
        share.append(float(reference.slope.mean()) / 2.0)
    assert share == pytest.approx([1 / 4, 1 / 1.03], rel=0.01)
