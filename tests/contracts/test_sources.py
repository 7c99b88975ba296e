"""Every registered source resumes behind any chunk, on files of several chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
from pyarrow import orc
from scipy.io import savemat

from streamgp import registry
from streamgp.testing import check_source
from tests.data.sources import recordings

ROWS = 150_000


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    value = rng.normal(size=ROWS).round(3)
    value[::97] = np.nan
    return pl.DataFrame({"t": np.arange(ROWS), "y": value, "name": [f"s{i % 3}" for i in range(ROWS)]})


def write_hdf5(rows: pl.DataFrame, path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["t"], file["y"] = rows["t"].to_numpy() / 100.0, rows["y"].to_numpy()


WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    "arrow": lambda rows, path: rows.write_ipc(path, record_batch_size=40_000),
    "csv": lambda rows, path: rows.write_csv(path),
    "excel": lambda rows, path: rows.fill_nan(None).write_excel(path),
    "hdf5": write_hdf5,
    "matlab": lambda rows, path: savemat(path, {"t": rows["t"] / 100.0, "y": rows["y"]}, appendmat=False),
    "jsonl": lambda rows, path: rows.write_ndjson(path),
    "orc": lambda rows, path: orc.write_table(rows.to_arrow(), path, batch_size=40_000, stripe_size=1 << 16),
    "parquet": lambda rows, path: rows.write_parquet(path, row_group_size=40_000),
}


MESSAGES = {"can": "log", "mcap": "mcap", "mdf": "mf4", "rosbag": "bag", "ulog": "ulg"}
"""Formats whose files take longer to write: theirs are small, and so are the chunks."""


APART = {"excel", "matlab", "mdf"}  # which start a process for each reading, as `hdf5` does
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in APART else name for name in registry.names("sources")]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_law(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"rows.{MESSAGES.get(name, name)}"
    module, given = registry.load("sources", name), {}
    if name in MESSAGES:
        monkeypatch.setattr("streamgp_data.recordings.joined.ROWS", 256)
        recordings.WRITERS[MESSAGES[name]](path)
        given = {"dbc": recordings.write_database(tmp_path)} if name == "can" else {}
    else:
        rows = frame()
        if name == "excel":
            monkeypatch.setattr("streamgp_data.sources.excel.ROWS", 500)
            rows, path = rows.head(1200), path.with_suffix(".xlsx")
        WRITERS[name](rows, path)
    check_source(lambda: module.build(module.Config(**given), str(path)))
