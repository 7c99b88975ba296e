"""Make the pictures of the README: a real forecast, four of a year, and a run in the MLflow UI, in a real browser.

    python docs/make_pictures.py [DIRECTORY]

Runs `streamgp demo` in the directory (streamgp-demo), where what is done already is found done, and the same model once
more for its scored forecasts, then opens the MLflow UI in headless chromium.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from browser import browser_page

from streamgp_pipelines.adapters import plots

ZONE = "Australia/Brisbane"
"""UTC+10:00 all the year, as the data."""
DAYS = {
    datetime(2014, 2, 2): "39 °C, which it was not told",
    datetime(2014, 4, 21): "Easter",
    datetime(2014, 7, 16): "winter",
    datetime(2014, 10, 25): "spring",
}
"""What is special of each day of the picture."""
PICTURES = Path(__file__).parent / "pictures"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.app import main; main()"]


def main(directory: Path) -> None:
    """Make the pictures."""
    done = subprocess.run(
        [*STREAMGP, "demo", "--directory", str(directory), "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    made: dict[str, Any] = json.loads(done.stdout)
    PICTURES.mkdir(exist_ok=True)
    shutil.copyfile(made["files"]["picture"], PICTURES / "forecast.png")
    four_days(scored(directory), PICTURES / "year.png")
    with mlflow_ui(directory) as address:
        photograph(address, list(made["scores"].values())[-1]["run_id"], PICTURES / "mlflow.png")
    print(*sorted(PICTURES.glob("*.png")), sep="\n")


def scored(directory: Path) -> pl.DataFrame:
    """Every forecast of the demo's model with its truth: a pass over the table of the demo."""
    made = directory / "year.parquet"
    recipe = files("streamgp_pipelines") / "recipes" / "demo.toml"
    words = ["--config", str(recipe), "--table", str(directory / "demand"), "--checkpoint", str(directory / "year")]
    words += ["--predictions", str(made), "--tracking-uri", "none", "--level", "80,95"]
    subprocess.run([*STREAMGP, "train", *words], check=True, stdout=subprocess.DEVNULL)
    return pl.read_parquet(made)


def four_days(forecasts: pl.DataFrame, path: Path) -> None:
    """Draw the forecasts of `DAYS`, each made at the midnight before, with two days before them."""
    figure = plots.figure_of(10.0, 5.6)
    wall = forecasts.with_columns(pl.col("ds", "cutoff").dt.convert_time_zone(ZONE).dt.replace_time_zone(None))
    truth = wall.unique("ds").sort("ds")
    for at, (day, what) in enumerate(DAYS.items()):
        axes = figure.add_subplot(2, 2, at + 1)
        ahead = wall.filter(cutoff=day - timedelta(minutes=30)).sort("ds")
        past = truth.filter(pl.col("ds").is_between(day - timedelta(days=2), day - timedelta(minutes=30)))
        for level, alpha in ((95, 0.2), (80, 0.45)):
            low, high = (ahead[f"ensemble-{side}-{level}"].to_list() for side in ("lo", "hi"))
            axes.fill_between(ahead["ds"].to_list(), low, high, color="#4c8fd6", alpha=alpha, lw=0, label=f"{level} %")
        axes.plot(past["ds"].to_list(), past["y"].to_list(), color="#30343b", lw=1.1, label="history")
        axes.plot(ahead["ds"].to_list(), ahead["ensemble"].to_list(), color="#1f5fa8", lw=1.6, label="forecast")
        axes.plot(ahead["ds"].to_list(), ahead["y"].to_list(), color="#30343b", lw=1.1, ls=":", label="what happened")
        axes.set_title(f"{day:%A, %-d %B %Y}: {what}", loc="left", fontsize=10)
        axes.set_ylabel("demand, GW")
        plots.tidy(axes)
    figure.axes[0].legend(loc="upper left", ncols=3, frameon=False, fontsize=8)
    plots.save(figure, path)


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
