"""Alternating training: unbiased steps, Algorithms 1 and 2, full batch, resuming, and that it learns."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from streamgp.encoders import BoundedEncoder, Layout, mlp
from streamgp.errors import UsageError
from streamgp.kernels import squared_exponential
from streamgp.models.deep import alternating
from streamgp.models.deep.alternating import Alternating, AlternatingConfig, Bound
from streamgp.objectives.evidence import estimate
from streamgp.solvers import Solver, exact, kiss
from tests.models.deep_training_toys import LAGS, Toy, no_encoder, rows, same, toy
from tests.objectives.oracles_deep_kernel import dense_nlml
from tests.words import naming

SCHEMES = ("majoriser", "algorithm2", "submatrix", "full")
STALE = ("majoriser", "algorithm2", "submatrix")


def weights(at: Toy) -> list[Tensor]:
    return list(at.training.weights.parameters.values())


def dense(at: Toy) -> Tensor:
    """() NLML per row with a graph in everything."""
    solver = at.training.solver
    return dense_nlml(solver.kernel, solver.noise, at.training.encoder(at.z), at.y) / len(at.y)


def flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


class OnlyPosterior(Solver):
    """A solver with nothing beyond the contract, as `kiss` is: everything must come from its posterior."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.kernel, len(inner.log_noise), 0.1, 1e-4)
        self.inner = inner
        self.log_noise = inner.log_noise

    def data(self) -> Any:
        return self.inner.data()

    def nlml(self, data: Any) -> Tensor:
        value: Tensor = self.inner.nlml(data)
        return value

    def condition(self, data: Any) -> Any:
        return self.inner.condition(data)


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", STALE)
def test_mini_batch_gradients_average_to_the_full_gradient(scheme: Any) -> None:
    """For rows and majoriser over one partition, exactly; for the sub-matrix over 1500 draws, |z| < 5 each."""
    at = toy(n=24, columns=2)
    solver, encoder = at.training.solver, at.training.encoder
    with torch.no_grad():
        h = encoder(at.z)
    data = solver.data()
    data.add(h, at.y)
    bound = Bound(solver.condition(data))
    loss_of = (
        None
        if scheme == "majoriser"
        else estimate("submatrix" if scheme == "submatrix" else "rows", solver, data, h, at.y)
    )
    expected = flat(torch.autograd.grad(dense(at), weights(at)))

    def gradient(rows: Tensor) -> Tensor:
        if loss_of is None:
            loss = bound(encoder, (at.z[rows], at.y[rows]), len(rows), at.generator)
        else:
            loss = loss_of(encoder(at.z[rows]), rows)
        return flat(torch.autograd.grad(loss, weights(at)))

    if scheme != "submatrix":
        parts = torch.randperm(24, generator=at.generator).split(6)
        found = torch.stack([gradient(rows) for rows in parts]).mean(0)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        return
    draws = torch.stack([gradient(torch.randperm(24, generator=at.generator)[:8]) for _ in range(1500)])
    error, spread = (draws.mean(0) - expected).abs(), draws.std(0)
    moves = spread > 1e-12  # a stationary kernel does not see the last bias: 0 here and there, but for rounding
    assert (~moves).sum() == 2 and error[~moves].max() < 1e-12
    assert (error[moves] / (spread[moves] / len(draws) ** 0.5)).max() < 5


@pytest.mark.parametrize("bare", [False, True])
def test_full_is_the_joint_gradient(bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternating, "CHUNK", 17)
    at = toy(n=40, columns=2, scheme="full", full_steps=1)
    if bare:
        training = Alternating(at.training.encoder, OnlyPosterior(at.training.solver), at.training.config)
        at = at._replace(training=training)
    moved = [*weights(at), *at.training.hyperparameters.parameters.values()]
    expected = flat(torch.autograd.grad(dense(at), moved))
    taken: list[Tensor] = []
    for part in (at.training.weights, at.training.hyperparameters):
        monkeypatch.setattr(part.adam, "step", lambda known, rate: taken.extend(known))
    loss = at.epoch()
    found = flat(tuple(taken))
    cut = sum(p.numel() for p in at.training.hyperparameters.parameters.values())
    torch.testing.assert_close(torch.cat([found[cut:], found[:cut]]), expected, rtol=1e-9, atol=1e-9)
    assert abs(loss - dense(at).item()) < 1e-9


