"""What each command imports: what it does not need is not paid for. Asserted on `sys.modules`, not on a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import run, write_rows

HEAVY = frozenset({"torch", "mlflow", "matplotlib", "pandas", "scipy", "sqlalchemy", "ray", "sympy"})
READERS = frozenset({"pyarrow", "polars", "deltalake", "numpy"})

PROGRAM = """
import sys
from streamgp_cli.app import main
sys.argv[0] = "streamgp"
try:
    main()
finally:
    print("modules:", *(name for name, module in sys.modules.items() if module is not None), file=sys.stderr)
"""


def imported(environment: dict[str, str], *words: object, code: int = 0, says: str = "") -> set[str]:
    """The heavy packages that one command line, in a process of its own that ends with `code` and
    `says` something, has imported; those of `READERS` too where it fails."""
    line = [sys.executable, "-c", PROGRAM, *(str(word) for word in words)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    modules = done.stderr.rpartition("modules:")[2].split()
    return (HEAVY | READERS if code else HEAVY) & {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("words", [("models",), ("train", "--help")])
def test_pages_need_nothing(words: tuple[str, ...], environment: dict[str, str]) -> None:
    assert imported(environment, *words) == set()


WRONG = {
    "train --table nowhere --target y": "is not a table",
    "forecast --checkpoint .": "no checkpoint",
    "serve --checkpoint nowhere": "no checkpoint",
}


@pytest.mark.sampled
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_path_is_refused_at_once(line: str, environment: dict[str, str]) -> None:
    assert imported(environment, *line.split(), code=4, says=WRONG[line]) == set()


def test_a_table_is_looked_at_without_torch(environment: dict[str, str]) -> None:
    assert not HEAVY & imported(environment, "doctor", "--table", "nowhere", code=4)


def test_a_wrong_file_is_refused_at_once(environment: dict[str, str]) -> None:
    words = ("ingest", "nowhere.csv", "--table", "t")
    assert imported(environment, *words, code=3, says="nowhere.csv: there is no such file") == set()


@pytest.mark.slow
def test_tables_need_no_torch_and_no_pandas(tmp_path: Path, environment: dict[str, str]) -> None:
    data, table = tmp_path / "data.csv", tmp_path / "table"
    write_rows(data, 0, 48)
    assert imported(environment, "ingest", data, "--table", table) == set()
    assert imported(environment, "describe", "--table", table) == set()
    assert imported(environment, "doctor", "--table", table) == set()


@pytest.mark.slow
def test_models_need_torch_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    data, table, home = tmp_path / "data.csv", tmp_path / "table", tmp_path / "run"
    write_rows(data, 0, 200)
    assert run("ingest", data, "--table", table).exit_code == 0
    learn = ("train", "--online", "--table", table, "--target", "y", "--model", "linear", "--lags", 4)
    learn += ("--warmup", 40, "--batch", 32, "--tracking-uri", "none", "--checkpoint", home)
    assert imported(environment, *learn) == {"torch"}
    ask = ("forecast", "--checkpoint", home)
    assert imported(environment, *ask, "--output", tmp_path / "f.parquet") == {"torch"}
    assert imported(environment, *ask, "--table", table, "--output", tmp_path / "f.csv") == {"torch"}
