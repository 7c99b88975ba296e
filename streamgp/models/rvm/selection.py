"""Selection of functions from a dictionary by rows in memory: the sums that it needs, and the solver chosen."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.models.rvm.config import Config
from streamgp.models.rvm.functions import Functions
from streamgp.regression.relevance import RelevanceSums, Selection, batched, sequential, settle

SMALL = 600
"""Functions up to which the sequential selection is the default."""
STEPS = 600
"""Changes at most of the sequential selection."""
ADD = 100
"""Functions at most that come in in one round of the batched selection."""
ROUNDS = 30
"""Rounds at most of the batched selection."""
EXACT, HELD = 1 << 24, 1 << 27
"""Values of functions that are held in float64, and in float32 (512 MB); beyond that they are computed again."""
CHUNK = 2048
"""Rows whose functions are computed at once."""
ROWS = 3
"""Rows at least for each function that is kept: as many functions as rows explain them without noise, and certainly."""


class FunctionTable:
    """Values of m functions at n rows.

    Args:
        functions: the dictionary.
        z: (n, W) kernel inputs.
    """

    def __init__(self, functions: Functions, z: Tensor) -> None:
        self.functions, self.z = functions, z
        size = len(functions) * len(z)
        self.held: list[Tensor] | None = None
        if size <= HELD:
            dtype = FLOAT if size <= EXACT else torch.float32
            self.held = [functions(part).to(dtype) for part in z.split(CHUNK)]

    def sums(self, y: Tensor, weight: Tensor) -> RelevanceSums:
        """What the rows say, with weights (n,), of targets (n, T) without NaN."""
        squares = self.z.new_zeros(len(self.functions))
        moment = self.z.new_zeros(len(self.functions), y.shape[1])
        for part, some in self._parts():
            phi = some.to(FLOAT)
            squares += weight[part] @ phi.square()
            moment += phi.T @ (y[part] * weight[part, None])

        def columns(places: Tensor) -> Tensor:
            gram = squares.new_zeros(len(squares), len(places))
            for part, some in self._parts():
                phi = some.to(FLOAT)
                gram.addmm_(phi.T, phi[:, places] * weight[part, None])
            return gram

        if len(self.z) * len(self.functions) <= EXACT and len(self.functions) <= SMALL:
            whole = columns(torch.arange(len(squares), device=squares.device))
            return RelevanceSums(
                squares, moment, weight @ y.square(), float(weight.sum()), lambda places: whole[:, places]
            )
        return RelevanceSums(squares, moment, weight @ y.square(), float(weight.sum()), columns)

    def feature(self, rows: Tensor, places: Tensor) -> Tensor:
        """(N,) rows, (k,) places -> (N, k) float64, computed where they are asked for."""
        return self.functions.at(self.z[rows], places)

    def _parts(self) -> list[tuple[slice, Tensor]]:
        spans = [slice(start, start + CHUNK) for start in range(0, len(self.z), CHUNK)]
        if self.held is not None:
            return list(zip(spans, self.held, strict=True))
        return [(span, self.functions(self.z[span])) for span in spans]


def select(
    config: Config, functions: Functions, z: Tensor, y: Tensor, weight: Tensor, noise: float, generator: Generator
) -> Selection:
    """The functions that the rows need.

    Args:
        config: of the model.
        functions: m, the dictionary.
        z: (n, W) kernel inputs.
        y: (n, T) standardised targets without NaN.
        weight: (n,)
        noise: σ² at the start.
        generator: of what the quadruple solver draws.
    """
    table = FunctionTable(functions, z)
    sums = table.sums(y, weight)
    most = min(config.basis, len(functions), max(len(z) // ROWS, 1))
    solver = config.solver
    if solver == "auto":
        solver = "sequential" if len(functions) <= SMALL else "batched"
    if solver == "sequential":
        return sequential(sums, noise, most, STEPS)
    if solver == "batched":
        return batched(sums, noise, most, ADD, ROUNDS)
    from streamgp.papers.qsgp.relevance import Draws, QuadrupleRelevance

    found = QuadrupleRelevance(table.feature, sums.squares, y, weight, noise, Draws(), generator).run()
    if len(found.places) > most:
        strongest = torch.argsort(found.precision, stable=True)[:most]
        found = Selection(found.places[strongest], found.precision[strongest], found.noise, found.rounds)
    return settle(sums, found)
