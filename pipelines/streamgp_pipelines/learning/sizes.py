"""What a run will hold in memory, estimated before it is taken.

Plain functions of the options, in bytes, one a part. An estimate counts the arrays that grow with the options, and is
true within a factor of a few: so a run that is estimated to need more than half of the available memory is refused.
Half, because libraries copy; refused, because a process that is killed for its memory reports nothing.
Symbols: S series, L lags, H steps ahead, D past and F future channels, C columns read, O targets, T = O · H, K levels,
P parameters of a distribution, B rows of a micro-batch, W = L·D + H·F numbers of a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.model_config import NUMBER, ModelConfig
from streamgp.windows._spec import WindowSpec
from streamgp.windows.timeline import PACE
from streamgp_data.disk import memory_at_hand
from streamgp_pipelines.learning.rollout import ORIGINS, PATHS

PARAMETERS = 10
"""P of the distributions that models issue: 2 to 4, or 3 and one an expert of a mix."""

AT_ONCE = 2**14
"""Forecasts that a fleet makes together, about."""

RECORDED = 35
"""R numbers that the calibration of a forecast has beside the 2 K ends of its bands, about."""

WIDE = 2_000
"""Numbers of a window from which a step on it is noticed: about 20 seconds at 4,000, and two minutes at 6,000."""

SHARE = 0.5
"""Share of the available memory that a run may be estimated to need."""


def windows(spec: WindowSpec, series: int) -> int:
    """The rows that windows look back on: S rings, of 2 · (season + lags + waiting rows) · (C + 2) numbers at most.

    The room for series doubles as they come, which is the 2. Rows wait for the H known values ahead of them.
    """
    back = max(spec.season, spec.lags - 1 + (spec.season if spec.season > 1 else 0), PACE)
    back = max(back, spec.context.back if spec.context else 0)
    waits = spec.horizon if spec.known and spec.lags else 0
    return (2 if series > 1 else 1) * series * (back + waits + 1) * (len(spec.columns) + 2) * NUMBER


def ledger(shape: Shape, series: int, levels: int, batch: int, rows: int) -> int:
    """Open questions, S · H + B and no more than rows, each (P + 2K + R + 1) · T + W numbers; twice, for room."""
    asked = min(series * shape.horizon + batch, rows)
    return 2 * asked * ((PARAMETERS + 2 * levels + RECORDED + 1) * shape.columns + shape.numbers) * NUMBER


def micro_batch(shape: Shape, levels: int, batch: int) -> int:
    """What is on the way at once: B windows four times over (looked up, joined, padded, standardised), and B forecasts
    of P · T numbers three times over, with their 2 K + R numbers of the calibration, four times over."""
    return batch * (4 * shape.numbers + (3 * PARAMETERS + 4 * (2 * levels + RECORDED)) * shape.columns) * NUMBER


def kept(shape: Shape, rows: int) -> int:
    """Windows with their truths that are fitted together, N · (W + T), three times over: kept, joined, standardised."""
    return 3 * rows * (shape.numbers + shape.columns) * NUMBER


def levers(settings: ModelConfig, shape: Shape) -> str:
    """The options that make a model smaller, those of its largest expert where it has several.

    Example:
        >>> from streamgp_pipelines.assembly import model_settings
        >>> shape = Shape(targets=("y",), horizon=1, lags=2, past=("y",), future=())
        >>> levers(model_settings("svdgp", {"basis": 64}), shape)
        '--set basis=64 or less'
        >>> levers(model_settings("linear", {}), shape)
        'windows of 2 numbers by --inputs, --lags and --horizon'
    """
    windows = f"windows of {shape.width:,} numbers by --inputs, --lags and --horizon"
    options = settings.levers(shape)
    if not options:
        return windows
    sized = " and ".join(f"--set {name}={value}" for name, value in options.items())
    bounded = shape.width < settings.functions(shape)  # the basis makes most of the model, and not the windows
    return f"{sized} or less" + ("" if bounded else f"; {windows}")


def calibration(shape: Shape) -> int:
    """Of each series of a fleet: histograms of 240 bins in 12 parts and up to 4 groups of steps, and a third more."""
    copies = 3  # of its state: as it learns, as it looks ahead, and in a checkpoint
    return copies * shape.outputs * 16 * min(shape.horizon, 4) * 240 * NUMBER


def alarms(shape: Shape) -> int:
    """Of each series of a fleet with --alarm-rate: a histogram of 280 bins in 10 parts, and a third more."""
    copies = 3  # as of `calibration`
    return copies * shape.outputs * 10 * 280 * 4 // 3 * NUMBER


def pairs(shape: Shape, series: int, levels: int, batch: int, rows: int) -> int:
    """Forecasts with their truths that come together, those of S · B rows, twice over."""
    return 2 * min(series * batch, rows) * shape.columns * (PARAMETERS + 2 * levels + 18) * NUMBER


def of_training(
    spec: WindowSpec,
    series: int,
    rows: int,
    fitted: int,
    levels: int,
    batch: int,
    settings: ModelConfig,
    raises: bool = False,
) -> dict[str, int]:
    """The parts of a training run, by what makes them large.

    Args:
        spec: of the windows.
        series: S.
        rows: of the table.
        fitted: rows whose windows are fitted together: the warm-up, or all of them in batch.
        levels: K.
        batch: B.
        settings: of the model.
        raises: whether alarms are raised.
    """
    shape, steps = spec.shape, spec.simulated
    kinds = f"the models of {series:,} series" if spec.fleet else "the model"
    together = max(batch, AT_ONCE // shape.columns) if spec.fleet else batch
    of_fleet = {
        f"the calibrations of {series:,} series (--fleet, --horizon)": series * calibration(shape),
        "forecasts whose truths come together (series, --batch, --horizon)": pairs(shape, series, levels, batch, rows),
        **({f"the alarms of {series:,} series (--alarm-rate)": series * alarms(shape)} if raises else {}),
    }
    simulations = {
        "simulations of the past (--simulate, columns)": simulation(spec, ORIGINS, PATHS, steps)
        + 2 * series * steps * (len(spec.columns) + 2) * NUMBER
        + settings.bytes_of(shape)
    }
    return {
        **(simulations if steps else {}),
        "the rows that windows look back on (--lags, --season, --horizon)": windows(spec, series),
        "forecasts that wait for their truth (--horizon, --lags, columns)": ledger(shape, series, levels, batch, rows),
        "one micro-batch (--batch, --lags, --horizon)": micro_batch(shape, levels, together),
        "the windows that are fitted together (rows, --lags, --horizon)": kept(shape, min(fitted, rows)),
        **(of_fleet if spec.fleet else {}),
        f"{kinds} ({levers(settings, shape)})": settings.bytes_of(shape) * (series if spec.fleet else 1),
    }


def simulation(spec: WindowSpec, series: int, paths: int, steps: int) -> int:
    """P · S paths: their rings, K · O simulated values three times over, K given inputs; and the frame."""
    inputs = len(spec.columns) - len(spec.targets)
    one = windows(spec, 1) + steps * (3 * len(spec.targets) + inputs) * NUMBER
    return paths * series * one + 2 * series * steps * (inputs + 8) * NUMBER


def forecast(shape: Shape, series: int, levels: int) -> int:
    """S windows, and their T forecasts with 2 · K bounds twice over: as numbers and as rows of a table."""
    return series * (4 * shape.numbers + 2 * (PARAMETERS + 4 * levels + 6) * shape.columns) * NUMBER


def of_tuning(spec: WindowSpec, series: int, rows: int, read: int, dense: bool) -> dict[str, int]:
    """The parts of `tune`: n windows three times over, and six n × n matrices where the likelihood is factorised.

    Args:
        spec: of the windows.
        series: S.
        rows: n, windows that are tuned on.
        read: rows whose windows are made at a time.
        dense: whether matrices are factorised.
    """
    matrices = 6 * rows**2 * NUMBER if dense else 0
    return {
        "the windows that are tuned on (--rows, --lags, --horizon)": kept(spec.shape, rows) + matrices,
        "the rows that windows look back on (--lags, --season)": windows(spec, series),
        "the windows of a stretch of rows (--lags, --horizon)": micro_batch(spec.shape, 0, read),
    }


def slowness(shape: Shape) -> list[str]:
    """What to say before a run on wide windows: models of W² numbers take W³ operations a step, and no memory tells.

    Example:
        >>> slowness(Shape(targets=("y",), horizon=1, lags=2_500, past=("y",), future=()))
        ['windows of 2,500 numbers make slow steps, in the cube of their number: fewer --inputs, --lags or --horizon']
    """
    if shape.width < WIDE:
        return []
    return [
        f"windows of {shape.width:,} numbers make slow steps, in the cube of their number: "
        "fewer --inputs, --lags or --horizon"
    ]


def check(parts: Mapping[str, int], limit: int | None, instead: str = "") -> None:
    """Check that the estimates fit into the available memory.

    Args:
        parts: bytes by what they are for, such as "the ledger (--horizon)".
        limit: bytes that may be used; half of what is at hand when left out.
        instead: what else can be done.

    Raises:
        UsageError: they do not; the message names the largest parts.

    Example:
        >>> check({"windows": 10**9}, 10**8)
        Traceback (most recent call last):
        streamgp.errors.UsageError: this would take about 1.0 GB of memory, and 0.1 GB may be used: 1.0 GB for windows
    """
    total = sum(parts.values())
    allowed = int(SHARE * memory_at_hand()) if limit is None else limit
    if total <= allowed:
        return
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    named = ", ".join(f"{_size(size)} for {name}" for name, size in largest if size > total / 20)
    free = memory_at_hand()
    enough = f"--max-memory {math.ceil(total / 1e9)}GB would allow it"
    beyond = "" if total < free else f", but only {_size(free)} are at hand"
    raise UsageError(
        f"this would take about {_size(total)} of memory, and {_size(allowed)} may be used: {named}",
        hint=f"make what is named smaller; {instead}{enough}{beyond}",
    )


def _size(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 5e7 else f"{size / 1e6:,.1f} MB"
