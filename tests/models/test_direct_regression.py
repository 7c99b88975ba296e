"""The direct regression: its sums against a dense ridge, its laws, glitches, panels, and what it learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs
from streamgp.errors import NotPositiveDefinite
from streamgp.models import ensemble
from streamgp.models.ensemble.model import Ensemble
from streamgp.models.linear import Config, DirectLinear, build
from streamgp.models.linear.columns import describe
from streamgp.models.linear.direct import DirectRegression, groups
from streamgp.models.linear.phases import RIDGES, SHARE, PhaseRegression
from streamgp.regression.memories import FLOOR, FREE, Sums
from streamgp.testing import check_model
from streamgp.testing.models import SEASONS, example_windows
from streamgp.windows.windows import Windows, WindowSpec


@pytest.mark.slow
@pytest.mark.parametrize("panel", [False, True])
def test_it_keeps_the_laws(panel: bool) -> None:
    check_model(lambda shape: build(Config(), shape), shapes=[replace(SEASONS, panel=panel)])


@pytest.mark.slow
@pytest.mark.parametrize("panel", [False, True])
def test_an_ensemble_with_it_keeps_them_too(panel: bool) -> None:
    config = ensemble.Config(experts=("linear", "persistence", "seasonal_naive"))
    check_model(lambda shape: ensemble.build(config, shape), shapes=[replace(SEASONS, panel=panel)])


def test_without_a_context_it_is_the_regression_on_windows() -> None:
    assert not isinstance(build(Config(), replace(SEASONS, context=None)), DirectLinear)
    assert not isinstance(build(Config(predictive="student_t"), SEASONS), DirectLinear)


@pytest.mark.sampled
@pytest.mark.parametrize("panel", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_its_parts_add_up_to_the_mean(panel: bool, mixed: bool) -> None:
    """Also where a forecast is outvoted, and before anything was learned; they are those of what the columns are of."""
    shape = replace(SEASONS, panel=panel)
    model: DirectLinear | Ensemble = build(Config(), shape)  # type: ignore[assignment]
    if mixed:
        model = ensemble.build(ensemble.Config(experts=("linear", "persistence", "seasonal_naive")), shape)
    x, y = example_windows(shape, 700)
    assert_adds_up(model, x)
    for start in range(0, 600, 60):
        model.update(x.rows(slice(start, start + 60)), y[start : start + 60])
    later = x.rows(slice(600, 700))
    parts = assert_adds_up(model, later)
    assert next(iter(parts)) == "reference" and {"own past", "calendar", "constant"} < set(parts)
    assert {f"known {name}" for name in shape.context.known} <= set(parts)  # type: ignore[union-attr]
    assert mixed == ("persistence" in parts)
    sizes = {label: float(value.abs().mean()) for label, value in parts.items()}
    assert sizes["reference"] > 0 and sizes["own past"] > 0
    with torch.no_grad():
        model.mixer.scale.mul_(1e-6)  # now forecasts are far from one another
    assert "outvoted" in assert_adds_up(model, later)


@pytest.mark.sampled
@pytest.mark.parametrize("mixed", [False, True])
def test_a_memory_that_is_outvoted_has_no_part(mixed: bool) -> None:
    """One with coefficients of 1e10 and some weight left: its terms would hide all others."""
    model: DirectLinear | Ensemble = build(Config(), SEASONS)  # type: ignore[assignment]
    if mixed:
        model = ensemble.build(ensemble.Config(experts=("linear", "persistence", "seasonal_naive")), SEASONS)
    x, y = example_windows(SEASONS, 400)
    for start in range(0, 360, 60):
        model.update(x.rows(slice(start, start + 60)), y[start : start + 60])
    direct = model if isinstance(model, DirectLinear) else model.experts[0].model
    assert isinstance(direct, DirectLinear) and direct.regression.sums is not None
    with torch.no_grad():
        direct.regression.sums.weights[0] *= 1e10
    later = x.rows(slice(360, 400))
    parts = assert_adds_up(model, later)
    assert "outvoted" in parts and max(float(part.abs().max()) for part in parts.values()) < 1e4


def test_another_future_of_a_known_input_changes_its_part_alone() -> None:
    model, (x, y) = build(Config(), SEASONS), example_windows(SEASONS, 500)
    for start in range(0, 480, 60):
        model.update(x.rows(slice(start, start + 60)), y[start : start + 60])
    assert isinstance(model, DirectLinear) and SEASONS.context is not None
    steps, each = [entry.name for entry in SEASONS.context.steps], SEASONS.context.per_step
    first = len(SEASONS.context.window) + steps.index("at(k)")
    places = [first + h * each for h in range(SEASONS.horizon)]
    x = x.rows(slice(480, 500))
    assert x.context is not None
    context = x.context.clone()
    context[:, places] += 1.0
    one, two = model.parts(x), model.parts(x._replace(context=context))
    assert {label for label in one if not torch.equal(one[label], two[label])} == {"known k"}


def assert_adds_up(model: DirectLinear | Ensemble, x: Inputs) -> dict[str, Tensor]:
    before, parts = model.predict(x).mean, model.parts(x)
    assert torch.equal(model.predict(x).mean, before)
    total = torch.stack(list(parts.values())).sum(0)
    assert torch.allclose(total, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))
    return parts


def test_sums_are_a_ridge_regression_with_forgetting() -> None:
    generator = torch.Generator().manual_seed(1)
    sizes, halves, ridges = [1, 2, 2], [40.0, 1e9], [3.0, 0.5]
    penalties = torch.tensor([1.0, 2.0, 0.5], dtype=FLOAT)
    sums = Sums(sizes, penalties, halves, ridges)
    batches = []
    for rows in (30, 25, 41):
        x = torch.randn(5, rows, 4, generator=generator, dtype=FLOAT) * torch.tensor([1.0, 5.0, 0.1, 1.0])
        x[..., -1] = 1.0
        z = torch.randn(5, rows, generator=generator, dtype=FLOAT)
        weight = (torch.rand(5, rows, generator=generator) > 0.2).to(FLOAT)
        batches.append((x, z, weight))
        sums.add(x, z, weight, passed=rows, due=True)
    for m, (half, ridge) in enumerate(zip(halves, ridges, strict=True)):
        start = 0
        for group, size in enumerate(sizes):
            own = range(start, start + size)
            start += size
            rows_x, rows_z, share = [], [], []
            for at, (x, z, weight) in enumerate(batches):
                later = sum(len(batch[1][0]) for batch in batches[at + 1 :])
                for column in own:
                    rows_x.append(x[column].numpy())
                    rows_z.append(z[column].numpy())
                    share.append(weight[column].numpy() / size * 0.5 ** (later / half))
            big, target, v = np.concatenate(rows_x), np.concatenate(rows_z), np.concatenate(share)
            mean = (v[:, None] * big).sum(0) / v.sum()
            spread = np.sqrt(np.maximum((v[:, None] * big**2).sum(0) / v.sum() - mean**2, 0.0))
            seen = np.abs(big * (v > 0)[:, None]).max(0)
            spread = np.maximum(spread, FLOOR * seen)
            penalty = np.append(ridge * penalties.numpy() ** 2 * spread[:-1] ** 2, FREE)
            wanted = np.linalg.solve((big * v[:, None]).T @ big + np.diag(penalty), (big * v[:, None]).T @ target)
            np.testing.assert_allclose(sums.weights[m, group].numpy(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("known", [True, False], ids=["errors known", "none known"])
def test_a_regression_by_phase_is_a_ridge_of_each_phase_and_of_its_neighbours(known: bool) -> None:
    shape = SEASONS
    x, y = example_windows(shape, 300)
    assert shape.context is not None
    regression = PhaseRegression(shape)
    levels = torch.zeros(shape.outputs, dtype=FLOAT)
    parts = regression.columns.split(x)
    inputs = [describe(parts.step(f"at({name})").flatten()) for name in shape.context.known]
    base = regression.columns.bases(x, levels)[0]
    z = (y - base).T.clone()
    z[:, ::7] = torch.nan
    regression.begin(x, inputs, levels)
    assert regression.sums is not None
    held = regression.sums.held
    made = regression.grouped(x, regression.columns(x, inputs, levels)[0])
    phased, means = regression.look(held, made, base[None])
    assert torch.equal(means, base.expand_as(means))
    errors = np.linspace(0.05, 1.0, shape.horizon)[:, None] * np.arange(1, 1 + shape.outputs) * known  # (H, O)
    _, keep = regression.added(held, phased, z[:, None], torch.from_numpy(errors.T.reshape(-1, 1)), [300], [True])
    keep()
    groups, phases, penalties = len(regression.sums.largest), regression.phases, regression.sums.penalties.numpy()
    flat, owner = phased.features[0][phased.there].numpy(), phased.there.nonzero()[:, 0].numpy()
    target = z.flatten()[phased.place[phased.there]].numpy()
    counts = np.maximum(errors, 0.1 * errors.max(0)) ** -2.0 if known else np.ones_like(errors)
    counts = (counts / counts.mean(0)).T.flatten()[phased.place[phased.there].numpy() // len(y)]
    for own in range(groups):
        weight = np.zeros(len(owner))
        for other in range(own - own % phases, own - own % phases + phases):
            apart = min((own - other) % phases, (other - own) % phases)
            weight[owner == other] = 1.0 if apart == 0 else SHARE if apart == 1 else 0.0
        weight = np.where(np.isnan(target), 0.0, weight * counts)
        if not weight.any():
            continue
        mean = (weight[:, None] * flat).sum(0) / weight.sum()
        spread = np.sqrt(np.maximum((weight[:, None] * flat**2).sum(0) / weight.sum() - mean**2, 0.0))
        seen = np.abs(flat[(owner == own) & np.isfinite(target)]).max(0, initial=0.0)
        spread = np.maximum(spread, FLOOR * seen)[:-1]
        spread[spread == 0.0] = 1.0
        penalty = np.append(RIDGES[0] * shape.horizon * penalties**2 * spread**2, FREE)
        gram = (flat * weight[:, None]).T @ flat + np.diag(penalty)
        wanted = np.linalg.solve(gram, (flat * weight[:, None]).T @ np.nan_to_num(target))
        fitted, expected = flat @ regression.sums.weights[0, own].numpy(), flat @ wanted
        np.testing.assert_allclose(fitted, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.slow
def test_a_phase_with_laws_of_its_own_is_learned() -> None:
    """At one hour of the day the target follows a known input, at all others it does not: harmonics cannot say that."""
    generator = np.random.default_rng(3)
    k = generator.standard_normal(3000)
    y = 0.1 * generator.standard_normal(3000) + np.where(np.arange(3000) % 24 == 7, 5.0 * k, 0.0)
    x, truth, windows = windows_of(y, k)
    both = run(DirectLinear(windows.shape), x, truth)[1500:].mean()
    alone = run(DirectLinear(windows.shape, memory=1e6), x, truth)[1500:].mean()
    assert both < 0.85 * alone


def test_sums_that_fail_change_nothing() -> None:
    sums = Sums([1], torch.ones(1, dtype=FLOAT), [100.0], [1.0])
    one = torch.ones(1, 5, 2, dtype=FLOAT)
    sums.add(one, one[..., 0], one[..., 0], passed=5, due=True)
    before = {name: value.clone() for name, value in sums.named_buffers()}
    with pytest.raises(NotPositiveDefinite):
        sums.add(one * 1e200, one[..., 0], one[..., 0], passed=5, due=True)
    assert all(torch.equal(before[name], value) for name, value in sums.named_buffers())


@pytest.mark.parametrize("horizon", [1, 5, 12, 24, 48, 336])
def test_steps_far_ahead_share_coefficients(horizon: int) -> None:
    found = groups(horizon)
    assert sum(found) == horizon and found[0] == 1 and len(found) <= 20
    assert found[:-1] == sorted(found[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("season", [11.0, 13.0])
def test_an_error_grows_with_the_steps_ahead_where_the_nearest_reference_changes(season: float) -> None:
    generator, at = np.random.default_rng(3), np.arange(1500)
    y = season * np.sin(2 * np.pi * at / 24) + np.cumsum(generator.standard_normal(len(at)))
    x, truth, windows = windows_of(y, np.zeros(len(at)), horizon=24)
    error = run(DirectLinear(windows.shape), x, truth)[500:].nanmean(0)
    assert (error[:-1] < 1.12 * error[1:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("season", [24, 168])
def test_one_season_alone_is_learned_too(season: int) -> None:
    y, k = stream(2000)
    spec = WindowSpec(targets=("y",), known=("k",), lags=4, horizon=6, season=season, seasons=(season,))
    windows = Windows(spec)
    asks, _ = windows.push(pa.record_batch({"y": y, "k": k}))
    truth = torch.from_numpy(y)[asks.position[:, None] + torch.arange(1, 7)]
    model = DirectLinear(windows.shape)
    errors = run(model, asks.x, truth)
    naive = (truth - model.regression.columns.bases(asks.x, model.regression.levels)[0]).abs()
    assert errors[800:].mean() < 0.6 * naive[800:].mean()


def windows_of(
    y: np.ndarray, k: np.ndarray | None, horizon: int = 6, seasons: tuple[int, ...] = (24, 168)
) -> tuple[Inputs, Tensor, Windows]:
    """Windows of a stream with seasons of 24 and 168 rows and one known input or none, and their truths."""
    rows = {"y": y} if k is None else {"y": y, "k": k}
    known = tuple(name for name in rows if name != "y")
    spec = WindowSpec(targets=("y",), known=known, lags=4, horizon=horizon, season=seasons[-1], seasons=seasons)
    windows = Windows(spec)
    asks, _ = windows.push(pa.record_batch(rows))
    at = asks.position[:, None] + torch.arange(1, horizon + 1)
    return asks.x, torch.from_numpy(np.append(y, np.full(horizon, np.nan)))[at], windows


def stream(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A day and a week, a known input that acts by its change, and slow noise."""
    generator = np.random.default_rng(seed)
    at, k = np.arange(rows), np.cumsum(generator.standard_normal(rows)) * 0.2
    slow = np.zeros(rows)
    for row in range(1, rows):
        slow[row] = 0.9 * slow[row - 1] + 0.3 * generator.standard_normal()
    return 50 + 5 * np.sin(2 * np.pi * at / 24) + 3 * np.cos(2 * np.pi * at / 168) + 2 * k + slow, k


