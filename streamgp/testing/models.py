"""The laws of `base.Model`, asserted for every shape that a model can be built for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Model, Predictive, Shape, Step
from streamgp.context import Context, Entry
from streamgp.errors import DataError, UsageError
from streamgp.online.blown import BLOWN
from streamgp.online.model import StreamModel
from streamgp.testing.stateful import check_stateful, reborn, same_bits

SHAPES = (
    Shape(targets=("y",), horizon=1, lags=3, past=("y",), future=()),
    Shape(
        targets=("y", "z"),
        horizon=3,
        lags=4,
        past=("y", "z", "u", "k", "season(y)", "season(z)"),
        future=("season(y)", "season(z)", "k"),
        season=6,
    ),
    Shape(targets=("y",), horizon=1, lags=0, past=("y", "u", "k"), future=("u", "k")),
)
"""One step from its own lags; two targets with a season, inputs and a known input; regression."""


SEASONS = Shape(
    targets=("y", "z"),
    horizon=3,
    lags=4,
    past=("y", "z", "u", "k", "season(y)", "season(z)"),
    future=("season(y)", "season(z)", "k"),
    season=12,
    context=Context((6, 12), 3, ("y", "z"), ("u",), ("k",)),
)
"""Two seasons and their context, for models that look at it."""


def example_windows(shape: Shape, rows: int, seed: int = 0, binary: bool = False) -> tuple[Inputs, Tensor]:
    """Windows of a made-up stream: a wave of the season's (or 12 rows') length, an input's effect, some noise.

    Returns:
        N windows in order of time, and their truths (N, T) in units where the level is 50 and the spread about 10; or,
        binary, 1 where that is above its level and 0 elsewhere.

    Example:
        >>> x, y = example_windows(SHAPES[1], 100)
        >>> x.past.shape, x.future.shape, y.shape
        (torch.Size([100, 4, 6]), torch.Size([100, 3, 3]), torch.Size([100, 6]))
    """
    generator = torch.Generator().manual_seed(seed)
    outputs, season = shape.outputs, shape.season
    own = len(shape.past) - (outputs if shape.seasonal else 0)  # targets and inputs
    first = season + shape.lags if shape.context is None else shape.context.back + 1
    count = first + rows + shape.horizon
    values = torch.randn(count, own, generator=generator, dtype=FLOAT)
    time = torch.arange(count, dtype=FLOAT)[:, None]
    wave = torch.sin(2 * torch.pi * time / (season if season > 1 else 12) + torch.arange(outputs, dtype=FLOAT))
    effect = values[:, outputs:].sum(1, keepdim=True)
    values[:, :outputs] = 50 + 10 * wave + 2 * effect + (4.0 if binary else 0.5) * values[:, :outputs]
    if binary:
        values[:, :outputs] = (values[:, :outputs] > 50).to(FLOAT)
    now = first + torch.arange(rows)[:, None]  # (N, 1) the origin
    lags, ahead = torch.arange(1 - shape.lags, 1), torch.arange(1, shape.horizon + 1)
    past = [values[now + lags]]
    if not shape.lags:
        return Inputs(past[0], values[now][:, :, outputs:]), values[now[:, 0], :outputs]
    future = []
    if shape.seasonal:
        past.append(values[now + lags - season][..., :outputs])
        future.append(values[now + ahead - -(-ahead // season) * season][..., :outputs])
    known = len(shape.future) - (outputs if shape.seasonal else 0)
    future.append(values[now + ahead][..., own - known :])
    truth = values[now + ahead][..., :outputs].transpose(1, 2).flatten(1)
    context = None if shape.context is None else _context(shape.context, values, now)
    return Inputs(torch.cat(past, 2), torch.cat(future, 2), context), truth


def _context(layout: Context, values: Tensor, now: Tensor) -> Tensor:
    """(N, C) read off the layout, entry by entry. values: (R, columns); now: (N, 1) rows."""

    def mean(entry: Entry, part: int) -> Tensor:
        return values[now + torch.tensor(entry.offsets[part])][..., entry.channel].mean(1)

    found = [mean(entry, 0) for entry in layout.window]
    for h in range(layout.horizon):
        found += [mean(entry, h) for entry in layout.steps]
        at = (now[:, 0] + h + 1).to(FLOAT)
        found += [(at % season) / season if season else 0.0 * at for season in (layout.short, layout.long)] + [0.0 * at]
    return torch.stack(found, 1)


def check_model(
    build: Callable[[Shape], Model], shapes: Sequence[Shape] = SHAPES, batch: int = 64, full: int = 1024
) -> None:
    """The laws of `base.Model`, for every shape that the model can be built for.

    Args:
        build: makes a model; it may raise UsageError for a shape that it cannot serve, but not for all of them.
        shapes: to try.
        batch: rows an update.
        full: rows after which the state grows no more.

    Raises:
        AssertionError: a law is broken; the message names it.

    Example:
        >>> from streamgp.models import persistence
        >>> check_model(lambda shape: persistence.build(persistence.Config(), shape))
    """
    served = 0
    for shape in shapes:
        try:
            build(shape)
        except UsageError as refusal:
            assert refusal.hint, "a refusal must say what to try"
            continue
        served += 1
        _check_predictive(build(shape), shape)
        _check_pure(build, shape, batch)
        _check_bounded(build, shape, batch, full)
        _check_state(build, shape, batch)
        _check_missing(build, shape, batch)
        _check_fit(build, shape, batch)
        _check_overflow(build, shape, batch)
        _check_glitch(build(shape), shape, batch)
        if build(shape).family.binary:
            _check_outcomes(build(shape), shape)
    assert served, "the model refuses every shape"


def _example(model: Model, shape: Shape, rows: int) -> tuple[Inputs, Tensor]:
    """Windows whose truths the model can learn."""
    return example_windows(shape, rows, binary=getattr(model.family, "binary", False))  # a false family is found later


def _same(one: Predictive, other: Predictive) -> bool:
    return torch.equal(one.parameters(), other.parameters())


def _close(one: Predictive, other: Predictive, tolerance: float) -> bool:
    mean, variance = (one.mean - other.mean).abs(), (one.variance - other.variance).abs()
    size = one.mean.abs() + one.variance.sqrt()
    return bool((mean <= tolerance * size).all() and (variance <= tolerance * one.variance).all())


def _check_predictive(model: Model, shape: Shape) -> None:
    """What `predict` returns, before any data, is a whole distribution of the right family and shape."""
    x, y = _example(model, shape, 9)
    wanted = (9, shape.columns)
    issued = model.predict(x)
    assert isinstance(issued, model.family), "predict returns another family than the model declares"
    for name in ("mean", "variance", "latent_variance"):
        value = getattr(issued, name)
        assert value.shape == wanted and torch.isfinite(value).all(), f"{name} of the prior is not a finite (N, T)"
    assert (issued.variance > 0).all() and (issued.latent_variance >= 0).all(), "variances must be positive"
    assert (issued.variance >= issued.latent_variance).all(), "the latent variance exceeds the whole"
    low, high = issued.quantile(torch.tensor([0.1, 0.9], dtype=FLOAT))
    if model.family.binary:
        assert ((issued.mean > 0) & (issued.mean < 1)).all(), "the mean must be the probability of 1"
        assert low.shape == wanted and (low <= high).all() and ((high == 0) | (high == 1)).all(), "quantiles"
    else:
        assert low.shape == wanted and (low < issued.mean).all() and (issued.mean < high).all(), "quantiles"
    holes = torch.where(torch.arange(9)[:, None] == 4, torch.nan, y)
    for name in ("log_prob", "crps"):
        score = getattr(issued, name)(holes)
        assert score.shape == wanted and torch.equal(score.isnan(), holes.isnan()), f"{name} must be NaN where y is"
    again = model.family.from_parameters(issued.parameters())
    assert _same(issued, again), "from_parameters is not the inverse of parameters"
    paths = issued.sample(2, torch.Generator().manual_seed(0))
    assert paths.shape == (2, *wanted), "sample gives (paths, N, T)"


def _check_pure(build: Callable[[Shape], Model], shape: Shape, batch: int) -> None:
    """Laws 1 and 2, and that learning makes the truth more probable."""
    model = build(shape)
    x, y = _example(model, shape, 6 * batch)
    last = slice(5 * batch, None)
    before = model.predict(x.rows(last)).log_prob(y[last])
    for start in range(0, 5 * batch, batch):
        rows = slice(start, start + batch)
        step = model.update(x.rows(rows), y[rows], model.predict(x.rows(rows)))
        assert isinstance(step, Step) and step.healthy, f"an update on good data is unhealthy: {step}"
    held = {name: tensor.clone() for name, tensor in model.state()[0].items()}
    random = torch.get_rng_state()
    whole = model.predict(x.rows(last))
    assert torch.equal(random, torch.get_rng_state()), "predict draws random numbers (law 1)"
    now = model.state()[0]
    assert now.keys() == held.keys() and all(same_bits(now[name], held[name]) for name in held), (
        "predict changes the state (law 1)"
    )
    assert _same(whole, model.predict(x.rows(last))), "a second predict differs (law 1)"
    for row in (0, batch // 2):
        at = slice(5 * batch + row, 5 * batch + row + 1)
        part = model.family.from_parameters(whole.parameters()[:, row : row + 1])
        assert _close(model.predict(x.rows(at)), part, 1e-10), "a window alone differs from its row of a batch (law 2)"
    gained = whole.log_prob(y[last]) - before
    assert gained.mean() > -2.0 * gained.std() / len(gained) ** 0.5, "five batches made the truth less probable"


def _check_bounded(build: Callable[[Shape], Model], shape: Shape, batch: int, full: int) -> None:
    """Law 4: once `full` rows are learned, the state is as large as it ever gets; and forecasts are in bounds."""
    model = build(shape)
    x, y = _example(model, shape, 2 * full)
    sizes = []
    for start in range(0, 2 * full - batch + 1, batch):
        model.update(x.rows(slice(start, start + batch)), y[start : start + batch])
        sizes.append(sum(tensor.numel() for tensor in model.state()[0].values()))
    assert max(sizes[full // batch :]) <= max(sizes[: full // batch]), "the state grows with the rows (law 4)"
    off = (model.predict(x.rows(slice(-batch, None))).mean - y.mean(0)).abs()
    assert (off <= BLOWN * y.std(0)).all(), "a forecast is more than 100 spreads of the target off"


def _check_state(build: Callable[[Shape], Model], shape: Shape, batch: int) -> None:
    """Law 3."""
    x, y = _example(build(shape), shape, 5 * batch)

    def advance(model: Model, step: int) -> Tensor:
        rows = slice(step * batch, (step + 1) * batch)
        done = model.update(x.rows(rows), y[rows], model.predict(x.rows(rows)) if step % 2 else None)
        return torch.cat([model.predict(x).parameters().flatten(), torch.tensor([done.loss], dtype=FLOAT)])

    check_stateful(lambda: build(shape), advance, 4, same_bits)


def _check_missing(build: Callable[[Shape], Model], shape: Shape, batch: int) -> None:
    """Law 5, and lags that are missing."""
    model = build(shape)
    x, y = _example(model, shape, 3 * batch)
    model.update(x.rows(slice(0, batch)), y[:batch])
    before = model.predict(x)
    model.update(x.rows(slice(batch, 2 * batch)), torch.full_like(y[batch : 2 * batch], torch.nan))
    assert _close(before, model.predict(x), 1e-9), "a batch without any truth taught something (law 5)"
    holes = y[batch : 2 * batch].clone()
    holes[::3] = torch.nan
    holes[1::3, : shape.columns // 2] = torch.nan
    model.update(x.rows(slice(batch, 2 * batch)), holes, model.predict(x.rows(slice(batch, 2 * batch))))
    past = x.past.clone()
    past[::2, :-1] = torch.nan  # as channels without any value are
    after = model.predict(x._replace(past=past))
    assert torch.isfinite(after.mean).all() and torch.isfinite(after.variance).all(), "missing values leak into numbers"


def _check_outcomes(model: Model, shape: Shape) -> None:
    """A model of outcomes 0 and 1 refuses every other value, by the name of its target, and continues."""
    x, y = _example(model, shape, 9)
    wrong = y.clone()
    wrong[3, -1] = 0.5
    for learn in (model.update, lambda x, y: list(model.fit(x, y, epochs=1))):
        try:
            learn(x, wrong)
        except DataError as refusal:
            assert refusal.hint and shape.targets[-1] in refusal.message, "a refusal must name the target and a remedy"
        else:
            raise AssertionError("a target of 0.5 was learned as an outcome")
    assert model.update(x, y).healthy, "a refusal must leave the model as it was"


def _check_fit(build: Callable[[Shape], Model], shape: Shape, batch: int) -> None:
    """`fit` takes at most the epochs given, can be left early, saved and taken up, and `update` continues from it."""
    model = build(shape)
    x, y = _example(model, shape, 4 * batch)
    steps = list(model.fit(x.rows(slice(0, 3 * batch)), y[: 3 * batch], epochs=2))
    assert 1 <= len(steps) <= 2 and all(step.healthy for step in steps), "fit yields a healthy Step an epoch"
    model.update(x.rows(slice(3 * batch, None)), y[3 * batch :])
    left = build(shape)
    next(iter(left.fit(x, y, epochs=3)))
    restored = reborn(left, build(shape))
    assert _same(left.predict(x), restored.predict(x)), "a model saved between epochs predicts otherwise (law 3)"
    losses = []
    for one in (left, restored):
        losses.append([step.loss for step in one.fit(x, y, epochs=2)])
    assert losses[0] == losses[1] and _same(left.predict(x), restored.predict(x)), "a fit taken up differs (law 3)"
    for one in (model, left):
        assert torch.isfinite(one.predict(x).parameters()).all(), "numbers after fit are not finite"


def _check_overflow(build: Callable[[Shape], Model], shape: Shape, batch: int) -> None:
    """Law 6: a window whose squares overflow is left out and reported; the rest of its batch is learned."""
    one, other = build(shape), build(shape)
    x, y = _example(one, shape, 5 * batch)
    for model in (one, other):
        list(model.fit(x.rows(slice(0, 2 * batch)), y[: 2 * batch], epochs=1))
    held = slice(4 * batch, None)
    at = torch.arange(2 * batch, 3 * batch)
    for broken, part in enumerate(x.parts):
        if not part[0].numel():
            continue
        parts = [values.clone() for values in x.parts]
        parts[broken][at[5]].view(-1)[0] = 1e200
        step = one.update(Inputs(*parts).rows(at), y[at])
        assert not step.healthy and "undone" in step.done, "a window beyond float64 is not reported (law 6)"
        others = at[at != at[5]]
        assert other.update(x.rows(others), y[others]).healthy, "an update on good data is unhealthy"
        after = slice(3 * batch, 4 * batch)
        for model in (one, other):
            assert model.update(x.rows(after), y[after]).healthy, "a window beyond float64 spoils later updates (law 6)"
        found, wanted = one.predict(x.rows(held)), other.predict(x.rows(held))
        assert _close(found, wanted, 1e-9), "a window beyond float64 taught something (law 6)"


def _check_glitch(model: Model, shape: Shape, batch: int) -> None:
    """A glitch among the lags, or among the inputs without lags, ruins no forecast of a model that limits its targets:
    `StreamModel` takes the value next to it in its place."""
    if not isinstance(model, StreamModel) or model.winsorise.deviations is None:
        return
    x, y = _example(model, shape, 5 * batch)
    for start in range(0, 4 * batch, batch):
        model.update(x.rows(slice(start, start + batch)), y[start : start + batch])
    x = x.rows(slice(4 * batch, None))
    usual, change = model.predict(x), 20.0
    for at in (0, -1):
        past, future = x.past.clone(), x.future.clone()
        (past if shape.lags else future)[5, at, 0] = 1e9
        found = model.predict(x._replace(past=past, future=future))
        moved = (found.mean - usual.mean).abs() / usual.variance.sqrt()
        assert (moved < change).all(), "a forecast follows a glitch among the inputs"
        assert (found.variance < change**2 * usual.variance).all(), "a band follows a glitch among the inputs"


def check_recovers(build: Callable[[Shape], Model], frequency: float = 8.0, seed: int = 0, rows: int = 2000) -> None:
    """No absorbing state: whatever the first 50 rows were, a model learns what comes after them.

    A wave over one input, 74 % of the target's variance, of which 50 rows may look like noise and 2,000 do not. The
    model's error on the next 200 rows is at most 1.1 times that of a model that has not seen the first 50.

    Args:
        build: makes a model; one that refuses windows without lags has nothing to show.
        frequency: of the wave, in radians a unit of the input, which is uniform on (−1, 1).
        seed: of the rows.
        rows: after the first batch.

    Raises:
        AssertionError: the error stays larger.
    """
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
    generator = torch.Generator().manual_seed(seed)
    u = 2 * torch.rand(rows + 250, 1, 1, generator=generator, dtype=FLOAT) - 1
    wave = 2**0.5 * torch.sin(frequency * u[:, 0]) * (1 if torch.randn(1, generator=generator) > 0 else -1)
    y = 0.74**0.5 * wave + 0.26**0.5 * torch.randn(rows + 250, 1, generator=generator, dtype=FLOAT)
    x = Inputs(u.new_zeros(len(u), 0, 2), u)
    try:
        if build(shape).family.binary:
            y = (y > 0).to(FLOAT)
    except UsageError:
        return
    held, errors = slice(rows + 50, None), []
    for start in (0, 50):
        model = build(shape)
        for at in range(start, rows + 50, 50):
            assert model.update(x.rows(slice(at, at + 50)), y[at : at + 50]).healthy, "an update failed"
        errors.append(float((model.predict(x.rows(held)).mean - y[held]).square().mean().sqrt()))
    ratio = errors[0] / errors[1]
    assert ratio <= 1.1, f"after an unlucky first batch the error stays {ratio:.2f} times what it could be"
