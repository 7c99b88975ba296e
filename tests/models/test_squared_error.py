"""Plain nets: the head against least squares, masks, resuming."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.encoders import Layout, mlp
from streamgp.models.deep.squared_error import LinearHead, SquaredError, SquaredErrorConfig
from tests.models.deep_training_toys import LAGS, no_encoder, parameters, rows, same

NAN = float("nan")


def net(epochs: int = 0, dropout: float = 0.0, columns: int = 2, **options: Any) -> SquaredError:
    encoder = mlp.build(mlp.Config(hidden=8, layers=1, width=2, dropout=dropout, seed=3), Layout(LAGS, 1))
    return SquaredError(encoder, columns, SquaredErrorConfig(**{"batch": 16, **options}), epochs)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_seed_alone_decides_the_head() -> None:
    torch.manual_seed(1)
    first = LinearHead(5, 3, seed=7)
    torch.manual_seed(2)
    assert same(parameters(first), parameters(LinearHead(5, 3, seed=7)))
    assert not same(parameters(first), parameters(LinearHead(5, 3, seed=8)))


def test_a_head_regresses_as_least_squares_do() -> None:
    random = torch.Generator().manual_seed(5)
    h, y = (torch.randn(40, width, generator=random, dtype=torch.float64) for width in (3, 2))
    head = LinearHead(3, 2, seed=0)
    head.regress(h, y)
    wanted = np.linalg.lstsq(np.column_stack([h, np.ones(40)]), y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(head.weight.detach().T, wanted[:3], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(head.bias.detach(), wanted[3], rtol=1e-6, atol=1e-8)
    constant = torch.zeros_like(h)
    head.regress(constant, y)
    np.testing.assert_allclose(head(constant[:1]).detach()[0], y.mean(0), rtol=1e-9)


def test_training_explains_more() -> None:
    z, y = rows(200, columns=2)
    trained, generator = net(), seeded()
    losses = [trained.epoch(z, y, generator) for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0] and trained.healthy and trained.epochs == 30
    with torch.no_grad():
        assert float((trained(z) - y).square().mean()) == pytest.approx(losses[-1], rel=0.3)


def test_what_is_missing_teaches_nothing() -> None:
    z, y = rows(40, columns=2)
    masked = y.clone()
    masked[::2, 0] = NAN
    masked[5] = NAN

    def gradient(made: SquaredError, target: Tensor) -> list[Tensor]:
        known = torch.isfinite(target)
        loss = (made(z) - target.nan_to_num()).square()[known].mean()
        return list(torch.autograd.grad(loss, list(made.descent.parameters.values())))

    made = net(batch=40)
    expected, taken = gradient(made, masked), []
    made.descent.adam.step = lambda known, rate: taken.extend(known)  # type: ignore[method-assign, assignment, misc]
    loss = made.epoch(z, masked, seeded())
    for one, other in zip(taken, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)
    known = torch.isfinite(masked)
    with torch.no_grad():
        assert loss == pytest.approx(float((made(z) - masked)[known].square().mean()), rel=1e-12)


def test_without_any_value_nothing_moves() -> None:
    z, y = rows(20, columns=2)
    made = net()
    before = parameters(made.encoder, made.head)
    assert np.isnan(made.epoch(z, torch.full_like(y, NAN), seeded()))
    assert np.isnan(made.epoch(z[:0], y[:0], seeded()))
    assert same(before, parameters(made.encoder, made.head))


def test_without_an_encoder_it_is_linear_regression() -> None:
    z, y = rows(64)
    made, generator = SquaredError(no_encoder(), 1, SquaredErrorConfig(rate=0.05, batch=64)), seeded()
    for _ in range(400):
        made.epoch(z, y, generator)
    with_intercept = np.column_stack([z.numpy(), np.ones(64)])
    slope = np.linalg.lstsq(with_intercept, y[:, 0].numpy(), rcond=None)[0]
    np.testing.assert_allclose(made.head.weight[0].detach().numpy(), slope[:-1], atol=1e-3)


def test_restored_half_way_it_goes_on_bit_for_bit() -> None:
    z, y = rows(40, columns=2)
    whole, fresh, generator = net(4, 0.2, schedule="cosine"), net(4, 0.2, schedule="cosine"), seeded()
    whole.epoch(z, y, generator)
    tensors, rest = whole.state()
    fresh.encoder.load_state_dict(whole.encoder.state_dict())
    fresh.head.load_state_dict(whole.head.state_dict())
    fresh.restore({name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(rest)))
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    assert whole.epoch(z, y, generator) == fresh.epoch(z, y, twin)
    assert same(parameters(whole.encoder, whole.head), parameters(fresh.encoder, fresh.head))


def test_a_second_training_goes_on_with_the_same_head() -> None:
    z, y = rows(40, columns=2)
    first = net()
    second = SquaredError(first.encoder, 2, SquaredErrorConfig(rate=1e-4, batch=16), head=first.head)
    before = parameters(first.head)
    second.steps(z, y, 5, seeded())
    assert second.head is first.head and not same(before, parameters(first.head)) and second.epochs == 0


def test_a_diverged_net_is_told() -> None:
    z, y = rows(40, columns=2)
    made = net()
    with torch.no_grad():
        made.head.bias.fill_(float("inf"))
    made.epoch(z, y, seeded())
    assert not made.healthy
