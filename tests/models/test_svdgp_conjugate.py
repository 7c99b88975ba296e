"""The closed form against dense Gaussian process regression, and the invariances that its statistics must have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.models.svdgp.conjugate import JITTER, Conjugate
from tests.models import oracles_svdgp as oracle

RHO, NOISE, WIDTH, COLUMNS = 1.7, 0.09, 3, 2
INVERSE = torch.tensor([1.0, 0.5, 1.5], dtype=torch.float64)


def data(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64)
    wave = torch.stack((torch.sin(x[:, 0] + x[:, 1]), x[:, 2] * torch.cos(x[:, 0])), 1)
    return x, wave + 0.3 * torch.randn(rows, COLUMNS, generator=generator, dtype=torch.float64)


def started(rows: Tensor, linear: bool = False, covariance: int | None = None) -> Conjugate:
    posterior = Conjugate(WIDTH, COLUMNS, 200, linear, covariance)
    posterior.begin(rows, INVERSE, rows.new_tensor(RHO), rows.new_tensor(NOISE))
    return posterior


def learn(posterior: Conjugate, x: Tensor, y: Tensor, kept: float = 1.0) -> Conjugate:
    posterior.absorb(posterior.features(x), y, x.new_ones(len(x)), kept)
    posterior.solve()
    return posterior


def moments(posterior: Conjugate, q: Tensor) -> tuple[np.ndarray, np.ndarray]:
    phi = posterior.features(q)
    return posterior.mean(phi).numpy(), posterior.variance(phi)[:, 0].numpy()


def test_with_the_data_as_basis_it_is_exact_gp_regression() -> None:
    (x, y), (q, _) = data(60), data(20, seed=1)
    mean, variance = moments(learn(started(x), x, y), q)
    wanted = oracle.exact(
        oracle.kernel(x.numpy(), x.numpy(), INVERSE.numpy(), RHO),
        np.full(20, RHO),
        oracle.kernel(q.numpy(), x.numpy(), INVERSE.numpy(), RHO),
        y.numpy(),
        np.full(60, NOISE),
    )
    np.testing.assert_allclose(mean, wanted[0], atol=2e-4)  # the basis' jitter of 1e-6 ρ² is what differs
    np.testing.assert_allclose(variance, wanted[1], atol=2e-4)


def test_with_a_small_basis_it_is_the_optimal_sparse_posterior() -> None:
    (x, y), (q, _) = data(150), data(30, seed=1)
    mean, variance = moments(learn(started(x[:25]), x, y), q)
    wanted = oracle.projected(
        x.numpy(), q.numpy(), x[:25].numpy(), y.numpy(), np.full(150, NOISE), INVERSE.numpy(), RHO, JITTER * RHO
    )
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variance, wanted[1], rtol=1e-6, atol=1e-8)


def test_the_linear_part_is_a_kernel_that_is_added() -> None:
    (x, y), (q, _) = data(60), data(20, seed=1)
    mean, variance = moments(learn(started(x, linear=True), x, y), q)

    def both(a: Tensor, b: Tensor) -> np.ndarray:
        straight = NOISE * (1.0 + a.numpy() @ b.numpy().T)
        return oracle.kernel(a.numpy(), b.numpy(), INVERSE.numpy(), RHO) + straight

    wanted = oracle.exact(both(x, x), np.diag(both(q, q)), both(q, x), y.numpy(), np.full(60, NOISE))
    np.testing.assert_allclose(mean, wanted[0], atol=2e-4)
    np.testing.assert_allclose(variance, wanted[1], atol=2e-4)


def test_learning_in_pieces_and_in_any_order_is_learning_at_once() -> None:
    (x, y), (q, _) = data(90), data(10, seed=1)
    whole = moments(learn(started(x[:20]), x, y), q)
    pieces = started(x[:20])
    for part in (slice(60, 90), slice(0, 30), slice(30, 60)):
        learn(pieces, x[part], y[part])
    for one, other in zip(whole, moments(pieces, q), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_grown_basis_is_the_batch_of_its_points() -> None:
    (x, y), (q, _) = data(80), data(10, seed=1)
    grown = started(x[:10])
    for _ in range(2):
        grown.grow(x, grown.features(x), 10)
    assert len(grown.points) == 30 and len(torch.unique(grown.points, dim=0)) == 30
    batch = started(grown.points / INVERSE)
    for one, other in zip(moments(learn(grown, x, y), q), moments(learn(batch, x, y), q), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_growth_returns_the_new_features_and_keeps_what_was_learned() -> None:
    (x, y), (q, _) = data(50), data(50, seed=1)
    posterior = learn(started(x[:10]), x, y)
    before = moments(posterior, x)
    phi = posterior.grow(q, posterior.features(q), 15)
    torch.testing.assert_close(phi, posterior.features(q), rtol=1e-9, atol=1e-11)
    posterior.solve()
    np.testing.assert_allclose(moments(posterior, x)[0], before[0], rtol=1e-9, atol=1e-11)


def test_rows_that_the_basis_explains_are_no_new_points() -> None:
    x, _ = data(20)
    posterior = started(x)
    assert posterior.grow(x, posterior.features(x), 5).shape == (20, 20) and len(posterior.points) == 20


def test_dropping_points_carries_what_their_neighbours_can_hold() -> None:
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)[:, None].expand(60, WIDTH)
    y = torch.stack((torch.sin(x[:, 0]), x[:, 0]), 1)
    posterior = learn(started(x), x, y)
    before = moments(posterior, x)[0]
    posterior.shrink(30)
    assert len(posterior.points) == 30
    np.testing.assert_allclose(moments(posterior, x)[0], before, atol=5e-3)


def test_forgetting_weights_rows_and_leaves_the_prior() -> None:
    (x, y), (q, _) = data(60), data(10, seed=1)
    posterior = learn(learn(started(x), x[:30], y[:30]), x[30:], y[30:], kept=0.25)
    noise = np.where(np.arange(60) < 30, NOISE / 0.25, NOISE)
    wanted = oracle.exact(
        oracle.kernel(x.numpy(), x.numpy(), INVERSE.numpy(), RHO),
        np.full(10, RHO),
        oracle.kernel(q.numpy(), x.numpy(), INVERSE.numpy(), RHO),
        y.numpy(),
        noise,
    )
    for got, want in zip(moments(posterior, q), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-4)
    for _ in range(400):
        learn(posterior, x[:0], y[:0], kept=0.5)
    np.testing.assert_allclose(moments(posterior, q)[1], RHO, rtol=1e-9)


def test_the_decoupled_covariance_is_that_of_the_leading_points() -> None:
    (x, y), (q, _) = data(100), data(10, seed=1)
    decoupled = learn(started(x[:50], covariance=20), x, y)
    mean, variance = moments(decoupled, q)
    np.testing.assert_allclose(mean, moments(learn(started(x[:50]), x, y), q)[0], rtol=1e-12)
    np.testing.assert_allclose(variance, moments(learn(started(x[:20]), x, y), q)[1], rtol=1e-7)


def test_a_missing_target_leaves_its_column_as_it_was() -> None:
    (x, y), (q, _) = data(60), data(10, seed=1)
    posterior = learn(started(x[:20]), x[:40], y[:40])
    before = moments(posterior, q)[0]
    holes = y[40:].clone()
    holes[:, 1] = torch.nan
    after = moments(learn(posterior, x[40:], holes), q)[0]
    np.testing.assert_allclose(after[:, 1], before[:, 1], rtol=1e-9, atol=1e-11)
    assert np.abs(after[:, 0] - before[:, 0]).max() > 1e-3


def test_loss_is_the_evidence_of_the_projected_process() -> None:
    x, y = data(40)
    posterior = learn(started(x[:15]), x, y)
    phi = posterior.features(x).numpy()
    wanted = oracle.negative_log_evidence(phi @ phi.T, y.numpy(), NOISE) / y.numel()
    assert posterior.loss() == pytest.approx(wanted, rel=1e-9)


def test_noise_is_the_mean_squared_residual() -> None:
    x, y = data(40)
    posterior = learn(started(x[:15]), x, y)
    residual = (y - posterior.mean(posterior.features(x))).square().mean(0)
    torch.testing.assert_close(posterior.residual, residual, rtol=1e-9, atol=0)


def test_rows_left_out_are_forecast_as_if_they_had_not_been_learned() -> None:
    """A block of neighbours against a regression of the other rows on the same basis; one value is not observed."""
    x, y = data(90)
    block, others = slice(30, 45), torch.ones(90, dtype=torch.bool)
    others[block] = False
    found, without = (
        learn(started(x[:20], linear=True), x, y),
        learn(started(x[:20], linear=True), x[others], y[others]),
    )
    phi = found.features(x[block])
    squares = (y[block] - without.mean(phi)).square() / (without.variance(phi) + found.residual)
    torch.testing.assert_close(found.left_out(phi, y[block]), squares)
    y[33, 1] = torch.nan
    assert found.left_out(phi, y[block]).isnan().nonzero().tolist() == [[3, 1]]


def test_the_noise_of_a_batch_counts_degrees_of_freedom() -> None:
    """Twenty functions and a line that are fitted to 60 rows leave less noise than there is."""
    x, y = data(60)
    found = learn(started(x[:20], linear=True), x, y)
    phi, fitted = found.features(x), found.residual
    hat = phi @ torch.cholesky_solve(phi.T, found.root) / NOISE
    found.unbias()
    torch.testing.assert_close(found.residual, fitted * 60 / (60 - hat.trace()))
    assert (found.residual > 1.1 * fitted).all()


def test_a_state_whose_sizes_do_not_belong_together_is_refused() -> None:
    """Every tensor of it, longer or shorter: a checkpoint may be forged."""
    generator = torch.Generator().manual_seed(3)
    made = Conjugate(2, 1, 6, linear=True)
    rows = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    one = rows.new_ones(())
    made.begin(rows, rows.new_ones(2), one, 0.1 * one)
    made.absorb(made.features(rows), rows[:, :1], rows.new_ones(6))
    tensors, rest = made.state()
    fresh = Conjugate(2, 1, 6, linear=True)
    fresh.restore(tensors, rest)
    for name in ("inverse", "square", "residual"):
        for wrong in (torch.cat([tensors[name]] * 2), tensors[name][:0]):
            with pytest.raises(ValueError, match=name):
                Conjugate(2, 1, 6, linear=True).restore({**tensors, name: wrong}, rest)
