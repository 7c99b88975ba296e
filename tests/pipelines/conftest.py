"""One thread everywhere, as runs are compared bit for bit; and no waiting for the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A run takes up the thread count of its checkpoint; give back what was there before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies loses nothing that it has written; only a machine would, and none dies here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
