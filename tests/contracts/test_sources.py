"""Every registered source resumes behind any chunk, on files of several chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
from scipy.io import savemat

from streamgp import registry
from streamgp.testing import check_source

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
    "hdf5": write_hdf5,
    "matlab": lambda rows, path: savemat(path, {"t": rows["t"] / 100.0, "y": rows["y"]}, appendmat=False),
    "jsonl": lambda rows, path: rows.write_ndjson(path),
    "parquet": lambda rows, path: rows.write_parquet(path, row_group_size=40_000),
}


@pytest.mark.parametrize("name", registry.names("streaming.sources"))
def test_law(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{name}"
    WRITERS[name](frame(), path)
    module = registry.load("streaming.sources", name)
    check_source(lambda: module.build(module.Config(), str(path)))
