"""Scores of probabilities against their definitions over a whole frame, and Bands that have nothing to do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.base import Due, Inputs, Shape
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.outcomes import BINS
from streamgp.forecasting.scores import Scores
from streamgp.forecasting.volatility import Errors
from streamgp.predictives.bernoulli import Bernoulli
from streamgp.testing import check_stateful

SHAPE = Shape(targets=("rain", "hail"), horizon=2, lags=1, past=("rain", "hail"), future=())
ROWS = 4000
NONE = Calibration(none=True)


def frame(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (R, 2), outcomes (R,) drawn from somewhat other probabilities, and columns (R,)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64) * torch.tensor([2.0, 0.5]) + 0.3
    chance = torch.sigmoid(0.6 * logits[:, 0])
    y = (torch.rand(ROWS, generator=generator, dtype=torch.float64) < chance).double()
    return logits, y, torch.randint(4, (ROWS,), generator=generator)


def due_of(logits: Tensor, y: Tensor, column: Tensor) -> Due:
    issued = Bernoulli(logits[:, :1], logits[:, 1:].square())
    nil, none = torch.zeros(len(y), dtype=torch.int64), torch.zeros(0, 4, dtype=torch.float64)
    empty = torch.zeros(0, len(y), dtype=torch.float64)
    return Due(nil, nil, nil, nil, column, y, issued, empty, empty, Inputs(none, none), none, none[None])


def direct(logits: Tensor, y: Tensor) -> dict[str, float]:
    """The definitions, written out."""
    p = Bernoulli(logits[:, 0], logits[:, 1].square()).mean.numpy()
    truth = y.numpy()
    edges = np.linspace(0, 1, BINS + 1)
    gap = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (p >= low) & (p < high)
        if inside.any():
            gap += inside.mean() * abs(p[inside].mean() - truth[inside].mean())
    return {
        "log_loss": float(-np.log(np.where(truth == 1, p, 1 - p)).mean()),
        "brier": float(((p - truth) ** 2).mean()),
        "accuracy": float(((p > 0.5) == (truth == 1)).mean()),
        "calibration_error": gap,
        "base_rate": float(truth.mean()),
    }


def check(found: dict, wanted: dict[str, float]) -> None:
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-9), name


def test_every_score_is_its_definition_overall_by_step_by_target_and_by_lap() -> None:
    logits, y, column = frame()
    scores = Scores(SHAPE, NONE, binary=True)
    half = ROWS // 2
    scores.add(due_of(logits[:half], y[:half], column[:half]))
    scores.lap()
    for part in torch.arange(half, ROWS).split(333):
        scores.add(due_of(logits[part], y[part], column[part]))
    report = scores.summary()
    check(report, direct(logits, y))
    check(scores.lap(), direct(logits[half:], y[half:]))
    for step in range(2):
        here = column % 2 == step
        check(report["steps"][step], direct(logits[here], y[here]))
    for target, name in enumerate(SHAPE.targets):
        here = column // 2 == target
        check(report["targets"][name], direct(logits[here], y[here]))
        check(
            report["targets"][name]["steps"][1], direct(logits[column == 2 * target + 1], y[column == 2 * target + 1])
        )
    assert report["nlpd"] == report["log_loss"] and report["crps"] == report["brier"] and report["coverage"] == {}


def test_reliability_says_what_was_said_and_what_happened() -> None:
    logits, y, column = frame(1)
    scores = Scores(SHAPE, NONE, binary=True)
    scores.add(due_of(logits, y, column))
    bins = scores.summary()["reliability"]
    assert sum(one["forecasts"] for one in bins) == ROWS
    said = [one["probability"] for one in bins]
    assert said == sorted(said) and all(index / BINS <= p <= (index + 1) / BINS for index, p in enumerate(said))
    extremes = [bins[0], bins[-1]]  # the outcomes were drawn from less extreme probabilities
    assert (
        extremes[0]["frequency"] > extremes[0]["probability"] and extremes[1]["frequency"] < extremes[1]["probability"]
    )
    right = (
        torch.rand(ROWS, generator=torch.Generator().manual_seed(2)).double() < torch.sigmoid(logits[:, 0])
    ).double()
    calm = Scores(SHAPE, NONE, binary=True)
    calm.add(due_of(logits * torch.tensor([1.0, 0.0]), right, column))
    for one in calm.summary()["reliability"]:
        p, n = one["probability"], one["forecasts"]
        assert abs(one["frequency"] - p) < 4 * (p * (1 - p) / n) ** 0.5
    assert calm.summary()["calibration_error"] < 0.03 < scores.summary()["calibration_error"]


def test_nothing_scored_is_unknown_and_a_probability_of_one_has_a_bin() -> None:
    empty = Scores(SHAPE, NONE, binary=True).summary()
    assert empty["log_loss"] is None and empty["accuracy"] is None and empty["reliability"] == []
    scores = Scores(SHAPE, NONE, binary=True)
    scores.add(
        due_of(torch.tensor([[800.0, 0.0], [-800.0, 0.0]]).double(), torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))
    )
    found = scores.summary()
    assert found["accuracy"] == 1 and found["calibration_error"] == pytest.approx(0, abs=1e-9)
    assert [one["probability"] for one in found["reliability"]] == pytest.approx([0.0, 1.0])


def test_sums_go_on_from_a_checkpoint() -> None:
    logits, y, column = frame()

    def advance(scores: Scores, step: int) -> list:
        rows = slice(100 * step, 100 * step + 100)
        scores.add(due_of(logits[rows], y[rows], column[rows]))
        return [scores.summary(), scores.lap()]

    check_stateful(lambda: Scores(SHAPE, NONE, binary=True), advance, 5, lambda a, b: a == b)


def test_bands_without_levels_learn_nothing() -> None:
    bands = Bands(SHAPE, NONE)
    before = {name: tensor.clone() for name, tensor in bands.state()[0].items()}
    bands.update(due_of(*frame()))
    nil = torch.zeros(3, dtype=torch.int64)
    issued = Bernoulli(torch.zeros(3, 4).double(), torch.zeros(3, 4).double())
    asked = Questions(nil, nil, nil[:, None].expand(3, 2), issued, issued.mean)
    assert bands.issue(asked, Errors(nil, nil, nil, nil.double())).quantiles.shape == (0, 3, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in bands.state()[0].items())
