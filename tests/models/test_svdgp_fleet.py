"""Many SVDGP on a shared kernel and basis: each is the regression on these that it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import NotPositiveDefinite
from streamgp.models.svdgp import Config, SharedFleet
from streamgp.models.svdgp.conjugate import NEAR, Conjugate
from streamgp.models.svdgp.shared import SharedKernels
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference
from streamgp.online.reservoir import Reservoir
from streamgp.online.scaling import Standardiser
from streamgp.regression import additive
from streamgp.regression.additive import root
from streamgp.testing.stateful import check_stateful, same_bits

SHAPE = Shape(targets=("y", "z"), horizon=2, lags=3, past=("y", "z", "u"), future=("k",))
SERIES = 4
SMALL: dict[str, Any] = {"basis": 16, "reservoir": 64, "evidence_rows": 30, "shared": True}


def batch(seed: int, rows: int, gaps: float = 0.0) -> tuple[Inputs, Tensor, Tensor]:
    """Windows of some of the series, each of its own size, their truths and codes."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=FLOAT)

    series = torch.randint(SERIES, (rows,), generator=generator)
    size = 10.0 ** (series.to(FLOAT) - 2.0)
    x = Inputs(normal(rows, 3, 3) * size[:, None, None], normal(rows, 2, 1))
    y = 0.9 * x.past[:, -1, :2].repeat_interleave(2, 1) + (0.3 * normal(rows, 4) + x.future[:, :1, 0]) * size[:, None]
    y[torch.rand(y.shape, generator=generator) < gaps] = torch.nan
    return x, y, series


class Alone:
    """One series from the parts of a single model, on a kernel and basis that are given; an oracle."""

    def __init__(self, kernel: Conjugate, x: Inputs, y: Tensor, weight: Tensor) -> None:
        self.reference, self.inputs = LearnedReference(SHAPE, 0.9), KernelInputs(SHAPE)
        self.outputs = Standardiser(SHAPE.columns)
        self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)
        self.own = Conjugate(len(self.inputs.groups), SHAPE.columns, 16, linear=False)
        self.own.begin(kernel.points / kernel.inverse, kernel.inverse, kernel.outputscale, kernel.noise)
        self.absorb(x, y, weight, 1.0)

    def absorb(self, x: Inputs, y: Tensor, weight: Tensor, kept: float) -> None:
        target = (y - self.reference(x) - self.outputs.location) / self.outputs.scale
        self.own.absorb(self.own.features(self.inputs(x)), target, weight, kept)
        self.own.solve()

    def predict(self, x: Inputs) -> Tensor:
        phi = self.own.features(self.inputs(x))
        shift = self.reference(x) + self.outputs.location
        square = self.outputs.scale.square()
        latent = self.own.variance(phi) * square
        return torch.stack(
            (self.own.mean(phi) * self.outputs.scale + shift, latent, (self.own.residual * square).expand_as(latent))
        )


