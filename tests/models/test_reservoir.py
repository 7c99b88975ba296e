"""The reservoir: bounded, recent where it is told to, unbiased in the sums that a rebuild takes from it."""

from __future__ import annotations

import numpy as np
import torch

from streamgp.base import Inputs, Shape
from streamgp.online.reservoir import Reservoir

SHAPE = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())


def filled(capacity: int, rows: int, memory: float | None, seed: int, batch: int = 7) -> Reservoir:
    reservoir = Reservoir(capacity, SHAPE, memory)
    generator = torch.Generator().manual_seed(seed)
    values = torch.arange(rows, dtype=torch.float64)
    for part in values.split(batch):
        reservoir.offer(Inputs(part.view(-1, 1, 1), torch.zeros(len(part), 1, 0).double()), part[:, None], generator)
    return reservoir


def test_everything_is_kept_while_there_is_room() -> None:
    sample = filled(100, 60, memory=20.0, seed=0).sample()
    assert torch.equal(sample.y[:, 0], torch.arange(60).double())
    torch.testing.assert_close(sample.weight, torch.exp(-torch.arange(59, -1, -1).double() / 20.0))


def test_rows_stay_together_in_the_order_of_arrival() -> None:
    sample = filled(20, 300, memory=50.0, seed=1).sample()
    assert len(sample.y) == 20 and torch.equal(sample.x.past[:, 0, 0], sample.y[:, 0])
    assert (sample.y[1:, 0] > sample.y[:-1, 0]).all()


def test_weighted_sums_are_unbiased() -> None:
    rows = 120
    for memory in (None, 40.0):
        weight = np.ones(rows) if memory is None else np.exp(-np.arange(rows - 1, -1, -1) / memory)
        values = np.sin(np.arange(rows) / 9.0) + 2.0
        sums = []
        for seed in range(200):
            sample = filled(25, rows, memory, seed, batch=40).sample()
            sums.append(float((sample.weight.numpy() * values[sample.y[:, 0].long().numpy()]).sum()))
        error = np.mean(sums) - (weight * values).sum()
        assert abs(error) < 5 * np.std(sums) / 200**0.5, f"memory {memory}: off by {error}"


def test_memory_prefers_recent_rows() -> None:
    ages = [299 - filled(30, 300, memory, seed=2).sample().y.mean().item() for memory in (None, 60.0)]
    assert ages[1] < 90 < 110 < ages[0]


def test_memory_prefers_recent_rows_of_a_stream_of_any_length() -> None:
    reservoir, generator = Reservoir(30, SHAPE, 60.0), torch.Generator().manual_seed(2)
    reservoir.seen.fill_(1e10)
    for part in torch.arange(300, dtype=torch.float64).split(7):
        reservoir.offer(Inputs(part.view(-1, 1, 1), torch.zeros(len(part), 1, 0).double()), part[:, None], generator)
    assert 299 - reservoir.sample().y.mean() < 90
