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


@st.composite
def calendars(draw: st.DrawFn) -> list[datetime]:
    """Tables whose days of the month may never exceed 12: each of a few readings a day, on one day of each month,
    quarter or week, on business days, or for a few days; for up to two years, with gaps or without."""
    first = datetime(2024, draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(0, 23)))
    kind = draw(st.sampled_from(["month", "month", "quarter", "week", "business day", "day"]))
    if kind in ("month", "quarter"):
        step = 1 if kind == "month" else 3
        count = draw(st.integers(1, 24 // step))
        ordinals = [first.month - 1 + step * at for at in range(count)]
        days = [first.replace(year=2024 + month // 12, month=month % 12 + 1) for month in ordinals]
        if kind == "month" and 8 <= count <= 11 and days[0].year == days[-1].year:  # such days may be days of one month
            return days
    else:
        count = draw(st.integers(1, {"week": 52, "business day": 40, "day": 12}[kind]))
        days = [first + timedelta(days=7 * at if kind == "week" else at) for at in range(count)]
        days = [day for day in days if kind != "business day" or day.weekday() < 5]
    hours = draw(st.sampled_from([24, 24, 12, 6, 1]))
    times = [day.replace(hour=0) + timedelta(hours=hours * at) for day in days for at in range(24 // hours)]
    if draw(st.booleans()):
        generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        times = [time for time in times if generator.random() > 0.1]
    return times


@given(calendars(), st.sampled_from(FORMS))
@examples(20)
def test_one_day_a_month_is_not_days_one_after_another(times: list[datetime], form: str) -> None:
    assert found([time.strftime(form) for time in times], form) == (None, None)


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("days", [14, 17, 20, 31, 43, 100])
@pytest.mark.parametrize("off", [(), (5, 6)])
def test_days_without_weekends_are_days_as_well(form: str, days: int, off: tuple[int, ...]) -> None:
    wrong = swapped(form)
    assert wrong is not None
    times = [datetime(2024, 1, 1) + timedelta(days=at) for at in range(days + len(off))]
    cells = [time.strftime(form) for time in times if time.weekday() not in off]
    assert found(cells, wrong)[0] == form


@pytest.mark.parametrize("hours", [1, 6])
@pytest.mark.parametrize(("months", "told"), [(4, False), (7, False), (8, True), (11, True), (12, False), (24, False)])
def test_what_was_read_on_one_day_a_month_may_be_days_of_one_month(hours: int, months: int, told: bool) -> None:
    """The cells are the same: a note names more than a week of them, but not a full year."""
    days = [datetime(2024 + month // 12, month % 12 + 1, 5) for month in range(months)]
    cells = [f"{day + timedelta(hours=hour):%m/%d/%Y %H:%M}" for day in days for hour in range(0, 24, hours)]
    assert found(cells, "%m/%d/%Y %H:%M") == (None, "%d/%m/%Y %H:%M" if told else None)


@pytest.mark.parametrize("days", [1, 2, 10])
def test_strays_among_hours_say_nothing_of_the_others(days: int) -> None:
    times = [datetime(2024, 1, 5) + timedelta(hours=at) for at in range(24 * days)]
    cells = [f"{time:%m/%d/%Y %H:%M}" for time in times if time.day <= 12]
    assert found([*cells, "13/01/2024 00:00", "14/01/2024 00:00"], "%m/%d/%Y %H:%M") == (None, None)


def test_months_are_months_and_no_days() -> None:
    """The first days of months are evenly spaced, and so would the days of January be."""
    firsts = [f"01.{month:02}.2024" for month in range(1, 13)]
    assert found(firsts, "%d.%m.%Y") == (None, None)


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%Y"])
@pytest.mark.parametrize("day", [1, 12])
@pytest.mark.parametrize("every", [1, 3])
def test_strays_among_months_say_nothing_of_the_others(form: str, day: int, every: int) -> None:
    wrong = swapped(form)
    assert wrong is not None
    cells = [f"{datetime(year, month, day):{form}}" for year in range(2020, 2025) for month in range(1, 13, every)]
    strays = [f"{datetime(2024, 1, at):{wrong}}" for at in (13, 14, 15)]
    assert found([*cells, *strays], form) == (None, None)
    assert found([*cells[:11], *strays[:2], f"{datetime(2022, 7, 30):{wrong}}"], form) == (None, None)


@pytest.mark.parametrize("form", [None, "%d %b %Y", "%Y-%m", "%d%m%Y", "epoch-s", "iso", "%j %Y"])
def test_formats_without_both_in_numbers_have_no_other(form: str | None) -> None:
    assert swapped(form) is None
