"""Covariances of stochastic steps against closed forms: diagonals, dense columns, and blocks that were not drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.linalg.chevron import Chevron
from streamgp.objectives.quadruple import dense_optimum, diagonal_optimum
from streamgp.optim.quadruple_descent import DescentConfig, descent
from streamgp.optim.sparse_chevron import SparseChevron
from tests.optim.descent_toys import data, everything, fourier_of, inducing_of, normal

NOISE = torch.tensor([0.1, 0.3], dtype=torch.float64)


def optimum(features: Features, x: Tensor, y: Tensor, weight: Tensor, columns: int) -> Chevron:
    """The chevron that maximises the ELBO, by the dense A = ΦᵀWΦ/σ² + I."""
    phi = everything(features, x)
    shared = ((weight[:, None] if weight.ndim == 1 else weight) * ~y.isnan() / NOISE).mean(1)
    matrix = (phi * shared[:, None]).T @ phi + torch.eye(phi.shape[1]).double()
    return Chevron(diagonal_optimum(matrix.diagonal(), torch.zeros(()), 1.0), dense_optimum(matrix, columns))


@pytest.mark.parametrize("columns", [0, 3, 13])
@pytest.mark.parametrize("missing", [False, True])
def test_momentum_finds_the_closed_form(columns: int, missing: bool) -> None:
    """13 dense columns reach into the second block of 10."""
    features, (x, y) = fourier_of(26, 10), data(50, missing=missing)
    weight = normal(50, seed=4).exp()
    made = descent(features, 2, DescentConfig(dtype="float64", momentum=0.9, dense_columns=columns)).begin(NOISE)
    rows = made.rows(x, y, weight)
    for _ in range(1200):
        made.step(rows)
    found, expected = made.covariance(rows), optimum(features, x, y, weight, columns)
    torch.testing.assert_close(found.matrix(features), expected.matrix(), rtol=0, atol=2e-3)
    fresh = normal(9, 2, seed=8)
    blocks = [(span, features.block(fresh, b).detach()) for b, span in enumerate(features.spans())]
    torch.testing.assert_close(found.variance(features, fresh), expected.variance(blocks), rtol=2e-3, atol=0)


def test_adagrad_finds_the_closed_form() -> None:
    features, (x, y) = fourier_of(20, 20), data(60)
    config = DescentConfig(
        optimiser="adagrad", dtype="float64", dense_columns=3, support=60, batch=60, adagrad_rate=0.1
    )
    made = descent(features, 2, config).begin(NOISE)
    rows = made.rows(x, y)
    for step in range(800):
        made.step(rows, 1.0 - step / 800)
    found, expected = made.covariance(rows).matrix(features), optimum(features, x, y, torch.ones(60).double(), 3)
    torch.testing.assert_close(found, expected.matrix(), rtol=0, atol=0.03)


@pytest.mark.parametrize("columns", [0, 2])
def test_blocks_not_drawn_enter_by_their_expectation(columns: int) -> None:
    """What untouched blocks add, against the exact sum over all of them, whose draws of frequencies spread it."""
    features, (x, y) = fourier_of(40_000, 200), data(80)
    made = descent(features, 2, DescentConfig(dense_columns=columns)).begin(NOISE)
    rows = made.rows(x, y)
    for _ in range(20):
        made.step(rows)
    found = made.covariance(rows)
    assert 18 <= len(found.blocks) <= 21 and 0.88 < float(found.rest) < 0.92
    shared = (1.0 / NOISE).mean()
    exact = torch.zeros(5)
    fresh = normal(5, 2, seed=8).float()
    for b in range(features.blocks):
        squares = features.block(x, b).detach().square().sum(0)
        entries = diagonal_optimum(squares, torch.ones(()), float(shared)).square()
        exact += features.block(fresh, b).detach().square() @ entries.float()
    torch.testing.assert_close(found.variance(features, fresh), exact, rtol=5e-3, atol=0)


def test_functions_on_rows_are_all_looked_at() -> None:
    """Nothing is known of inducing functions on average: their diagonal is exact, drawn or not."""
    features, (x, y) = inducing_of(12, 2, independent=True), data(30)
    made = descent(features, 2, DescentConfig(dtype="float64")).begin(NOISE)
    rows = made.rows(x, y)
    made.step(rows)
    expected = optimum(features, x, y, torch.ones(30).double(), 0)
    torch.testing.assert_close(made.covariance(rows).matrix(features), expected.matrix())


def test_weights_of_rows_that_stand_for_more() -> None:
    """At most 2000 rows are summed over; they stand for all."""
    features, x = fourier_of(30, 10), normal(9000, 2, seed=3)
    made = descent(features, 1, DescentConfig(dtype="float64")).begin(0.2)
    found = made.covariance(made.rows(x, x[:, :1], torch.full((9000,), 4.0).double()))
    assert not len(found.blocks)  # nothing drawn yet: the average feature of all
    rows = made.rows(x, x[:, :1], torch.full((9000,), 4.0).double())
    for _ in range(30):
        made.step(rows)
    entries = diagonal_optimum(4.0 * everything(features, x).square().sum(0), torch.ones(()), 5.0)
    found = made.covariance(rows)
    torch.testing.assert_close(found.matrix(features).diagonal(), entries, rtol=0.05, atol=0)


def test_a_chevron_with_blocks_missing_has_no_matrix() -> None:
    features = fourier_of(40, 10)
    part = SparseChevron(torch.tensor([1]), torch.ones(1, 10), torch.zeros(1, 10, 0), torch.tensor(0.5))
    with pytest.raises(ValueError, match="1 of 4"):
        part.matrix(features)
    x = normal(6, 2, seed=1)
    expected = features.block(x, 1).square().sum(1) + 0.5 * 1.5
    torch.testing.assert_close(part.variance(features, x), expected.detach(), rtol=1e-6, atol=0)


def test_more_dense_columns_than_features_are_refused() -> None:
    with pytest.raises(UsageError, match="dense_columns=27 of 26"):
        descent(fourier_of(26, 10), 1, DescentConfig(dense_columns=27))
