"""Declared state: nothing that a model has learned is forgotten by a checkpoint, and no forged one is taken."""

from __future__ import annotations

import copy
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from streamgp import registry
from streamgp.base import Json
from streamgp.forecasting.masses import Masses
from streamgp.state import (
    Arrays,
    Copies,
    Declared,
    Listed,
    Members,
    Nested,
    Padded,
    Parameters,
    RandomState,
    Record,
    Tensors,
    Value,
    Whole,
)
from streamgp.testing import SHAPES, example_windows
from streamgp.testing.stateful import forgotten, reborn

COMPUTED = {
    "qsgp": ("posterior.engine.head._root",),
}
"""What these models compute again, and do not name as their `NOT_STATE` yet."""


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


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Scale(Declared, nn.Module):
    """A module whose state is its parameters and buffers."""

    STATE = (Parameters(),)

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(2))
        self.inner = nn.BatchNorm1d(1)


class Kinds(Declared):
    """One of every other kind of field."""

    STATE = (
        Tensors("grown", prefix="_", grows=(0,)),
        Arrays("counts", "sums"),
        Arrays("fixed", grows=False),
        Padded("points", most="most", key="used"),
        Members("moments", "named"),
        Listed("blocks", int),
        Value("about", dict, key="rest"),
        Value("line.in_features", int, key="width"),
        Nested("line"),
        Nested("mixer", made={"extra": "_extra"}, under="more"),
        Nested(of="_bare", made={"other": "_other"}, bare=True),
        Copies("best", prefix="best."),
        Record("pair", Pair, beside="points"),
        Record("gone", Pair, beside="points"),
        Nested("scale"),
    )
    most = 4

    def __init__(self) -> None:
        self._grown, self.points = torch.zeros(0, 2), torch.zeros(0, 3)
        self._counts, self._sums, self._fixed = np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(3)
        self.moments, self.named = [torch.zeros(2)], {"w": torch.zeros(1)}
        self.blocks: list[int] = []
        self.about: dict[str, Json] = {}
        self.line, self.mixer = nn.Linear(2, 1), Sum()
        self.extra: Sum | None = None
        self.other: Masses | None = None
        self._masses = Masses(1, 1)
        self.best: dict[str, Tensor] = {}
        self.pair: Pair | None = None
        self.gone: Pair | None = Pair(torch.zeros(1), torch.zeros(1))
        self.scale = Scale()

    def learn(self) -> None:
        self._grown, self.points = torch.ones(3, 2), torch.ones(2, 3)
        self._counts, self._sums, self._fixed = np.ones((5, 2), np.int64), np.ones(5), np.ones(3)
        self.moments[0] += 1.0
        self.named["w"] += 2.0
        self.blocks, self.about, self.best = [2, 1], {"a": [1, None]}, {"line.weight": torch.ones(2)}
        self.mixer.learn()
        self.extra = self._extra()
        self.extra.learn()
        self.other = self._other()
        with torch.no_grad():
            self.line.weight += 1.0
            self.scale.factor += 1.0
            self.scale.inner.weight += 1.0
        self.pair, self.gone = Pair(torch.ones(3), torch.ones(2, 2)), None

    def _extra(self) -> Sum:
        return Sum()

    def _other(self) -> Masses:
        return Masses(2, 1)

    def _bare(self) -> dict[str, Masses]:
        return {"masses": self._masses}


class Both(Declared):
    STATE = (
        Nested("first", "none", under="parts", optional=("none",)),
        Nested("kinds"),
        Value("name", str),
        Whole("second"),
    )

    def __init__(self, second: Sum | None = None) -> None:
        self.first, self.second, self.none, self.name, self.kinds = Sum(), second or Sum(), None, "a", Kinds()

    def learn(self) -> None:
        self.first.learn()
        self.second.learn()
        self.kinds.learn()
        self.name = "b"


def test_what_is_declared_comes_back() -> None:
    both = Both()
    both.learn()
    assert len(forgotten(both, Both(), "both")) >= 20
    again = reborn(both, Both())
    assert not forgotten(both, again, "both")
    fresh = Both()
    assert not forgotten(fresh, reborn(fresh, again), "both"), "what is made for a state is left out without one"


def test_a_forgotten_field_is_found() -> None:
    both = Both(Forgetful())
    both.second.learn()
    assert forgotten(both, reborn(both, Both(Forgetful())), "both") == ["both.second.rows"]


