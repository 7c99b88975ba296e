"""Formats with day and month in each other's places: they are found, and right ones are left alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp_data.swapped import SwappedDays, likelier, swapped
from tests.properties import examples

FORMS = ["%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M", "%d-%m-%y %H:%M:%S", "%Y-%d-%m %H:%M"]


def found(cells: list[str], form: str, chunk: int = 1000) -> tuple[str | None, str | None]:
    """By cells that cannot be read, and by their spacing."""
    looked = SwappedDays("t", form)
    for start in range(0, len(cells), chunk):
        looked.look(pa.array(cells[start : start + chunk]))
    return likelier(pa.array(cells), form), looked.other()


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], str]:
    """Times as they may stand in a table, in their right format: with gaps, jitter, repeats, series, in any order."""
    form = draw(st.sampled_from(FORMS))
    start = datetime(2024, draw(st.integers(1, 12)), draw(st.integers(1, 28)), draw(st.integers(0, 23)))
    minutes = draw(st.sampled_from([1, 7, 30, 60, 360, 1440, 2880, 10080, 0]))
    count = draw(st.integers(1, 400))
    if minutes:
        times = [start + timedelta(minutes=minutes * at) for at in range(count)]
    else:  # months
        months = draw(st.integers(1, 4))
        each = [start.month - 1 + months * at for at in range(min(count, 60))]
        times = [start.replace(year=start.year + month // 12, month=month % 12 + 1) for month in each]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        times = [time for time in times if generator.random() > 0.1]
    if draw(st.booleans()):
        times = [time + timedelta(minutes=int(generator.integers(-2, 3))) for time in times]
    if draw(st.booleans()):
        times = [time for time in times for _ in range(2)] if draw(st.booleans()) else times * 2
    if draw(st.booleans()):
        times = [times[at] for at in generator.permutation(len(times))]
    cells = [time.strftime(form) for time in times]
    if draw(st.booleans()):
        cells = [
            cell if generator.random() > 0.02 else str(generator.choice(["", "NA", "soon", cell + "?"]))
            for cell in cells
        ]
    return cells, form


@pytest.mark.slow
@given(tables(), st.sampled_from([1000, 37]))
@examples(60)
def test_a_right_format_is_never_doubted(table: tuple[list[str], str], chunk: int) -> None:
    assert found(*table, chunk) == (None, None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("minutes", [5, 60, 360])
def test_a_wrong_one_is_found(form: str, minutes: int) -> None:
    wrong = swapped(form)
    assert wrong is not None and swapped(wrong) == form
    times = [datetime(2024, 3, 2, 12) + timedelta(minutes=minutes * at) for at in range(24 * 60 // minutes * 20)]
    cells = [time.strftime(form) for time in times]
    early = [cell for cell, time in zip(cells, times, strict=True) if time.day <= 12]
    assert found(cells, wrong)[0] == form and found(early, wrong) == (None, form)
    assert found([*cells, "soon"], wrong)[0] is None  # a cell of neither: the format may be another one


def test_months_are_months_and_no_days() -> None:
    """The first days of months are evenly spaced, and so would the days of January be."""
    firsts = [f"01.{month:02}.2024" for month in range(1, 13)]
    assert found(firsts, "%d.%m.%Y") == (None, None)


@pytest.mark.parametrize("form", [None, "%d %b %Y", "%Y-%m", "%d%m%Y", "epoch-s", "iso", "%j %Y"])
def test_formats_without_both_in_numbers_have_no_other(form: str | None) -> None:
    assert swapped(form) is None
