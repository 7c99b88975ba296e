"""A run says which rows decide its RMSE alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.pipelines.worlds import frame_of, make_table, run


@pytest.mark.sampled
@pytest.mark.parametrize("series", [(), ("a", "b")])
@pytest.mark.parametrize("spike", [1e4, None])
def test_a_spike_is_named(tmp_path: Path, series: tuple[str, ...], spike: float | None) -> None:
    data = frame_of(700, series)
    place = 500 * max(len(series), 1)
    if spike is not None:
        row = pl.int_range(pl.len()) == place
        data = data.with_columns(pl.when(row).then(pl.col("y") * spike).otherwise(pl.col("y")).alias("y"))
    make_table(tmp_path / "table", data)
    found = [one for one in run(tmp_path / "table", tmp_path / "run")["warnings"] if "squared error" in one]
    if spike is None:
        assert not found
    else:
        assert len(found) == 1 and str(data["t"][place]) in found[0] and " RMSE is " in found[0]
        assert not series or "(a)" in found[0]
