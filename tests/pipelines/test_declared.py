"""Nothing that a learner has learned is forgotten by a checkpoint: all of its parts are compared, windows and
calibration too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgp.forecasting.calibration import Calibration
from streamgp.testing.stateful import forgotten, reborn
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.learning.making import learner_of
from streamgp_pipelines.learning.recipe import Recipe, Schedule

LEVELS = Calibration((80.0, 95.0), point="median")
LAGS: dict[str, Any] = {"targets": ("y",), "lags": 3}
RECIPES = {
    "steps": (WindowSpec(**LAGS, horizon=3, season=12), LEVELS, {}),
    "alarms": (WindowSpec(**LAGS, horizon=2), Calibration((80.0,), point="median", lower=0.0), {"alarm_rate": 0.01}),
    "series": (WindowSpec(**LAGS, series="s"), LEVELS, {}),
    "own units": (WindowSpec(**LAGS, series="s"), LEVELS, {"scale": "series"}),
    "simulation": (WindowSpec(**LAGS, known=("u",), simulated=8), LEVELS, {"simulate": 8}),
}


def rows_of(spec: WindowSpec, count: int) -> pa.RecordBatch:
    """A wave that stands at 0 half of the time, of two series where there are some."""
    draw, steps = np.random.default_rng(0), np.arange(count)
    y = np.maximum(np.sin(steps / 12 * 2 * np.pi) + 0.1 * draw.standard_normal(count), 0.0)
    columns: dict[str, Any] = {"y": y, "u": draw.standard_normal(count)}
    if spec.series is not None:
        columns[spec.series] = np.array(["a", "b"])[steps % 2]
    return pa.record_batch(columns)


@pytest.mark.sampled
@pytest.mark.parametrize("name", RECIPES)
def test_a_checkpoint_forgets_nothing_of_a_learner(name: str) -> None:
    spec, calibration, more = RECIPES[name]
    recipe = replace(Recipe.of("linear", {}, spec, Schedule(32, 64), calibration), **more)
    learner, rows = learner_of(recipe), rows_of(spec, 640)
    for start in range(0, 640, 32):
        learner.advance(rows.slice(start, 32))
    learner.ledger.restore(*learner.ledger.state())  # without free room
    fresh = learner_of(recipe).parts()
    found = {part: forgotten(held, reborn(held, fresh[part]), part) for part, held in learner.parts().items()}
    assert not any(found.values()), found
    assert learner.warmup.done_at is not None and learner.scores.scored > 100
