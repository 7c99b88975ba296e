"""Short words for the tests of ingest."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from streamgp_data.ingestion.ingest import ingest
from streamgp_data.table import Table
from streamgp_pipelines.config import IngestConfig

START = datetime(2024, 1, 1)
FRAME = pl.DataFrame(
    {
        "ds": [START + timedelta(minutes=30 * i) for i in range(500)],
        "y": [i / 7 for i in range(500)],
        "note": [f'say "{i}", twice' for i in range(500)],
    }
)


def text_of(frame: pl.DataFrame) -> str:
    return frame.write_csv(datetime_format="%Y-%m-%d %H:%M:%S")


def take(table: Path | str, *sources: Path | str, **options: Any) -> dict[str, Any]:
    """Ingest and return the summary."""
    config = IngestConfig.read({"source": [str(one) for one in sources], "table": str(table), **options})
    return dict(ingest(config))


def rows(table: Path) -> pl.DataFrame:
    """All accepted rows, in the order of `_seq`."""
    batches = [chunk.rows for chunk in Table.open(table).read(batch_rows=1000)]
    return pl.concat([pl.DataFrame(pl.from_arrow(batch)) for batch in batches])


def quarantine(table: Path) -> pl.DataFrame:
    """All quarantined rows, by source and line; empty where there are none."""
    folder = table / "_quarantine"
    if not folder.is_dir():
        return pl.DataFrame(schema={"reason": pl.String, "column": pl.String, "line": pl.Int64, "row": pl.String})
    return rows(folder).sort("source", "line")


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path
