"""Make the pictures of the README: a real forecast, and its run in the MLflow UI, in a real browser.

    python docs/make_pictures.py [DIRECTORY]

Runs `streamgp demo` in the directory (streamgp-demo), where what is done already is found done, then opens the MLflow
UI in headless chromium.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import browser_page

PICTURES = Path(__file__).parent / "pictures"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.app import main; main()"]


def main(directory: Path) -> None:
    """Make both pictures."""
    done = subprocess.run(
        [*STREAMGP, "demo", "--directory", str(directory), "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    made: dict[str, Any] = json.loads(done.stdout)
    PICTURES.mkdir(exist_ok=True)
    shutil.copyfile(made["files"]["picture"], PICTURES / "forecast.png")
    with mlflow_ui(directory) as address:
        photograph(address, list(made["scores"].values())[-1]["run_id"], PICTURES / "mlflow.png")
    print(*sorted(PICTURES.glob("*.png")), sep="\n")


@contextmanager
def mlflow_ui(directory: Path) -> Iterator[str]:
    """`streamgp ui` of the runs in a directory of the demo; yields its address."""
    uri = f"sqlite:///{(directory / 'mlflow.db').absolute()}"
    words = [*STREAMGP, "ui", "--tracking-uri", uri, "--port", str(free_port()), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as ui:
        assert ui.stdout is not None
        try:
            yield json.loads(ui.stdout.readline())["url"]
        finally:
            ui.terminate()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def photograph(address: str, run: str, path: Path) -> None:
    """The page of a run's metrics, as a user comes to it."""
    with browser_page(viewport={"width": 1400, "height": 1060}) as page:
        open_metrics(page, address, run)
        page.screenshot(path=path)


def open_metrics(page: Any, address: str, run: str) -> None:
    """From the first page of the UI to the charts of a run's scores."""
    page.goto(address, wait_until="domcontentloaded")
    page.locator(f"a[href*='{run}']").first.click()
    page.get_by_role("tab", name="Model metrics").click()
    page.locator(".js-plotly-plot").nth(3).wait_for()
    page.get_by_placeholder("Search metric charts").fill("^(overall/(crps|rmse|mae)|coverage/)")
    page.wait_for_timeout(3000)  # the charts are drawn


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "streamgp-demo"))