def run(model: DirectLinear, x: Inputs, y: Tensor, batch: int = 24) -> Tensor:
    """(N, T) absolute errors, each batch forecast before it is learned."""
    errors = []
    for start in range(0, len(y), batch):
        rows = slice(start, start + batch)
        issued = model.predict(x.rows(rows))
        errors.append((y[rows] - issued.mean).abs())
        assert model.update(x.rows(rows), y[rows], issued).healthy
    return torch.cat(errors)


@pytest.mark.slow
def test_it_is_far_better_than_the_naive_and_never_much_worse_at_first() -> None:
    y, k = stream(2000)
    x, truth, _ = windows_of(y, k)
    model = build(Config(), windows_of(y[:400], k[:400])[2].shape)
    assert isinstance(model, DirectLinear)
    errors = run(model, x, truth)
    naive = (truth - model.regression.columns.bases(x, model.regression.levels)[0]).abs()
    assert errors[800:].mean() < 0.45 * naive[800:].mean()
    assert errors[:200].mean() < 1.05 * naive[:200].mean()


@pytest.mark.slow
def test_a_glitch_costs_little_afterwards() -> None:
    y, k = stream(2000)
    broken = y.copy()
    broken[1000] = 1e9
    (x, truth, windows), (bad, wrong, _) = windows_of(y, k), windows_of(broken, k)
    clean = run(DirectLinear(windows.shape), x, truth)
    after = run(DirectLinear(windows.shape), bad, wrong)
    later = slice(1010, None)
    kept = (wrong == truth).all(1)
    assert after[later][kept[later]].mean() < 1.1 * clean[later][kept[later]].mean()


