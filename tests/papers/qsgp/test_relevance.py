"""The quadruply stochastic bound of a relevance vector machine: unbiased, and few functions at its end."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from streamgp.papers.qsgp.draws import CellPair
from streamgp.papers.qsgp.relevance import Draws, QuadrupleRelevance
from streamgp.regression.relevance import FINITE, settle
from tests.regression.relevance_toys import normal, sinc, sums_of


def built(phi: Tensor, y: Tensor, draws: Draws, weight: Tensor | None = None, seed: int = 0) -> QuadrupleRelevance:
    weight = torch.ones(len(phi), dtype=torch.float64) if weight is None else weight
    squares = weight @ phi.square()
    generator = torch.Generator().manual_seed(seed)
    return QuadrupleRelevance(lambda rows, places: phi[rows][:, places], squares, y, weight, 0.3, draws, generator)


def state(columns: int, support: int) -> tuple[QuadrupleRelevance, Tensor, Tensor, Tensor]:
    """A selection under way on 14 functions in three cells, the last one shorter; Φ in its order, y, weights."""
    phi, y = normal(40, 14, seed=0), normal(40, columns, seed=1)
    weight = 0.5 + normal(40, seed=2).square()
    model = built(phi, y, Draws(functions=5, dense=3, support=support), weight)
    model.mean = normal(14, columns, seed=3)
    model.dense = 0.1 * normal(14, 3, seed=4).tril()
    model.dense.diagonal().abs_().add_(0.05)
    model.log_precision = normal(14, seed=5)
    ordered = phi[:, model.places]
    model.fit.start(model.fit.rows, ordered[model.fit.rows] @ model.mean)
    model.spread.start(model.fit.rows, ordered[model.fit.rows] @ model.dense)
    return model, ordered, y, weight


def dense(model: QuadrupleRelevance, phi: Tensor, y: Tensor, weight: Tensor, *at: Tensor) -> Tensor:
    """L_μ + L_Σ + L_const but for the constant log-determinant of the diagonal columns, all of it written out."""
    mean, columns, log_noise = at
    noise, s, count = log_noise.exp(), model.log_precision.exp(), y.shape[1]
    own = model._diagonal(slice(0, 14), float(log_noise.detach().exp()))
    factor = torch.cat((columns, torch.diag(own)[:, columns.shape[1] :]), 1)
    gram = phi.T @ (phi * weight[:, None])
    a = gram / noise + torch.diag(s)
    value = (mean * (a @ mean)).sum() - 2.0 * ((phi.T @ (weight[:, None] * y)) * mean).sum() / noise
    value = value + count * ((factor * (a @ factor)).sum() - 2.0 * columns.diagonal().log().sum())
    rows = (weight[:, None] * ((2.0 * math.pi * noise).log() + y.square() / noise)).sum()
    return value + rows - count * (s.log().sum() + 14)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("support", [7, 40])
def test_the_average_over_all_cells_is_the_bound(columns: int, support: int) -> None:
    """And the average of the gradients, scaled as the estimate has them, is its gradient, with any support rows."""
    model, phi, y, weight = state(columns, support)
    every = torch.arange(40)
    leaves = [model.mean.clone(), model.dense.clone(), model.log_noise.clone()]
    exact = [leaf.requires_grad_() for leaf in leaves]
    bound = dense(model, phi, y, weight, *exact)
    bound.backward()
    total = 0.0
    gradient, noise = torch.zeros(14, columns + 3, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for i, j in itertools.product(range(3), repeat=2):
        draw = CellPair(i, j, 3.0)
        spans = {c: model._span(c) for c in draw.touched}
        here = {c: phi[:, span] for c, span in spans.items()}
        there = {c: phi[model.fit.rows][:, span] for c, span in spans.items()}
        some = {c: model._leaf(span) for c, span in spans.items()}
        log_noise = model.log_noise.clone().requires_grad_()
        value = model.loss(draw, every, here, there, some, log_noise)
        value.backward()
        total += float(value.detach()) / 9
        for c, span in spans.items():
            assert some[c].grad is not None
            gradient[span] += some[c].grad / 9
        assert log_noise.grad is not None
        noise += log_noise.grad / 9
    assert total == pytest.approx(float(bound.detach()), rel=1e-10)
    assert exact[0].grad is not None and exact[1].grad is not None and exact[2].grad is not None
    torch.testing.assert_close(gradient[:, :columns], exact[0].grad, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient[:, columns:].tril(), exact[1].grad.tril(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(noise, exact[2].grad, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_rows_are_drawn_without_bias() -> None:
    """|z| < 5 over 2,000 draws of ten rows, at one pair of cells, for value and gradient."""
    model, phi, _, _ = state(1, 20)
    draw, generator = CellPair(0, 1, 3.0), torch.Generator().manual_seed(0)

    def estimate(rows: Tensor) -> Tensor:
        some = {c: model._leaf(model._span(c)) for c in (0, 1)}
        here = {c: phi[rows][:, model._span(c)] for c in (0, 1)}
        there = {c: phi[model.fit.rows][:, model._span(c)] for c in (0, 1)}
        value = model.loss(draw, rows, here, there, some, model.log_noise)
        value.backward()
        assert some[0].grad is not None and some[1].grad is not None
        return torch.cat((value.detach()[None], some[0].grad.flatten(), some[1].grad.flatten()))

    wanted = estimate(torch.arange(40))
    found = torch.stack([estimate(torch.randint(40, (10,), generator=generator)) for _ in range(2000)])
    error = found.std(0) / len(found) ** 0.5
    moving = error > 1e-9 * (1.0 + wanted.abs())
    assert moving.sum() > 30
    assert ((found.mean(0) - wanted).abs()[moving] < 5.0 * error[moving]).all()
    torch.testing.assert_close(found.mean(0)[~moving], wanted[~moving], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_steps_at_given_precisions_find_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the last steps to 0.08, of weights above 0.5; running expectations are those of the parameters."""
    monkeypatch.setattr("streamgp.papers.qsgp.relevance.TOWARDS", 0.0)
    torch.set_num_threads(1)
    phi, y = normal(60, 12, seed=0), normal(60, 1, seed=1) + normal(60, 12, seed=0)[:, :2].sum(1, keepdim=True)
    model = built(phi, y, Draws(functions=4, dense=2, support=60, rows=60))
    average = torch.zeros_like(model.mean)
    for step in range(600):
        model.log_noise.fill_(math.log(0.3))
        model.step(0.2 if step < 200 else 0.05)
        average += model.mean * (step >= 200) / 400
    ordered = phi[:, model.places]
    exact = torch.linalg.solve(ordered.T @ ordered / 0.3 + torch.eye(12, dtype=torch.float64), ordered.T @ y / 0.3)
    assert exact.abs().max() > 0.5
    torch.testing.assert_close(average, exact, rtol=0, atol=0.08)
    torch.testing.assert_close(model.fit.value, ordered[model.fit.rows] @ model.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.spread.value, ordered[model.fit.rows] @ model.dense, rtol=1e-9, atol=1e-9)
    assert (model.dense.diagonal() > 0).all() and model.dense.triu(1).abs().max() == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("dense_columns", [0, 10])
