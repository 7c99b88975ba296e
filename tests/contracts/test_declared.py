"""Declared state: nothing that a model has learned is forgotten by a checkpoint, and no forged one is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamgp import registry
from streamgp.state import Declared, Nested, RandomState, Tensors, Value, Whole
from streamgp.testing import SHAPES, example_windows
from streamgp.testing.stateful import forgotten, reborn

HELD = ("exact", "iterated", "linear", "persistence", "rvm", "seasonal_naive", "svdgp", "svgp")
"""Models all of which is compared. The others hold what is computed again, and do not name it yet."""


class Sum(Declared):
    STATE = (Tensors("total"), Value("rows", int), Value("best", float, none=float("inf")), RandomState("generator"))

    def __init__(self) -> None:
        self.total, self.rows, self.best = torch.zeros(2), 0, float("inf")
        self.generator = torch.Generator()

    def learn(self) -> None:
        self.total = self.total + torch.rand(2, generator=self.generator)
        self.rows += 1


class Forgetful(Sum):
    """Its declaration lacks the rows."""

    STATE = tuple(field for field in Sum.STATE if field != Value("rows", int))


class Both(Declared):
    STATE = (Nested("first", "none", under="parts", optional=("none",)), Value("name", str), Whole("second"))

    def __init__(self, second: Sum | None = None) -> None:
        self.first, self.second, self.none, self.name = Sum(), second or Sum(), None, "a"


def test_what_is_declared_comes_back() -> None:
    both = Both()
    both.first.learn()
    both.second.learn()
    both.name = "b"
    assert forgotten(both, Both(), "both")
    assert not forgotten(both, reborn(both, Both()), "both")


def test_a_forgotten_field_is_found() -> None:
    both = Both(Forgetful())
    both.second.learn()
    assert forgotten(both, reborn(both, Both(Forgetful())), "both") == ["both.second.rows"]


@pytest.mark.parametrize("kind", ["shape", "dtype", "missing", "unknown", "type", "null", "parts", "part"])
def test_what_is_no_state_is_refused_and_changes_nothing(kind: str) -> None:
    tensors, rest = Both().state()
    if kind == "shape":
        tensors["total"] = torch.zeros(1)
    elif kind == "dtype":
        tensors["total"] = torch.zeros(2).double()
    elif kind == "missing":
        del tensors["total"]
    elif kind == "unknown":
        tensors["first.more"] = torch.zeros(2)
    elif kind == "type":
        rest["rows"] = True
    elif kind == "null":
        rest["rows"] = None
    elif kind == "parts":
        rest["parts"] = []
    else:
        rest["parts"] = {"first": 3}
    with pytest.raises(ValueError, match=r"is missing|, not|has no"):
        Both().restore(tensors, rest)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=["plain", "season"])
@pytest.mark.parametrize("name", HELD)
def test_a_checkpoint_forgets_nothing_of_a_model(name: str, shape: Any) -> None:
    module = registry.load("models", name)

    def build() -> Any:
        return module.build(module.Config(), shape)

    model = build()
    x, y = example_windows(shape, 96, binary=bool(model.family.binary))
    for start in range(0, 96, 32):
        model.update(x.rows(slice(start, start + 32)), y[start : start + 32])
    assert forgotten(model, reborn(model, build()), name) == []