@pytest.mark.slow
def test_columns_of_noise_cost_little_wherever_they_are_named() -> None:
    y, k = stream(2500)
    generator = np.random.default_rng(5)
    noise = {f"n{at}": generator.standard_normal(len(y)) for at in range(5)}
    found = []
    for known in (("k",), ("k", *noise), (*noise, "k")):
        spec = WindowSpec(targets=("y",), known=known, lags=4, horizon=6, season=168, seasons=(24, 168))
        asks, _ = Windows(spec).push(pa.record_batch({"y": y, "k": k, **noise}))
        truth = torch.from_numpy(y)[asks.position[:, None] + torch.arange(1, 7)]
        model, first = DirectLinear(spec.shape), slice(0, 245)
        list(model.fit(asks.x.rows(first), truth[first], 1))
        found.append(run(model, asks.x.rows(slice(245, None)), truth[245:])[755:].mean())
    assert max(found) < 1.03 * found[0], found


@pytest.mark.slow
def test_drawn_functions_have_the_mean_and_variance_of_the_forecast() -> None:
    x, y = example_windows(SEASONS, 400)
    model = build(Config(), SEASONS)
    assert isinstance(model, DirectLinear)
    model.update(x, y)
    few, paths = x.rows(slice(0, 3)), 4000
    draw = model.functions(paths, torch.Generator().manual_seed(0))
    repeated = Inputs.cat([few] * paths)
    drawn = draw(repeated).unflatten(0, (paths, 3))
    issued = model.predict(few)
    assert torch.allclose(drawn.mean(0), issued.mean, atol=5 * float(drawn.std(0).max()) / paths**0.5)
    assert (drawn.var(0) >= 0.9 * issued.noise).all()


