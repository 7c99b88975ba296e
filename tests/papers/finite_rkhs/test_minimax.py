"""MINIMAX: its gradients, projections and saddle; that A follows F where the penalty allows it, and not at μ = 1."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NotPositiveDefinite
from streamgp.objectives import finite_evidence as fe
from streamgp.papers.finite_rkhs import minimax
from streamgp.papers.finite_rkhs.minimax import Minimax, primal_gradient, project_above, project_ball
from streamgp.training.finite_head import FiniteHead
from tests.training.finite_toys import features, normal


def positive(width: int, seed: int) -> Tensor:
    root = normal(width, width, seed=seed)
    return root @ root.T + torch.eye(width, dtype=FLOAT)


def test_gradients_are_those_of_the_penalised_form() -> None:
    a, b, f = (t.requires_grad_() for t in (positive(5, 0), normal(5, 5, seed=1), positive(5, 2)))
    value = torch.logdet(a) + 3.0 * (b * (a - f)).sum() / a.norm()
    by_a, by_b, by_f = torch.autograd.grad(value, [a, b, f])
    with torch.no_grad():
        found = primal_gradient(a, b, (b * (a - f)).sum(), 3.0)
        torch.testing.assert_close(found, by_a, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(3.0 * (a - f) / a.norm(), by_b, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(-3.0 * b / a.norm(), by_f, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("whitened", [True, False])
def test_parts_are_gradients_of_the_form_in_coordinates_of_the_features(whitened: bool) -> None:
    phi, kappa, total = features(12, 5), torch.tensor(0.4, dtype=FLOAT), 60
    method = Minimax(whitened=whitened)
    method.begin(fe.statistics([(features(60, 5), phi[:1].expand(60, 5))]), FiniteHead(5, 1, noise=0.4))
    method.dual = project_ball(normal(5, 5, seed=3) + normal(5, 5, seed=3).T)
    leaf, ridge = phi.clone().requires_grad_(), kappa.clone().requires_grad_()
    estimate = total / 12 * leaf.T @ leaf + ridge * torch.eye(5, dtype=FLOAT)
    back = torch.linalg.inv(method.root)
    a = back.T @ method.primal @ back
    white = method.root.T @ (a - estimate) @ method.root
    value = torch.logdet(a) + method.penalty * (method.dual * white).sum() / method.primal.norm()
    by_rows, by_ridge = torch.autograd.grad(value, [leaf, ridge])
    part = method.determinant(phi, kappa, total)
    torch.testing.assert_close(part.value, value.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(2 * total / 12 * part.rows, by_rows, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(part.trace, by_ridge, rtol=1e-9, atol=1e-12)


def test_projection_on_matrices_above_another() -> None:
    lower = torch.linalg.cholesky(positive(6, 4))
    floor = lower @ lower.T
    inside, outside = floor + positive(6, 5), normal(6, 6, seed=6) + normal(6, 6, seed=6).T
    assert torch.equal(project_above(inside, lower), inside)
    found = project_above(outside, lower)
    assert float(torch.linalg.eigvalsh(found - floor).min()) > -1e-9
    torch.testing.assert_close(project_above(found + 1e-12 * floor, lower), found, rtol=1e-8, atol=1e-8)
    back = torch.linalg.inv(lower)
    for seed in range(20):  # nearest: no other member is nearer in the coordinates of the floor
        other = floor + positive(6, seed) - torch.eye(6, dtype=FLOAT)
        assert (back @ (outside - found) @ back.T).norm() <= (back @ (outside - other) @ back.T).norm() + 1e-9
    with pytest.raises(NotPositiveDefinite):
        project_above(torch.full((6, 6), float("nan"), dtype=FLOAT), lower)


def test_projection_on_the_ball() -> None:
    b = normal(4, 4, seed=0)
    torch.testing.assert_close(project_ball(b), b / b.norm())
    assert torch.equal(project_ball(0.1 * b / b.norm()), 0.1 * b / b.norm())


class Run(NamedTuple):
    """Means over the second half of a run: relative error of A against F, of the mean P; the largest ‖B‖."""

    tracking: float
    inverse: float
    norm: float


def follow(method: Minimax, batch: int | None, steps: int) -> Run:
    """A and B on features that stand still, begun where they were two thirds of what they are."""
    phi, head = features(256, 6), FiniteHead(6, 1, noise=0.5)
    kappa = fe.ridge(head.noise.detach())
    method.begin(fe.statistics([(phi / 1.5, phi[:, :1])]), head)
    full = fe.regularised(phi.T @ phi, kappa)
    target, generator = method.root.T @ full @ method.root, torch.Generator().manual_seed(0)
    errors, norm, mean = 0.0, 0.0, torch.zeros_like(full)
    for step in range(steps):
        for ascent in (False, True):
            rows = slice(None) if batch is None else torch.randint(256, (batch,), generator=generator)
            if ascent:
                method.ascend(phi[rows], head, 256)
            else:
                method.determinant(phi[rows], kappa, 256)
        norm = max(norm, float(method.dual.norm()))
        lower = kappa.sqrt() * method.root.T
        assert float(torch.linalg.eigvalsh(method.primal - lower @ lower.T).min()) > -1e-9
        if 2 * step >= steps:
            errors += float((method.primal - target).norm() / target.norm())
            mean -= method.penalty / method.primal.norm() * (method.root @ method.dual @ method.root.T)
    truth = torch.linalg.inv(full)
    return Run(errors / (steps / 2), float((mean / (steps / 2) - truth).norm() / truth.norm()), norm)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cubic step is taken, and B is quick."""
    monkeypatch.setattr(minimax, "EVERY", 1)
    monkeypatch.setattr(minimax, "ASCENT_RATE", 0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("batch", [None, 32])
def test_whitened_with_a_penalty_of_twice_the_features_a_follows_f(batch: int | None) -> None:
    found = follow(Minimax(), batch, 3000)
    assert found.tracking < 0.1 and found.inverse < 0.2 and found.norm <= 1 + 1e-12


@pytest.mark.sampled
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("whitened", [True, False])
def test_with_the_papers_penalty_of_one_a_does_not_follow_f(whitened: bool) -> None:
    """Stationarity at A = F needs μ ≥ ‖F‖‖F⁻¹‖: P stays a small part of F⁻¹, and A goes where it likes."""
    found = follow(Minimax(1.0, growth=1.0, whitened=whitened), None, 600)
    assert found.tracking > 0.4 and found.inverse > 0.4 and found.norm <= 1 + 1e-12


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("whitened", [True, False])
def test_with_the_outer_schedule_from_a_penalty_of_one_a_follows_f(whitened: bool) -> None:
    """μ_k → ∞, the paper's theory; every pass over the rows is an outer step."""
    method = Minimax(1.0, growth=1.02 if whitened else 1.1, whitened=whitened)
    found = follow(method, 32, 2400)
    assert method.penalty > 100 and found.tracking < 0.25 and found.norm <= 1 + 1e-12


def test_the_penalty_grows_once_an_epoch() -> None:
    phi, kappa, method = features(40, 4), torch.tensor(0.1, dtype=FLOAT), Minimax(2.0, growth=1.5)
    method.begin(fe.statistics([(phi, phi[:, :1])]), FiniteHead(4, 1))
    seen = []
    for step in range(12):
        method.determinant(phi[10 * (step % 4) :][:10], kappa, 40)
        seen.append(method.penalty)
    assert seen == [2.0] * 3 + [3.0] * 4 + [4.5] * 4 + [6.75]


def test_a_penalty_must_be_as_large_as_the_features_to_make_the_saddle_stationary() -> None:
    eye = torch.eye(6, dtype=FLOAT)
    for penalty, there in ((6.0, True), (60.0, True), (5.0, False)):
        dual = project_ball(-(6**0.5) / penalty * eye)
        assert bool(primal_gradient(eye, dual, torch.zeros(()), penalty).norm() < 1e-12) is there
    skew = torch.diag(torch.logspace(0, 4, 6, dtype=FLOAT))
    assert skew.norm() * torch.linalg.inv(skew).norm() > 1e4


@pytest.mark.parametrize("whitened", [True, False])
def test_only_the_first_epoch_is_looked_at_unless_whitened(whitened: bool) -> None:
    phi, method = features(30, 4), Minimax(whitened=whitened)
    assert method.looks
    method.begin(fe.statistics([(phi, phi[:, :1])]), FiniteHead(4, 1))
    assert method.looks is whitened
