"""Look at what people open: screenshots at the widths of a desk and of a phone, and what axe-core finds in our pages.

    python docs/look.py                        # the site, after `make docs`; pictures go to build/look
    python docs/look.py --demo streamgp-demo   # of a demo that was run: its report, the live page, MLflow's pages

Exits with 1 if a page of ours has an accessibility error, is wider than the phone, or cuts a line at a desk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from browser import WIDTHS, browser_page, photograph, widths
from make_pictures import STREAMGP, free_port, mlflow_ui, open_metrics

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "build" / "look"
PAGES = (
    "index", "overview", "install", "glossary", "bibliography", "guides/choosing", "guides/bands", "guides/deep",
    "tutorials/energy", "tutorials/wind", "guides/online", "guides/svdgp", "results/models", "decisions/index",
    "reference/python-api", "reference/forecasting", "reference/kernels", "notation", "changelog",
)  # fmt: skip
THEMES = {"landmark-unique", "scrollable-region-focusable"}  # of Material's own script and templates

CUT = """[...document.querySelectorAll('pre > code, .formula, .md-typeset__scrollwrap')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim().slice(0, 40))"""
"""Code, formulas and tables that have to be scrolled to be read."""


def faults(page: Any, pictures: Path) -> list[str]:
    """What is wrong with the page that is shown; `PICTURES-desk.png` and `PICTURES-phone.png` show it."""
    from axe_playwright_python.sync_playwright import Axe

    found: list[str] = []
    for device in widths(page):
        photograph(page, pictures, device)
        too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        found += [f"{too_wide} pixels too wide on a {device}"] if too_wide > 0 else []
        cut = page.evaluate(CUT) if device == "desk" else []
        found += [f"cut on a {device}: {text}" for text in cut]
        for one in Axe().run(page).response["violations"]:
            if one["id"] in THEMES:
                continue
            places = sorted({" ".join(node["target"][0].split()) for node in one["nodes"]})
            found.append(f"{device}: {one['id']} ({one['impact']}): {', '.join(places[:3])}")
    return found


def of_site(page: Any) -> Iterator[tuple[str, list[str]]]:
    """Every page of `PAGES`, and what is wrong with it."""
    for name in PAGES:
        page.goto((ROOT / "site" / f"{name}.html").as_uri())
        yield name, faults(page, PICTURES / name.replace("/", "-"))


def of_demo(page: Any, demo: Path) -> Iterator[tuple[str, list[str]]]:
    """The report, the live page and MLflow's pages of a run of the demo; what MLflow's pages have is theirs."""
    with TemporaryDirectory() as folder:
        report, table = ["report", "--checkpoint", demo / "ensemble"], ["--table", demo / "demand"]
        file = Path(folder) / "report.html"
        quietly(*report, *table, "--output", file)
        page.goto(file.as_uri())
        page.locator("html[data-ready]").wait_for()
        yield "report", faults(page, PICTURES / "report")
        line = ["--target", "demand_gw", "--horizon", 48, "--season", "48,336", "--model", "seasonal_naive"]
        served, port = Path(folder) / "served", str(free_port())
        quietly(
            "train",
            "--online",
            *table,
            *line,
            "--tracking-uri",
            f"sqlite:///{folder}/mlflow.db",
            "--checkpoint",
            served,
        )
        words = ["serve", "--checkpoint", served, "--port", port, "--json"]
        with subprocess.Popen([*STREAMGP, *map(str, words)], stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            try:
                service.stdout.readline()
                page.goto(f"http://127.0.0.1:{port}")
                page.locator("#steps tr").nth(1).wait_for()
                yield "live page", faults(page, PICTURES / "live")
            finally:
                service.terminate()
    run = json.loads((demo / "ensemble" / "run.json").read_text())["run_id"]
    with mlflow_ui(demo) as address:
        page.set_viewport_size({"width": WIDTHS["desk"], "height": 1000})
        page.goto(address, wait_until="domcontentloaded")
        page.get_by_text("overall/crps").first.wait_for()
        for device in widths(page):
            photograph(page, PICTURES / "mlflow-runs", device)
        page.set_viewport_size({"width": WIDTHS["desk"], "height": 1000})
        open_metrics(page, address, run)
        for device in widths(page):
            photograph(page, PICTURES / "mlflow-metrics", device)
    yield "MLflow", []


def quietly(*words: object) -> None:
    """Run a command of streamgp."""
    subprocess.run([*STREAMGP, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def main(demo: Path | None) -> int:
    """Look at the site, or at what a demo shows."""
    wrong = 0
    with browser_page() as page:
        for name, found in of_site(page) if demo is None else of_demo(page, demo):
            print(f"{name}: {'; '.join(found) or 'nothing found'}", flush=True)
            wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, help="directory of `streamgp demo`")
    sys.exit(main(parser.parse_args().demo))