@pytest.mark.slow
def test_series_of_a_panel_are_forecast_well_whatever_their_size() -> None:
    y, other = (stream(1500, seed=seed)[0] for seed in (1, 2))
    large = 1000 * other
    rows = {"s": np.tile(["a", "b"], 1500), "y": np.stack([y, large], 1).ravel()}
    spec = WindowSpec(targets=("y",), lags=4, horizon=6, season=168, seasons=(24, 168), series="s")
    asks, _ = Windows(spec).push(pa.record_batch(rows))
    after = np.full(6, np.nan)  # forecasts of the last rows, whose truths never come
    both = torch.from_numpy(np.stack([np.append(y, after), np.append(large, after)]))
    truth = both[asks.series[:, None], asks.position[:, None] // 2 + torch.arange(1, 7)]
    errors = run(DirectLinear(spec.shape), asks.x, truth, batch=48)
    for code, (values, size) in enumerate(((y, 1.0), (other, 1000.0))):
        x, own, windows = windows_of(values, None)
        alone = run(DirectLinear(windows.shape), x, own)
        ours = errors[asks.series == code] / size
        assert ours[800:].nanmean() < 1.1 * alone[800:].nanmean()


@pytest.mark.slow
@pytest.mark.parametrize("seasons", [(24, 168), (24,)])
def test_a_level_that_jumps_and_stays_is_followed_within_three_rows_and_the_way_back_within_two(
    seasons: tuple[int, ...],
) -> None:
    y, k = stream(2000)
    moved = y.copy()
    moved[1000:1240] -= 50 * y.std()
    (_, truth, windows), (shifted, other, _) = windows_of(y, k, seasons=seasons), windows_of(moved, k, seasons=seasons)
    errors = run(DirectLinear(windows.shape), shifted, other)
    first = int(len(y) - len(truth) - 6)  # the row of the first window
    persistence = (other - torch.from_numpy(moved)[first : first + len(other), None]).abs()
    for start, stop in ((1003, 1024), (1024, 1048), (1048, 1230), (1241, 1243), (1243, 1400)):
        rows = slice(start - first, stop - first)
        level = (other[rows] - truth[rows]).std(1) < 1.0  # all steps lie on one level
        assert errors[rows][level].mean() < 2.0 * persistence[rows][level].mean()


@pytest.mark.slow
@pytest.mark.parametrize("seasons", [(24, 168), (24,)])
@pytest.mark.parametrize("seed", range(6))
def test_forecasts_are_numbers_whatever_the_level_does(seed: int, seasons: tuple[int, ...]) -> None:
    (y, k), generator = stream(1200, seed), np.random.default_rng(seed)
    for start in np.sort(generator.integers(300, 1150, 8)):
        y[start : start + generator.choice([1, 3, 30, 300])] += generator.choice([-1, 1]) * 10 ** generator.uniform(
            1, 5
        )
    y[generator.random(len(y)) < 0.02] = np.nan
    x, truth, windows = windows_of(y, k, seasons=seasons)
    model = DirectLinear(windows.shape)
    for start in range(0, len(truth), 24):
        rows = slice(start, start + 24)
        issued = model.predict(x.rows(rows))
        assert issued.mean.isfinite().all() and (issued.variance > 0).all()
        model.update(x.rows(rows), truth[rows], issued)


@pytest.mark.parametrize("seasons", [(24, 168), (24,)])
def test_a_unit_that_changes_for_good_is_followed_through_dropouts_and_gaps(seasons: tuple[int, ...]) -> None:
    """Its values are farther from the level of the first rows than any glitch, and from each other."""
    y, k = stream(600)
    moved = y.copy()
    moved[300:] *= 1000
    moved[500], moved[540] = -1e5, np.nan
    x, truth, windows = windows_of(moved, k, seasons=seasons)
    first = len(y) - len(truth) - 6
    errors = run(DirectLinear(windows.shape), x, torch.where(truth == -1e5, torch.nan, truth)).nanmean(1)
    assert errors[303 - first : 590 - first].max() < 4000 * y.std()
    assert errors[350 - first : 500 - first].mean() < 600 * y.std()


def test_glitches_that_resemble_each_other_leave_numbers() -> None:
    y, k = stream(600)
    y[500:503] = 1e6, 1.03e6, 1.09e6
    x, truth, windows = windows_of(y, k)
    errors = run(DirectLinear(windows.shape), x, truth)
    assert errors[truth.isfinite()].isfinite().all()


@pytest.mark.parametrize(("away", "rows", "believed"), [(0.0, 1, True), (8.0, 1, False), (8.0, 2, True)])
def test_one_value_like_the_first_rows_is_the_way_back_and_two_that_are_not_far(
    away: float, rows: int, believed: bool
) -> None:
    y, k = stream(800)
    level = float(np.median(y[:400]))
    y[400:] += 50 * y.std()
    value = level + away * float(np.abs(y[:400] - level).mean())
    y[700 : 700 + rows] = value
    x, truth, windows = windows_of(y, k)
    model = DirectRegression(windows.shape)
    model.begin(x.rows(slice(0, 100)), truth[:100])
    first = len(y) - len(truth) - 6
    at = x.rows(slice(699 + rows - first, 700 + rows - first))
    assert float(at.past[0, -1, 0]) == value
    now, jump = model._jump(at, 0, model.levels[:1, None], model.width[:1, None])
    assert bool(jump > 0) == believed and (not believed or float(now) == value)


def test_truths_that_are_missing_are_no_glitches() -> None:
    x, y = example_windows(SEASONS, 400)
    y[::100] = torch.nan
    (step,) = build(Config(), SEASONS).fit(x, y, 1)
    assert step.healthy and "undone" not in step.done
    y[50] = 1e9
    (step,) = build(Config(), SEASONS).fit(x, y, 1)
    assert not step.healthy and "1 windows hold a value" in step.done
