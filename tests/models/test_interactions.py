"""What the mix leaves is learned from known inputs: in closed form, by evidence, and only where there is something."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs
from streamgp.features.fourier import standard_normals
from streamgp.models.ensemble import Config, build
from streamgp.models.ensemble.interactions import FREQUENCIES, RIDGE, Interactions
from streamgp.models.ensemble.model import INTERACTIONS, Ensemble
from streamgp.testing import check_model
from streamgp.testing.models import SEASONS
from streamgp.windows.windows import Windows, WindowSpec

HORIZON, DAY, WEEK = 6, 24, 168
EXPERTS = ("linear", "persistence")


def windows(known: tuple[str, ...] = ("k",), **columns: np.ndarray) -> tuple[Inputs, Tensor, Tensor, Windows]:
    """Windows of a stream, their truths (N, H), and the rows (N,) that they are asked at."""
    spec = WindowSpec(("y",), known=known, lags=4, horizon=HORIZON, season=WEEK, seasons=(DAY, WEEK))
    made = Windows(spec)
    asks, _ = made.push(pa.record_batch(columns))
    truth = torch.from_numpy(columns["y"])[asks.position[:, None] + torch.arange(1, HORIZON + 1)]
    return asks.x, truth, asks.position, made


def wandering(rows: int, kept: float, seed: int) -> np.ndarray:
    """An autoregression of variance 1."""
    steps, found = np.random.default_rng(seed).standard_normal(rows), np.zeros(rows)
    for row in range(1, rows):
        found[row] = kept * found[row - 1] + math.sqrt(1 - kept**2) * steps[row]
    return found


def clouds(rows: int, matters: float) -> tuple[np.ndarray, np.ndarray]:
    """A day of light, less what clouds take of it, and noise."""
    cloud = 1 / (1 + np.exp(-1.5 * wandering(rows, 0.95, 1)))
    light = np.maximum(np.sin(2 * np.pi * (np.arange(rows) % DAY) / DAY), 0.0)
    noise = 0.3 * wandering(rows, 0.9, 2)
    return 10 * light * (1 - matters * cloud**2) + noise, cloud


def error(model: Ensemble, x: Inputs, y: Tensor, first: int = 700) -> float:
    """Mean absolute error from a row on, each day forecast before it is learned."""
    found = []
    for start in range(0, len(y), DAY):
        rows = slice(start, start + DAY)
        issued = model.predict(x.rows(rows))
        found.append((issued.mean - y[rows]).abs())
        model.update(x.rows(rows), y[rows], issued)
    return float(torch.cat(found)[first:].mean())


def mixed(made: Windows, interactions: bool) -> Ensemble:
    return build(Config(experts=EXPERTS, interactions=interactions), made.shape)


def test_a_flag_that_is_known_leaves_the_variance_of_the_mix_as_it_is() -> None:
    """No input is looked at: the stage learns nothing of its errors, and has nothing to say of them."""
    y, rows = clouds(1000, 0.0)[0], np.arange(1000)
    x, truth, _, made = windows(k=(rows // DAY % 7 < 5) * 1.0, y=y)
    model = mixed(made, interactions=True)
    list(model.fit(x.rows(slice(0, 400)), truth[:400], 1))
    error(model, x.rows(slice(400, None)), truth[400:])
    assert model.interactions is not None and model.interactions.idle
    issued = model.predict(x.rows(slice(400, None)))
    ratio = ((truth[400:] - issued.mean).square() / issued.variance).mean()
    assert 0.3 < float(ratio) < 3.0


@pytest.mark.slow
def test_it_keeps_the_laws() -> None:
    check_model(lambda shape: build(Config(experts=EXPERTS), shape), shapes=[SEASONS])


def test_what_it_looks_at() -> None:
    """The forecast less the level, the hour, the weekend, the step, and known inputs at the step."""
    y, k = clouds(600, 0.7)
    x, truth, at, made = windows(("k", "flag"), y=y, k=k, flag=(np.arange(600) % 48 < 24) * 1.0)
    own = Interactions(made.shape)
    own.begin(x, truth)
    assert own.chosen.tolist() == [0, -1]  # a flag has no place
    mix = torch.arange(truth.numel(), dtype=FLOAT).view_as(truth).cos()
    z = own.inputs(x, mix)[0]
    for step, row in ((0, 0), (4, 37), (5, 200)):
        place = int(at[row]) + step + 1
        angle = 2 * math.pi * (place % DAY) / DAY
        level = truth.median().item()
        away = (truth - level).abs().mean().item()
        seen = x.context is not None and (k[place] - own.centre[0].item()) / own.scale[0].item()
        wanted = [(mix[row, step].item() - level) / (1.5 * away), 2 * math.sin(angle), 2 * math.cos(angle)]
        weekend = 1.5 * (place % WEEK >= 5 * DAY)
        assert z[step, row].tolist() == pytest.approx([*wanted, weekend, (step + 1) / HORIZON, seen, 0.0], abs=1e-9)


def test_the_oracle_in_closed_form() -> None:
    """f is the ridge regression of all that the mix left, rows weighted by their age, on sines and cosines."""
    y, k = clouds(700, 0.7)
    x, truth, _, made = windows(y=y, k=k)
    own, scale = Interactions(made.shape), torch.full((HORIZON,), 10.0, dtype=FLOAT)
    own.begin(x.rows(slice(0, 200)), truth[:200])
    mix = 0.1 * truth + torch.from_numpy(np.random.default_rng(0).standard_normal(truth.shape))
    batches = [slice(start, start + DAY) for start in range(0, 240, DAY)]
    for rows in batches:
        own.learn(x.rows(rows), mix[rows], truth[rows], scale)

    drawn = standard_normals(0, 0, 2 * FREQUENCIES, 6).numpy()
    lengths = np.repeat([3.0, 1.5], FREQUENCIES // 2)[:, None]
    omega = math.sqrt(2) * drawn[:FREQUENCIES] * (drawn[FREQUENCIES:] > 0) / lengths
    z = own.inputs(x, mix)[0].numpy()  # (H, N, Q)
    phi = np.concatenate([np.sin(z @ omega.T), np.cos(z @ omega.T), z, np.ones((*z.shape[:2], 1))], 2)
    gram, cross, rows_seen = 0.0, 0.0, 0.0
    half = 0.7 * 40 * WEEK
    for rows in batches:
        kept, part = 0.5 ** (DAY / half), phi[:, rows].reshape(-1, phi.shape[2])
        left = (truth - mix)[rows].T.numpy().reshape(-1)
        gram, cross = kept * gram + part.T @ part / HORIZON, kept * cross + part.T @ left / HORIZON
        rows_seen = kept * rows_seen + DAY
    mean = gram[-1] / rows_seen
    spread = np.sqrt(np.maximum(np.diag(gram) / rows_seen - mean**2, 0))[:-1]
    largest = np.abs(phi[:, : batches[-1].stop]).max((0, 1))[:-1]
    penalty = np.append(RIDGE * np.maximum(spread, 0.05 * largest) ** 2, 1e-3)
    seen = penalty > 0  # the known input that is not there has no column
    weights = np.zeros(len(cross))
    weights[seen] = np.linalg.solve(gram[seen][:, seen] + np.diag(penalty[seen]), cross[seen])
    ahead = slice(240, 300)
    found = own.both(x.rows(ahead), mix[ahead], scale)
    wanted = np.clip((phi[:, ahead] @ weights).T, -30, 30)
    np.testing.assert_allclose((found[1] - found[0]).numpy(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_it_pays_where_weather_acts_on_what_is_there_and_costs_nothing_elsewhere() -> None:
    for matters, most in ((0.8, 0.95), (0.0, 1.003)):
        y, k = clouds(2600, matters)
        x, truth, _, made = windows(y=y, k=k)
        with_it, without = (error(mixed(made, on), x, truth) for on in (True, False))
        assert with_it < most * without, (matters, with_it, without)


def test_flags_alone_change_nothing() -> None:
    y, _ = clouds(300, 0.7)
    x, truth, _, made = windows(y=y, k=(np.arange(300) % 72 < 24) * 1.0)
    models = [mixed(made, on) for on in (True, False)]
    assert models[0].interactions is not None and models[1].interactions is None
    for start in range(0, len(truth), DAY):
        rows = slice(start, start + DAY)
        first, second = (model.predict(x.rows(rows)) for model in models)
        torch.testing.assert_close(first.mean, second.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(first.variance, second.variance, rtol=1e-12, atol=1e-12)
        for model, issued in zip(models, (first, second), strict=True):
            model.update(x.rows(rows), truth[rows], issued)
    assert models[0].interactions.idle


def test_parts_add_up_and_a_state_of_another_input_is_refused() -> None:
    y, k = clouds(450, 0.8)
    x, truth, _, made = windows(y=y, k=k)
    model = mixed(made, True)
    error(model, x, truth, 0)
    parts = model.parts(x)
    torch.testing.assert_close(sum(parts.values()), model.predict(x).mean)
    assert parts[INTERACTIONS].abs().mean() > 0
    assert model.figures().keys() == {"weight_linear", "weight_persistence", "interactions"}
    tensors, rest = model.state()
    other = mixed(made, True)
    other.restore(tensors, rest)
    torch.testing.assert_close(other.predict(x).mean, model.predict(x).mean, rtol=0, atol=0)
    key = next(name for name in tensors if name.endswith("chosen"))
    for place in (1, -2):
        with pytest.raises(ValueError, match="chosen"):
            other.restore(tensors | {key: torch.tensor([place])}, rest)
