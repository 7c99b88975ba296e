"""The closed form on streams: rebuilds, replacement, references, masked truths, fits in several epochs."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from streamgp.base import Inputs, Shape, Step
from streamgp.errors import NotPositiveDefinite
from streamgp.models import svdgp
from streamgp.models.svdgp.conjugate import Conjugate
from streamgp.online.model import StreamModel
from streamgp.testing.models import SHAPES, example_windows

REGRESSION = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u", "k"), future=("u", "k"))


def surface(rows: int, seed: int = 0) -> tuple[Inputs, torch.Tensor]:
    u = torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 6 - 3
    y = 100 + 10 * torch.sin(u[:, 0]) * torch.cos(u[:, 1])
    return Inputs(torch.zeros(rows, 0, 3, dtype=torch.float64), u[:, None]), y[:, None]


def run(model: StreamModel, x: Inputs, y: torch.Tensor, batch: int = 50) -> list[Step]:
    parts = [slice(start, start + batch) for start in range(0, len(y), batch)]
    return [model.update(x.rows(part), y[part]) for part in parts]


def error(model: StreamModel, x: Inputs, y: torch.Tensor) -> float:
    return float((model.predict(x).mean - y).square().mean().sqrt())


def built(shape: Shape, **options: object) -> StreamModel:
    torch.set_num_threads(1)
    model = svdgp.build(svdgp.Config.model_validate(options), shape)
    assert isinstance(model, StreamModel)
    return model


def test_a_sorted_stream_is_learned_as_well_as_a_shuffled_one() -> None:
    (x, y), (held, truth) = surface(1500), surface(400, seed=1)
    errors = []
    for order in (torch.arange(1500), torch.argsort(x.future[:, 0, 0])):
        model = built(REGRESSION, basis=150, rebuild=400, reservoir=800, evidence_rows=100)
        steps = run(model, x.rows(order), y[order])
        assert all(step.healthy for step in steps)
        errors.append(error(model, held, truth))
    assert errors[0] < 0.5 and errors[1] < 1.3 * errors[0] + 0.1  # the spread is 5


def rebuilds(steps: list[Step], batch: int = 50) -> list[int]:
    """Rows seen at each rebuild."""
    return [batch * (number + 1) for number, step in enumerate(steps) if step.done.startswith("rebuild")]


def test_rebuilds_come_early_and_then_at_their_interval() -> None:
    model = built(REGRESSION, basis=40, rebuild=300, reservoir=200, evidence_rows=30, memory=500)
    at = rebuilds(run(model, *surface(1500)))
    assert at[0] == 50 and at[1] <= 150 and max(b - a for a, b in pairwise(at)) == 300


def test_where_nothing_is_forgotten_rebuilds_come_in_proportion_to_the_stream() -> None:
    """Rows that the reservoir does not keep are lost at a rebuild. Unless they come from where none came before."""
    (x, y), found = surface(1000), list[list[int]]()
    for order in (torch.arange(1000), torch.argsort(x.future[:, 0, 0])):
        model = built(REGRESSION, basis=40, rebuild=100, reservoir=400, evidence_rows=30)
        found.append(rebuilds(run(model, x.rows(order), y[order])))
    assert found[0] == [50, 150, 250, 350, 450, 600, 750, 950]
    assert len(found[1]) >= 9


def test_only_novel_rows_become_basis_points_of_a_long_stream() -> None:
    """A basis that many rows chose waits for rows where there were none; a checkpoint knows what is novel."""
    x, y = surface(1200)
    near = x.future[:, 0, 0] < 0
    options = {"basis": 64, "rebuild": 1000, "reservoir": 1000, "evidence_rows": 60, "linear": False}
    model, other = built(REGRESSION, **options), built(REGRESSION, **options)
    steps = run(model, x.rows(near), y[near])
    after = [step.basis for step in steps[rebuilds(steps)[-1] // 50 - 1 :]]
    assert len(after) >= 3 and after[0] == 64 - 64 // 16 and after[-1] <= after[0] + 1  # a share would be 3 a batch
    other.restore(*model.state())
    far = (~near).nonzero()[:150, 0]
    for one in (model, other):
        run(one, x.rows(far), y[far])
        regression = one.posterior.regression
        border = (one.inputs(x)[x.future[:, 0, 0].abs().argmin()] * regression.inverse)[0]
        assert int((regression.points[:, 0] > border).sum()) >= 8
    assert torch.equal(model.predict(x).mean, other.predict(x).mean)


def test_windows_that_were_forecast_are_learned_without_their_features_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = surface(300)
    models, asked = [built(REGRESSION, basis=60, evidence_rows=60) for _ in range(2)], list[int]()
    for model in models:
        run(model, x.rows(slice(0, 200)), y[:200], batch=200)
    features = Conjugate.features
    monkeypatch.setattr(Conjugate, "features", lambda self, z: (asked.append(len(z)), features(self, z))[1])
    new = x.rows(slice(200, 250))
    models[0].predict(new)
    assert asked == [50]
    for model in models:
        model.update(new, y[200:250])
    assert [rows for rows in asked if rows > 4] == [50, 50]  # the second model had forecast nothing
    assert torch.equal(models[0].predict(x).mean, models[1].predict(x).mean)


def test_small_batches_are_learned_together() -> None:
    x, y = surface(1072)
    models = [built(REGRESSION, basis=60, rebuild=0, limit=None, memory="all") for _ in range(2)]
    for model, size in zip(models, (16, 32), strict=True):
        run(model, x.rows(slice(0, 1024)), y[:1024], batch=128)
        before = model.predict(x).mean
        run(model, x.rows(slice(1024, 1056)), y[1024:1056], batch=size)
        assert torch.equal(model.predict(x).mean, before)
        run(model, x.rows(slice(1056, 1072)), y[1056:], batch=16)
        assert not torch.equal(model.predict(x).mean, before)
    assert torch.allclose(models[0].predict(x).mean, models[1].predict(x).mean, rtol=1e-9)


def test_rows_that_waited_are_given_up_with_those_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = surface(1200)
    model = built(REGRESSION, basis=60, rebuild=0)
    run(model, x.rows(slice(0, 1024)), y[:1024], batch=128)
    run(model, x.rows(slice(1024, 1056)), y[1024:1056], batch=32)
    before = model.predict(x).mean

    def fail() -> None:
        raise NotPositiveDefinite("no factor")

    with monkeypatch.context() as patch:
        patch.setattr(model.posterior.regression, "solve", fail)
        assert not model.update(x.rows(slice(1056, 1088)), y[1056:1088]).healthy
    assert torch.equal(model.predict(x).mean, before)
    assert all(step.healthy for step in run(model, x.rows(slice(1088, 1152)), y[1088:1152], batch=32))
    assert not torch.equal(model.predict(x).mean, before)


def test_without_rebuilds_a_full_basis_gives_way_to_where_the_stream_has_gone() -> None:
    model = built(REGRESSION, basis=40, rebuild=0, growth=0.5, linear=False)
    x, y = surface(600)
    near = x.future[:, 0, 0] < 0
    run(model, x.rows(near), y[near])
    far, truth = x.rows(~near), y[~near]
    before = error(model, far, truth)
    steps = run(model, far, truth)
    assert any("replaced" in step.done for step in steps) and max(step.basis for step in steps) <= 40
    assert error(model, far, truth) < 0.3 * before
    assert (model.posterior.regression.points[:, 0] > 0).float().mean() > 0.3


def test_the_learned_reference_serves_level_change_and_season() -> None:
    shape = SHAPES[1]
    x, y = example_windows(shape, 600)
    losses = {}
    for target in ("auto", "level", "change", "season"):
        model = built(shape, target=target, basis=100, evidence_rows=100)
        run(model, x.rows(slice(0, 500)), y[:500], batch=100)
        losses[target] = error(model, x.rows(slice(500, 600)), y[500:])
    assert losses["auto"] <= 1.1 * min(losses.values())


def test_a_rebuild_keeps_masked_truths_out() -> None:
    shape = SHAPES[1]
    x, y = example_windows(shape, 400)
    holes = y.clone()
    holes[::2, 0] = torch.nan
    whole, masked = (built(shape, basis=60, reservoir=300, evidence_rows=80) for _ in range(2))
    run(whole, x, y)
    steps = run(masked, x, holes)
    assert all(step.healthy for step in steps)
    assert error(masked, x, y) < 1.3 * error(whole, x, y)


def test_more_epochs_give_the_mean_more_functions_and_less_error() -> None:
    (x, y), (held, truth) = surface(1200), surface(300, seed=1)
    model = built(REGRESSION, basis=25, mean_basis=100, linear=False, evidence_rows=50)
    errors, sizes = [], []
    for step in model.fit(x, y, epochs=10):
        errors.append(error(model, held, truth))
        sizes.append(step.basis)
    assert sizes == [25, 50, 100] and errors[2] < 0.7 * errors[0]
    assert model.update(held, truth).basis <= 25  # a stream goes on with its own size


def test_a_stream_of_single_rows_and_of_equal_rows_is_survived() -> None:
    model = built(REGRESSION, basis=20, reservoir=64, evidence_rows=20)
    x, y = surface(40)
    assert all(step.healthy for step in run(model, x, y, batch=1))
    same = x.rows(torch.zeros(60, dtype=torch.int64))
    steps = run(model, same, y[:1].expand(60, 1), batch=20)
    assert all(step.healthy for step in steps)
    constant = built(REGRESSION, basis=20)
    assert all(step.healthy for step in run(constant, same, torch.full((60, 1), 3.0, dtype=torch.float64), batch=20))
    assert error(constant, same, torch.full((60, 1), 3.0)) < 1e-3