def test_each_series_is_the_regression_that_it_would_be_alone() -> None:
    fleet = SharedFleet(Config(**SMALL, linear=False, limit=None, memory=100), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    kernel = fleet.shared.kernels[0]
    alone = []
    for code in range(SERIES):
        own = series == code
        alone.append(Alone(kernel, x.rows(own), y[own], torch.ones(int(own.sum()), dtype=FLOAT)))
    for turn in range(3):
        more, truth, of = batch(10 + turn, 40)  # too few for a rebuild
        steps = fleet.update(more, truth, of)
        assert [step.done for step in steps] == ["update"] * len(of.unique())
        for code in of.unique().tolist():
            own = of == code
            rows = int(own.sum())
            kept = float(torch.exp(torch.tensor(-rows / 100.0, dtype=FLOAT)))
            alone[code].absorb(more.rows(own), truth[own], torch.ones(rows, dtype=FLOAT), kept)
    asked, _, of = batch(99, 50)
    found = fleet.predict(asked, of)
    for code in range(SERIES):
        own, size = of == code, 10.0 ** (code - 2)
        torch.testing.assert_close(
            found[0][:, :][own], alone[code].predict(asked.rows(own))[0], rtol=1e-7, atol=1e-8 * size
        )
        expected = alone[code].predict(asked.rows(own))[1:]
        torch.testing.assert_close(found[1:, own], expected, rtol=1e-6, atol=1e-8 * size**2)


def test_a_rebuild_learns_the_reservoir_with_its_weights() -> None:
    config = Config(**SMALL, linear=False, limit=None, memory=100)
    fleet = SharedFleet(config, SHAPE)
    x, y, series = batch(0, 200)
    series[:] = 0
    fleet.fit(x, y, series)
    more, truth, of = batch(1, 170)
    of[:] = 0
    (step,) = fleet.update(more.rows(slice(120)), truth[:120], of[:120])
    assert step.done == "update"
    (step,) = fleet.update(more.rows(slice(120, 170)), truth[120:], of[120:])
    assert step.done == "rebuild: 170 rows" and step.healthy
    state = fleet.state()[0]
    order = state["series.memory.arrival"][0].argsort()
    for name in ("past", "future", "y", "key", "arrival"):
        state[f"series.memory.{name}"] = state[f"series.memory.{name}"][:, order]
    held = state["series.memory.key"][0].isfinite()
    assert int(held.sum()) == 64 and float(state["series.memory.seen"][0]) == 370.0
    places = state["series.memory.arrival"][0].long()
    both = torch.cat([y, truth])
    torch.testing.assert_close(state["series.memory.y"][0], both[places])
    assert bool((places.diff() > 0).all()), "each once"
    rows = Inputs(state["series.memory.past"][0], state["series.memory.future"][0])
    own = Reservoir(64, SHAPE, 100.0)
    own.load_state_dict(
        {
            "past": rows.past,
            "future": rows.future,
            "y": state["series.memory.y"][0],
            "key": state["series.memory.key"][0],
            "arrival": places,
            "seen": torch.tensor(370),
            "threshold": state["series.memory.threshold"][0],
        }
    )
    alone = Alone(fleet.shared.kernels[max(fleet.shared.kernels)], rows, state["series.memory.y"][0], own.shares())
    asked = batch(5, 30)[0]
    found = fleet.predict(asked, torch.zeros(30, dtype=torch.int64))
    torch.testing.assert_close(found, alone.predict(asked), rtol=1e-6, atol=1e-8)


def test_a_sample_estimates_for_all_and_old_kernels_go() -> None:
    fleet = SharedFleet(Config(**SMALL), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    assert list(fleet.shared.kernels) == [0]
    for seed, rows in ((1, 300), (2, 100)):
        x, y, series = batch(seed, rows)
        steps = fleet.update(x, y, series)
    assert all(step.done.startswith("rebuild") for step in steps) and list(fleet.shared.kernels) == [1]


@pytest.mark.parametrize("learn", ["rebuild", "once"])
def test_hyper_parameters_are_estimated_again_unless_they_are_learned_once(learn: str) -> None:
    fleet = SharedFleet(Config(**SMALL, learn=learn), SHAPE)
    fleet.fit(*batch(0, 400))
    first = fleet.shared.hyper
    for seed, rows in ((1, 300), (2, 100)):
        fleet.update(*batch(seed, rows))
    assert list(fleet.shared.kernels) == [1] and first is not None and fleet.shared.hyper is not None
    assert torch.equal(first, fleet.shared.hyper) is (learn == "once")


@pytest.mark.parametrize("moves", [False, True])
def test_rebuilds_of_a_settled_series_come_in_proportion_to_its_length(moves: bool) -> None:
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
    fleet = SharedFleet(Config(basis=16, reservoir=128, evidence_rows=30, rebuild=128, shared=True), shape)
    u = 2.0 * torch.rand(1536, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    u = u + moves * torch.linspace(0.0, 12.0, 1536, dtype=FLOAT)
    done = list[str]()
    for own in u.split(64):
        x, one = Inputs(own.new_zeros(64, 0, 2), own.view(64, 1, 1)), torch.zeros(64, dtype=torch.int64)
        done += [step.done for step in fleet.update(x, own.sin()[:, None], one)]
    rebuilt = [text for text in done if text.startswith("rebuild")]
    assert (rebuilt == ["rebuild: 128 rows"] * len(rebuilt)) is moves and (len(rebuilt) > 9) is moves


def test_it_forecasts_before_it_is_fitted_and_passes_what_is_broken() -> None:
    fleet = SharedFleet(Config(**SMALL), SHAPE)
    x, y, series = batch(0, 800, gaps=0.1)
    before = fleet.predict(x, series)
    assert bool(before.isfinite().all()) and bool((before[1:] >= 0).all())
    fleet.fit(x, y, series)
    held = fleet.state()[0]
    x, y, series = batch(1, 40, gaps=0.1)
    x.past[series == 2, -1, 0] = 1e170
    x.past[series == 1, -1, 0] = 1e9
    steps = fleet.update(x, y, series)
    assert ["undone" in step.done for step in steps] == [False, True, True, False]
    after = fleet.state()[0]
    for code, same in ((1, True), (2, True), (3, False)):
        assert same_bits(held["series.memory.y"][code], after["series.memory.y"][code]) is same
    assert bool(fleet.predict(x.rows(series != 2), series[series != 2]).isfinite().all())


def test_a_series_that_fails_changes_nothing_of_others() -> None:
    fleet = SharedFleet(Config(**SMALL, rebuild=0), SHAPE)
    x, y, series = batch(0, 400)
    fleet.fit(x, y, series)
    tensors, rest = fleet.state()
    tensors["series.posterior.regression.moment"][3] = torch.inf
    fleet.restore(tensors, rest)
    x, y, series = batch(1, 100)
    steps = fleet.update(x, y, series)
    assert [step.healthy for step in steps] == [True, True, True, False] and "undone" in steps[3].done
    assert same_bits(
        tensors["series.posterior.regression.outer"][3], fleet.state()[0]["series.posterior.regression.outer"][3]
    )


def test_an_error_of_all_series_at_once_is_told_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = SharedFleet(Config(**SMALL, rebuild=0), SHAPE)
    fleet.fit(*batch(0, 400))

    def fail(*given: Any) -> Tensor:
        raise NotPositiveDefinite("no factor")

    monkeypatch.setattr(additive, "root", fail)
    held = fleet.state()[0]["series.posterior.regression.outer"].clone()
    steps = fleet.update(*batch(1, 100))
    assert [step.done for step in steps] == ["update; undone: no factor"] * SERIES
    assert same_bits(held, fleet.state()[0]["series.posterior.regression.outer"])


def due() -> tuple[SharedFleet, tuple[Inputs, Tensor, Tensor]]:
    """A fleet, and windows with which all of its series are rebuilt."""
    fleet = SharedFleet(Config(**SMALL), SHAPE)
    fleet.fit(*batch(0, 400))
    fleet.update(*batch(1, 300))
    return fleet, batch(2, 100)


def test_a_rebuild_that_fails_is_told_and_the_rows_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, windows = due()
    calls, found = list[int](), additive.root

    def failing(*given: Any) -> tuple[Tensor, Tensor]:
        factor, failed = found(*given)
        calls.append(len(factor))
        return factor, failed if len(calls) == 1 else torch.ones_like(failed)

    monkeypatch.setattr(additive, "root", failing)
    before = fleet.state()[0]["series.memory.seen"].clone()
    steps = fleet.update(*windows)
    assert len(calls) == 2 and not any(step.healthy for step in steps)
    assert all("rows; undone: " in step.done and step.done.endswith("; update") for step in steps)
    assert bool((fleet.state()[0]["series.memory.seen"] > before).all())


def test_a_state_larger_than_what_is_learned_together_is_rebuilt_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, windows = due()
    monkeypatch.setattr("streamgp.models.svdgp.fleet.NEAR", 1)
    assert all(step.healthy and step.done.startswith("rebuild: ") for step in fleet.update(*windows))


def test_what_is_missing_is_filled_in_by_the_kernel_of_its_own_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two series of different kernels are rebuilt together as they are one after the other."""

    def rebuilt(near: int | None) -> Tensor:
        fleet = SharedFleet(Config(**SMALL | {"rebuild": 40}), SHAPE)
        x, y, series = batch(12, 300, 0.2)
        fleet.fit(x, y, series)
        x, y, series = batch(13, 100, 0.2)
        own = series == 0
        for _ in range(2):
            fleet.update(x.rows(own), y[own], series[own])
        codes = torch.tensor([1, 0])
        assert len(fleet._generation(codes).unique()) == 2
        with monkeypatch.context() as patched:
            if near is not None:
                patched.setattr(SharedFleet, "_near", near)
            fleet._rebuild(codes)
        x, _, series = batch(14, 60)
        return fleet.predict(x, series)

    torch.testing.assert_close(rebuilt(None), rebuilt(1), rtol=1e-9, atol=1e-9)


def test_a_rebuild_mends_a_series_that_fails() -> None:
    fleet, windows = due()
    tensors, rest = fleet.state()
    tensors["series.posterior.regression.moment"][3] = torch.inf
    fleet.restore(tensors, rest)
    steps = fleet.update(*windows)
    assert [step.healthy for step in steps] == [True, True, True, False]
    assert steps[3].done.startswith("rebuild: ") and "; update; undone: " in steps[3].done
    assert all(step.healthy for step in fleet.update(*batch(3, 40)))


def test_what_is_finite_and_absurd_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = SharedFleet(Config(**SMALL, rebuild=0), SHAPE)
    fleet.fit(*batch(0, 400))
    held, settle = fleet.state()[0], additive.settle

    def off(state: additive.Held, *given: Any, **options: Any) -> None:
        settle(state, *given, **options)
        state["coefficients"][1] *= 1e6

    monkeypatch.setattr(additive, "settle", off)
    steps = fleet.update(*batch(1, 100))
    assert [step.healthy for step in steps] == [True, False, True, True]
    assert "spreads of the target off" in steps[1].done
    assert same_bits(
        held["series.posterior.regression.outer"][1], fleet.state()[0]["series.posterior.regression.outer"][1]
    )


def test_a_fit_tells_what_it_leaves_out() -> None:
    x, y, series = batch(0, 400)
    first = (series == 2).nonzero()[:3, 0]
    x.past[first, 0, 0] = 1e170
    steps = SharedFleet(Config(**SMALL), SHAPE).fit(x, y, series)
    assert [step.done for step in steps if not step.healthy] == ["epoch; undone: 3 windows hold values beyond 1e+150"]


@pytest.mark.parametrize(("rows", "near"), [(200, False), (800, True)])
def test_a_value_is_a_glitch_once_its_series_is_settled(rows: int, near: bool) -> None:
    fleet = SharedFleet(Config(**SMALL), SHAPE)
    fleet.fit(*batch(0, rows))
    x, _, series = batch(1, 40)
    x.past[:, -1, 0] = 1e9
    assert bool((fleet.predict(x, series)[0, :, :2].abs() < 1e6).all()) is near


@pytest.mark.sampled
@pytest.mark.parametrize("linear", [False, True])
def test_it_goes_on_from_its_state_bit_for_bit(linear: bool) -> None:
    def advance(fleet: SharedFleet, turn: int) -> Tensor:
        x, y, series = batch(turn, 120)
        fleet.update(x, y, series)
        return fleet.predict(x, series)

    check_stateful(lambda: SharedFleet(Config(**SMALL, linear=linear), SHAPE), advance, 5, torch.equal)


def test_the_factor_of_a_series_does_not_depend_on_which_others_are_factorised_with_it() -> None:
    phi = torch.randn(5, 60, 32, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
    outer, noise = phi.mT @ phi, torch.tensor(0.3, dtype=FLOAT)
    together, _ = root(outer, noise)
    torch.testing.assert_close(together @ together.mT, torch.eye(32, dtype=FLOAT) + outer / noise)
    assert all(torch.equal(together[k], root(outer[k : k + 1], noise)[0][0]) for k in range(5))


def test_one_series_needs_a_fleet() -> None:
    with pytest.raises(ValueError, match="closed form"):
        Config(shared=True, inference="gradient")


@pytest.mark.parametrize("linear", [False, True])
def test_features_of_many_rows_are_those_of_the_kernel(linear: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2 * NEAR + 7, 3, dtype=FLOAT, generator=generator)
    kernel = Conjugate(3, 1, 20, linear)
    scales = torch.tensor([0.5, 1.0, 2.0], dtype=FLOAT)
    kernel.begin(z[:20], scales, torch.tensor(1.7, dtype=FLOAT), torch.tensor(0.2, dtype=FLOAT))
    columns = 24 + kernel.explicit
    found, gap = kernel.spanned(z, columns)
    expected = kernel.features(z)
    torch.testing.assert_close(found[:, : expected.shape[1]], expected, rtol=0.0, atol=1e-10)
    assert found.shape[1] == columns and not bool(found[:, expected.shape[1] :].any())
    torch.testing.assert_close(gap, kernel.unexplained(expected), rtol=0.0, atol=1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("horizon", [1, 3])
def test_windows_that_were_forecast_just_before_are_learned_as_others_are(
    monkeypatch: pytest.MonkeyPatch, horizon: int
) -> None:
    shape = Shape(targets=("y",), horizon=horizon, lags=2, past=("y",), future=())
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 90 + horizon, generator=generator, dtype=FLOAT).cumsum(1)
    windows, truths = values.unfold(1, 2, 1)[:, :90, :, None], values.unfold(1, horizon, 1)[:, 2:]

    def rows(start: int, stop: int) -> tuple[Inputs, Tensor, Tensor]:
        past = windows[:, start:stop].flatten(0, 1)
        own = torch.arange(3).repeat_interleave(stop - start)
        return Inputs(past, past.new_zeros(len(past), horizon, 0)), truths[:, start:stop].flatten(0, 1), own

    computed, features = list[int](), SharedKernels.features

    def spy(kernels: SharedKernels, number: int, z: Tensor) -> tuple[Tensor, Tensor]:
        computed.append(z.shape[1])
        return features(kernels, number, z)

    monkeypatch.setattr(SharedKernels, "features", spy)
    config = Config(basis=8, reservoir=32, evidence_rows=20, shared=True, rebuild=0)
    asking, silent = SharedFleet(config, shape), SharedFleet(config, shape)
    for fleet in (asking, silent):
        fleet.fit(*rows(0, 40))
    asked = rows(40, 80)
    asking.predict(asked[0], asked[2])
    learned = rows(40 - horizon, 80 - horizon)
    computed.clear()
    for fleet in (asking, silent):
        fleet.update(*learned)
    assert computed == [horizon, 40]
    for name, part in asking.state()[0].items():
        torch.testing.assert_close(part, silent.state()[0][name], rtol=1e-9, atol=1e-9, equal_nan=True)
    asking.predict(asked[0], asked[2])
    learned[0].past[5] += 1.0  # not what was asked
    computed.clear()
    asking.update(*learned)
    assert computed == [40]


def test_a_state_of_another_shape_is_refused_and_changes_nothing() -> None:
    fleet = SharedFleet(Config(**SMALL), SHAPE)
    fleet.fit(*batch(0, 400))
    tensors, rest = fleet.state()
    before = fleet.predict(batch(1, 40)[0], batch(1, 40)[2])
    forged: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "shape": ({"series.memory.y": tensors["series.memory.y"][:, :9]}, {}, r"series.memory.y is \(4, 9, 4\)"),
        "series": (
            {"series.winsorise.far": tensors["series.winsorise.far"][:2]},
            {},
            "series.winsorise.far is of 2 series, not 4",
        ),
        "generation": (
            {"series.posterior.generation": tensors["series.posterior.generation"] + 7.0},
            {},
            "series.posterior.generation has",
        ),
        "unknown": ({"series.more": tensors["series.winsorise.far"]}, {}, "series.more is not known"),
        "made": ({}, {"made": "x"}, "made is 'x'"),
        "kernel": (
            {
                "shared.0.outer": tensors["shared.0.outer"][:, 1:],
                "series.posterior.regression.moment": 2.0 * tensors["series.posterior.regression.moment"],
            },
            {},
            "outer is",
        ),
        "none": (
            {"series.winsorise.far": tensors["series.winsorise.far"].new_zeros(())},
            {},
            "series.winsorise.far is",
        ),
    }
    for changed, more, message in forged.values():
        with pytest.raises(ValueError, match=message):
            fleet.restore(tensors | changed, rest | more)
        assert torch.equal(fleet.predict(batch(1, 40)[0], batch(1, 40)[2]), before)
