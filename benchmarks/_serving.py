"""What the benchmarks of `streamgp serve` share: the command, its address, and a day-ahead checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DATA = Path(__file__).parent.parent / "pipelines" / "streamgp_pipelines" / "recipes" / "elecdemand.csv"
STREAMGP = [sys.executable, "-c", "from streamgp_cli.start import main; main()"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
DAY_AHEAD = ["--target", "demand_gw", "--horizon", "48", "--season", "48,336"]


def run(*words: str) -> None:
    subprocess.run(
        [*STREAMGP, *words], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def start(checkpoint: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """The service, and its address, when it answers."""
    line = [*STREAMGP, "serve", "--checkpoint", str(checkpoint), "--port", "0", "--rate", "0", "--json", *words]
    process = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = str(json.loads(process.stdout.readline())["url"])
    while ask(url, "/ready")[0] != 200:
        time.sleep(0.05)
    return process, url


def ask(url: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        return once(connection, path, body)
    finally:
        connection.close()


def once(connection: HTTPConnection, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def day_ahead(home: Path, rows: int) -> list[dict[str, str]]:
    """A checkpoint of the default model on the first rows of demand, a day ahead; returns the rows that come then."""
    head = DATA.read_text().splitlines(True)
    (home / "head.csv").write_text("".join(head[: rows + 1]))
    run("ingest", str(home / "head.csv"), "--table", str(home / "demand"), "--time", "timestamp", "--timezone",
    "+10:00", "--every", "30m")  # fmt: skip
    run("train", "--online", "--table", str(home / "demand"), *DAY_AHEAD, "--tracking-uri", "none",
    "--checkpoint", str(home / "day-ahead"))  # fmt: skip
    cells = [[cell.strip().strip('"') for cell in line.split(",")] for line in head]
    year = [dict(zip(cells[0], row, strict=True)) for row in cells[rows + 1 :]]
    return year