def test_a_sinc_needs_few_functions(dense_columns: int) -> None:
    """200 rows and functions: at most 30 in the end, whose posterior errs by less than a fifth of a deviation."""
    torch.set_num_threads(1)
    phi, y, truth = sinc(200, seed=0)
    model = built(phi, y, Draws(steps=1000, rows=50, support=100, functions=100, dense=dense_columns))
    found = model.run()
    assert 3 <= len(found.places) <= 100 and (found.precision < FINITE).all()
    sums = sums_of(phi, y)
    kept = settle(sums, found)
    assert 3 <= len(kept.places) <= 30
    chosen = phi[:, kept.places]
    gram = chosen.T @ chosen / kept.noise + torch.diag(kept.precision)
    mean = torch.linalg.solve(gram, chosen.T @ y / kept.noise)
    assert (chosen @ mean - truth).square().mean().sqrt() < 0.2


def test_the_same_seed_selects_the_same() -> None:
    phi, y, _ = sinc(60, seed=0)
    draws = Draws(steps=60, rows=20, support=30, functions=25, dense=3)
    one, two, other = (built(phi, y, draws, seed=seed).run() for seed in (0, 0, 1))
    assert torch.equal(one.places, two.places) and torch.equal(one.precision, two.precision)
    assert not torch.equal(one.precision[:5], other.precision[:5])


def test_pruning_keeps_the_expectations_of_what_is_left() -> None:
    model, phi, _, _ = state(2, 7)
    model.log_precision[[0, 6, 13]] = math.log(FINITE) + 0.1
    stays = [c for c in range(14) if c not in (0, 6, 13)]
    left, means = phi[:, stays], model.mean[stays].clone()
    model.prune()
    assert len(model.places) == 11 and torch.equal(model.mean, means) and model.cells == 3
    torch.testing.assert_close(model.fit.value, left[model.fit.rows] @ means, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model.spread.value, left[model.fit.rows] @ model.dense, rtol=1e-9, atol=1e-9)
    model.log_precision.fill_(math.log(FINITE) + 0.1)
    model.prune()
    assert not len(model.places) and model.cells == 0 and model.dense.shape == (0, 0)
    torch.testing.assert_close(model.fit.value, torch.zeros_like(model.fit.value), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_few_support_rows_do_not_diverge() -> None:
    """Seven of forty for cells of five functions on which nothing depends, at a rate that does not fall."""
    model, *_ = state(2, 7)
    for _ in range(300):
        model.step(0.2)
    assert model.mean.abs().max() < 5.0 and float(model.log_noise.exp()) < 3.0
