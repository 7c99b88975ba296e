"""Recordings that are damaged anywhere: refused by an error of ours, or every frame is in a row or put aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import StreamgpError
from streamgp_data.reading.cells import FAULT
from tests.data.sources.recordings import WRITERS, opened, read, write_database
from tests.properties import examples

CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=8), st.integers(0, 12)), max_size=5)
"""Place, bytes that are put there, how many are replaced by them."""
APART = ("h5", "mat", "mf4")
"""Each file of theirs starts a process."""
INSIDE = [suffix for suffix in WRITERS if suffix not in APART]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    room = tmp_path_factory.mktemp("recordings")
    write_database(room)
    found = {}
    for suffix in WRITERS:
        WRITERS[suffix](room / f"whole.{suffix}")
        found[suffix] = (room / f"whole.{suffix}").read_bytes()
    return room, found


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", INSIDE)
@examples(25)
@given(changes=CHANGES, kept=st.none() | st.floats(0, 1))
def test_nothing_else_is_raised(
    originals: tuple[Path, dict[str, bytes]], suffix: str, changes: list[tuple[float, bytes, int]], kept: float | None
) -> None:
    check(originals, suffix, changes, kept)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", APART)
@examples(3)
@given(changes=CHANGES, kept=st.none() | st.floats(0, 1))
def test_nothing_else_is_raised_of_another_process(
    originals: tuple[Path, dict[str, bytes]], suffix: str, changes: list[tuple[float, bytes, int]], kept: float | None
) -> None:
    check(originals, suffix, changes, kept)


def check(
    originals: tuple[Path, dict[str, bytes]], suffix: str, changes: list[tuple[float, bytes, int]], kept: float | None
) -> None:
    room, whole = originals
    data = bytearray(whole[suffix])
    for place, put, gone in changes:
        at = int(place * len(data))
        data[at : at + gone] = put
    if kept is not None:
        data = data[: int(kept * len(data))]
    path = room / f"a.{suffix}"
    path.unlink(missing_ok=True)  # a file that is still open is another one
    path.write_bytes(data)
    options: dict[str, Any] = {"dbc": room / "car.dbc"} if suffix in ("log", "asc", "blf") else {}
    try:
        source = opened(path, **options)
    except StreamgpError as error:
        assert error.exit_code in (2, 3) and error.hint
        return
    rows = read(source)
    assert rows.filter(rows[FAULT].is_not_null()).height == source.lost
    if suffix == "log":
        signals = source.samples.signals.items()
        frames = sum(one.count for name, one in signals if name.endswith((".SPEED", ".LEFT", ".MODE")))
        unknown = sum(int(text.replace(",", "")) for text in source.recording.left_out.values())
        lines = bytes(data).decode("utf-8", "backslashreplace").split("\n")
        assert frames + unknown + source.lost == sum(bool(line.strip()) for line in lines)