CORRUPT: dict[str, tuple[str, Any]] = {
    "total is missing": ("total", None),
    "total is (1,) torch.float32": ("total", torch.zeros(1)),
    "total is (2,) torch.float64": ("total", torch.zeros(2).double()),
    "first.more is not known": ("first.more", torch.zeros(2)),
    "kinds.grown is (2, 3) torch.float32, not (any, 2)": ("kinds.grown", torch.zeros(2, 3)),
    "kinds.counts is (5, 3) torch.int64, not (any, 2)": ("kinds.counts", torch.ones(5, 3, dtype=torch.int64)),
    "kinds.sums has 4 rows, and counts has 5": ("kinds.sums", torch.ones(4).double()),
    "kinds.fixed is (4,) torch.float64, not (3,)": ("kinds.fixed", torch.ones(4).double()),
    "kinds.points is (3, 3) torch.float32, not (4, 3)": ("kinds.points", torch.ones(3, 3)),
    "kinds.moments.0 is missing": ("kinds.moments.0", None),
    "kinds.named.w is (2,)": ("kinds.named.w", torch.zeros(2)),
    "kinds.line.weight is (1, 1)": ("kinds.line.weight", torch.zeros(1, 1)),
    "kinds.line.more is not known": ("kinds.line.more", torch.zeros(1)),
    "kinds.extra.total is missing": ("kinds.extra.total", None),
    "kinds.other.value is missing": ("kinds.other.value", None),
    "kinds.masses._sums is missing": ("kinds.masses._sums", None),
    "kinds.pair.right is missing": ("kinds.pair.right", None),
    "kinds.scale.factor is (1,)": ("kinds.scale.factor", torch.ones(1)),
    "kinds.scale.inner.bias is missing": ("kinds.scale.inner.bias", None),
    "kinds.scale.more is not known": ("kinds.scale.more", torch.ones(1)),
}
"""What is said -> the tensor that is replaced, or left out."""
CORRUPT_JSON: dict[str, tuple[str, Any]] = {
    "rows is True, not of type int": ("rows", True),
    "rows is None, not of type int": ("rows", None),
    "best is 'a', not of type float": ("best", "a"),
    "parts is [], not an object": ("parts", []),
    "first is 3, not an object": ("parts", {"first": 3}),
    "first is missing": ("parts", {}),
    "parts.second is not known": ("parts", {"first": {"rows": 1, "best": None}, "second": {}}),
    "kinds.used is 5, not a number of rows up to 4": ("kinds.used", 5),
    "kinds.used is None": ("kinds.used", None),
    "kinds.blocks is [1, 'a'], not a list of type int": ("kinds.blocks", [1, "a"]),
    "kinds.rest is 3": ("kinds.rest", 3),
    "kinds.width is 2.0, not of type int": ("kinds.width", 2.0),
    "kinds.mixer is missing": ("kinds.more", {"extra": {"rows": 1, "best": None}}),
    "other is not known": ("other", 1),
}


@pytest.mark.parametrize("said", [*CORRUPT, *CORRUPT_JSON])
def test_what_is_no_state_is_refused_and_changes_nothing(said: str) -> None:
    learned, both = Both(), Both()
    learned.learn()
    learned.name = "c"
    both.learn()
    tensors, rest = copy.deepcopy(learned.state())
    if said in CORRUPT:
        key, tensor = CORRUPT[said]
        tensors = {name: part for name, part in tensors.items() if name != key}
        tensors |= {} if tensor is None else {key: tensor}
    else:
        path, value = CORRUPT_JSON[said]
        *above, key = path.split(".")
        inner: Any = rest
        for part in above:
            inner = inner[part]
        inner[key] = value
    before = copy.deepcopy(both)
    with pytest.raises(ValueError, match=re.escape(said)):
        both.restore(tensors, rest)
    assert not forgotten(before, both, "both")


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES[:2], ids=["plain", "season"])
@pytest.mark.parametrize("name", registry.names("models"))
def test_a_checkpoint_forgets_nothing_of_a_model(name: str, shape: Any) -> None:
    module = registry.load("models", name)

    def build() -> Any:
        return module.build(module.Config(), shape)

    model = build()
    x, y = example_windows(shape, 96, binary=bool(model.family.binary))
    for start in range(0, 96, 32):
        model.update(x.rows(slice(start, start + 32)), y[start : start + 32])
    computed = tuple(f"{name}.{path}" for path in COMPUTED.get(name, ()))
    assert [path for path in forgotten(model, reborn(model, build()), name) if not path.startswith(computed)] == []
