"""The shell around a posterior: schedule, undoing, what is left out, warnings, state."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Shape, Step
from streamgp.errors import NumericalError
from streamgp.online.glitches import Spread
from streamgp.online.model import StreamModel
from streamgp.online.options import StreamOptions
from streamgp.online.posterior import Arrival, Look, Posterior, Rows, Units
from streamgp.testing.stateful import reborn

SHAPE = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))


class RunningMean(Posterior):
    """The weighted mean of the targets; fails where a test asks it to."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: Tensor
        self.register_buffer("sums", torch.zeros(3, dtype=FLOAT))  # weight, Σ y, Σ y²
        self.fails: set[str] = set()
        self.ratio = 1.0

    size = 1
    healthy = True

    @property
    def weight(self) -> Tensor:
        return self.sums[0]

    @property
    def signal(self) -> float:
        return self.ratio

    def look(self, z: Tensor) -> Look:
        weight = self.sums[0] + 1.0
        mean = (self.sums[1] / weight).expand(len(z), 1)
        noise = ((self.sums[2] + 1.0) / weight - mean[:1].square().sum()).clamp(min=1e-6)
        return Look(z, None, mean, torch.zeros_like(mean), noise.expand(1))

    def absorb(self, look: Look, arrival: Arrival) -> str:
        assert bool((look.mean == self.look(look.z).mean).all()), "the look is of another posterior"
        y = torch.nan_to_num(arrival.y)
        self.sums.mul_(arrival.kept).add_(torch.stack((torch.tensor(len(y)).to(FLOAT), y.sum(), y.square().sum())))
        if "sums" in self.fails:
            self.sums[1] *= 1e4
        if "absorb" in self.fails:
            raise NumericalError("no factor", hint="none")
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        y = torch.nan_to_num(rows.filled)[:, 0]
        self.sums.copy_(torch.stack((rows.weight.sum(), (rows.weight * y).sum(), (rows.weight * y.square()).sum())))
        if "sums" in self.fails:
            self.sums[1] += 1e9
        if "rebuild" in self.fails:
            raise NumericalError("no factor", hint="none")
        return f"{len(y)} rows kept"

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        self.rebuild(rows, units, generator)
        return False

    def loss(self) -> float:
        return 0.0


def built(**options: object) -> StreamModel:
    return StreamModel(RunningMean(), StreamOptions.model_validate({"reservoir": 50, "rebuild": 40} | options), SHAPE)


