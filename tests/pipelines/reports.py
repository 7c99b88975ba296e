"""A run with names that try to be markup, and what is in the page of a report."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from base64 import b64decode
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from streamgp_data.ingestion.ingest import ingest
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import IngestConfig, TrainConfig
from streamgp_pipelines.training.train import train

EVIL = '</script><img src=x onerror="window.hit=1">'
GAP = range(700, 730)
LEVELS = ("80", "95")


class Trained(NamedTuple):
    """Paths of a run of 1200 hours of two series, and its summary."""

    table: Path
    checkpoint: Path
    predictions: Path
    summary: dict[str, Any]


def trained(room: Path) -> Trained:
    """Two series, one named EVIL like the target; a gap, a duplicate and a row that cannot be read."""
    with (room / "data.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["ds", "unique_id", EVIL, "x&y"])
        for row in range(1200):
            ds = (datetime(2020, 1, 1) + timedelta(hours=row)).isoformat()
            for at, name in enumerate(("one", EVIL)):
                if at and row in GAP:
                    continue
                y = math.sin(row / 12 * math.pi + at) + 0.3 * math.sin(row * row + at)
                out.writerow([ds, name, f"{y:.5f}", row % 5 if row != 800 else "<b>?"])
            if row == 500:
                out.writerow([ds, "one", "1.0", 0])
    source = {"source": (str(room / "data.csv"),), "table": room / "table", "every": "1h"}
    ingest(IngestConfig.read(source))
    options = {"table": room / "table", "target": (EVIL,), "known": ("x&y",), "horizon": 3, "season": 24, "lags": 4}
    options |= {"model": "seasonal_naive", "online": True, "warmup": 300, "batch": 64, "level": LEVELS}
    options |= {"checkpoint": room / "run", "predictions": room / "scored.parquet"}
    summary: dict[str, Any] = train(TrainConfig.read(options), NoTracker)
    return Trained(room / "table", room / "run", room / "scored.parquet", summary)


def drawn(page: str) -> list[dict[str, Any]]:
    """What the figures of a page are drawn from, in its order: data and layout, or fan; each with its title."""
    packed = re.findall(r'<script type="text/plain" id="numbers">([^<]*)</script>', page)
    made: list[dict[str, Any]] = json.loads(gzip.decompress(b64decode(packed[0])))
    titles = re.findall(r"<figure[^>]*><h3>(.*?)</h3>", page)
    return [one | {"title": name} for one, name in zip(made, titles, strict=True)]


def figure(page: str, title: str) -> dict[str, Any]:
    """The figure whose title begins so."""
    return next(one for one in drawn(page) if one["title"].startswith(title))
