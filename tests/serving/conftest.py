"""A trained checkpoint and its table, of which every test gets a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.serving.service import Service, serving
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import frame_of, make_table, run

ROWS = 500
LINE: dict[str, Any] = {"horizon": 4, "lags": 4, "warmup": 150, "batch": 24}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `table`, `plain`, and `known`, which knows the input k."""
    home = tmp_path_factory.mktemp("served")
    make_table(home / "table", frame_of(ROWS))
    run(home / "table", home / "plain", **LINE)
    run(home / "table", home / "known", known="k", **LINE)
    return home


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "home")
    return tmp_path / "home"


def config_of(home: Path, *names: str, **options: Any) -> ServeConfig:
    given = {"checkpoint": [home / name for name in names or ("plain",)], "table": [str(home / "table")]}
    return ServeConfig.read(given | options)


@contextmanager
def served(home: Path, *names: str) -> Iterator[Service]:
    """The service, when it is ready."""
    with serving(config_of(home, *names)) as service:
        wait_for(lambda: service.ready or service.error is not None)
        assert service.error is None
        yield service


def new_rows(count: int, start: int = ROWS) -> pl.DataFrame:
    """Rows that come after those of the table."""
    return frame_of(start + count).slice(start)


def as_objects(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """As a client writes them in JSON."""
    return rows.with_columns(pl.col("t").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_dicts()
