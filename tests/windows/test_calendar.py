"""The calendar against Python's own datetimes, over the changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import UsageError
from streamgp.windows import calendar
from streamgp.windows.calendar import DAY, SECOND
from tests.properties import examples
from tests.words import naming

ZONES = ["Europe/Berlin", "Australia/Melbourne", "America/St_Johns", "Asia/Kathmandu", "Africa/Casablanca", "UTC"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ns: int, zone: str) -> datetime:
    return (EPOCH + timedelta(microseconds=ns // 1000)).astimezone(ZoneInfo(zone))


@examples(100)
@given(st.lists(st.integers(-(10**9), 4 * 10**9), min_size=1, max_size=30), st.sampled_from(ZONES))
def test_offsets_are_those_of_datetime(seconds: list[int], zone: str) -> None:
    ds = np.array(seconds, np.int64) * SECOND
    wanted = [round(at(int(ns), zone).utcoffset().total_seconds()) * SECOND for ns in ds]  # type: ignore[union-attr]
    assert calendar.offset(ds, zone).tolist() == wanted


def test_offsets_to_the_second_around_a_change() -> None:
    change = int(datetime(2024, 3, 31, 1, tzinfo=UTC).timestamp())
    ds = np.array([change - 1, change], np.int64) * SECOND
    assert (calendar.offset(ds, "Europe/Berlin") // (3600 * SECOND)).tolist() == [1, 2]


@pytest.mark.parametrize(("zone", "hours"), [("+10:00", 10), ("UTC-3", -3), (None, 0), ("UTC", 0)])
def test_fixed_offsets(zone: str | None, hours: int) -> None:
    assert calendar.offset(np.array([0, 10**18]), zone).tolist() == [hours * 3600 * SECOND] * 2


@pytest.mark.parametrize("zone", ZONES)
def test_days_ahead_keep_the_wall_clock(zone: str) -> None:
    start = int(datetime(2024, 1, 1, 9, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND
    days = calendar.ahead(np.array([start]), np.arange(1, 366), DAY, zone)[0]
    moments = [at(int(ns), zone) for ns in days]
    assert {(moment.hour, moment.minute) for moment in moments} == {(9, 0)}
    assert [moment.date() for moment in moments] == [datetime(2024, 1, 1).date() + timedelta(d) for d in range(1, 366)]


def test_hours_ahead_are_elapsed_time() -> None:
    eve = int(datetime(2024, 3, 31, 0, tzinfo=UTC).timestamp()) * SECOND
    hours = calendar.ahead(np.array([eve]), np.arange(1, 4), 3600 * SECOND, "Europe/Berlin")[0]
    assert np.diff(hours).tolist() == [3600 * SECOND] * 2


@pytest.mark.parametrize(("every", "count"), [(None, 7), (1800 * SECOND, 7), (DAY, 5), (7 * DAY, 2), (30 * DAY, 2)])
def test_only_channels_that_can_vary(every: int | None, count: int) -> None:
    assert len(calendar.channels(every)) == count
    assert calendar.values(np.array([[0, 1], [2, 3]]), None, every).shape == (2, 2, count)


def test_no_such_zone() -> None:
    with pytest.raises(UsageError, match=naming("Mars")) as caught:
        calendar.check("Mars/Base")
    assert caught.value.hint
