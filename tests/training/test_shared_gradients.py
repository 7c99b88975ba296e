"""The gradient of a mini-batch is the sum of those of its blocks, with the same bits wherever they are computed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from streamgp.encoders import Layout, gru, mlp
from streamgp.models.deep.squared_error import SquaredError, SquaredErrorConfig, squared_error
from streamgp.training.shared_gradients import BLOCK, Gradients, added, block_gradients, blocks, here, seeded, seeds
from tests.models.deep_training_toys import LAGS, parameters, rows, same

MANY = 5 * BLOCK + 1


def net(encoder: str = "mlp", **options: Any) -> SquaredError:
    made = {"mlp": mlp, "gru": gru}[encoder]
    built = made.build(made.Config(hidden=8, width=2, seed=3, **options), Layout(LAGS, 1))
    return SquaredError(built, 2, SquaredErrorConfig(batch=MANY // 2 + 1))


def data() -> tuple[Tensor, Tensor]:
    z, y = rows(MANY, columns=2)
    y[::7, 0] = torch.nan
    y[:BLOCK] = torch.nan
    return z, y


def elsewhere(
    net: nn.Module, loss: Any, rows: Sequence[Tensor], batch: Tensor, count: int, generator: Generator
) -> Gradients:
    """Each block in what another process would unpickle, those of the last worker first."""
    parts = blocks(batch)
    own, found, total = seeds(parts, generator), {}, None
    assert len(parts) > 1
    for place in reversed(range(len(parts))):
        there, computed = pickle.loads(pickle.dumps((net, loss)))
        some = [pickle.loads(pickle.dumps(part[parts[place]])) for part in rows]
        found[place] = block_gradients(there, computed, some, count, seeded(own[place]))
    for place in range(len(parts)):
        total = added(total, found[place])
    assert total is not None
    return total


@pytest.mark.parametrize(("encoder", "precision", "near"), [("mlp", "float64", 1e-12), ("gru", "float32", 1e-5)])
def test_blocks_add_up_to_the_mini_batch(encoder: str, precision: str, near: float) -> None:
    made, (z, y) = net(encoder, precision=precision), data()
    made.encoder.train()
    count = int(y.isfinite().sum())
    apart = here(made.net, squared_error, (z, y), torch.arange(MANY), count, Generator())
    whole = block_gradients(made.net, squared_error, (z, y), count, Generator())
    assert len(apart) == 1 + len(made.descent.parameters)
    for one, other in zip(apart, whole, strict=True):
        assert (one - other).norm() <= near * other.norm()
        assert other.norm() > 0.0


@pytest.mark.parametrize("encoder", ["mlp", "gru"])
def test_blocks_anywhere_train_with_the_same_bits(encoder: str) -> None:
    (z, y), found = data(), []
    for sharing in (here, elsewhere):
        made, generator = net(encoder, dropout=0.2), Generator().manual_seed(0)
        made.sharing = sharing
        made.encoder.train()
        found.append(([made.epoch(z, y, generator) for _ in range(2)], parameters(made.encoder, made.head)))
    assert found[0][0] == found[1][0] and same(found[0][1], found[1][1])


def test_blocks_are_even_and_drop_other_units() -> None:
    for count in (1, BLOCK, BLOCK + 1, MANY):
        parts = blocks(torch.arange(count))
        assert torch.cat(list(parts)).tolist() == list(range(count))
        assert max(map(len, parts)) <= BLOCK and max(map(len, parts)) - min(map(len, parts)) <= 1
    made = net(dropout=0.5)
    z, y = (part[:1].expand(BLOCK, -1) for part in rows(1, columns=2))
    own = seeds(blocks(torch.arange(2 * BLOCK)), Generator().manual_seed(0))
    first, second = (block_gradients(made.net, squared_error, (z, y), 1, seeded(seed)) for seed in own)
    assert float(first[0]) != float(second[0])
