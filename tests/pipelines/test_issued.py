"""A model learns beside each window what it forecast for it when it was asked."""

from __future__ import annotations

import pyarrow as pa
import torch
from torch import Tensor

from streamgp.base import Inputs, Predictive, Step
from streamgp.forecasting.calibration import Calibration
from streamgp.models import persistence
from streamgp.models.persistence import Persistence
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.learning.learner import Learner
from streamgp_pipelines.learning.recipe import Recipe, Schedule


class Recorder(Persistence):
    """Remembers every forecast it made by the last value of its window, and what it is given back."""

    def predict(self, x: Inputs) -> Predictive:  # type: ignore[override]
        issued = super().predict(x)
        for n, last in enumerate(x.past[:, -1, 0].tolist()):
            self.made.setdefault(last, issued.parameters()[:, n].clone())
        return issued

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        if issued is not None:  # as it is where the warm-up is fitted
            for n, last in enumerate(x.past[:, -1, 0].tolist()):
                self.back[last] = issued.parameters()[:, n].clone()
        return super().update(x, y)


def test_what_was_issued_comes_back_with_the_truth() -> None:
    spec = WindowSpec(targets=("y",), lags=2, horizon=5)
    model = Recorder(persistence.build(persistence.Config(), spec.shape).reference, None)
    model.made, model.back = {}, {}  # type: ignore[assignment]
    learner = Learner(Recipe.of("persistence", {}, spec, Schedule(16, 32), Calibration((95.0,))), model)
    y = torch.arange(160.0).sqrt().tolist()
    for start in range(0, 160, 16):
        learner.advance(pa.record_batch({"y": y[start : start + 16]}))
    assert len(model.back) > 100
    for last, parameters in model.back.items():
        assert torch.equal(parameters, model.made[last])  # made before the truths, with the variance of then
    learner.branch(pa.record_batch({"y": [13.0, 14.0]}))
    assert torch.equal(model.back[y[156]], model.made[y[156]])
