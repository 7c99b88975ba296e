"""What the series of a fleet share: hyper-parameters and a basis, estimated on a sample of them, by generation.

Each series of the sample has its own units and reference. In these the kernel has the medians of their
hyper-parameters, and its basis is drawn from the windows of all of the sample. A generation goes when no series is on
it any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.evidence.search import Search, thinned
from streamgp.evidence.thinned import LogHyper
from streamgp.kernels import squared_exponential
from streamgp.models._evidence import way_of
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.conjugate import Conjugate
from streamgp.models.svdgp.pooled_prior import PooledPrior
from streamgp.online.model import PATIENCE
from streamgp.online.standardised import Standardised
from streamgp.state import Declared, Nested, Value, gather, scatter

SAMPLE = 16
"""Series at most that estimate what all share."""
ALIGNED = 8
"""Columns of φ are a multiple of it, the last ones 0: a cache line holds 8 numbers, and products of matrices whose rows
begin at whole ones take three quarters of the time."""


class Generations(Declared):
    """Kernel and basis by generation; Stateful.

    Args:
        make: of a generation, before any data.

    Attributes:
        of: by their numbers.
    """

    def __init__(self, make: Callable[[], Conjugate]) -> None:
        self.make = make
        self.of: dict[int, Conjugate] = {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return gather({str(one): kernel for one, kernel in self.of.items()})

    def restoring(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
        """See `Declared`."""
        found = {int(one): self.make() for one in rest}
        scatter({str(one): kernel for one, kernel in found.items()}, tensors, rest)

        def put() -> None:
            self.of = found

        return put


class SharedKernels(Declared):
    """See the module; Stateful.

    Args:
        config: of each model.
        shape: of the windows.
        units: makes those of a series, before any data.
        device: where the sums live.

    Attributes:
        kernels: generation -> kernel and basis.
        size: P, columns of φ.
        pooled: prior means that the series have in common; None: they are 0.
        hyper: (G + 2,) hyper-parameters of the newest.
        made: rows that the longest series had when it was made.
    """

    STATE = (
        Nested(made={"hyper": "_no_hyper"}, bare=True),
        Nested("pooled", of="_generations", optional=("pooled",)),
        Value("made", int),
    )

    def __init__(self, config: Config, shape: Shape, units: Callable[[], Standardised], device: torch.device) -> None:
        self.config, self.shape, self.units, self.device = config, shape, units, device
        self.inputs = units().inputs
        width = len(self.inputs.groups)
        linear = config.linear and width <= config.basis
        make = partial(Conjugate, width, shape.columns, config.basis, linear)
        self._found = Generations(lambda: make().to(device))
        used = config.basis + (width + 1 if linear else 0)
        self.size = used + -used % ALIGNED
        self.pooled = PooledPrior(config, shape, width, device) if config.pooled else None
        self.hyper: Tensor | None = None
        self.made = 0

    @property
    def kernels(self) -> dict[int, Conjugate]:
        return self._found.of

    @property
    def newest(self) -> int:
        return max(self.kernels)

    def features(self, number: int, z: Tensor) -> tuple[Tensor, Tensor]:
        """(K, N, W) -> φ (K, N, P), and the prior variance that the basis does not reach, (K, N). number: of the
        generation."""
        phi, gap = self.kernels[number].spanned(z.flatten(0, 1), self.size)
        phi = phi if self.pooled is None else self.pooled.weaken(number, phi)
        return phi.unflatten(0, z.shape[:2]), gap.unflatten(0, z.shape[:2])

    def mean(self, number: int, units: Standardised) -> Tensor | None:
        """(K, P, T) prior means of the weights of series in these units; None where they are 0."""
        return None if self.pooled is None else self.pooled.mean(units, number, self.kernels[number].noise, self.size)

    def renew(self, seen: Tensor, sample: list[tuple[Inputs, Tensor]], generator: Generator) -> None:
        """Estimate the next generation, where there is none or the series have grown.

        Args:
            seen: (K,) rows of each of the series that are going to use it.
            sample: windows and truths (N, T) of some of them.
            generator: of the basis.
        """
        if not len(seen):
            return
        grown = float(seen.max()) - self.made
        if self.kernels and grown < min(self.config.rebuild or math.inf, PATIENCE * self.made):
            return
        found = [self._estimated(*own) for own in sample]
        hypers, pool, rests = zip(*found, strict=True)
        self.hyper, self.made = torch.stack(hypers).median(0).values, int(seen.max())
        hyper, rows = LogHyper.unpack(self.hyper), torch.cat(pool)
        chosen = torch.randperm(len(rows), generator=generator)[: self.config.basis].to(rows.device)
        kernel, newest = self._found.make(), max(self.kernels, default=-1) + 1
        noise = hyper.noise.exp() * self.config.tempering(self.shape)
        kernel.begin(rows[chosen], self.inputs.inverse(hyper.lengthscale), hyper.outputscale.exp(), noise)
        self.kernels[newest] = kernel
        if self.pooled is not None:
            self.pooled.estimate(newest, list(zip(pool, rests, strict=True)))

    def _estimated(self, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(G + 2,) hyper-parameters of a series, (N, W) its standardised windows, (N, T) what is learned of them."""
        units = self.units()
        units.fit(x, y, y.new_ones(len(y)))
        z, target = units(x, y)
        if self.pooled is not None:
            target = self.pooled.rest(units, z, target)
        thin = thinned(len(z), self.shape.horizon, self.config.thin(self.config.evidence_rows), z.device)
        radial = squared_exponential.build(squared_exponential.Config(), z.shape[1])
        search = Search(self.inputs.count, once=self.config.learn == "once", way=way_of(self.config, radial))
        if self.hyper is not None:
            search.hyper, search.found = LogHyper.unpack(self.hyper), True
        hyper = search.run(z[thin], target[thin], self.inputs.groups, units.inputs.scale, units.outputs.scale)
        return hyper.pack(), z, target

    def forget(self, used: Collection[int]) -> None:
        """Let go of generations but these and the newest."""
        for one in self.kernels.keys() - {*used, self.newest}:
            del self.kernels[one]
            if self.pooled is not None:
                self.pooled.forget(one)

    def _generations(self) -> dict[str, Generations]:
        return {"shared": self._found}

    def _no_hyper(self) -> Tensor:
        return torch.zeros(self.inputs.count + 2, dtype=FLOAT, device=self.device)


def some_series(series: int) -> Tensor:
    """At most `SAMPLE` of the series, evenly spread."""
    found: Tensor = torch.linspace(0, series - 1, min(SAMPLE, series)).round().long().unique()
    return found
