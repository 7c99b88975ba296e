"""No waiting for the disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies loses nothing that it has written; only a machine would, and none dies here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
