"""The live page of `streamgp serve` in a real browser: what it shows, on a phone too, and to a screen reader."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
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
        run(home / "table", home / name, horizon=24 if name == "day" else 12, lags=4, warmup=150, batch=24)
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
    assert page.locator("#chart path.band").count() == 2
    assert page.locator("#chart path.truth").count() == page.locator("#chart path.mean").count() == 1
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


def ask(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    with urlopen(Request(address + path, data, headers), timeout=30) as answer:
        return json.load(answer)


def test_every_label_of_the_axis_is_whole_and_another(page: Page) -> None:
    """Also of values of 7 digits and more, near to each other, and of tiny ones."""
    for values in ([-1234567.0, -1234560.0], [98765432.1, 98765432.9], [1e-9, 3e-9], [4e15, 5e15], [0.0, 1.0]):
        rows = [{"unique_id": "a", "ds": f"2026-01-0{at + 1}", "y": value} for at, value in enumerate(values)]
        page.evaluate("rows => draw(rows, [], 'none', [])", rows)
        found = page.evaluate(LABELS)
        assert len({text for text, _ in found}) == 5, found
        assert min(left for _, left in found) >= 0, found  # within the chart
        shown = [float(text.replace(",", "")) for text, _ in found]
        assert shown[0] == pytest.approx(values[0], rel=1e-3, abs=1e-12)
        assert shown[-1] == pytest.approx(values[1], rel=1e-3)


LABELS = """() => [...document.querySelectorAll('#chart text[text-anchor=end]')].slice(0, 5).map(one => [
    one.textContent,
    one.getBoundingClientRect().left - document.querySelector('#chart').getBoundingClientRect().left])"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_has_no_fault_of_accessibility(page: Page, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 740})
    right = "Math.max(...[...document.querySelectorAll('#chart text')].map(e => e.getBoundingClientRect().right))"
    wait_for(lambda: 200 < (page.evaluate(right) or 0) <= 360, 30)  # drawn again
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    heights = "[...document.querySelectorAll('select, td, p, text')].map(e => e.getBoundingClientRect().height)"
    assert min(height for height in page.evaluate(heights) if height) >= 12
    found = Axe().run(page)
    assert [one["id"] for one in found.response["violations"]] == []
