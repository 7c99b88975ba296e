"""The sequential and the batched selection: what they end at, and cases that have no end in the books."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from streamgp.regression import relevance as r
from streamgp.regression.relevance import batched, sequential, settle
from tests.regression.relevance_toys import log_evidence, normal, sinc, sums_of


def select(solver: str, sums: r.RelevanceSums, most: int = 500, noise: float = 0.1) -> r.Selection:
    if solver == "sequential":
        return sequential(sums, noise, most, steps=600)
    return batched(sums, noise, most, add=100, rounds=30)


def error(phi: Tensor, truth: Tensor, sums: r.RelevanceSums, kept: r.Selection) -> float:
    gram = sums.columns(kept.places)[kept.places]
    found = r.posterior(gram, sums.moment[kept.places], sums.total, kept.precision, kept.noise)
    return float((phi[:, kept.places] @ found.mean - truth).square().mean().sqrt())


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_a_sinc_needs_few_functions(solver: str) -> None:
    """500 rows, noise 0.37 of the target's deviation: 30 functions at most, and a tenth of the noise as error."""
    torch.set_num_threads(1)
    for seed in range(2):
        phi, y, truth = sinc(500, seed)
        sums = sums_of(phi, y)
        kept = select(solver, sums)
        assert 4 <= len(kept.places) <= 30 and error(phi, truth, sums, kept) < 0.09
        assert (kept.places.diff() > 0).all() and (kept.precision < r.FINITE).all()
        assert kept.noise**0.5 == pytest.approx(float((y - truth).std()), rel=0.1)


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_no_change_of_one_function_is_worth_much_at_the_end(solver: str) -> None:
    phi, y, _ = sinc(200, seed=5)
    sums = sums_of(phi, y)
    kept = select(solver, sums)
    best = log_evidence(sums, kept)
    for at in range(len(kept.places)):
        for factor in (0.5, 2.0):
            moved = kept.precision.clone()
            moved[at] *= factor
            assert log_evidence(sums, kept._replace(precision=moved)) < best + 0.01
        rest = torch.arange(len(kept.places)) != at
        assert log_evidence(sums, kept._replace(places=kept.places[rest], precision=kept.precision[rest])) < best
    gram = sums.columns(kept.places)
    found = r.posterior(gram[kept.places], sums.moment[kept.places], sums.total, kept.precision, kept.noise)
    sparsity, quality = r.qualities(sums, gram, found, kept.noise)
    gain = r.gain_of_adding(sparsity, quality.square().mean(1))
    gain[kept.places] = 0.0
    assert gain.max() < 0.02


def test_every_step_raises_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the noise given: every prefix of the steps ends higher, by what the steps were said to be worth."""
    phi, y, _ = sinc(120, seed=1)
    sums = sums_of(phi, y)
    monkeypatch.setattr(r, "new_noise", lambda found, rows: 0.1)
    before = -torch.inf
    for steps in range(2, 40):
        kept = sequential(sums, 0.1, 500, steps=steps)
        now = log_evidence(sums, kept)
        assert now >= before - 1e-9
        before = now
    assert kept.rounds < 39 or before > log_evidence(sums, sequential(sums, 0.1, 500, steps=2))


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_columns_that_are_equal_count_as_one(solver: str) -> None:
    phi, y, _ = sinc(150, seed=3)
    one, two = select(solver, sums_of(phi, y)), select(solver, sums_of(phi, torch.cat((y, y), 1)))
    assert one.places.tolist() == two.places.tolist()
    torch.testing.assert_close(one.precision, two.precision, rtol=1e-6, atol=0)


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_every_column_has_the_functions_that_it_needs(solver: str) -> None:
    phi = normal(300, 20, seed=0)
    y = 0.1 * normal(300, 2, seed=1) + phi[:, [4, 11]]
    kept = select(solver, sums_of(phi, y))
    assert {4, 11} <= set(kept.places.tolist()) and len(kept.places) <= 8


@pytest.mark.parametrize("solver", ["sequential", "batched"])
@pytest.mark.parametrize("most", [1, 3])
def test_no_more_is_kept_than_there_is_room_for(solver: str, most: int) -> None:
    phi, y, _ = sinc(100, seed=0)
    assert 1 <= len(select(solver, sums_of(phi, y), most=most).places) <= most


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_targets_that_no_function_explains_leave_none(solver: str) -> None:
    phi = torch.eye(50, dtype=torch.float64)[:, :5]
    y = torch.zeros(50, 1, dtype=torch.float64)
    y[10:] = normal(40, 1, seed=0)
    kept = select(solver, sums_of(phi, y), noise=float(y.var()))
    assert not len(kept.places) and kept.noise > 0.0
    nothing = select(solver, sums_of(phi, torch.zeros_like(y)))
    assert not len(nothing.places) and nothing.noise > 0.0


@pytest.mark.parametrize("solver", ["sequential", "batched"])
def test_functions_on_equal_rows_are_survived(solver: str) -> None:
    phi, y, truth = sinc(80, seed=2)
    sums = sums_of(torch.cat((phi, phi, phi), 1), y)
    kept = select(solver, sums)
    assert 3 <= len(kept.places) <= 25
    assert error(torch.cat((phi, phi, phi), 1), truth, sums, kept) < 0.2


def test_settling_leaves_out_what_a_selection_does_not_need() -> None:
    phi, y, truth = sinc(300, seed=4)
    sums = sums_of(phi, y)
    everything = r.Selection(torch.arange(0, 300, 2), torch.ones(150, dtype=torch.float64), 0.5, 7)
    kept = settle(sums, everything)
    assert len(kept.places) <= 30 and kept.rounds == 7 and set(kept.places.tolist()) <= set(range(0, 300, 2))
    assert log_evidence(sums, kept) > log_evidence(sums, everything)
    assert error(phi, truth, sums, kept) < 0.15
