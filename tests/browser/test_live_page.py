"""The live page of `streamgp serve` in a real browser: what it shows, on a phone too, and to a screen reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
import uvicorn

from streamgp_pipelines.adapters.web.app import create_app
from streamgp_pipelines.config import ServeConfig
from streamgp_pipelines.serving.service import serving
from tests.needs import needs
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table, run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    needs("chromium", "test-slow"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TOKEN = "0123456789abcdef-a-token"
ROWS = 500


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service of two checkpoints that needs a token."""
    home = tmp_path_factory.mktemp("page")
    make_table(home / "table", frame_of(ROWS, ("a", "b")))
    for name in ("day", "half"):
        options = {"horizon": 24, "alarm_rate": 0.02} if name == "day" else {"horizon": 12}
        run(home / "table", home / name, lags=4, warmup=150, batch=24, **options)
    config = ServeConfig.read({"checkpoint": [home / "day", home / "half"], "host": "0.0.0.0"})
    with serving(config) as service:
        wait_for(lambda: service.ready)
        server = uvicorn.Server(uvicorn.Config(create_app(service, config, TOKEN), port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def page(address: str, open_page: Callable[..., Page]) -> Iterator[Page]:
    faults: list[str] = []
    page = open_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith(address) else None)
    page.goto(address)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Show").click()
    page.locator("#steps tr").nth(1).wait_for()
    yield page
    assert faults == []  # no error in its script, no other host


def test_it_shows_the_forecast_its_bands_and_the_scores(page: Page, address: str) -> None:
    assert page.locator("#chart path.band[data-level]").count() == 2
    assert page.locator("#chart path.truth").count() == page.locator("#chart path.issued").count() == 1
    assert page.locator("#chart path.mean").count() == 2  # what was forecast, and what is
    assert page.locator("#steps tr").count() == 25
    assert "95 %" in page.locator("#scores").inner_text()
    found = ask(address, "/forecast?name=day")
    first = next(row for row in found["forecast"] if row["unique_id"] == "a")
    shown = page.locator("#steps tr").nth(1).locator("td").nth(1).inner_text()
    assert float(shown) == pytest.approx(first["linear"], rel=1e-3)
    page.get_by_label("Series").select_option("b")
    wait_for(lambda: page.locator("#steps tr").nth(1).locator("td").nth(1).inner_text() != shown, 30)
    page.get_by_label("Checkpoint").select_option("half")
    wait_for(lambda: page.locator("#steps tr").count() == 13, 30)


def test_it_follows_the_stream(page: Page, address: str) -> None:
    before = page.locator("#steps td").first.inner_text()
    rows = frame_of(ROWS + 1, ("a", "b")).tail(2).to_dicts()
    for row in rows:
        row["t"] = row["t"].isoformat()
    assert ask(address, "/rows?name=day", {"rows": rows})["accepted"] == 2
    wait_for(lambda: page.locator("#steps td").first.inner_text() != before, 30)


@pytest.mark.parametrize(
    ("apart", "first", "wanted"),
    [
        (1.0, "2024-01-01T00:00:00", "00:00:"),
        (0.01, "2024-01-01T00:00:00", "00:00."),
        (60.0, "2024-01-01T00:00:00", "00:"),
        (3600.0, "2024-01-01T05:00:00", ":00"),
        (86400.0, "2024-01-01T00:00:00", " "),
    ],
)
def test_an_axis_has_times_whatever_the_interval(page: Page, apart: float, first: str, wanted: str) -> None:
    times = [datetime.fromisoformat(first) + timedelta(seconds=apart * row) for row in range(96)]
    marks = page.evaluate("([times, room]) => marks(times, room)", [[f"{time.isoformat()}Z" for time in times], 700])
    assert 2 <= len(marks) <= 9 and sum(wanted in text for _, text in marks) >= len(marks) / 2
    few = page.evaluate("([times, room]) => marks(times, room)", [[f"{time.isoformat()}Z" for time in times[:5]], 700])
    assert len(few) == 4 and len({text for _, text in few}) == 4


def ask(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    with urlopen(Request(address + path, data, headers), timeout=30) as answer:
        return json.load(answer)


def test_the_last_day_its_errors_and_its_alarms_are_those_of_the_api(page: Page, address: str) -> None:
    own = [row for row in ask(address, "/scored?name=day&rows=2048")["scored"] if row["unique_id"] == "a"]
    day = own[-24:]
    inside = sum(row["linear-lo-95"] <= row["y"] <= row["linear-hi-95"] for row in day)
    tiles = page.locator("#now div").all_inner_texts()
    assert any("Inside the 95 % band, last day" in tile and f"{inside} of 24" in tile for tile in tiles)

    days: dict[str, list[float]] = {}
    for row in own:
        days.setdefault(row["ds"][:10], []).append(abs(row["y"] - row["linear"]))
    shown = [title.split(": ") for title in page.locator("#errors rect title").all_text_contents()]
    assert len(shown) == len(days) > 10
    for (_, value), errors in zip(shown, days.values(), strict=True):
        assert float(value) == pytest.approx(sum(errors) / len(errors), rel=1e-3)

    raised = [one for one in ask(address, "/alarms?name=day")["alarms"] if one["unique_id"] == "a"]
    rows = page.locator("#alarms tr").count() - 1
    assert rows == min(len(raised), 6) > 0
    assert raised[-1]["alarm"] in page.locator("#alarms tr").nth(1).inner_text()
    page.get_by_label("Checkpoint").select_option("half")  # which judges nothing
    page.locator("#alarmed").wait_for(state="hidden")


def test_rows_that_do_not_reach_back_a_day_are_not_called_one(page: Page) -> None:
    rows = [{"ds": f"2026-01-0{1 + at // 24}T{at % 24:02d}:00:00", "y": at} for at in range(48)]
    called = "rows => (([found, called]) => [found.length, called])(lastDay(rows))"
    assert page.evaluate(called, rows) == [24, "last day"]
    assert page.evaluate(called, rows[-20:]) == [20, "last 20 values"]


def test_alarms_that_the_chart_reaches_are_marked(page: Page) -> None:
    rows = [{"unique_id": "a", "ds": f"2026-01-0{at}T00:00:00", "y": at} for at in (1, 2, 3)]
    alarm = {**rows[1], "alarm": "stuck"}
    page.evaluate("([rows, alarm]) => draw(rows, [], 'none', [], [], [alarm, {...alarm, ds: '2025-01-01T00:00:00'}])",
                  [rows, alarm])  # fmt: skip
    assert page.locator("#chart circle.alarm title").all_text_contents() == ["stuck: Fri 2 Jan, 00:00, 2.000"]
    assert "circles: alarms" in page.locator("#legend").inner_text()
    silent = {"unique_id": "a", "ds": rows[2]["ds"], "y": None, "alarm": "silent", "since": rows[1]["ds"]}
    page.evaluate("([rows, alarm]) => draw(rows, [], 'none', [], [], [alarm])", [rows, silent])
    assert page.locator("#chart circle.alarm").count() == 0 and "circles" not in page.locator("#legend").inner_text()
    kinds = page.evaluate("alarms => alarms.map(kind)", [alarm, silent])
    assert kinds == ["stuck", "silent since Fri 2 Jan, 00:00"]


def test_numbers_and_times_are_those_that_people_read(page: Page) -> None:
    """Thousands apart, four digits, the same decimals in a column; days of the month, not time stamps."""
    written = "values => values.map(written(values))"
    assert page.evaluate(written, [12379.0123, 8.5]) == ["12,379", "9"]
    assert page.evaluate(written, [4.2, 0.31415, None]) == ["4.200", "0.314", "–"]
    assert page.evaluate("when('2026-01-02T13:30:00Z')") == "Fri 2 Jan, 13:30"
    assert page.evaluate("zone('2026-01-02T13:30:00+0100')") == " UTC+0100"
    hours = [f"2026-01-{1 + at // 24:02d}T{at % 24:02d}:00:00Z" for at in range(96)]
    assert page.evaluate("times => marks(times, 300)", hours) == [[24, "2 Jan"], [48, "3 Jan"], [72, "4 Jan"]]
    assert page.evaluate("times => marks(times, 160)", hours[:20]) == [[12, "12:00"]]
    months = [f"{2020 + at // 12}-{1 + at % 12:02d}-01T00:00:00" for at in range(30)]
    assert [text for _, text in page.evaluate("times => marks(times, 300)", months)] == ["Jan 2021", "Jan 2022"]
    assert page.evaluate("marks([0, 1, 2, 3], 1000)") == [[0, "0"], [1, "1"], [2, "2"], [3, "3"]]


def test_every_label_of_the_axis_is_whole_and_another(page: Page) -> None:
    """Also of values of 7 digits and more, near to each other, and of tiny ones."""
    for values in ([-1234567.0, -1234560.0], [98765432.1, 98765432.9], [1e-9, 3e-9], [4e15, 5e15], [0.0, 1.0]):
        rows = [{"unique_id": "a", "ds": f"2026-01-0{at + 1}", "y": value} for at, value in enumerate(values)]
        page.evaluate("rows => draw(rows, [], 'none', [])", rows)
        found = page.evaluate(LABELS)
        assert 3 <= len({text for text, _ in found}) == len(found) <= 8, found
        assert min(left for _, left in found) >= 0, found  # within the chart
        shown = [float(text.replace(",", "")) for text, _ in found]
        step = (values[1] - values[0]) / 2
        assert values[0] - step <= shown[0] <= values[0] and values[1] <= shown[-1] <= values[1] + step
        apart = [high - low for low, high in pairwise(shown)]
        assert apart == pytest.approx([apart[0]] * len(apart), rel=1e-6)


LABELS = """() => [...document.querySelectorAll('#chart text.tick')].map(one => [
    one.textContent,
    one.getBoundingClientRect().left - document.querySelector('#chart').getBoundingClientRect().left])"""


@pytest.mark.parametrize("width", [360, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_has_no_fault_of_accessibility(page: Page, scheme: Any, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 740})
    texts = "[...document.querySelectorAll('#chart text, #errors text')]"
    right = f"Math.max(...{texts}.map(e => e.getBoundingClientRect().right))"
    wait_for(lambda: 200 < (page.evaluate(right) or 0) <= width, 30)  # drawn again
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    cut = "[...document.querySelectorAll('.wide')].map(e => e.scrollWidth - e.clientWidth)"
    assert width < 390 or max(page.evaluate(cut)) <= 0
    heights = "[...document.querySelectorAll('select, td, p, text')].map(e => e.getBoundingClientRect().height)"
    assert min(height for height in page.evaluate(heights) if height) >= 12
    found = Axe().run(page)
    assert [one["id"] for one in found.response["violations"]] == []
