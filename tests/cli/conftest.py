"""A small world for the commands: a table, a store, a finished run with known inputs and one without."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamgp_cli.app import app

ROWS = 900
LINE = ["--online", "--target=y", "--horizon=3", "--season=24", "--lags=4", "--warmup=200", "--batch=64"]
LINE += ["--model=seasonal_naive"]


@dataclass(frozen=True)
class World:
    """Paths that every test may read and none may write.

    Attributes:
        data: CSV of ROWS hourly rows: ds, y, w (known), empty (always missing), text.
        table: of `data`, and `row_table`: without a clock.
        checkpoint: trained by LINE on `table`; `known`: the same with --known w.
        uri: of the tracking store.
    """

    data: Path
    table: Path
    row_table: Path
    checkpoint: Path
    known: Path
    uri: str

    def line(self, **options: object) -> list[str]:
        """A train command: LINE on this world's table and store; options override or add flags."""
        words = ["train", *LINE, "--table", str(self.table), "--tracking-uri", self.uri]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return words


def run(*words: object) -> Result:
    """One command line, in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def write_rows(path: Path, start: int, count: int) -> None:
    """Rows of the world's CSV; appended to, where the file is there."""
    new = not path.exists()
    with path.open("a") as file:
        if new:
            file.write("ds,y,w,empty,text\n")
        for row in range(start, start + count):
            ds = datetime(2020, 1, 1) + timedelta(hours=row)
            y = math.sin(row / 24 * 2 * math.pi) + 0.1 * math.sin(row * row) + row % 7 // 5
            file.write(f"{ds.isoformat()},{y:.6f},{row % 7 // 5},,a\n")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    room = tmp_path_factory.mktemp("world")
    made = World(
        room / "data.csv", room / "table", room / "rows", room / "run", room / "known", f"sqlite:///{room}/mlflow.db"
    )
    write_rows(made.data, 0, ROWS)
    for words in (
        ["ingest", made.data, "--table", made.table, "--every", "1h"],
        ["ingest", made.data, "--table", made.row_table, "--time", "row"],
        made.line(checkpoint=made.checkpoint),
        made.line(checkpoint=made.known, known="w"),
    ):
        result = run(*words)
        assert result.exit_code == 0, result.stderr
    return made


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a child process that finds the packages where this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
