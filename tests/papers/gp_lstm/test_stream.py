"""solver=kiss_cg on a stream: as `kiss`, saved and restored bit for bit, bounded, and undone where it fails."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from streamgp.online.model import StreamModel
from streamgp.papers.gp_lstm.kiss_cg import KissCG
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing.stateful import reborn
from tests.models.deep_toys import PAIR, SYSTEM, build, chunk, gp_of, series, windows


def trained(solver: dict[str, Any], **options: Any) -> StreamModel:
    """On 300 rows, by one epoch."""
    model = build("gp_narx", solver={"grid": 16, **solver}, **options)
    x, y = windows(SYSTEM, series(420))
    for _ in model.fit(*chunk(x, y, 0, 300), 1):
        pass
    return model


def test_it_learns_and_forecasts_as_kiss_does() -> None:
    """Where neither approximates: all eigenpairs here, a complete preconditioner there."""
    x, y = windows(SYSTEM, series(420))
    cg, kiss = trained({"name": "kiss_cg", "rank": 300}), trained({"name": "kiss", "rank": 256})
    for start in range(300, 400, 20):
        for model in (cg, kiss):
            assert model.update(*chunk(x, y, start, start + 20)).healthy
    one, other = (model.predict(x.rows(slice(400, 416))) for model in (cg, kiss))
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-3, atol=1e-3 * float(y.std()))
    torch.testing.assert_close(one.variance, other.variance, rtol=1e-2, atol=0)


def test_an_update_whose_solve_does_not_converge_is_undone_and_told() -> None:
    """And a model that was restored or copied after it goes on with the same bits."""
    x, y = windows(SYSTEM, series(420))
    solver = {"name": "kiss_cg", "rank": 5}
    model, other = trained(solver), build("gp_narx", solver={"grid": 16, **solver})
    before, own = model.predict(x).parameters(), gp_of(model).solver
    assert isinstance(own, KissCG)
    usual = own.settings
    own.settings = usual._replace(iterations=1)
    step = model.update(*chunk(x, y, 300, 310))
    assert not step.healthy and step.done.startswith("update; undone: conjugate gradients left a residual")
    assert torch.equal(model.predict(x).mean, Gaussian.from_parameters(before).mean)
    own.settings = usual
    other = reborn(model, other)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for one in (model, other, copied):
        assert one.update(*chunk(x, y, 310, 320))[1:] == (step.basis, True, "update")
    for one in (other, copied):
        assert torch.equal(model.predict(x).parameters(), one.predict(x).parameters())
    assert not torch.equal(model.predict(x).parameters(), before)


@pytest.mark.slow
def test_no_more_than_two_windows_of_rows_are_kept() -> None:
    x, y = windows(PAIR, series(420))
    solver = {"name": "kiss_cg", "grid": 10}
    model = build("gp_narx", PAIR, solver=solver, rebuild=0, online={"window": 48, "stale": 1e9})
    kept = []
    for start in range(0, 400, 20):
        model.update(*chunk(x, y, start, start + 20))
        kept.append(gp_of(model).data.rows)
    assert 48 <= max(kept[5:]) <= 96, kept


@pytest.mark.slow
def test_four_latents_learn_a_stream() -> None:
    x, y = windows(SYSTEM, series(420))
    model = trained({"name": "kiss_cg", "grid": 8, "products": "fft"}, encoder={"hidden": 8, "width": 4})
    assert gp_of(model).solver.kernel.dims == 4
    assert model.update(*chunk(x, y, 300, 320)).healthy
    found = model.predict(x.rows(slice(320, 416)))
    assert (found.mean - y[320:416]).abs().mean() < 0.7 * (y[320:416] - y[319:415]).abs().mean()
