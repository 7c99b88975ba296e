"""A batch fit sums over its rows in blocks: anywhere, with the same bits, and nearly what one running sum gives."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Model, Shape
from streamgp.models.deep import gp
from streamgp.models.qsgp import blocks as blocks_of_qsgp
from streamgp.online.model import StreamModel
from streamgp.online.summing import BLOCKS, Absorb, added, block_sums, blocks, in_blocks, running
from streamgp.training import shared_gradients
from streamgp.training.shared_gradients import here
from streamgp_pipelines.assembly import build_model
from tests.pipelines.worlds import same_bits
from tests.training.test_shared_gradients import elsewhere

ROWS = 600
OPTIONS: dict[str, dict[str, Any]] = {
    "svdgp": {"basis": 30, "mean_basis": 60},
    "svgp": {"points": 30},
    "rvm": {"dictionary": 60, "basis": 20},
    "finite_rkhs": {"fourier.size": 32},
}
HOMES = {"svdgp": "posterior", "svgp": "posterior", "rvm": "posterior", "finite_rkhs": "learner"}
SHAPE = Shape(targets=("y", "v"), horizon=1, lags=0, past=("y", "v", "a", "b"), future=("a", "b"))


def rows(missing: bool) -> tuple[Inputs, Tensor]:
    generator = torch.Generator().manual_seed(1)
    a = torch.rand(ROWS, 2, generator=generator, dtype=FLOAT)
    y = torch.stack([(6 * a[:, 0]).sin() + a[:, 1], (5 * a[:, 1]).cos()], 1)
    y += 0.1 * torch.randn(ROWS, 2, generator=generator, dtype=FLOAT)
    if missing:
        y[::7, 0] = torch.nan
    return Inputs(torch.zeros(ROWS, 0, 4, dtype=FLOAT), a[:, None]), y


class Elsewhere:
    """Each block in what another process would unpickle, those of the last worker first."""

    calls = 0

    def __call__(self, learner: Any, absorb: Absorb, rows: Sequence[Tensor], chunk: int) -> None:
        self.calls += 1
        learner.zero()
        whole, parts = pickle.dumps((learner, absorb)), blocks(len(rows[0]), chunk)
        assert 1 < len(parts) <= BLOCKS
        found = {}
        for place in reversed(range(len(parts))):
            sent = pickle.loads(pickle.dumps([part[parts[place]].clone() for part in rows]))
            found[place] = block_sums(*pickle.loads(whole), sent, chunk)
        total = None
        for place in range(len(parts)):
            total = added(total, found[place])
        assert total is not None
        learner.put(total)


def fitted(name: str, summing: Any, missing: bool) -> Model:
    model = build_model(name, OPTIONS[name], SHAPE, torch.device("cpu"))
    assert isinstance(model, StreamModel) and model.posterior.sums_rows
    model.posterior.summing = summing
    list(model.fit(*rows(missing), epochs=2))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "rvm" else []) for n in OPTIONS])
def test_blocks_anywhere_have_the_same_bits(name: str, missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(f"streamgp.models.{name}.{HOMES[name]}"), "CHUNK", 32)
    elsewhere = Elsewhere()
    one, other, plain = (fitted(name, summing, missing) for summing in (in_blocks, elsewhere, running))
    assert elsewhere.calls or (missing and name == "finite_rkhs")  # which learns such rows one after the other
    x, _ = rows(False)
    states = [model.state()[0] for model in (one, other)]
    assert all(same_bits(states[0][key], states[1][key]) for key in states[0])
    means = [model.predict(x).mean for model in (one, plain)]
    assert (means[0] - means[1]).abs().max() < 1e-6


def test_a_gp_behind_a_net_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of KISS at the latents of all rows, and the gradients of the net."""
    monkeypatch.setattr(gp, "CHUNK", 32)
    monkeypatch.setattr(shared_gradients, "BLOCK", 200)
    summing, states = Elsewhere(), []
    options = {"training.batch": ROWS, "pretrain": 1, "encoder.hidden": 6, "encoder.dropout": 0.1}
    for ways in ((in_blocks, here), (summing, elsewhere)):
        model = build_model("gp_narx", options, SHAPE, torch.device("cpu"))
        assert isinstance(model, StreamModel) and model.posterior.shares_rows
        model.posterior.summing, model.posterior.sharing = ways
        list(model.fit(*rows(False), epochs=2))
        states.append(model.state()[0])
    assert summing.calls >= 4  # a refresh and what forecasts, at each epoch
    assert all(same_bits(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("likelihood", ["gaussian", pytest.param("laplace", marks=pytest.mark.slow)])
def test_the_gram_matrix_of_qsgp_has_the_same_bits(likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_of_qsgp, "CHUNK", 32)
    summing, states = Elsewhere(), []
    options = {"features.size": 48, "features.width": 16, "likelihood": likelihood}
    for way in (in_blocks, summing):
        model = build_model("qsgp", options, SHAPE, torch.device("cpu"))
        assert isinstance(model, StreamModel) and model.posterior.shares_rows
        model.posterior.summing = way
        list(model.fit(*rows(False), epochs=2))
        states.append(model.state()[0])
    assert summing.calls
    assert all(same_bits(states[0][key], states[1][key]) for key in states[0])


def test_blocks_are_whole_chunks_of_all_rows() -> None:
    for count in (1, 31, 32, 33, 511, 512, 513, 10_000):
        found = blocks(count, 32)
        places = [at for part in found for at in range(part.start, part.stop)]
        assert places == list(range(count)) and len(found) <= BLOCKS
        assert all(part.start % 32 == 0 for part in found)


def test_what_trains_by_gradients_alone_sums_nothing() -> None:
    model = build_model("svgp", {"likelihood": "student_t"}, SHAPE, torch.device("cpu"))
    assert isinstance(model, StreamModel) and not model.posterior.sums_rows
