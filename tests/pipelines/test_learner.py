"""One learner of panels and fleets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Due, Inputs
from streamgp.forecasting.calibration import Calibration
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.learning.heldout import HeldOut
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.pairs import joined
from streamgp_pipelines.learning.recipe import Recipe, Schedule
from streamgp_pipelines.learning.warming import WarmUp

Y = np.sin(np.arange(131) / 5) + 0.1 * np.random.default_rng(0).standard_normal(131)
SVDGP = {"basis": 8, "reservoir": 32, "rebuild": 40, "evidence_rows": 16}


def learner(model: str, options: dict[str, Any], fleet: bool) -> Learner:
    own: dict[str, Any] = {"series": "s", "fleet": True} if fleet else {}
    spec = WindowSpec(targets=("y",), lags=3, horizon=2, **own)
    return learner_of(Recipe.of(model, options, spec, Schedule(12, 24, score_from=30), Calibration((90.0,))))


def rows(start: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch({"s": ["a"] * (stop - start), "y": Y[start:stop]})


def of(found: list[Due]) -> list[Tensor]:
    """Times, truths, forecasts and quantiles."""
    due = joined(found)
    return [due.position, due.column, due.y, due.parameters, due.quantiles]


@pytest.mark.parametrize(("model", "options"), [("linear", {}), ("svdgp", SVDGP)])
def test_a_fleet_of_one_series_is_a_panel_of_it(model: str, options: dict[str, Any]) -> None:
    panel, fleet = (learner(model, options, one) for one in (False, True))
    found = list[Due](), list[Due]()
    for start in range(0, 120, 12):
        found[0].append(panel.advance(rows(start, start + 12))[1])
        for one in (rows(start, start + 7), rows(start + 7, start + 12)):  # the first of them wait
            found[1].append(fleet.advance(one)[1])
    assert len(joined(found[0]).y) > 100
    tail = rows(120, 131)
    parts = [of(both) for both in found], [of(one.preview(tail)[1]) for one in (panel, fleet)]
    for one, two in (*parts, [of(one.branch(tail)) for one in (panel, fleet)]):
        for mine, other in zip(one, two, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    last = [one.predict(one.windows.ask_last()) for one in (panel, fleet)]
    torch.testing.assert_close(*last, rtol=1e-9, atol=1e-9)
    assert (panel.warmed, fleet.warmed) == (24, 24) and fleet.counts.state() == panel.counts.state()


def test_values_before_the_held_out_rows_are_within_reach() -> None:
    """Rows of training are not scored; how far values reach is learned from them too."""
    one, n = learner("linear", {}, False), 131
    held = torch.arange(n) >= 100
    one.only = HeldOut(held, held)
    for start in range(0, n, 12):
        one.advance(rows(start, min(start + 12, n)))
    tensors, _ = one.bands.state()
    assert tensors["reach.rows"].tolist() == [[n]]
    assert tensors["reach.highest"][0, 0].tolist() == [Y.max(), -Y.min()]


def test_windows_in_a_warm_up_whose_models_are_not_there_are_refused() -> None:
    kept, x = WarmUp(None), Inputs(torch.zeros(3, 1, 1, dtype=FLOAT), torch.zeros(3, 1, 0, dtype=FLOAT))
    kept.reserve(2)
    kept.add(x, x.past[:, 0], torch.tensor([0, 1, 1]))
    tensors, rest = kept.state()
    WarmUp(None).restore(tensors, rest)
    for name, forged in (("series", tensors["series"] + 1), ("series", tensors["series"][:2]), ("begun", x.past)):
        with pytest.raises(ValueError, match=name):
            WarmUp(None).restore(tensors | {name: forged}, rest)


@pytest.mark.parametrize("wrong", [{"done_at": -5}, {"done_at": "x"}, {"done_at": True}, {"past": 2}, {"future": 1}])
def test_a_forged_warm_up_is_refused(wrong: dict[str, Any]) -> None:
    parts = {name: torch.zeros(wrong.get(name, 3), 2, 1) for name in ("past", "future")} | {"y": torch.zeros(3, 2)}
    with pytest.raises(ValueError, match=r"done_at|windows"):
        WarmUp().restore(parts, {"done_at": wrong.get("done_at")})
