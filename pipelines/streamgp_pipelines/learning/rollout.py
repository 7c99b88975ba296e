"""A model that looks one step ahead, run on its own output, and how that does while a stream runs.

A round of simulations begins at the end of a micro-batch: the state of the model is kept. When N steps after the last
of its origins have come, the model of that time simulates from several origins among the rows since, with the inputs
that came, and `SimulationBands` learn from the truths. So no simulation has learned a row that it simulates. A round
begins when the one before is done, so that the cost of a row does not grow with the stream.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, OutputError, Simulates, Stateful
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.simulated import Paths, SimulationBands
from streamgp.model_config import models_with
from streamgp.state import Copies, Declared, Nested, Value
from streamgp.windows.calendar import Floats, Ints
from streamgp.windows.paths import PathWindows, rows_ahead
from streamgp.windows.windows import Asks, Windows, WindowSpec
from streamgp_data.batches import together
from streamgp_pipelines.learning.tail import Tail

PATHS = 40
"""Paths of a simulation of the past: the fewest round number whose bands of 95 % have ends among them."""
ORIGINS = 16
"""Simulations of a round."""
FAR = 1e12
"""Simulated values are limited to this size."""
_SERIES = "streamgp origin"


def rollout(
    next_y: Callable[[Inputs], tuple[Tensor, Tensor]], windows: Windows, series: Ints, paths: int, inputs: Floats
) -> Iterator[tuple[Asks, Tensor | None]]:
    """Ask every path, get its next targets, put them in; step by step.

    Args:
        next_y: windows of all paths, path by path -> the values that they continue from and the observations, (P · S,
            O) each, transformed where targets are; see `drawing`.
        windows: of the rows seen; they do not change.
        series: (S,) codes to simulate.
        paths: P.
        inputs: (S, K, C − O) at the K steps.

    Yields:
        the questions and the targets of a step; None, and no more, where a path has no whole window.
    """
    ahead = PathWindows(windows, series, paths)
    inputs = np.tile(inputs, (paths, 1, 1))
    for step in range(inputs.shape[1]):
        asks = ahead.ask(inputs[:, step])
        if len(asks.origin) < paths * len(series):
            yield asks, None
            return
        value, observed = next_y(asks.x)
        yield asks, windows.spec.in_units(observed)
        ahead.go_on(asks, windows.spec.in_units(value).numpy(), inputs[:, step])


def drawing(model: Simulates, paths: int, seed: int) -> Callable[[Inputs], tuple[Tensor, Tensor]]:
    """P functions of a model, on its device, as `rollout` asks for them."""
    draw, device = model.functions(paths, Generator().manual_seed(seed)), device_of(cast(Model, model))

    def next_y(x: Inputs) -> tuple[Tensor, Tensor]:
        value, observed = draw.apart(x.to(device)) if isinstance(draw, OutputError) else (draw(x.to(device)),) * 2
        return value.cpu(), observed.cpu()

    return next_y


class Rehearsal(Declared):
    """Simulations of the past while a stream runs; Stateful.

    Args:
        spec: of the windows, one step ahead.
        steps: N.
        calibration: which quantiles are wanted.
        seed: of every draw.

    Attributes:
        bands: what was learned.
    """

    STATE = (
        Copies("_tensors", prefix="model."),
        Value("_rest", dict, key="model"),
        Nested(of="_parts", bare=True),
        Value("_rounds", int, key="rounds"),
        Value("_behind", int, key="behind"),
    )

    def __init__(self, spec: WindowSpec, steps: int, calibration: Calibration, seed: int) -> None:
        self.spec, self.steps, self.seed = spec, steps, seed
        self.bands = SimulationBands(spec.shape, steps, calibration)
        self._context = Windows(spec).reach  # rows of a series before an origin
        self._rows = Tail()
        self._rounds = 0
        self._behind = -1  # rows kept that came since the round began; -1 without a round
        self._tensors: dict[str, Tensor] = {}  # state of the model at the beginning of the round
        self._rest: dict[str, Json] = {}

    def follow(self, rows: pa.RecordBatch, model: Model, names: list[str], ready: bool) -> None:
        """Take in a full micro-batch that the model has learned, and simulate when it is time.

        Args:
            rows: of the micro-batch.
            model: the same again afterwards.
            names: of the series seen, by code.
            ready: whether the model was fitted.
        """
        kept = rows if self._rows.rows is None else together([self._rows.rows, rows])
        if self._behind >= 0:
            self._behind += rows.num_rows
            if self._behind >= 2 * self.steps * len(names):
                self._simulate(kept, model, names)
                self._behind = -1
        if self._behind < 0:
            kept = kept.slice(max(kept.num_rows - self._context * len(names), 0))
            if ready:
                self._behind = 0
                tensors, rest = model.state()
                self._tensors = {name: part.detach().cpu().clone() for name, part in tensors.items()}
                self._rest = copy.deepcopy(rest)
        self._rows.rows = kept

    def _simulate(self, rows: pa.RecordBatch, model: Model, names: list[str]) -> None:
        """Run the model of the beginning of the round, and learn from how it did."""
        held, before, behind = self._origins(rows, names)
        self._rounds += 1
        if not len(held):
            return
        series = self.spec.series or _SERIES
        spec = replace(self.spec, series=series)

        def taken(parts: list[Ints]) -> pa.RecordBatch:
            """Rows of origin after origin, each a series of its own."""
            origin = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            found = rows.take(np.concatenate(parts))
            columns = {name: found.column(name) for name in found.schema.names if name != series}
            return pa.record_batch({**columns, series: pa.array(origin).cast(pa.string())})

        windows = Windows(spec)
        windows.push(taken(before))
        values = rows_ahead(windows, taken(behind), self.steps)
        outputs = len(spec.targets)
        whole = np.flatnonzero(np.isfinite(values[:, :, outputs:]).all((1, 2)))
        asks = PathWindows(windows, whole, 1).ask(values[whole, 0, outputs:])
        whole = whole[asks.series.numpy()]
        if not len(whole):
            return
        y = self._paths(model, windows, whole, values[whole, :, outputs:])
        first = spec.in_units(asks.x.past[:, -1, :outputs])
        seen = torch.from_numpy(
            np.stack([rows.column(name).cast(pa.float64(), safe=False) for name in spec.targets], 1)
        )
        finite = seen[seen.isfinite().all(1)]
        low, high = finite.min(0).values, finite.max(0).values
        y = y.clamp(2 * low - high, 2 * high - low)  # paths that explode say nothing of the errors to come
        paths = Paths(torch.from_numpy(held[whole]), first, y)
        self.bands.learn(paths, torch.from_numpy(values[whole, :, :outputs]))

    def _paths(self, model: Model, windows: Windows, series: Ints, inputs: Floats) -> Tensor:
        """(P, S, N, O) simulated by the model as it was; NaN after a step that has no whole window."""
        assert isinstance(model, Simulates)
        tensors, rest = model.state()
        now = {name: part.detach().clone() for name, part in tensors.items()}, copy.deepcopy(rest)
        y = torch.full((PATHS, len(series), self.steps, len(self.spec.targets)), torch.nan, dtype=FLOAT)
        try:
            model.restore(self._tensors, self._rest)
            draw = drawing(model, PATHS, self.seed + self._rounds)

            def observed(x: Inputs) -> tuple[Tensor, Tensor]:
                value, seen = (part.nan_to_num(0.0).clamp(-FAR, FAR) for part in draw(x))
                return value, seen

            with torch.no_grad():
                for step, (_, value) in enumerate(rollout(observed, windows, series, PATHS, inputs)):
                    if value is not None:
                        y[:, :, step] = value.unflatten(0, (PATHS, -1))
        finally:
            model.restore(*now)
        return y

    def _parts(self) -> dict[str, Stateful]:
        return {"rows": self._rows, "bands": self.bands}

    def _origins(self, rows: pa.RecordBatch, names: list[str]) -> tuple[Ints, list[Ints], list[Ints]]:
        """Codes of the series of each simulation, the rows up to its origin, and those after it.

        The rounds go through the series in turn.
        """
        codes = np.zeros(rows.num_rows, np.int64)
        if self.spec.series is not None:
            held = rows.column(self.spec.series).cast(pa.string())
            codes = pc.index_in(held, value_set=pa.array(names, pa.string())).to_numpy()
        wide = min(len(names), ORIGINS)
        found: list[tuple[int, int, Ints, Ints]] = []
        for series in (self._rounds * wide + np.arange(wide)) % len(names):
            own = np.flatnonzero(codes == series)
            first = int(np.searchsorted(own, rows.num_rows - self._behind))
            last = len(own) - self.steps - 1
            if first > last:
                continue
            for at in np.unique(np.linspace(first, last, ORIGINS // wide).astype(np.int64)):
                before = own[max(at + 1 - self._context, 0) : at + 1]
                found.append((int(own[at]), int(series), before, own[at + 1 : at + 1 + self.steps]))
        found.sort(key=lambda one: one[0])
        return np.array([one[1] for one in found], np.int64), [one[2] for one in found], [one[3] for one in found]


def device_of(model: Model) -> torch.device:
    """Where the model's tensors live."""
    held = next((part for parts in (model.parameters(), model.buffers()) for part in parts), None)
    return torch.device("cpu") if held is None else held.device


def simulators() -> list[str]:
    """The models that draw functions.

    Example:
        >>> "linear" in simulators(), "persistence" in simulators()
        (True, False)
    """
    return sorted([*models_with("calibrated"), *models_with("trained")])
