"""Draws of features: uniform, independent, and unbiased with the weight that comes with them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from streamgp.papers.qsgp import quadruple as q
from streamgp.papers.qsgp.draws import CellPair, draw_cells, draw_indices
from tests.papers.qsgp import oracles_qsgp as oracle

CELLS = (slice(0, 5), slice(5, 10), slice(10, 12))  # a fixed partition whose last cell is smaller


def test_cells_of_any_size_are_unbiased_over_all_pairs() -> None:
    """The mean over all pairs of cells is the dense value, to rounding; without the pairs i = j it is not."""
    t = oracle.toy(diagonal=False)
    precision = q.precisions(t.y, t.noise, 1.0)

    def term(i: slice, j: slice) -> Tensor:
        return q.mean_term(t.phi[:, i], t.phi[:, j], t.mu[i], t.mu[j], t.y, precision, t.prior[j, i], float(len(CELLS)))

    pairs = {(a, b): term(i, j) for (a, i), (b, j) in itertools.product(enumerate(CELLS), repeat=2)}
    exact = oracle.mean_part(t)
    assert torch.stack(list(pairs.values())).mean().item() == pytest.approx(exact, rel=1e-12)
    apart = torch.stack([v for (a, b), v in pairs.items() if a != b]).mean().item()
    assert abs(apart - exact) > 0.05 * abs(exact)


def test_draws_of_cells_and_of_indices_are_uniform_and_independent() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = [draw_cells(3, generator) for _ in range(9000)]
    counts = torch.bincount(torch.tensor([3 * d.i + d.j for d in draws]), minlength=9)
    assert float(((counts - 1000).square() / 1000).sum()) < 26.1  # χ² with 8 degrees of freedom, p = 0.001
    assert CellPair(1, 1, 3.0).touched == (1,) and CellPair(1, 1, 3.0).scale == 3.0 and CellPair(2, 1, 3.0).scale == 1.5
    few = [draw_indices(5, 3, generator) for _ in range(2000)]
    assert all(d.weight == 5 / 3 and d.scale == 5 / len(set(d.i.tolist()) | set(d.j.tolist())) for d in few)
    counts = torch.bincount(torch.stack([5 * d.i[0] + d.j[0] for d in few]), minlength=25)
    assert float(((counts - 80).square() / 80).sum()) < 51.2  # χ² with 24
