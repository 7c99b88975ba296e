"""A mix learns how good its experts' forecasts were as each truth comes, not with the last step of a window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

from streamgp.base import FLOAT, Assesses
from streamgp.mixing.mixer import Mixer
from streamgp.models.ensemble.model import Ensemble
from streamgp_pipelines.learning.session import open_session
from tests.pipelines.worlds import config_of, frame_of, make_table

EXPERTS = "linear,iterated,persistence,seasonal_naive"
WARMUP, BATCH, HORIZON = 208, 16, 5


@pytest.mark.parametrize("fleet", [False, True])
def test_weights_are_those_of_a_mixer_that_sees_each_truth_when_it_comes(tmp_path: Path, fleet: bool) -> None:
    rows = frame_of(400, ("a",) if fleet else ()).with_columns(
        y=pl.when(pl.int_range(pl.len()).is_in([260, 261, 300])).then(None).otherwise("y")
    )
    table = make_table(tmp_path / "t", rows)
    options = {"model": "ensemble", "set": {"experts": EXPERTS}, "warmup": WARMUP, "batch": BATCH, "horizon": HORIZON}
    learner = open_session(config_of(table, tmp_path / "c", fleet=fleet, **options)).learner
    chunk = pa.Table.from_batches([chunk.rows for chunk in table.read({})]).combine_chunks().to_batches()[0]
    issued = dict[int, torch.Tensor]()
    oracle: Mixer | None = None
    y, at = rows["y"].to_numpy(), 0

    def mixer() -> Mixer:
        model = learner.models._of(0)  # type: ignore[attr-defined]
        assert isinstance(model, Ensemble) and isinstance(model, Assesses)
        return model.mixer

    asked = learner._issue

    def issue(asks):  # type: ignore[no-untyped-def]
        found = asked(asks)
        if hasattr(found, "experts"):
            known = (asks.age == 0).all(1)
            issued.update({int(o): e for o, e, k in zip(asks.origin, found.experts.unbind(1), known, strict=True) if k})
        return found

    learner._issue = issue  # type: ignore[method-assign]
    while at + learner.room <= len(y):
        part = slice(at, at + learner.room)
        learner.learn(chunk.slice(part.start, part.stop - part.start), lambda _: None)
        if oracle is not None:
            means = torch.zeros(oracle.experts, part.stop - part.start, HORIZON, dtype=FLOAT)
            truth = torch.full(means.shape[1:], torch.nan, dtype=FLOAT)
            for row, place in enumerate(range(part.start, part.stop)):
                for step in range(HORIZON):
                    origin = place - step - 1
                    if origin in issued and np.isfinite(y[place]):
                        means[:, row, step], truth[row, step] = issued[origin][:, step], y[place]
            oracle.learn(means, truth)
            torch.testing.assert_close(oracle.weights, mixer().weights, rtol=1e-9, atol=1e-12)
        elif part.stop >= WARMUP:
            oracle = Mixer(mixer().experts, learner.windows.shape, mixer().memory, mixer().first)
            oracle.restore(*mixer().state())
        at = part.stop
    assert oracle is not None and (oracle.weights - oracle.first).abs().max() > 0.05
    shares = learner.summary()["steps"][0]["weights"]
    assert shares["persistence"] == pytest.approx(float(mixer().weights[0, -2]))


def test_windows_teach_a_mix_that_is_told_of_truths_nothing_more() -> None:
    from streamgp.models.ensemble import Config, build
    from streamgp.testing.models import SHAPES, example_windows

    told, not_told = (build(Config(experts=("linear", "persistence")), SHAPES[0]) for _ in range(2))
    x, y = example_windows(SHAPES[0], 300)
    for model in (told, not_told):
        list(model.fit(x.rows(slice(0, 200)), y[:200], 1))
    late = x.rows(slice(200, 300))
    issued, truth = told.predict(late), y[200:].clone()
    truth[7], truth[9] = 1e200, torch.nan  # a value that is none
    told.assess(issued, truth)
    weights = told.mixer.weights.clone()
    told.update(late, truth, issued)
    assert torch.equal(told.mixer.weights, weights) and bool(weights.isfinite().all())
    not_told.update(late, truth, issued)
    torch.testing.assert_close(not_told.mixer.weights, weights)
    fresh = build(Config(experts=("linear", "persistence")), SHAPES[0])
    fresh.restore(*told.state())
    assert fresh.told
