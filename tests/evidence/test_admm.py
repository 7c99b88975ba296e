"""ADMM: its gradient and its z-step against dense algebra, the optimum that it should reach, consensus, restarts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence import admm, cross_validated
from streamgp.evidence.admm import AdmmConfig, AdmmRun, Augmented, cv_admm
from streamgp.evidence.cross_validated import KernelVector, parts
from tests.evidence.cross_validation_toys import LP, SE, drawn, error, optimum, tied

START = torch.tensor([-1.0], dtype=FLOAT)


def config(**options: Any) -> AdmmConfig:
    return AdmmConfig(**options)


def lagrangian(fold: Augmented, noise: Tensor, z: Tensor) -> Tensor:
    """L_ρ a value held out, dense."""
    own, kernel = fold.fold, fold.learned.kernel
    off = kernel(own.x_fitted, own.x_fitted) @ z + noise * z - own.y_fitted
    held = own.y_held - kernel(own.x_held, own.x_fitted) @ z
    whole = held.square().sum() + (fold.dual * off).sum() + 0.5 * fold.config.rho * off.square().sum()
    return whole / held.numel()


def moving(columns: int = 2, **options: Any) -> Augmented:
    """A fold after three iterations: z off the constraint, λ not 0."""
    kernel, asked = tied(LP, lengthscale=1.0), config(folds=1, **options)
    x, y = drawn(tied(LP), 60, columns=columns)
    learned = KernelVector(kernel, START.expand(columns), asked.floor)
    fold = Augmented(learned, x, y, parts(x, asked)[0], 2**20, asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admm, "CG_STEPS", 3)
        for _ in range(3):
            fold.step(0.1)
    assert fold.feasibility > 1e-4 and bool(fold.dual.any())
    return fold


def test_the_gradient_is_that_of_the_augmented_lagrangian_noise_included() -> None:
    fold = moving()
    noise = fold.fold.noise.clone().requires_grad_()
    value = lagrangian(fold, noise, fold.fitted)
    *inner, own = torch.autograd.grad(value, [*fold.learned.kernel.parameters(), noise])
    expected = torch.cat([*(part.flatten() for part in inner), own * noise.detach()])
    torch.testing.assert_close(fold.gradient(), expected, rtol=1e-9, atol=1e-12)


def test_z_minimises_the_augmented_lagrangian_given_enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = moving()
    monkeypatch.setattr(admm, "CG_STEPS", 500)
    monkeypatch.setattr(admm, "CG_TOLERANCE", 1e-12)
    fold.fit()
    z = fold.fitted.clone().requires_grad_()
    (slope,) = torch.autograd.grad(lagrangian(fold, fold.fold.noise, z), z)
    (before,) = torch.autograd.grad(lagrangian(fold, fold.fold.noise, z * 1.01), z)
    assert slope.norm() < 1e-7 * before.norm()


@pytest.mark.slow
def test_hold_out_reaches_the_optimum_and_the_constraint() -> None:
    kernel, asked = tied(SE, lengthscale=1.0), config(folds=1)
    x, y = drawn(tied(SE), 500)
    run = AdmmRun(kernel, START, x, y, asked)
    found = run.descend(KernelVector(kernel, START, asked.floor).read(), 400)
    loss, _ = run.loss(found.at)
    best = optimum(kernel, START, x, y, parts(x, asked))
    assert found.iterations <= 400 and found.feasibility < 1e-5
    assert -1e-6 < loss / best - 1.0 < 1e-3


def test_one_step_of_conjugate_gradients_and_duals_of_one_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's settings, but for Adam: what the departures are for."""
    monkeypatch.setattr(admm, "CG_STEPS", 1)
    kernel, asked = tied(SE, lengthscale=1.0), config(folds=1, rank=0)
    x, y = drawn(tied(SE), 200)
    fold = Augmented(KernelVector(kernel, START, asked.floor), x, y, parts(x, asked)[0], 2**20, asked)
    fold.dual += 1.0
    for _ in range(100):
        fold.step(0.1)
    assert fold.feasibility > 1e-2


