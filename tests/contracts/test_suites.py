"""The suites find what they look for: one broken part a law."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from streamgp.base import Chunk, Inputs, Json, Offset, Predictive, Shape, Step
from streamgp.errors import UsageError
from streamgp.kernels import Frequencies, Kernel
from streamgp.models.persistence import Persistence
from streamgp.online.reference import Reference
from streamgp.predictives.gaussian import Gaussian
from streamgp.testing import SHAPES, Lines, check_kernel, check_model, check_source, check_stateful


class Good(Persistence):
    """Persistence, to be spoiled."""

    def __init__(self, shape: Shape) -> None:
        if not shape.lags:
            raise UsageError("no lags", hint="give some")
        super().__init__(Reference("change", shape), None)
        self.calls = 0


class Counts(Good):
    def predict(self, x: Inputs) -> Gaussian:
        self.sums = self.sums + 1e-9
        return super().predict(x)


class Draws(Good):
    def predict(self, x: Inputs) -> Gaussian:
        torch.rand(1)
        return super().predict(x)


class LooksAround(Good):
    def predict(self, x: Inputs) -> Gaussian:
        issued = super().predict(x)
        return issued.affine(torch.ones(()), x.past[:, -1, 0].mean() * 1e-6)


class Forgets(Good):
    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"sums": torch.zeros_like(self.sums)}, {}


class Rounds(Good):
    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        super().restore({"sums": tensors["sums"].float().double()}, rest)


class Hoards(Good):
    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        self.calls += len(y)
        return super().update(x, y)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"sums": self.sums, "rows": torch.zeros(self.calls)}, {}


class Diverges(Hoards):
    def predict(self, x: Inputs) -> Gaussian:
        return super().predict(x).affine(torch.ones(()), torch.tensor(1e5 if self.calls > 1024 else 0.0))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return {"sums": self.sums}, {}


class TakesMissingForNothing(Good):
    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        return super().update(x, y.nan_to_num(0.0))


class WrongFamily(Good):
    family = Persistence  # type: ignore[assignment]


class NegativeLatent(Good):
    def predict(self, x: Inputs) -> Gaussian:
        issued = super().predict(x)
        return Gaussian(issued.mean, issued.latent_variance - 1e-6, issued.noise)


class LosesItsPlace(Good):
    """Epochs are counted, and the count is not saved."""

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        for _ in range(epochs):
            self.calls += 1
            yield self.update(x, y)._replace(loss=float(self.calls))


class Unlearns(Good):
    def predict(self, x: Inputs) -> Gaussian:
        return super().predict(x).affine(torch.ones(()), self.sums[0, 0])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Counts, "law 1"),
        (Draws, "law 1"),
        (LooksAround, "law 2"),
        (Forgets, "after a restore"),
        (Rounds, "after a restore"),
        (Hoards, "law 4"),
        (Diverges, "100 spreads"),
        (TakesMissingForNothing, "law 5"),
        (WrongFamily, "family"),
        (NegativeLatent, "variance"),
        (LosesItsPlace, "a fit taken up differs"),
        (Unlearns, "less probable"),
    ],
)
def test_a_broken_model_is_found(broken: Callable[[Shape], Good], message: str) -> None:
    check_model(Good)
    with pytest.raises(AssertionError, match=message):
        check_model(broken)


def test_a_model_that_refuses_everything_is_found() -> None:
    with pytest.raises(AssertionError, match="refuses every shape"):
        check_model(Good, shapes=SHAPES[2:])


class Lopsided(Kernel):
    def __init__(self, dims: int, kind: str) -> None:
        super().__init__()
        self.dims, self.kind = dims, kind
        self.scale = torch.nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        distance = (x[:, None] - z).square().sum(2)
        if self.kind == "asymmetric":
            return torch.exp(-distance) * self.scale + 1e-6 * x[:, :1]
        if self.kind == "indefinite":
            return -distance * self.scale
        if self.kind == "undefined":
            return torch.full_like(distance, torch.nan) * self.scale
        if self.kind == "detached":
            return torch.exp(-distance) * self.scale.detach()
        return torch.exp(-distance) * self.scale

    @property
    def normals(self) -> int:
        return self.dims

    def frequencies(self, normals: Tensor, place: Tensor) -> Frequencies:
        width = 2.0 if self.kind == "narrow" else 2.0**0.5
        return Frequencies(width * normals, (2.0 if self.kind == "heavy" else 1.0) * self.scale.expand(len(place)))

    def diagonal(self, x: Tensor) -> Tensor:
        wrong = 0.5 if self.kind == "diagonal" else 1.0
        return wrong * (torch.zeros(len(x)) if self.kind == "indefinite" else self.scale * torch.ones(len(x)).double())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("asymmetric", "symmetric"),
        ("indefinite", "definite"),
        ("undefined", "finite"),
        ("diagonal", "diagonal"),
        ("detached", "gradients"),
        ("narrow", "law 5"),
        ("heavy", "law 5"),
    ],
)
def test_a_broken_kernel_is_found(kind: str, message: str) -> None:
    check_kernel(lambda dims: Lopsided(dims, "right"))
    with pytest.raises(AssertionError, match=message):
        check_kernel(lambda dims: Lopsided(dims, kind))


class Off(Lines):
    """Resumes one row too early."""

    def read(self, after: Offset) -> Iterator[Chunk]:
        return super().read({"line": max(int(after.get("line", 0)) - 1, 0)})


class Fickle(Lines):
    """Says another type than it gives."""

    @property
    def schema(self) -> pa.Schema:
        return super().schema.append(pa.field("more", pa.int64()))


@pytest.mark.parametrize(("broken", "message"), [(Off, "resuming after chunk 0"), (Fickle, "schema")])
def test_a_broken_source_is_found(broken: type[Lines], message: str) -> None:
    check_source(lambda: Lines(10, 3))
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: broken(10, 3))


def test_a_part_that_forgets_is_found() -> None:
    class Counter:
        value = 0

        def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
            return {}, {}

        def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
            pass

    def advance(part: Counter, step: int) -> int:
        part.value += 1
        return part.value

    with pytest.raises(AssertionError, match="step 1"):
        check_stateful(Counter, advance, 3, lambda a, b: a == b)
