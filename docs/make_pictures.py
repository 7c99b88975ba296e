"""Make the pictures of the README: a real forecast, and its run in the MLflow UI, in a real browser.

    python docs/make_pictures.py [DIRECTORY | REPORT.html]

Runs `streamgp demo` in the directory (streamgp-demo), where what is done already is found done, then opens the MLflow
UI in headless chromium. Of a page of `streamgp report` it makes REPORT-390.png and REPORT-1280.png, on the width of a
phone and of a screen. Needs chromium (Debian: apt-get install chromium) and the `test` extra.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PICTURES = Path(__file__).parent / "pictures"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.app import main; main()"]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main(directory: Path) -> None:
    """Make both pictures."""
    done = subprocess.run(
        [*STREAMGP, "demo", "--directory", str(directory), "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    made: dict[str, Any] = json.loads(done.stdout)
    PICTURES.mkdir(exist_ok=True)
    shutil.copyfile(made["files"]["picture"], PICTURES / "forecast.png")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"sqlite:///{(directory / 'mlflow.db').absolute()}"
    words = [*STREAMGP, "ui", "--tracking-uri", uri, "--port", str(port), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as ui:
        assert ui.stdout is not None
        try:
            address = json.loads(ui.stdout.readline())["url"]
            run = list(made["scores"].values())[-1]["run_id"]
            photograph(address, run, PICTURES / "mlflow.png")
        finally:
            ui.terminate()
    print(*sorted(PICTURES.glob("*.png")), sep="\n")


def photograph(address: str, run: str, path: Path) -> None:
    """The page of a run's metrics, as a user comes to it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play, TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(
            profile, executable_path=chromium, args=FLAGS, viewport={"width": 1400, "height": 1060}
        )
        page = context.new_page()
        page.goto(address, wait_until="domcontentloaded")
        page.locator(f"a[href*='{run}']").first.click()
        page.get_by_role("tab", name="Model metrics").click()
        page.locator(".js-plotly-plot").nth(3).wait_for()
        page.get_by_placeholder("Search metric charts").fill("^(overall/(crps|rmse|mae)|coverage/)")
        page.wait_for_timeout(3000)  # the charts are drawn
        page.screenshot(path=path)
        context.close()


def photograph_report(report: Path) -> None:
    """A report beside itself, whole, on two widths."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play, TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(profile, executable_path=chromium, args=FLAGS, offline=True)
        page = context.new_page()
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(report.absolute().as_uri())
            page.locator("html[data-ready]").wait_for()
            page.screenshot(path=report.with_name(f"{report.stem}-{width}.png"), full_page=True)
        context.close()


if __name__ == "__main__":
    wanted = Path(sys.argv[1] if len(sys.argv) > 1 else "streamgp-demo")
    photograph_report(wanted) if wanted.suffix == ".html" else main(wanted)