@pytest.mark.slow
def test_principled_folds_agree_at_the_optimum_of_the_sum() -> None:
    kernel, asked = tied(SE, lengthscale=1.0), config(folds=3, iterations=300)
    x, y = drawn(tied(SE), 150)
    run = AdmmRun(kernel, START, x, y, asked)
    found = run.descend(KernelVector(kernel, START, asked.floor).read(), 300)
    assert found.apart < 1e-3 and found.feasibility < 1e-3
    assert run.loss(found.at)[0] / optimum(kernel, START, x, y, parts(x, asked)) - 1.0 < 1e-2


def test_naive_folds_are_their_own_runs_and_the_mean_of_logarithms() -> None:
    kernel, asked = tied(SE, lengthscale=1.0), config(folds=2, scheme="naive", iterations=20)
    x, y = drawn(tied(SE), 100)
    run, start = AdmmRun(kernel, START, x, y, asked), KernelVector(kernel, START, asked.floor).read()
    found, alone = run.descend(start, 20), [run.alone(start, split, 20) for split in run.splits]
    assert torch.equal(found.at, torch.stack([one.at for one in alone]).mean(0))
    assert found.apart == pytest.approx(0.5 * float((alone[0].at - alone[1].at).abs().max()))
    assert found.history[-1] == pytest.approx(0.5 * (alone[0].history[-1] + alone[1].history[-1]))


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", ["naive", "principled"])
def test_what_is_returned_is_told_and_repeats_itself(scheme: Any) -> None:
    kernel, asked = tied(SE, lengthscale=1.0), config(scheme=scheme, iterations=30, polish=0)
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    x, y = drawn(tied(SE), 60, columns=3)
    found, again = (cv_admm(kernel, START.expand(3), x, y, asked) for _ in range(2))
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())
    assert found.kernel.keys() == before.keys() and found.noise.shape == (3,) and bool((found.noise > 0).all())
    assert len(found.history) == found.evaluations <= 30 and found.seconds > 0 and not found.failures
    assert found.loss == again.loss and torch.equal(found.noise, again.noise)
    measured = error(kernel, found.kernel, found.noise, x, y, parts(x, asked))
    assert found.loss == pytest.approx(measured, rel=1e-6)  # rescaling has not changed it
    assert found.loss < error(kernel, before, START.expand(3).exp(), x, y, parts(x, asked))


@pytest.mark.sampled
@pytest.mark.parametrize("folds", [1, 2])
def test_what_admm_leaves_is_taken_by_the_reduced_gradient(folds: int) -> None:
    kernel, (x, y) = tied(SE, lengthscale=1.0), drawn(tied(SE), 160)
    best = optimum(kernel, START, x, y, parts(x, config(folds=folds)))
    alone, polished = (
        cv_admm(kernel, START, x, y, config(folds=folds, iterations=12, polish=polish)) for polish in (0, 40)
    )
    assert alone.loss / best - 1.0 > 1e-2 and alone.capped
    assert polished.loss / best - 1.0 < 3e-3 and not polished.capped
    assert len(polished.history) > 12 and polished.evaluations > alone.evaluations


def test_further_starts_find_another_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_validated, "SCOUTING", 10)
    kernel = tied(LP, lengthscale=2.0, period=0.3)
    x, y = drawn(tied(LP, lengthscale=2.0), 100)
    alone = cv_admm(kernel, START, x, y, config(folds=1, iterations=60, polish=0))
    some = cv_admm(kernel, START, x, y, config(folds=1, iterations=60, polish=0, restarts=6))
    assert some.loss < 0.98 * alone.loss and some.evaluations > 7 * 10


def test_starts_that_lead_nowhere_are_told() -> None:
    x, y = drawn(tied(SE), 20)
    for restarts in (0, 2):
        with pytest.raises(NumericalError):
            cv_admm(tied(SE), START, x, y * torch.nan, config(iterations=2, restarts=restarts))
    with pytest.raises(UsageError):
        cv_admm(tied(SE), START, x[:1], y[:1], config())