@pytest.mark.parametrize("scheme", STALE)
def test_a_delay_of_one_takes_fresh_gradients(scheme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1: before every mini-batch the kernel is that of the weights of the moment."""
    at = toy(n=24, scheme=scheme, delay=1, batch=24)  # a mini-batch is all rows: its gradient is exact
    step, steps = at.training.weights.adam.step, []

    def watch(known: list[Tensor], rate: float) -> None:
        fresh = flat(torch.autograd.grad(dense(at), weights(at)))
        torch.testing.assert_close(flat(tuple(known)), fresh, rtol=1e-8, atol=1e-9)
        steps.append(rate)
        step(known, rate)

    monkeypatch.setattr(at.training.weights.adam, "step", watch)
    for _ in range(4):
        at.epoch()
    assert len(steps) == 4


@pytest.mark.parametrize(("delay", "refreshes"), [(None, 1), (1, 5), (2, 3), (5, 1), (99, 1)])
def test_the_kernel_is_refreshed_every_tau_mini_batches(
    delay: int | None, refreshes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, seen = toy(n=75, delay=delay), []
    monkeypatch.setattr(alternating, "Bound", lambda *args: (seen.append(1), Bound(*args))[1])
    at.epoch()
    assert len(seen) == refreshes


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", SCHEMES)
def test_training_lowers_the_nlml(scheme: str) -> None:
    at = toy(n=80, columns=2, scheme=scheme, full_steps=4, encoder_rate=1e-3 if scheme == "submatrix" else 1e-2)
    before = at.nlml()
    for _ in range(10):
        at.epoch()
    assert at.nlml() < before - 0.1 and at.training.healthy and at.training.epochs == 10


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", SCHEMES)
def test_restored_half_way_it_goes_on_bit_for_bit(scheme: str) -> None:
    def make() -> Toy:
        net = mlp.build(mlp.Config(hidden=8, layers=1, width=2, dropout=0.2), Layout(LAGS, 1))
        return toy(n=40, encoder=net, epochs=4, scheme=scheme, schedule="cosine", delay=2)

    whole, fresh = make(), make()
    for _ in range(2):
        whole.epoch()
    tensors, rest = whole.training.state()
    fresh.training.encoder.load_state_dict(whole.training.encoder.state_dict())
    fresh.training.solver.load_state_dict(whole.training.solver.state_dict())
    fresh.generator.set_state(whole.generator.get_state())
    fresh.training.restore({name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(rest)))
    assert [whole.epoch(), whole.epoch()] == [fresh.epoch(), fresh.epoch()]
    assert same(whole.parameters(), fresh.parameters())


def test_only_hyper_parameters_are_trained_without_weights() -> None:
    for scheme in SCHEMES:
        at = toy(encoder=no_encoder(), scheme=scheme)
        before = at.nlml()
        losses = [at.epoch() for _ in range(10)]
        assert losses[-1] < losses[0] and at.nlml() < before - 0.01 and at.training.healthy


def test_dropout_in_a_full_step_is_the_same_network_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    net = mlp.build(mlp.Config(hidden=8, layers=1, width=2, dropout=0.5), Layout(LAGS, 1))
    at, seen = toy(encoder=net, scheme="full", full_steps=1), []
    forward = net.forward
    monkeypatch.setattr(net, "forward", lambda z, dropout=None: (seen.append(forward(z, dropout)), seen[-1])[1])
    at.epoch()
    dropped, again = seen
    assert torch.equal(dropped, again) and again.requires_grad
    assert not torch.equal(dropped, forward(at.z))


def test_steps_are_mini_batches_with_a_refresh() -> None:
    at = toy(n=40, batch=16, kernel_steps=0)
    before = at.parameters()
    assert at.training.steps(at.z, at.y, 0, at.generator) == at.nlml()
    assert same(before, at.parameters())
    at.training.steps(at.z, at.y, 7, at.generator)
    assert float(at.training.weights.adam.age[0]) == 7
    assert at.training.epochs == 0


def test_a_step_that_is_not_finite_is_left_out_and_told() -> None:
    at = toy(n=48, scheme="algorithm2")
    at.z[0] = float("nan")
    solver = at.training.solver
    with torch.no_grad():
        h = torch.nan_to_num(at.training.encoder(at.z))
    data = solver.data()
    data.add(h, at.y)
    loss_of = estimate("rows", solver, data, h, at.y)
    before = at.parameters()
    rows = torch.tensor([0, 1])
    assert not at.training.weights.step(loss_of(at.training.encoder(at.z[rows]), rows), 0.0)
    assert same(before, at.parameters()) and at.training.weights.skipped == 1
    at.z[0] = 0.0
    at.epoch()
    assert at.training.healthy and at.training.weights.skipped == 1


def test_an_epoch_with_skipped_steps_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    at = toy()
    monkeypatch.setattr(alternating, "Bound", lambda _: lambda net, rows, *more: (net(rows[0]) * float("nan")).sum())
    before = at.parameters()
    at.epoch()
    after = at.parameters()
    assert not at.training.healthy
    assert all(torch.equal(before[key], after[key]) for key in before if key.startswith("0."))


@pytest.mark.parametrize("scheme", ["majoriser", "algorithm2", "full"])
def test_it_trains_the_grid_solver(scheme: str) -> None:
    net = BoundedEncoder(mlp.build(mlp.Config(hidden=8, layers=1, width=1, seed=3), Layout(LAGS, 1)))
    kernel = squared_exponential.build(squared_exponential.Config(lengthscale=0.5), 1)
    z, y = rows(80)
    training = Alternating(net, kiss.build(kiss.Config(), kernel, 1), AlternatingConfig(scheme=scheme, full_steps=4))
    generator = torch.Generator().manual_seed(0)
    losses = [training.epoch(z, y, generator) for _ in range(8)]
    assert losses[-1] < losses[0] - 0.05 and training.healthy
    assert training.refresh(z, y).posterior.mean(net(z)).shape == (80, 1)


def test_a_delay_of_one_makes_the_row_forms_alike() -> None:
    """Both have the gradient of the NLML at fresh latents, so that training goes the same way."""
    one, other = (toy(scheme=scheme, delay=1, encoder_rate=1e-2) for scheme in ("majoriser", "algorithm2"))
    for _ in range(3):
        assert one.epoch() == pytest.approx(other.epoch(), rel=1e-7)


def test_no_rows_are_no_steps() -> None:
    at = toy()
    before = at.parameters()
    loss = at.training.epoch(at.z[:0], at.y[:0], at.generator)
    assert loss != loss and same(before, at.parameters())


def test_the_sub_matrix_needs_an_exact_solver_and_pairs() -> None:
    at = toy()
    with pytest.raises(UsageError):
        Alternating(at.training.encoder, OnlyPosterior(at.training.solver), AlternatingConfig(scheme="submatrix"))
    with pytest.raises(ValidationError, match=naming("3")):
        AlternatingConfig(scheme="submatrix", batch=2)
    with pytest.raises(ValidationError, match="algorithm2"):
        AlternatingConfig(scheme="algorithm1", delay=2)


class Counting(exact.Exact):
    """Counts how often its hyper-parameters were put back, and at which values."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[float] = []

    def project(self) -> None:
        self.seen.append(float(self.log_noise.detach().sum()))
        with torch.no_grad():
            self.kernel.log_lengthscale.fill_(0.25)  # type: ignore[operator, union-attr]


@pytest.mark.parametrize(("scheme", "wanted"), [("majoriser", 6), ("algorithm2", 6), ("full", 5)])
def test_hyperparameters_are_put_back_after_every_step_on_them(scheme: Any, wanted: int) -> None:
    """Two refreshes of three steps each, or five joint steps."""
    at = toy(n=64)
    kernel = squared_exponential.build(squared_exponential.Config(), at.training.encoder.width)
    solver = Counting(exact.Config(), kernel, 1)
    delay = None if scheme == "full" else 2
    config = AlternatingConfig(scheme=scheme, batch=16, delay=delay, kernel_steps=3, full_steps=5)
    Alternating(at.training.encoder, solver, config).epoch(at.z, at.y, at.generator)
    assert len(solver.seen) == len(set(solver.seen)) == wanted
    assert kernel.log_lengthscale.eq(0.25).all()


@pytest.mark.parametrize(
    ("options", "tau", "initial"),
    [
        ({"scheme": "algorithm1"}, 1, 0.01),
        ({"scheme": "algorithm2", "delay": 5}, 5, 0.01),
        ({"scheme": "algorithm2", "delay": 5, "schedule": "theorem"}, 5, 0.002),
        ({"scheme": "algorithm2", "schedule": "theorem"}, None, 0.01),
        ({"scheme": "full", "delay": 5, "schedule": "theorem"}, 5, 0.01),
    ],
    ids=str,
)
def test_theorem_2_divides_the_rate_by_the_delay(options: Any, tau: int | None, initial: float) -> None:
    config = AlternatingConfig(encoder_rate=0.01, **options)
    at = toy(n=24, **options, encoder_rate=0.01)
    assert config.tau == tau and at.training.weights.initial == pytest.approx(initial)


@pytest.mark.parametrize("scheme", get_args(AlternatingConfig.model_fields["scheme"].annotation))
def test_by_its_own_rate_every_scheme_lowers_the_loss(scheme: Any) -> None:
    at = toy(n=80, scheme=scheme, kernel_steps=0)
    before = at.nlml()
    for _ in range(4):
        at.epoch()
    assert at.nlml() < before
