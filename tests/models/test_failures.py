"""Numerical failures on a stream: what was served goes on being served, and the step tells why it is unhealthy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamgp import registry
from streamgp.base import Inputs, Model
from streamgp.errors import NotPositiveDefinite
from streamgp.evidence.search import Search
from streamgp.models.deep.gp import GpPosterior
from streamgp.testing.stateful import reborn
from tests.models.deep_toys import SYSTEM, build, chunk, series, windows

OPTIONS: dict[str, dict[str, Any]] = {
    "finite_rkhs": {"fourier": {"size": 60}, "rebuild": 1000},
    "qsgp": {"features": {"size": 64, "width": 32}, "rebuild": 1000},
    "rvm": {"dictionary": 60, "rebuild": 1000},
    "svdgp": {"basis": 40, "rebuild": 1000},
}


def test_a_fit_of_the_stream_that_fails_numerically_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = windows(SYSTEM, series(120))
    model = build("gp_narx", rebuild=1000, online={"window": 300})

    def fail(*_: Any) -> float:
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(GpPosterior, "descend", fail)
        first = model.update(*chunk(x, y, 0, 10))
        assert first.done == "rebuild: first windows; undone: no factor" and not first.healthy
        assert not model.rebuilt and bool(model.predict(x).parameters().isfinite().all())
    assert model.update(*chunk(x, y, 10, 20)).healthy
    state = {name: value.clone() for name, value in model.state()[0].items()}
    with monkeypatch.context() as patch:
        patch.setattr(GpPosterior, "descend", fail)
        assert model.update(*chunk(x, y, 20, 40)).done == "update"
        second = model.update(*chunk(x, y, 40, 60))
    assert second.done == "rebuild: 40 rows; undone: no factor; update" and not second.healthy
    units = ("inputs", "outputs", "posterior.encoder", "posterior.solver")
    assert all(torch.equal(state[name], value) for name, value in model.state()[0].items() if name.startswith(units))
    assert model.update(*chunk(x, y, 60, 70)).done == "update"


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["finite_rkhs", "linear", "qsgp", "rvm", "svdgp"])
def test_a_window_whose_squares_overflow_is_left_out(name: str) -> None:
    """The other rows of its batch are learned as if it had not come."""
    x, y = windows(SYSTEM, series(300))
    module, options = registry.load("models", name), {"limit": None} if name == "linear" else OPTIONS[name]
    models: list[Model] = [module.build(module.Config(**options), SYSTEM) for _ in range(2)]
    for model in models:
        list(model.fit(*chunk(x, y, 0, 200), 1))
    past, others = x.past[200:210].clone(), [200, 201, 202, 203, 204, 206, 207, 208, 209]
    past[5, 2, 1] = 1e200
    step = models[0].update(Inputs(past, x.future[200:210]), y[200:210])
    assert not step.healthy and "undone: " in step.done
    assert models[1].update(x.rows(torch.tensor(others)), y[others]).healthy
    models[0] = reborn(models[0], module.build(module.Config(**options), SYSTEM))
    for start in range(210, 290, 10):
        assert all(model.update(*chunk(x, y, start, start + 10)).healthy for model in models)
    assert torch.equal(*(model.predict(x).parameters() for model in models))


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPTIONS)
def test_a_rebuild_that_fails_changes_nothing_and_the_rows_are_learned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = windows(SYSTEM, series(300))
    module, options = registry.load("models", name), {**OPTIONS[name], "rebuild": 20, "evidence_rows": 50}
    failed, never = (module.build(module.Config(**options | more), SYSTEM) for more in ({}, {"rebuild": 0}))
    for model in (failed, never):
        list(model.fit(*chunk(x, y, 0, 200), 1))

    def fail(*_: Any, **__: Any) -> None:
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(Search, "run", fail)
        step = failed.update(*chunk(x, y, 200, 220))
    assert not step.healthy and step.done.startswith("rebuild: 20 rows; undone: no factor; update")
    never.update(*chunk(x, y, 200, 220))
    assert torch.equal(failed.predict(x).mean, never.predict(x).mean)
    other = reborn(failed, module.build(module.Config(**options), SYSTEM))
    for one in (failed, other):  # the next rebuild waits its turn
        assert one.update(*chunk(x, y, 220, 230)).done.startswith("update")
        assert one.update(*chunk(x, y, 230, 240)).done.startswith("rebuild: 20 rows")
    assert torch.equal(failed.predict(x).parameters(), other.predict(x).parameters())
