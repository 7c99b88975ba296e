"""The page of a report, opened in a real browser that is offline."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamgp_pipelines.config import ReportConfig
from streamgp_pipelines.reporting.report import report
from tests.needs import needs
from tests.pipelines.reports import EVIL, drawn, trained

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [needs("chromium", "test-slow"), pytest.mark.slow]

SCREENS = ((390, "dark"), (1280, "light"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("report")
    run = trained(room)
    report(ReportConfig.read({"checkpoint": run.checkpoint, "output": room / "report.html"}))
    shutil.rmtree(run.table)  # the page needs nothing but itself
    return room / "report.html"


@pytest.fixture(params=SCREENS, ids=str)
def page(file: Path, open_page: Callable[..., Page], request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page on one screen, with every figure drawn; no error and no request may come of it."""
    wrong: list[str] = []
    width, scheme = request.param
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    own = ("file:", "blob:", "data:")
    page.on("request", lambda asked: None if asked.url.startswith(own) else wrong.append(asked.url))
    page.goto(file.as_uri())
    page.locator("html[data-ready]").wait_for()
    yield page
    assert not wrong


def test_everything_is_drawn_and_nothing_is_run(page: Page, file: Path) -> None:
    figures = drawn(file.read_text())
    assert page.locator("figure .js-plotly-plot .main-svg").count() >= len(figures)
    assert page.locator("figure").count() == page.locator(".js-plotly-plot").count() == len(figures) > 10
    for plot in page.locator(".js-plotly-plot").all():
        box = plot.bounding_box()
        assert box is not None and box["width"] > 300 and len(plot.get_attribute("aria-label") or "") > 20
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("window.hit") is None and page.locator("img").count() == 0
    names = "[...document.querySelectorAll('svg text')].map(one => one.textContent)"
    assert any(text.startswith(EVIL[:30]) for text in page.evaluate(names))  # shown as it is written
    one = figures[2]
    assert page.evaluate("[...document.querySelectorAll('.js-plotly-plot')[2].data[0].y]") == one["data"][0]["y"]


def test_ink_is_light_where_the_screen_is_dark(page: Page) -> None:
    """Also when that changes while the page is open."""
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    drawn = "[...document.querySelectorAll('.js-line, svg text')]"
    inks = f"{drawn}.map(one => one.matches('text') ? one.style.fill : one.style.stroke)"
    for scheme, other in (("dark", "light"), ("light", "dark"), ("dark", "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.wait_for_timeout(1500)
        assert page.evaluate(paper) == {"dark": "rgb(17, 24, 31)", "light": "rgb(255, 255, 255)"}[scheme]
        found = set(page.evaluate(inks))
        ink = {"dark": {"rgb(232, 237, 242)", "rgb(242, 244, 247)"}, "light": {"rgb(27, 31, 36)", "rgb(0, 0, 0)"}}
        assert ink[scheme] <= found and not ink[other] & found


def test_another_date_is_another_forecast(page: Page, file: Path) -> None:
    from playwright.sync_api import expect

    fan = drawn(file.read_text())[0]["fan"]
    views = fan["panels"][0]["views"]
    form, output = page.locator("form.controls"), page.locator("output")
    forecast = "[...document.querySelector('.fan .js-plotly-plot').data.find(one => one.name === 'forecast').y]"
    assert page.evaluate(forecast) == views[-1]["models"][0][0]
    assert form.get_by_role("button", name="Later").is_disabled()

    form.get_by_label("Issued").fill(views[100]["issued"][:10])
    form.get_by_label("Issued").press("Tab")
    shown = output.inner_text()
    assert views[100]["issued"][:10] in shown
    at = int(form.get_by_label("Through all").input_value())
    assert page.evaluate(forecast) == views[at]["models"][0][0]
    error = [abs(y - f) for y, f in zip(views[at]["y"], views[at]["models"][0][0], strict=True)]
    assert float(shown.split("error ")[1].split(";")[0]) == pytest.approx(sum(error) / len(error), rel=1e-4)

    form.get_by_label("Through all").press("ArrowRight")  # by the keyboard alone
    assert page.evaluate(forecast) == views[at + 1]["models"][0][0]
    form.get_by_role("button", name="Earlier").press("Enter")
    assert page.evaluate(forecast) == views[at]["models"][0][0]

    form.get_by_label("Series").select_option(index=1)
    assert page.evaluate(forecast) == fan["panels"][1]["views"][-1]["models"][0][0]
    page.locator(".fan summary").click()
    expect(page.locator(".fan .numbers tbody tr")).to_have_count(len(fan["panels"][1]["views"][-1]["t"]))


def test_there_is_no_accessibility_error(page: Page) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for summary in page.locator("summary").all():
        summary.click()
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []
