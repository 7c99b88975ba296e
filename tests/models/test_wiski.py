"""WISKI against the dense GP with the interpolated kernel, and against the published recurrences in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models.wiski import Config, build
from streamgp.models.wiski.posterior import WiskiPosterior
from streamgp.models.wiski.projection import SPREAD, Projection
from streamgp.online.posterior import Arrival, Rows, Units, no_rows
from tests.models.deep_toys import SYSTEM, chunk, series, windows
from tests.solvers.oracles import gaussian_process, keys_matrix
from tests.words import naming

GENERATOR = torch.Generator().manual_seed(0)


def rows_of(z: Tensor, y: Tensor, weight: Tensor) -> Rows:
    return Rows(z, y, weight, y, no_rows(y), Inputs(z[:, None, :0], z[:, None, :0]))


def units(columns: int) -> Units:
    one = torch.ones(1, dtype=FLOAT)
    return Units(one, one.expand(columns), one.expand(columns), lambda h: h, no_rows(one), lambda x: x.past[:, 0])


def arrival(y: Tensor, kept: float) -> Arrival:
    def none(*_: Any) -> Rows:
        raise AssertionError("the sums suffice")

    return Arrival(y, kept, no_rows(y), no_rows(y), lambda: y.new_ones(len(y)), none, none)


def example(rows: int, width: int = 6, columns: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Windows (N, W), and waves of one direction with noise (N, T)."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, width, generator=generator, dtype=FLOAT)
    phase = torch.arange(columns, dtype=FLOAT)
    noise = 0.2 * torch.randn(rows, columns, generator=generator, dtype=FLOAT)
    return z, (z[:, :1] - 0.5 * z[:, 1:2] + phase).sin() + noise


def posterior(columns: int = 2, **options: Any) -> WiskiPosterior:
    """All eigenpairs are kept, so that nothing is approximated but the interpolation."""
    shape = Shape(targets=tuple("ab"[:columns]), horizon=1, lags=6 // columns, past=tuple("ab"[:columns]), future=())
    small: dict[str, Any] = {"solver": {"grid": 9, "rank": 1000}, "evaluations": 6}
    return WiskiPosterior(Config.model_validate({**small, **options}), shape)


@pytest.mark.parametrize("options", [{}, {"dims": 3, "solver": {"grid": 7, "rank": 1000}}, {"temper": 2.0}], ids=str)
def test_on_a_stream_it_is_the_dense_gp_with_the_interpolated_kernel(options: dict[str, Any]) -> None:
    """Rows of a rebuild with their weights, then batches under forgetting; a row of weight w has noise σ²/w."""
    model, (z, y), share = posterior(**options), example(90), 1.0 / options.get("temper", 1.0)
    weight = torch.linspace(0.5, 2.0, 50, dtype=FLOAT)
    model.rebuild(rows_of(z[:50], y[:50], weight), units(2), GENERATOR)
    for start, kept in ((50, 0.9), (65, 0.7)):
        model.absorb(model.look(z[start : start + 15]), arrival(y[start : start + 15], kept))
        weight = torch.cat([kept * weight, torch.ones(15, dtype=FLOAT)])
    assert float(model.weight) == pytest.approx(float(weight.sum()))
    grid, points = model.solver.grid, model.solver.grid.points()
    k = model.solver.kernel(points, points).detach().numpy()
    w, there = (keys_matrix(grid, model.projection(part).numpy()) for part in (z[:80], z[80:]))
    found = model.look(z[80:])
    for t, noise in enumerate(found.noise.tolist()):
        prior = (there @ k * there).sum(1)
        twin = gaussian_process(w @ k @ w.T, w @ k @ there.T, prior, y[:80, t].numpy(), share * weight.numpy(), noise)
        np.testing.assert_allclose(found.mean[:, t], twin.mean, atol=1e-8)
        np.testing.assert_allclose(found.latent[:, t], twin.variance, atol=1e-8)


def test_row_by_row_it_is_the_published_recurrence() -> None:
    """Stanton et al. 2021: with M_0 = K_UU, M_t = (K_UU⁻¹ + WᵀW/σ²)⁻¹ by rank-one steps, mean w_*ᵀM Wᵀy/σ²."""
    model, (z, y) = posterior(1), example(60, columns=1)
    model.rebuild(rows_of(z[:30], y[:30], torch.ones(30, dtype=FLOAT)), units(1), GENERATOR)
    for row in range(30, 50):
        model.absorb(model.look(z[row : row + 1]), arrival(y[row : row + 1], 1.0))
    points, noise = model.solver.grid.points(), float(model.solver.noise)
    m = model.solver.kernel(points, points).detach().numpy()
    sums = np.zeros(len(m))
    w = keys_matrix(model.solver.grid, model.projection(z).numpy())
    for own, target in zip(w[:50], y[:50, 0].numpy(), strict=True):
        step = m @ own
        m = m - np.outer(step, step) / (noise + own @ step)
        sums += own * target
    found = model.look(z[50:])
    np.testing.assert_allclose(found.mean[:, 0], w[50:] @ m @ sums / noise, atol=1e-8)
    np.testing.assert_allclose(found.latent[:, 0], (w[50:] @ m * w[50:]).sum(1), atol=1e-8)


def test_a_rebuild_finds_hyper_parameters_of_more_evidence_and_keeps_them_with_learn_once() -> None:
    z, y = example(200)
    rows = rows_of(z, y, torch.ones(200, dtype=FLOAT))
    usual, once = posterior(evaluations=40), posterior(evaluations=40, learn="once")
    start = usual.start.clone()
    for model in (usual, once):
        assert model.signal is None
        model.rebuild(rows, units(2), GENERATOR)
    data = usual.solver.data()
    data.add(usual.projection(z), y)
    found = usual._pack()
    best, slope = usual._nlml(data, found)
    assert best < usual._nlml(data, start)[0] - 10
    held = found <= usual._least() + 1e-6  # a lengthscale of five cells
    assert bool((slope[held] >= -1e-2).all()) and not bool(held.all())
    for place in (~held).nonzero()[:, 0].tolist():  # where nothing is gained
        ends = []
        for sign in (-1, 1):
            at = found.clone()
            at[place] += sign * 1e-4
            ends.append(usual._nlml(data, at)[0])
        assert slope[place].item() == pytest.approx((ends[1] - ends[0]) / 2e-4, abs=1e-2)
        assert best <= min(ends) + 1e-3
    once.rebuild(rows_of(z, 3 * y, torch.ones(200, dtype=FLOAT)), units(2), GENERATOR)
    torch.testing.assert_close(once._pack(), found)


def test_the_regressions_direction_comes_first_then_that_in_which_its_errors_bend() -> None:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(4000, 8, generator=generator, dtype=FLOAT) @ torch.randn(8, 8, generator=generator, dtype=FLOAT)
    straight, bent = torch.randn(2, 8, generator=generator, dtype=FLOAT)
    bend = z @ bent / (z @ bent).std()
    y = (z @ straight / (z @ straight).std() + 0.5 * bend.square())[:, None]
    projection = Projection("regression", 8, 2)
    projection.fit(z, y, torch.ones(4000, dtype=FLOAT))
    first, second = (z @ projection.directions).T
    slopes = torch.linalg.lstsq(z - z.mean(0), y - y.mean(0)).solution
    assert abs(float(torch.corrcoef(torch.stack([first, (z @ slopes)[:, 0]]))[0, 1])) > 0.999
    # the bend is a sum of both directions
    fitted = (
        torch.stack([first, second], 1) @ torch.linalg.lstsq(torch.stack([first, second], 1), bend[:, None]).solution
    )
    assert float(torch.corrcoef(torch.stack([fitted[:, 0], bend]))[0, 1]) > 0.99
    torch.testing.assert_close(
        torch.stack([first, second]).std(1), torch.full((2,), SPREAD, dtype=FLOAT), rtol=1e-2, atol=0
    )


@pytest.mark.parametrize("kind", ["regression", "pca", "none"])
def test_a_weight_is_so_many_rows(kind: Any) -> None:
    z, y = example(40)
    twice = torch.arange(40) % 3 == 0
    one, other = (Projection(kind, 6, 3) for _ in range(2))
    one.fit(z, y, 1.0 + twice.to(FLOAT))
    other.fit(torch.cat([z, z[twice]]), torch.cat([y, y[twice]]), torch.ones(40 + int(twice.sum()), dtype=FLOAT))
    torch.testing.assert_close(one(z).abs(), other(z).abs(), rtol=1e-6, atol=1e-6)
    if kind == "pca":
        middle = (z * (1 + twice)[:, None]).sum(0) / (1 + twice).sum()
        axes = torch.linalg.svd((z - middle) * (1 + twice).sqrt()[:, None]).Vh[:3]
        scores = (z - middle) @ axes.T
        inner = torch.atanh(one(z))
        torch.testing.assert_close((inner / scores).abs().std(0), torch.zeros(3, dtype=FLOAT), rtol=0, atol=1e-6)


def test_a_direction_without_spread_is_none() -> None:
    z, y = example(40)
    z[:, 2:] = 0.0
    projection = Projection("pca", 6, 3)
    projection.fit(z, y, torch.ones(40, dtype=FLOAT))
    assert bool(projection.directions.isfinite().all()) and bool((projection(z)[:, 2] == 0).all())


def test_windows_of_more_columns_than_a_grid_has_dimensions_are_projected_or_refused() -> None:
    wide = Shape(targets=("y",), horizon=1, lags=4, past=("y",), future=())
    with pytest.raises(UsageError, match=naming("projection=none 4 3")):
        build(Config(projection="none"), wide)
    assert WiskiPosterior(Config(), wide).projection.dims == 2
    narrow = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
    assert WiskiPosterior(Config(dims=3), narrow).projection.dims == 1
    with pytest.raises(UsageError, match=naming("column")):
        build(Config(), Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=()))


def test_it_learns_a_bent_system_that_no_line_does_in_a_state_that_stays() -> None:
    x, y = windows(SYSTEM, series(900))
    linear = registry.load("models", "linear")
    models = [build(Config.model_validate({"solver": {"grid": 20}}), SYSTEM), linear.build(linear.Config(), SYSTEM)]
    sizes, errors = [], [0.0, 0.0]
    for start in range(0, 880, 80):
        for place, model in enumerate(models):
            if start >= 400:
                errors[place] += float(
                    (model.predict(x.rows(slice(start, start + 80))).mean - y[start : start + 80]).abs().sum()
                )
            assert model.update(*chunk(x, y, start, start + 80)).healthy
        own = models[0].posterior
        sizes.append(sum(tensor.numel() for tensor in own.state()[0].values()))
    assert len(set(sizes)) == 1, sizes
    assert errors[0] < 0.85 * errors[1], errors
