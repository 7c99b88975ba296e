"""Free simulation: a model that looks one step ahead is run on its own output: Monte Carlo rollout.

By sample paths: every path draws one function from the posterior and keeps it, adds fresh noise at every step, and
feeds back the noisy value; the spread of the paths is the forecast. By plug-in: one path that feeds back the means, and
whose band is that of one step, which leaves out what the steps before it were not sure of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Model, Predictive, Simulates
from streamgp.errors import DataError, NumericalError, UsageError
from streamgp.forecasting.simulated import Paths, SimulationBands
from streamgp.forecasting.units import raw_in_units
from streamgp.windows.paths import KnownPath, PathWindows, inputs_ahead
from streamgp.windows.rows import times
from streamgp.windows.windows import Windows
from streamgp_pipelines.learning.frames import Naming, assembled, band_ends, forecast_columns
from streamgp_pipelines.learning.own_units import OwnUnits, SeriesUnits
from streamgp_pipelines.learning.rollout import device_of, drawing, rollout, simulators
from streamgp_pipelines.learning.whole import no_newest_window


class SimulationResult(NamedTuple):
    """What a simulation gave.

    Attributes:
        series: (S,) codes of the series simulated.
        cutoff: (S,) time of their newest row, ns (its step where there is no clock).
        ds: (S, K) the times simulated.
        y: (P, S, K, O) the paths; in a plug-in simulation one path of means.
        issued: the distribution of each step, (S · O · K, 1), in a plug-in simulation; else None.
        first: (S, O) the targets at the newest rows.
    """

    series: Tensor
    cutoff: Tensor
    ds: Tensor
    y: Tensor
    issued: Predictive | None
    first: Tensor


def sample_paths(
    model: Model,
    windows: Windows,
    steps: int,
    paths: int,
    seed: int,
    future: pa.Table | None,
    naming: Naming,
    own: OwnUnits | None = None,
) -> SimulationResult:
    """P paths of every series, K steps long; one function a path, the same for all its series.

    Args:
        model: for one step ahead, on its device.
        windows: of the rows seen; they do not change.
        steps: K.
        paths: P.
        seed: of every draw.
        future: every input at the K steps after each newest row; series that it does not name are left out.
        naming: how times are written in messages.
        own: units that the model learned series in.

    Raises:
        UsageError: the model looks further ahead, has no lags or draws no functions, inputs have no future, or the
            paths are too few: with P paths one more lies below the lowest with probability 1/(P + 1).
        DataError: no series has a whole window at its newest row, or the future or a season lacks a value.
        NumericalError: the paths grew beyond all bounds.
    """
    _check(windows, steps)
    least = max([2, *(math.ceil(200 / (100 - level) - 1 - 1e-9) for level in naming.levels)])
    if paths < least:
        raise UsageError(
            f"{paths} paths are too few for a band of {max(naming.levels):g} %: its ends would lie beyond them all",
            hint=f"use --paths {least} or more, or a narrower --level",
        )
    if not isinstance(model, Simulates):
        raise UsageError(
            "this model draws no functions, and so has no sample paths",
            hint=f"simulate with --plug-in, or train with --horizon {steps} or --model {' or '.join(simulators())}",
        )
    with torch.no_grad():
        return _simulate(drawing(model, paths, seed), windows, steps, paths, future, naming, own)[0]


def plug_in(
    model: Model,
    windows: Windows,
    steps: int,
    future: pa.Table | None,
    naming: Naming,
    own: OwnUnits | None = None,
) -> SimulationResult:
    """One path that feeds back the means (of transformed targets: the transform's inverse of the mean), with the
    distribution of one step at each.

    Args, raises: as `sample_paths`; any model will do.
    """
    _check(windows, steps)
    parameters: list[Tensor] = []  # (·, S, O) a step
    device = device_of(model)

    def mean(x: Inputs) -> tuple[Tensor, Tensor]:
        issued = model.predict(x.to(device))
        parameters.append(issued.parameters().cpu())
        return issued.mean.cpu(), issued.mean.cpu()

    with torch.no_grad():
        run, units = _simulate(mean, windows, steps, 1, future, naming, own)
    for step, one in enumerate(units):
        parameters[step] = one.put(model.family.from_parameters(parameters[step])).parameters()
    parts = torch.stack(parameters, 3)  # (·, S, O, K)
    issued = model.family.from_parameters(parts.reshape(len(parts), -1, 1))
    output = torch.arange(parts.shape[2]).repeat_interleave(steps).repeat(parts.shape[1])
    return run._replace(issued=raw_in_units(issued, output, windows.spec.transforms, naming.calibration))


def calibrated_paths(run: SimulationResult, bands: SimulationBands) -> Tensor:
    """(P, S, K, O) paths as past simulations say that they should be; those of the model beyond the steps of these."""
    return torch.cat([bands.paths(_paths(run, bands)), run.y[:, :, bands.steps :]], 2)


def _paths(run: SimulationResult, bands: SimulationBands) -> Paths:
    """Those steps of a simulation that can be calibrated."""
    return Paths(run.series, run.first, run.y[:, :, : bands.steps])


def path_columns(run: SimulationResult, naming: Naming, bands: SimulationBands | None = None) -> dict[str, Any]:
    """The forecast columns of a simulation, a row a (series, target, step).

    Of sample paths: their mean, standard deviation and empirical quantiles, P(y < quantile) = p for one more path
    (Hyndman & Fan 1996, definition 6), so that a band holds what it says for any number of paths. How much of the
    spread is noise is not known: the latent standard deviation is null. With `bands` mean and bands are calibrated by
    past simulations, up to their steps; the standard deviation and the raw bands are those of the paths.
    """
    wanted = naming.calibration
    if run.issued is not None:
        raw = run.issued.quantile(torch.tensor(wanted.probabilities, dtype=FLOAT))[..., 0]
        return forecast_columns(run.issued, wanted.inside(raw), naming)
    y = run.y.permute(0, 1, 3, 2).flatten(1)  # (P, S · O · K)
    probabilities = np.array(wanted.probabilities)
    quantiles = torch.from_numpy(np.quantile(y.numpy(), probabilities, axis=0, method="weibull"))
    latent = pl.Series([None], dtype=pl.Float64).new_from_index(0, y.shape[1])
    mean, issued = y.mean(0), quantiles
    if bands is not None:
        found = bands.calibrated(_paths(run, bands), wanted.probabilities)
        mean, issued = (_with(whole, part, run.y.shape) for whole, part in zip((mean, issued), found, strict=True))
    return assembled(mean, wanted.inside(issued), band_ends(quantiles, wanted), [y.std(0).numpy(), latent], naming)


def _with(whole: Tensor, part: Tensor, sizes: torch.Size) -> Tensor:
    """(..., S · O · K) with the first k of the K steps replaced by (..., S, k, O)."""
    _, rows, steps, outputs = sizes
    found = whole.unflatten(-1, (rows, outputs, steps)).clone()
    found[..., : part.shape[-2]] = part.mT
    flat: Tensor = found.flatten(-3)
    return flat


def frame_of_run(
    run: SimulationResult,
    names: list[str],
    targets: tuple[str, ...],
    naming: Naming,
    bands: SimulationBands | None = None,
) -> pl.DataFrame:
    """One row a (series, target, step): unique_id, ds, cutoff, [target,] and the forecast columns."""
    (rows, steps), outputs = run.ds.shape, len(targets)
    columns: dict[str, Any] = {
        "unique_id": pl.Series(names, dtype=pl.String).gather(run.series.repeat_interleave(outputs * steps).numpy()),
        "ds": naming.times(run.ds.repeat(1, outputs).flatten()),
        "cutoff": naming.times(run.cutoff.repeat_interleave(outputs * steps)),
    }
    if outputs > 1:
        target = torch.arange(outputs).repeat_interleave(steps).repeat(rows)
        columns["target"] = pl.Series(targets, dtype=pl.String).gather(target.numpy())
    return pl.DataFrame(columns | path_columns(run, naming, bands))


def _check(windows: Windows, steps: int) -> None:
    """See that there is something to feed back, one step at a time."""
    if steps < 1:
        raise UsageError(f"{steps} steps cannot be simulated", hint="simulate one or more")
    if not windows.shape.lags:
        raise UsageError(
            "a model without lags does not look at its own past: there is nothing to simulate",
            hint="leave out --paths and --plug-in: the forecast has a row for every row of --future",
        )
    if windows.shape.horizon > 1:
        raise UsageError(
            f"a simulation makes one step at a time, and this model was trained for {windows.shape.horizon}",
            hint="train with --horizon 1 and simulate with that checkpoint",
        )


def _simulate(
    next_y: Callable[[Inputs], tuple[Tensor, Tensor]],
    windows: Windows,
    steps: int,
    paths: int,
    future: pa.Table | None,
    naming: Naming,
    own: OwnUnits | None,
) -> tuple[SimulationResult, list[SeriesUnits]]:
    """The loop over the steps: ask every path, get its next targets, put them in; also, by step, the units of the
    paths, where series have their own."""
    given = inputs_ahead(windows, future, steps)
    check_given(given, windows.spec.columns[len(windows.spec.targets) :], windows, naming)
    named = np.flatnonzero(given.named)
    first = PathWindows(windows, named, 1).ask(given.values[named, 0])
    series = named[first.series.numpy()]
    if not len(series):
        raise no_newest_window(windows)
    ds, y, units = [], [], list[SeriesUnits]()
    codes = torch.from_numpy(np.tile(series, paths))

    def in_own(x: Inputs) -> tuple[Tensor, Tensor]:
        assert own is not None
        x, one = own.of(x, codes)
        units.append(one)
        value, observed = next_y(x)
        return one.values(value), one.values(observed)

    asked = in_own if own is not None and own.used else next_y
    for step, (asks, value) in enumerate(rollout(asked, windows, series, paths, given.values[series])):
        if value is None:
            whole = np.isin(np.arange(len(series)), asks.series.numpy())
            raise DataError(
                f"series {windows.names[series[int(np.argmin(whole))]]!r} cannot be simulated {step + 1} steps ahead: "
                "a value one season before is missing",
                hint=f"simulate {step} steps, or train without --season",
            )
        if not torch.isfinite(value).all():
            raise NumericalError(
                f"the simulated values grew beyond all bounds {step + 1} steps ahead: the model is not stable",
                hint=f"simulate fewer than {step + 1} steps, or train with more rows or another model",
            )
        y.append(value)
        ds.append(asks.ds[: len(series), 0])
    values = torch.stack(y, 1).unflatten(0, (paths, len(series)))
    last = windows.spec.in_units(first.x.past[:, -1, : len(windows.spec.targets)])
    return SimulationResult(torch.from_numpy(series), first.cutoff, torch.stack(ds, 1), values, None, last), units


class BeginsLater(DataError):
    """The future of a series begins after the first step: there may be rows that were not read yet."""


def check_given(
    given: KnownPath, columns: tuple[str, ...], windows: Windows, naming: Naming, future: pa.Table | None = None
) -> None:
    """See that the future names a series, and that of every series that it names it is whole.

    Raises:
        DataError: it is not; the row that is missing is named.
        BeginsLater: all rows of a series in `future`, where that is given, are after the first step.
    """
    steps = given.values.shape[1]
    hint = (
        f"--future must hold a row with every input for each of the {steps} steps after the newest row seen; for fewer "
        "give a shorter --horizon"
    )
    if not given.named.any():
        raise DataError(f"the future holds no row after the newest one seen{_when(given, 0, 0, naming)}", hint=hint)
    missing = np.argwhere(given.named[:, None, None] & np.isnan(given.values))
    if not len(missing):
        return
    at, behind, channel = (int(index) for index in missing[0])
    kind = BeginsLater if future is not None and not behind and _later(future, at, windows) else DataError
    raise kind(
        f"the future of series {windows.names[at]!r} lacks {columns[channel]!r} "
        f"{behind + 1} step{'s' * (behind > 0)} ahead{_when(given, at, behind, naming)}",
        hint=hint,
    )


def _later(future: pa.Table, series: int, windows: Windows) -> bool:
    """Whether all rows of a series in the future come after the newest row seen."""
    spec = windows.spec
    if spec.time is None:
        return False
    if spec.series is not None:
        future = future.filter(pc.equal(future.column(spec.series).cast(pa.string()), pa.scalar(windows.names[series])))
    batches = future.combine_chunks().to_batches()
    return bool(batches) and int(times(batches[0], spec.time).min()) > int(windows.newest().ds[series])


def _when(given: KnownPath, series: int, behind: int, naming: Naming) -> str:
    """The time of a row that is missing, where it is known."""
    if not len(given.ds):
        return ""
    return f", at {naming.moments.say(int(given.ds[series, behind]))}"
