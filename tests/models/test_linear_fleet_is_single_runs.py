"""The law of a fleet of linear models: its forecasts, states and reports are those of single models, 1e-9 apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Fleet, Inputs, Model, Predictive, Shape, Step
from streamgp.context import Context
from streamgp.models.linear import Config, build, build_fleet
from streamgp.predictives.mixed import Mixed
from streamgp.testing.models import SEASONS, SHAPES, example_windows
from streamgp.testing.stateful import check_stateful, reborn, same_bits

PLAIN = Shape(targets=("y", "z"), horizon=2, lags=3, past=("y", "z", "u"), future=("k",))
_, SEASON, TABLE = SHAPES
FAR = Shape(
    targets=("y",),
    horizon=14,
    lags=2,
    past=("y", "season(y)"),
    future=("season(y)",),
    season=6,
    context=Context((6,), 14, ("y",), (), ()),
)
"""Steps far ahead share coefficients."""
CASES: dict[str, tuple[Shape, dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "forgets": (PLAIN, {"memory": 200.0}),
    "student": (PLAIN, {"ridge": 3.0, "predictive": "student_t"}),
    "unlimited": (PLAIN, {"limit": None}),
    "level": (PLAIN, {"target": "level"}),
    "season": (SEASON, {"memory": 300.0}),
    "table": (TABLE, {}),
    "direct-forgets": (SEASONS, {"memory": 150.0}),
    "direct": (SEASONS, {}),
    "direct-unlimited": (SEASONS, {"ridge": 3.0, "limit": None}),
    "direct-far": (FAR, {}),
}
ROWS, FIT = 560, 300
"""Windows of each series, and those among them that `fit` takes: more than a direct regression takes at a time."""
LATE, YOUNG, FLAG, JUMP, STILL = 1, 2, 3, 4, 5
SERIES = 6
"""One is as it comes; others begin after the fit, have few windows then, a known input that is a flag, a level that
jumps, or a target that does not move."""


def own_stream(shape: Shape, code: int) -> tuple[Inputs, Tensor]:
    """Windows and truths of one series, with gaps among both, glitches, and what is its own."""
    generator = torch.Generator().manual_seed(code)
    x, y = example_windows(shape, ROWS, seed=code)
    if code == FLAG:
        _flag(shape, x)
    if code == JUMP:  # a level that moves at once, in truths, lags and references
        y[400:] += 500.0
        x.past[400 + shape.lags :, :, : shape.outputs] += 500.0
        for target in range(shape.outputs) if shape.context is not None else ():
            assert x.context is not None and shape.context is not None
            at = [n for n, entry in enumerate(shape.context.window) if entry.channel == target]
            x.context[412:, at] += 500.0
    if code == STILL:
        y[:350] = 7.0
    size = 10.0 ** (code - 2)
    x.past[..., : shape.outputs] *= size
    y *= size
    if x.context is not None and shape.context is not None:
        count = len(shape.context.window)
        for at, entry in enumerate(shape.context.window):
            x.context[:, at] *= size if entry.channel < shape.outputs else 1.0
        for at, entry in enumerate(shape.context.steps):
            if entry.channel < shape.outputs:
                x.context[:, count + at :: shape.context.per_step] *= size
        x.context[torch.rand(x.context.shape, generator=generator) < 0.002] = torch.nan
        x.context[5::60, 0] = 1e9
        x.context[7::90, 3] = 1e170
    y[torch.rand(y.shape, generator=generator) < 0.05] = torch.nan
    y[torch.rand(ROWS, generator=generator) < 0.03] = torch.nan
    y[torch.rand(ROWS, generator=generator) < 0.01] *= 1e6
    y[torch.rand(ROWS, generator=generator) < 0.01, 0] = 1e170
    if shape.lags:
        x.past[torch.rand(x.past.shape, generator=generator) < 0.01] = torch.nan
        x.past[torch.rand(ROWS, generator=generator) < 0.01, -1, 0] = 1e5 * size
        x.past[torch.rand(ROWS, generator=generator) < 0.005, -1, 0] = 1e170
    return x, y


def _flag(shape: Shape, x: Inputs) -> None:
    if x.context is None or shape.context is None or not shape.context.known:
        return
    known, count = len(shape.targets) + len(shape.context.inputs), len(shape.context.window)
    steps = [entry.channel == known for entry in shape.context.steps] + [False] * Context.PHASES
    flag = [entry.channel == known for entry in shape.context.window] + steps * shape.horizon
    assert any(flag) and len(flag) == count + shape.horizon * len(steps)
    x.context[:, flag] = (x.context[:, flag] > 0).to(FLOAT)


def batches(shape: Shape) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
    """Windows, truths and codes of all series in order of time: those of the fit, then of updates of any size."""
    parts = [own_stream(shape, code) for code in range(SERIES)]
    series, place = torch.arange(SERIES).repeat(ROWS), torch.arange(ROWS).repeat_interleave(SERIES)
    x, y = Inputs.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    first = torch.zeros(SERIES, dtype=torch.int64)
    first[LATE], first[YOUNG] = FIT + 30, FIT - 17
    stops = (FIT, FIT + 1, FIT + 30, FIT + 31, FIT + 90, FIT + 91, 420, 470, ROWS)
    for start, stop in zip((0, *stops), stops, strict=False):
        there = (place >= start) & (place < stop) & (place >= first[series])
        there &= (series != 0) | (stop != 420)  # not in every batch
        own = series[there] * ROWS + place[there]
        yield x.rows(own), y[own], series[there]


def close(found: Tensor, expected: Tensor, unit: float, what: str) -> None:
    """1e-9 of the largest value of a tensor; of squares that are 0 but for rounding, in units of their series."""
    size = float(expected.nan_to_num(0.0, 0.0, 0.0).abs().max()) if expected.numel() else 0.0
    atol = max(1e-9 * size, (1e-12 * unit) ** 2)
    torch.testing.assert_close(
        found, expected, rtol=1e-9, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )


def forecasts_agree(parameters: Tensor, expected: Predictive) -> None:
    """Means and scales, 1e-9 of the largest of either; and parts of the variance, but for rounding of the mean."""
    found = type(expected).from_parameters(parameters)

    def near(one: Tensor, other: Tensor, room: float | Tensor) -> bool:
        return bool(
            (torch.isclose(one, other, rtol=1e-9, atol=0.0, equal_nan=True) | ((one - other).abs() <= room)).all()
        )

    size = expected.mean.abs() + expected.variance.sqrt()
    size = torch.where(size < 1e100, size, 0.0).amax(0) if len(size) else 0.0  # not of a lag that is a glitch
    assert near(found.mean, expected.mean, 1e-9 * size)
    assert near(found.variance.sqrt(), expected.variance.sqrt(), 1e-9 * size)
    assert near(found.latent_variance, expected.latent_variance, (1e-5 * size) ** 2)
    if isinstance(found, Mixed) and isinstance(expected, Mixed):
        assert near(found.experts, expected.experts, 1e-9 * size)


def own_state(fleet: Fleet, code: int) -> dict[str, Tensor]:
    """The tensors of a series, views; none where it has not begun."""
    tensors = fleet.state()[0]
    if "where" not in tensors:
        return {name: part[code] for name, part in tensors.items()}
    at, place = tensors["where"][code].tolist() if code < len(tensors["where"]) else (-1, 0)
    return {name.removeprefix(f"{at}."): part[place] for name, part in tensors.items() if name.startswith(f"{at}.")}


def states_agree(fleet: Fleet, code: int, model: Model) -> None:
    """Each tensor of the state of a series is that of its own model."""
    tensors = own_state(fleet, code)
    if not tensors:
        assert "rows" not in model.state()[0] or not model.state()[0]["rows"]
        return
    for name, part in model.state()[0].items():
        if not name.endswith("penalties"):
            close(tensors[name], part, 50.0 * 10.0 ** (code - 2), name)


def steps_agree(found: Step, expected: Step) -> None:
    assert found[1:] == expected[1:]
    assert found.loss == pytest.approx(expected.loss, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_fleet_is_single_runs(case: str) -> None:
    shape, options = CASES[case]
    config = Config(**options)

    def fresh() -> Fleet:
        return build_fleet(config, shape, torch.device("cpu"))

    fleet, alone = fresh(), [build(config, shape) for _ in range(SERIES)]
    for turn, (x, y, series) in enumerate(batches(shape)):
        issued = fleet.predict(x, series)
        expected = [alone[code].predict(x.rows(series == code)) for code in range(SERIES)]
        steps = fleet.fit(x, y, series) if not turn else fleet.update(x, y, series, issued)
        for code, step in zip(series.unique().tolist(), steps, strict=True):
            own, model = series == code, alone[code]
            forecasts_agree(issued[:, own], expected[code])
            args = x.rows(own), y[own]
            steps_agree(step, next(iter(model.fit(*args, 1))) if not turn else model.update(*args, expected[code]))
            states_agree(fleet, code, model)
        if turn in (0, 4):
            fleet = reborn(fleet, fresh())
            alone = [reborn(model, build(config, shape)) for model in alone]


@pytest.mark.parametrize(("shape", "rows", "well"), [(PLAIN, 4200, [True, False]), (SEASONS, 500, [False, False])])
def test_what_has_no_factor_in_a_fit_is_undone_as_in_single_runs(shape: Shape, rows: int, well: list[bool]) -> None:
    """Next to no ridge, and a level far off after the windows that a fit takes first: columns are all the same but for
    rounding. Those of seasons are so from the start."""
    config, parts = Config(ridge=1e-300), []
    for code in range(2):
        x, y = example_windows(shape, rows, seed=code)
        if code:
            x.past[4100:] += 1e11
            y[4100:] += 1e11
        parts.append((x, y))
    x, y = Inputs.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    series = torch.arange(2).repeat_interleave(len(parts[0][1]))
    fleet, alone = build_fleet(config, shape, torch.device("cpu")), [build(config, shape) for _ in range(2)]
    steps = fleet.fit(x, y, series)
    expected = [next(iter(model.fit(*part, 1))) for model, part in zip(alone, parts, strict=True)]
    for code, (step, wanted) in enumerate(zip(steps, expected, strict=True)):
        steps_agree(step, wanted)
        states_agree(fleet, code, alone[code])
    assert [step.healthy for step in steps] == well


def fitted(shape: Shape, **options: Any) -> tuple[Fleet, tuple[Inputs, Tensor, Tensor]]:
    """A fleet after the fit of series that all have windows, and the windows of the next batch but two."""
    fleet, (first, *rest) = build_fleet(Config(**options), shape, torch.device("cpu")), list(batches(shape))
    fleet.fit(*first)
    return fleet, rest[3]


@pytest.mark.parametrize("shape", [PLAIN, SEASONS])
def test_a_series_that_is_not_there_keeps_its_bits(shape: Shape) -> None:
    fleet, (x, y, series) = fitted(shape)
    before = [{name: part.clone() for name, part in own_state(fleet, code).items()} for code in range(SERIES)]
    there = series == FLAG
    fleet.update(x.rows(there), y[there], series[there], fleet.predict(x, series)[:, there])
    same = [
        all(same_bits(part, before[code][name]) for name, part in own_state(fleet, code).items())
        for code in range(SERIES)
    ]
    assert same == [code != FLAG for code in range(SERIES)]


@pytest.mark.parametrize(
    ("shape", "forged", "kept"),
    [
        (PLAIN, {"gram": 1.7e308}, "cross"),
        (
            SEASONS,
            {
                "regression.sums.passed": 1.0,
                "regression.sums.new_gram": 1.7e308,
                "regression.sums.new_cross": torch.inf,
            },
            "mixer.moments",
        ),
    ],
)
def test_sums_that_overflow_change_nothing_of_their_series_and_are_told(
    shape: Shape, forged: dict[str, float], kept: str
) -> None:
    fleet, (x, y, series) = fitted(shape, limit=None)
    own, tensors = own_state(fleet, FLAG), fleet.state()
    for name, value in forged.items():
        own[name][...] = value
    before = own[kept].clone()
    fleet.restore(*tensors)
    steps = fleet.update(x, y, series, fleet.predict(x, series))
    told = dict(zip(series.unique().tolist(), steps, strict=True))
    assert [code for code, step in told.items() if "undone: the" in step.done] == [FLAG]
    assert same_bits(own_state(fleet, FLAG)[kept], before)


@pytest.mark.parametrize("shape", [PLAIN, pytest.param(SEASONS, marks=pytest.mark.slow)])
def test_it_goes_on_from_its_state_bit_for_bit(shape: Shape) -> None:
    rows = list(batches(shape))

    def advance(fleet: Fleet, turn: int) -> Tensor:
        x, y, series = rows[turn]
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(turn))  # in no order of the series
        x, y, series = x.rows(order), y[order], series[order]
        fleet.update(x, y, series, fleet.predict(x, series))
        return fleet.predict(x, series)

    check_stateful(lambda: build_fleet(Config(), shape, torch.device("cpu")), advance, 6, same_bits)


def test_truths_that_are_missing_are_no_glitches_of_their_series() -> None:
    parts = [example_windows(SEASONS, ROWS, seed=code) for code in range(2)]
    x, y = Inputs.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    y[::50] = torch.nan
    fleet = build_fleet(Config(), SEASONS, torch.device("cpu"))
    assert all(step.healthy for step in fleet.fit(x, y, torch.arange(2).repeat_interleave(ROWS)))
