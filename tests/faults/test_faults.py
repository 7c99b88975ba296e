"""The fast ones of the faults; benchmarks/faults_lose_nothing.py injects all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import files, limits, storage
from tests.faults.room import FAULTS, Listed, Room

MODULES = (files, limits, storage)  # which list their faults


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """An empty folder, beside one for what commands write."""
    path = tmp_path / "room"
    path.mkdir()
    made = Room(path)
    yield made
    made.close()


SECONDS = {"file_size", "not_a_file", "output_full", "unreadable"}
"""Those that start several processes of the command line."""


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one.inject.__name__ in SECONDS else [])
        for one in FAULTS
        if one.fast
    ],
    ids=lambda one: one.inject.__name__,
)
def test_nothing_is_lost_and_the_user_is_helped(listed: Listed, room: Room) -> None:
    found = listed.inject(room)
    assert found.lost.startswith("nothing")
