"""The replay reservoir: uniform without a memory, geometric ages with one."""

from __future__ import annotations

import pytest
import torch

from streamgp.models.svdgp.replay import Replay


def fill(memory: int | None, rows: int, batch: int, seed: int) -> Replay:
    replay = Replay(50, 1, 1)
    generator = torch.Generator().manual_seed(seed)
    for chosen in torch.arange(rows, dtype=torch.float64).split(batch):
        replay.offer(chosen[:, None], -chosen[:, None], memory, generator)
    return replay


def test_it_holds_everything_until_it_is_full_and_pairs_stay_together() -> None:
    replay = fill(None, 30, 7, 0)
    assert int(replay.count) == int(replay.seen) == 30
    x, y = replay.draw(100, torch.Generator().manual_seed(0))
    assert sorted(x[:, 0].tolist()) == list(range(30)) and torch.equal(x, -y)
    assert len(set(replay.draw(5, torch.Generator())[0][:, 0].tolist())) == 5


def test_without_a_memory_it_is_a_uniform_sample() -> None:
    kept = torch.cat([fill(None, 1000, 64, seed).x[:, 0] for seed in range(60)])
    counts = torch.histc(kept, bins=10, min=0, max=1000)
    assert counts.sum() == 3000
    assert ((counts - 300).square() / 300).sum() < 27.9  # χ² with 9 degrees of freedom, p = 0.001


def test_with_a_memory_ages_are_geometric_with_that_mean() -> None:
    ages = torch.cat([1999 - fill(200, 2000, 64, seed).x[:, 0] for seed in range(60)])
    assert ages.mean().item() == pytest.approx(200, rel=0.1)
    assert (ages > 200).double().mean().item() == pytest.approx(0.368, abs=0.03)