def rows(count: int, seed: int = 0) -> tuple[Inputs, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(count, 1, 1, generator=generator, dtype=FLOAT)
    return Inputs(u.new_zeros(count, 0, 2), u), 7.0 + torch.randn(count, 1, generator=generator, dtype=FLOAT)


def feed(model: StreamModel, x: Inputs, y: Tensor, batch: int = 10) -> list[Step]:
    parts = [slice(start, start + batch) for start in range(0, len(y), batch)]
    return [model.update(x.rows(part), y[part]) for part in parts]


def test_rebuilds_come_early_and_then_at_their_interval() -> None:
    steps = feed(built(), *rows(400))
    at = [10 * place for place, step in enumerate(steps) if step.done.startswith("rebuild")]
    assert at[:3] == [0, 20, 50] and {b - a for a, b in pairwise(at[3:])} == {40}
    assert steps[0].done == "rebuild: first windows; 10 rows kept"
    never = feed(built(rebuild=0), *rows(400))
    assert [step.done for step in never[1:]] == ["update"] * 39


@pytest.mark.parametrize("what", ["absorb", "rebuild"])
def test_what_fails_changes_nothing(what: str) -> None:
    model, (x, y) = built(), rows(300)
    feed(model, x.rows(slice(0, 200)), y[:200])
    model.posterior.fails = {"absorb", "rebuild"} if what == "rebuild" else {what}  # type: ignore[assignment]
    if what == "rebuild":
        model.tried -= 40  # it is due
    held = {name: tensor.clone() for name, tensor in model.state()[0].items()}
    step = model.update(x.rows(slice(200, 210)), y[200:210])
    assert not step.healthy and "undone: no factor" in step.done
    changed = {name for name, tensor in model.state()[0].items() if not torch.equal(tensor, held[name])}
    assert changed <= {"generator", "winsorise.excess"}


@pytest.mark.parametrize("due", [False, True])
def test_what_is_finite_and_absurd_is_undone_and_said(due: bool) -> None:
    model, (x, y) = built(), rows(300)
    feed(model, x.rows(slice(0, 200)), y[:200])
    model.posterior.fails = {"sums"}  # type: ignore[assignment]
    model.tried -= 40 * due
    before = model.predict(x)
    step = model.update(x.rows(slice(200, 210)), y[200:210] + 1.0)
    assert not step.healthy and "undone" in step.done and "spreads" in step.done
    assert torch.equal(model.predict(x).mean, before.mean)
    model.posterior.fails = set()  # type: ignore[assignment]
    assert model.update(x.rows(slice(210, 220)), y[210:220]).healthy
    with pytest.raises(NumericalError, match="spreads"):
        model.posterior.fails = {"sums"}  # type: ignore[assignment]
        list(model.fit(x, y, 1))


def test_a_level_that_jumps_and_stays_is_learned() -> None:
    model, (x, y) = built(), rows(600)
    y[200:] += 1e5
    steps = feed(model, x, y)
    assert all(step.healthy for step in steps)
    assert model.predict(x).mean.min() > 5e4  # a running mean of both levels


def test_after_a_failed_rebuild_rows_are_learned_and_the_next_rebuild_waits() -> None:
    failing, never = built(), built(rebuild=0)
    x, y = rows(400)
    for model in (failing, never):
        list(model.fit(x.rows(slice(0, 200)), y[:200], 1))
    failing.posterior.fails = {"rebuild"}  # type: ignore[assignment]
    steps = feed(failing, x.rows(slice(200, 300)), y[200:300])
    feed(never, x.rows(slice(200, 300)), y[200:300])
    assert [place for place, step in enumerate(steps) if not step.healthy] == [3, 7]
    assert all(step.done.endswith("update") for step in steps)
    assert torch.equal(failing.predict(x).mean, never.predict(x).mean)
    failing.posterior.fails = set()  # type: ignore[assignment]
    assert any(step.done.startswith("rebuild") for step in feed(failing, x.rows(slice(300, 400)), y[300:]))


def test_after_a_failed_rebuild_rows_are_learned_though_one_was_left_out() -> None:
    one, other = built(), built(rebuild=0)
    x, y = rows(250)
    for model in (one, other):
        list(model.fit(x.rows(slice(0, 200)), y[:200], 1))
    one.posterior.fails = {"rebuild"}  # type: ignore[assignment]
    x.future[205] = 1e200
    step = one.update(x.rows(slice(200, 250)), y[200:])
    assert not step.healthy and step.done.count("undone") == 2
    other.update(x.rows(slice(200, 250)), y[200:])
    assert one.seen == other.seen == 249 and torch.equal(one.predict(x).mean, other.predict(x).mean)


def test_a_glitch_is_winsorised_and_a_huge_value_not_observed() -> None:
    model, (x, y) = built(rebuild=0), rows(400)
    feed(model, x.rows(slice(0, 300)), y[:300])
    before = float(model.predict(x.rows(slice(0, 1))).variance)
    spoilt = y[300:310].clone()
    spoilt[3], spoilt[4], spoilt[5] = 1e9, torch.inf, 1e200
    assert model.update(x.rows(slice(300, 310)), spoilt).healthy
    assert float(model.predict(x.rows(slice(0, 1))).variance) < 1.2 * before


def test_little_signal_is_a_warning_of_the_model() -> None:
    model, (x, y) = built(), rows(50)
    assert not model.warnings()
    feed(model, x, y)
    assert not model.warnings()
    model.posterior.ratio = 0.001  # type: ignore[assignment]
    assert len(model.warnings()) == 1


def test_it_goes_on_bit_for_bit_from_its_state() -> None:
    one, (x, y) = built(), rows(300)
    feed(one, x.rows(slice(0, 150)), y[:150])
    other = reborn(one, built())
    for model in (one, other):
        feed(model, x.rows(slice(150, 300)), y[150:])
    assert torch.equal(one.predict(x).parameters(), other.predict(x).parameters())


def test_before_any_data_the_forecast_is_a_random_walk() -> None:
    shape = Shape(targets=("y",), horizon=2, lags=3, past=("y",), future=())
    model = StreamModel(RunningMean(), StreamOptions(), shape)
    past = torch.tensor([[[1.0], [2.0], [3.0]]], dtype=FLOAT)
    issued = model.predict(Inputs(past, past.new_zeros(1, 2, 0)))
    assert issued.mean.tolist() == [[3.0, 3.0]] and torch.allclose(issued.variance, torch.tensor([[1.0, 2.0]]).double())


@pytest.mark.parametrize("lags", [1, 20_000])
def test_quartiles_are_those_of_a_sample_of_long_windows(lags: int) -> None:
    values = torch.arange(200.0, dtype=FLOAT)[:, None, None].expand(200, lags, 1).clone()
    values[77, 0] = 1e9
    found = Spread.of(values[None], torch.tensor([True])).wild(values[None])[0]
    assert bool(found[77, 0, 0]) and int(found.sum()) == 1


def test_bursts_of_a_quiet_channel_are_learned() -> None:
    model, (x, y) = built(), rows(400)
    x.future[:] *= 0.01
    x.future[200::10] = 5.0  # 500 standard deviations of what came before
    assert all(step.healthy for step in feed(model, x, y)) and model.seen == 400
