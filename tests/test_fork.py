"""Copies of learned state: they change alone, and forecast as those of `copy.deepcopy` do."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import streamgp
from streamgp.fork import fork
from streamgp.state import gather
from streamgp.testing.stateful import same_bits
from tests.pipelines.worlds import frame_of

MODELS = ("auto", "rvm", "gp_lstm", "finite_rkhs", "wiski")


class Held(NamedTuple):
    rows: list[int]
    values: Tensor


@dataclass(frozen=True)
class Settled:
    name: str


def test_what_is_changed_in_a_copy_stays_in_it() -> None:
    one: dict[str, Any] = {"array": np.arange(3.0), "tensor": torch.zeros(3), "list": [1], "set": {1}, "in": {"a": [0]}}
    one |= {"ordered": OrderedDict(a=[1]), "held": Held([1], torch.zeros(2)), "module": torch.nn.Linear(2, 1)}
    two, before = fork(one), copy.deepcopy(one)
    two["array"] += 1.0
    two["tensor"] += 1.0
    two["tensor"].numpy()[0] = 5.0
    two["list"].append(2)
    two["set"].add(2)
    two["in"]["a"].append(1)
    two["ordered"]["a"].append(2)
    two["held"].rows.append(2)
    with torch.no_grad():
        two["module"].weight.add_(1.0)
    assert np.array_equal(one["array"], before["array"]) and torch.equal(one["tensor"], before["tensor"])
    assert (one["list"], one["set"], one["in"], one["ordered"]) == ([1], {1}, {"a": [0]}, OrderedDict(a=[1]))
    assert one["held"].rows == [1] and torch.equal(one["module"].weight, before["module"].weight)
    one["tensor"] -= 1.0  # and the other way round
    assert two["tensor"].tolist() == [5.0, 1.0, 1.0]


def test_what_nothing_changes_is_shared_and_what_is_one_thing_stays_one() -> None:
    settled, values, both = Settled("a"), torch.zeros(2), [1]
    found = fork([settled, (values, 1), both, both])
    assert found[0] is settled and found[1][0] is values and found[2] is found[3] is not both
    noise = torch.from_numpy(np.zeros(2))  # memory that PyTorch does not own
    other = fork(noise)
    other += 1.0
    assert noise.tolist() == [0.0, 0.0]


def test_a_generator_draws_the_same_numbers_in_a_copy() -> None:
    one = torch.Generator().manual_seed(3)
    two = fork([one])[0]
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=two))


@pytest.mark.sampled
@pytest.mark.parametrize("model", MODELS)
def test_a_copy_of_a_learner_learns_without_it(model: str) -> None:
    data = frame_of(464).drop("k")
    few = {"reservoir": 200} if model in ("rvm", "qsgp", "finite_rkhs") else {}
    few = {"experts": "linear,svdgp,iterated,persistence"} if model == "auto" else few
    options: dict[str, Any] = {"season": 24, "lags": 4, "warmup": 100, "batch": 64, "every": "1h"}
    made = streamgp.Forecaster("y", 1 if model == "wiski" else 3, model=model, options=few, **options)
    made.learn(data[:400])
    rows = data[400:464].to_arrow().combine_chunks().to_batches()[0]
    learner: Any = made._stream.learner
    before = {name: tensor.clone() for name, tensor in gather(learner.parts())[0].items()}
    fork(learner).branch(made._stream._tail)
    one, two = fork(learner), copy.deepcopy(learner)
    for other in (one, two):
        other.advance(rows)
    now = gather(learner.parts())[0]
    assert now.keys() == before.keys()
    assert [name for name in now if not same_bits(now[name], before[name])] == []
    left, right = gather(one.parts())[0], gather(two.parts())[0]
    different = [name for name in left if not name.startswith("clock") and not same_bits(left[name], right[name])]
    assert different == []
