"""Ingest: what a user relies on, format by format, and what running it again does."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from scipy.io import savemat

from streamgp.errors import DataError, SchemaError, TableError, UsageError
from streamgp_data import delta
from streamgp_data.ingestion.ingest import ingest
from streamgp_data.reading import records
from streamgp_data.table import Table
from streamgp_pipelines.config import IngestConfig
from tests.pipelines.ingesting import FRAME, quarantine, rows, take, text_of, write
from tests.pipelines.worlds import run
from tests.words import names

WRITERS: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: path.write_text(text_of(FRAME)),
    "a.tsv": lambda path: FRAME.write_csv(path, separator="\t"),
    "semicolon.csv": lambda path: FRAME.write_csv(path, separator=";", decimal_comma=True),
    "crlf.csv": lambda path: FRAME.write_csv(path, line_terminator="\r\n"),
    "utf16.csv": lambda path: path.write_bytes(text_of(FRAME).encode("utf-16")),
    "bom.csv": lambda path: path.write_bytes(text_of(FRAME).encode("utf-8-sig")),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(text_of(FRAME).encode())),
    "two.csv.gz": lambda path: path.write_bytes(
        gzip.compress(text_of(FRAME[:100]).encode())
        + gzip.compress(FRAME[100:].write_csv(include_header=False, datetime_format="%Y-%m-%d %H:%M:%S").encode())
    ),
    "a.csv.zst": lambda path: path.write_bytes(zstandard.compress(text_of(FRAME).encode())),
    "a.jsonl": lambda path: FRAME.with_columns(pl.col("ds").dt.to_string()).write_ndjson(path),
    "a.jsonl.gz": lambda path: path.write_bytes(
        gzip.compress(FRAME.with_columns(pl.col("ds").dt.to_string()).write_ndjson().encode())
    ),
    "a.parquet": lambda path: FRAME.write_parquet(path, row_group_size=120),
    "a.parquet.zst": lambda path: path.write_bytes(zstandard.compress(_parquet_bytes())),
    "a.feather": lambda path: FRAME.write_ipc(path),
    "a.arrows": lambda path: FRAME.write_ipc_stream(path),
}


def _parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    FRAME.write_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows_and_again_none(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    summary = take(tmp_path / "t", tmp_path / name)
    assert (summary["added"], summary["quarantined"]) == (500, {})
    assert rows(tmp_path / "t").select("ds", "y", "note").equals(FRAME)
    assert rows(tmp_path / "t")["_seq"].to_list() == list(range(500))
    version = Table.open(tmp_path / "t").version
    again = take(tmp_path / "t", tmp_path / name)
    assert (again["added"], again["duplicates"], again["table_version"]) == (0, 0, version)


@pytest.mark.parametrize("block", [97, 1 << 20, *(pytest.param(size, marks=pytest.mark.slow) for size in (40, 1000))])
def test_blocks_do_not_matter(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", block)
    frame = FRAME[:60].with_columns(note=pl.lit('two\nlines, "quoted"'))
    text = text_of(frame).replace("\n2024-01-01 05:00:00", "\nlost\n2024-01-01 05:00:00")
    take(tmp_path / "t", write(tmp_path / "a.csv", text))
    assert rows(tmp_path / "t").select("ds", "y", "note").equals(frame)
    bad = quarantine(tmp_path / "t")
    assert bad.select("reason", "line", "row").rows() == [("ragged", 22, "lost")]


def test_a_file_that_grew_adds_its_new_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text_of(FRAME[:200]))
    assert take(tmp_path / "t", path)["added"] == 200
    with path.open("a") as file:
        file.write(FRAME[200:].write_csv(include_header=False, datetime_format="%Y-%m-%d %H:%M:%S"))
    assert take(tmp_path / "t", path)["added"] == 300
    assert rows(tmp_path / "t").select("ds", "y", "note").equals(FRAME)


def test_a_changed_file_is_refused_and_taken_under_another_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,2\n")
    take(tmp_path / "t", path)
    write(path, "ds,y\n2024-01-01,9\n2024-01-02,2\n2024-01-03,3\n")
    with pytest.raises(DataError) as refused:
        take(tmp_path / "t", path)
    assert "--as" in refused.value.hint
    summary = take(tmp_path / "t", path, as_name="corrected")
    assert (summary["added"], summary["duplicates"], summary["conflicts"]) == (1, 1, 1)
    assert any(hint.endswith(f"2 rows; streamgp describe --table {tmp_path / 't'}") for hint in summary["hints"])
    assert quarantine(tmp_path / "t").select("reason", "line").rows() == [("conflict", 2), ("duplicate", 3)]


def test_a_changed_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    FRAME[:10].write_parquet(path)
    take(tmp_path / "t", path)
    FRAME[:20].write_parquet(path)
    with pytest.raises(DataError):
        take(tmp_path / "t", path)
    assert take(tmp_path / "t", path, as_name="b")["added"] == 10


def test_a_last_line_without_newline_waits_however_often_it_is_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,12")
    for added in (1, 0, 0):
        summary = take(tmp_path / "t", path)
        assert (summary["added"], summary["sources"][0]["waiting"]) == (added, True)
        assert "--final" in " ".join(summary["hints"])
    write(path, "ds,y\n2024-01-01,1\n2024-01-02,12345\n")
    summary = take(tmp_path / "t", path)
    assert (summary["added"], summary["sources"][0]["waiting"]) == (1, False)
    assert rows(tmp_path / "t")["y"].to_list() == [1, 12345]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zst", "a.jsonl", "a.jsonl.gz", "utf16.csv"])
def test_it_waits_in_every_format(name: str, tmp_path: Path) -> None:
    lines = ['{"ds":"2024-01-01","y":1}', '{"ds":"2024-01-02","y":2}'] if "jsonl" in name else ["ds,y", "2024-01-01,1"]
    data = "\n".join(lines).encode("utf-16" if "utf16" in name else "utf-8")
    packed = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(name).suffix, bytes)(data)
    (tmp_path / name).write_bytes(packed)
    for _ in range(2):
        try:
            summary = take(tmp_path / "t", tmp_path / name)
        except DataError as refused:  # not one whole row yet
            assert "--final" in refused.hint
        else:
            assert summary["sources"][0]["waiting"]
    assert take(tmp_path / "t", tmp_path / name, final=True)["rows"] == ("jsonl" in name) + 1


STUCK = "ds,y\n2024-01-01,1\n2024-01-02,12"


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["a file", "standard input", "gzip"])
@pytest.mark.parametrize("series", [False, True])
def test_a_torn_line_that_was_taken_is_repaired(
    way: str, series: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(text: str, **options: Any) -> dict[str, Any]:
        text = text.replace("ds,", "unique_id,ds,").replace("2024", "a,2024") if series else text
        if way == "standard input":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            return take(tmp_path / "t", "-", as_name="feed", **options)
        path = tmp_path / ("a.csv" if way == "a file" else "a.csv.gz")
        path.write_bytes(text.encode() if way == "a file" else gzip.compress(text.encode()))
        return take(tmp_path / "t", path, **options)

    run(STUCK, final=True)
    grown = STUCK + "345\n2024-01-03,3\n"
    with pytest.raises(DataError) as refused:
        run(grown)
    assert "--repair" in refused.value.hint
    summary = run(grown, repair=True)
    assert (summary["added"], summary["quarantined"]) == (2, {"superseded": 1})
    table = rows(tmp_path / "t")
    assert (table["y"].to_list(), table["_seq"].to_list()) == ([1, 12345, 3], [0, 2, 3])
    aside = quarantine(tmp_path / "t")
    assert aside.select("reason", "line").rows() == [("superseded", 3)]
    assert "_seq 1," in aside["detail"][0] and "12" in aside["row"][0]
    again = run(grown + "2024-01-04,4\n", repair=True)
    assert (again["added"], again["quarantined"]) == (1, {})
    assert take(tmp_path / "t", write(tmp_path / "b.csv", "ds,y\n2024-01-02,9\n"))["added"] == 0 if not series else True


def test_a_torn_line_that_was_no_row_is_repaired_too(tmp_path: Path) -> None:
    """It is in the quarantine, as unparsable or as the duplicate of somebody else's row, which stays."""
    other = write(tmp_path / "other.csv", "ds,y\n2024-01-02,7\n")
    for torn, whole in (("2024-01-0", "3,3"), ("2024-01-02,1", "5")):
        path = write(tmp_path / f"a{len(torn)}.csv", f"ds,y\n2024-01-{len(torn)},1\n{torn}")
        take(tmp_path / "t", other)
        take(tmp_path / "t", path, final=True)
        write(path, path.read_text() + whole + "\n")
        before = rows(tmp_path / "t")["y"].to_list()
        assert "superseded" not in take(tmp_path / "t", path, repair=True)["quarantined"]
        assert rows(tmp_path / "t")["y"].to_list() == [*before, *([3] if torn == "2024-01-0" else [])]


def test_a_repair_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", STUCK)
    take(tmp_path / "t", path, final=True)
    write(path, STUCK + "345\n")
    commit = delta.commit
    for deadly in (1, 2, 3):
        left = [deadly]

        def failing(*args: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise RuntimeError("power cut")
            commit(*args)

        monkeypatch.setattr(delta, "commit", failing)
        with contextlib.suppress(RuntimeError):
            take(tmp_path / "t", path, repair=True)
    monkeypatch.undo()
    take(tmp_path / "t", path, repair=True)
    assert rows(tmp_path / "t")["y"].to_list() == [1, 12345]
    assert quarantine(tmp_path / "t")["reason"].to_list() == ["superseded"]


def test_final_takes_it_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,2")
    assert take(tmp_path / "t", path, final=True)["added"] == 2
    assert take(tmp_path / "t", path, final=True)["added"] == 0


@pytest.mark.sampled
@pytest.mark.parametrize("text", ["ds,y\n2024-01-01,1", "ds,y\n", "ds,y", "ds,y\r"])
@pytest.mark.parametrize("sort", [False, True])
def test_nothing_but_a_waiting_line_is_no_table_yet(text: str, sort: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError):
        take(tmp_path / "t", path, sort=sort)
    write(path, "ds,y\n2024-01-01,1\n2024-01-02,2")
    assert take(tmp_path / "t", path, sort=sort)["added"] == 1
    assert take(tmp_path / "t", path, sort=sort)["added"] == 0


@pytest.mark.parametrize(("form", "meant"), [("h5", "hdf5"), (".mat", "matlab"), ("json", "jsonl"), ("foo", None)])
def test_a_format_that_there_is_not_is_named_with_those_that_there_are(
    tmp_path: Path, form: str, meant: str | None
) -> None:
    with pytest.raises(UsageError, match=f"--format {form}: there is no such format") as caught:
        take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n1,2\n"), format=form)
    assert "arrow, can, csv, excel, hdf5, jsonl" in caught.value.hint
    assert caught.value.hint.startswith("the formats" if meant is None else f"did you mean {meant}?")


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def feed(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    text = text_of(FRAME[:50]).encode()
    feed(text)
    assert take(tmp_path / "t", "-", as_name="feed")["added"] == 50
    feed(text + b"2025-01-01,1,x")
    assert take(tmp_path / "t", "-", as_name="feed")["sources"][0]["waiting"]
    feed(text + b"2025-01-01,1,x")
    assert take(tmp_path / "t", "-", as_name="feed", final=True)["added"] == 1
    feed(text)
    with pytest.raises(DataError):
        take(tmp_path / "t", "-", as_name="feed")
    feed(text)
    anonymous = take(tmp_path / "t", "-")
    assert (anonymous["added"], anonymous["duplicates"]) == (0, 50)
    matlab = io.BytesIO()
    savemat(matlab, {"ds": np.arange(40.0), "y": np.arange(40.0) ** 2})
    for data in (gzip.compress(text), _parquet_bytes(), FRAME.write_ndjson().encode(), matlab.getvalue()):
        feed(data)
        assert take(tmp_path / f"t{len(data)}", "-", time="ds")["added"] > 0


def test_a_live_pipe_is_taken_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgp_data.reading.bytes.PATIENCE", 0.02)
    reading, writing = os.pipe()
    told: list[dict[str, Any]] = []

    def rows_come(count: int) -> None:
        end = time.monotonic() + 400
        while not (Table.exists(tmp_path / "t") and Table.open(tmp_path / "t").rows >= count):
            assert time.monotonic() < end, "the rows never came"
            time.sleep(0.01)

    with open(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        worker = Thread(target=lambda: told.append(take(tmp_path / "t", "-", as_name="feed")), daemon=True)
        worker.start()
        os.write(writing, b"ds,y\n2024-01-01,1\n")
        os.write(writing, b"2024-01-02,2\n2024-01-0")
        rows_come(2)
        os.write(writing, b"3,3\n2024-01-04,4\n")
        rows_come(4)
        os.write(writing, b"2024-01-05,5\n")
        os.close(writing)
        worker.join(400)
    assert told[0]["added"] == 5
    assert rows(tmp_path / "t")["y"].to_list() == [1, 2, 3, 4, 5]


def test_directories_and_globs(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / "in" / f"d{i}").mkdir(parents=True)
        write(tmp_path / "in" / f"d{i}" / "part.csv", text_of(FRAME[i * 10 : i * 10 + 10]))
    write(tmp_path / "in" / "README.md", "not data")
    (tmp_path / "in" / ".hidden.csv").write_text("x")
    assert take(tmp_path / "t", tmp_path / "in")["added"] == 30
    summary = take(tmp_path / "u", str(tmp_path / "in" / "*" / "*.csv"), str(tmp_path / "in" / "d0" / "part.csv"))
    assert summary["added"] == 30
    assert [Path(one["source"]).parent.name for one in summary["sources"]] == ["d0", "d1", "d2"]


def test_late_rows_are_taken_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-03,3\n2024-01-01,1\n2024-01-02,2\n2024-01-04,4\n2024-01-02,9\n")
    summary = take(tmp_path / "t", path)
    assert (summary["added"], summary["late"], summary["conflicts"]) == (4, 2, 1)
    assert "--sort" in " ".join(summary["hints"])
    summary = take(tmp_path / "u", path, sort=True)
    assert (summary["added"], summary["late"], summary["conflicts"]) == (4, 0, 1)
    assert rows(tmp_path / "u")["y"].to_list() == [1, 2, 3, 4]
    assert quarantine(tmp_path / "u")["line"].to_list() == [6]


def test_sorting_says_what_it_cannot_order_any_more(tmp_path: Path) -> None:
    late = write(tmp_path / "late.csv", "ds,y\n2024-01-03,3\n2024-01-01,1\n2024-01-02,2\n")
    early = write(tmp_path / "early.csv", "ds,y\n2023-01-02,3\n2023-01-01,1\n")
    take(tmp_path / "t", late)
    again = take(tmp_path / "t", late, sort=True)
    assert (again["added"], again["late"]) == (0, 0)
    assert names(again["hints"][0], "2")
    assert not take(tmp_path / "u", late, sort=True)["hints"]
    assert not take(tmp_path / "u", late, sort=True)["hints"]
    assert names(take(tmp_path / "u", early, sort=True)["hints"][0], "2")
    panel = write(tmp_path / "p.csv", "ds,unique_id,y\n2024-01-01,a,1\n2024-01-02,a,1\n2024-01-01,b,1\n")
    take(tmp_path / "p", panel)
    assert names(take(tmp_path / "p", panel, sort=True)["hints"][0], "1")


def test_future_rows_are_taken_and_told(tmp_path: Path) -> None:
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2199-01-01,2\n2024-01-02,3\n"))
    assert (summary["added"], summary["future"], summary["late"]) == (3, 1, 1)
    assert summary["hints"]


def test_a_time_with_an_offset_is_none_of_a_table_without_a_zone(tmp_path: Path) -> None:
    lines = [f"2024-01-01T00:{at:02d}:00{'+05:00' if at == 31 else ''},{at}\n" for at in range(40)]
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,y\n" + "".join(lines) + "soon,1\n"))
    details = quarantine(tmp_path / "t")["detail"].to_list()
    assert len(details) == 2 and "no time zone" in details[0] and "is not a time" in details[1]


def test_a_row_of_the_far_future_is_put_aside(tmp_path: Path) -> None:
    text = "ds,y\n2024-01-01T00,1\n2099-01-01T00,2\n" + "".join(f"2024-01-02T{hour:02d},{hour}\n" for hour in range(24))
    path = write(tmp_path / "a.csv", text)
    given: dict[str, Any] = {"model": "persistence", "lags": 1, "horizon": 1, "season": (), "warmup": 4, "batch": 4}
    assert "--max-ahead" in take(tmp_path / "t", path, every="1h")["hints"][-1]
    (why,) = [one for one in run(tmp_path / "t", tmp_path / "one", **given)["warnings"] if "not learned" in one]
    assert names(why, "24") and "--max-ahead" in why
    for sort in (False, True):
        table = tmp_path / f"{sort}"
        summary = take(table, path, every="1h", max_ahead="1d", sort=sort)
        assert (summary["added"], summary["late"], summary["quarantined"]) == (25, 0, {"future": 1})
        assert quarantine(table)["detail"].str.contains("2099").all()
        assert not any("not learned" in one for one in run(table, tmp_path / f"run {sort}", **given)["warnings"])
    more = write(tmp_path / "b.csv", "ds,y\n2024-01-03T00,1\n2099-01-01T00,2\n")
    assert take(tmp_path / "t", more, max_ahead="1d")["duplicates"] == 1  # the table is there already


def test_of_elapsed_time_the_future_counts_from_the_newest_row(tmp_path: Path) -> None:
    given: dict[str, Any] = {"time": "t", "time_format": "elapsed-s", "max_ahead": "1h"}
    first = write(tmp_path / "a.csv", "t,y\n" + "".join(f"{second},{second}\n" for second in range(0, 100_000, 10_000)))
    assert take(tmp_path / "t", first, **given)["added"] == 10  # of a new table there is no newest row
    more = write(tmp_path / "b.csv", "t,y\n90010,1\n99999999,2\n93000,3\n")
    summary = take(tmp_path / "t", more, max_ahead="1h")
    assert (summary["added"], summary["late"], summary["quarantined"]) == (2, 0, {"future": 1})


def test_rows_and_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "step,y\n0,1\n1,2\n1,3\n2.5,4\n")
    take(tmp_path / "rows", path, time="row")
    assert (Table.open(tmp_path / "rows").meta.time, rows(tmp_path / "rows").height) == (None, 4)
    summary = take(tmp_path / "steps", path, time="step")
    meta = Table.open(tmp_path / "steps").meta
    assert (meta.time, meta.clock, meta.every_ns) == ("step", False, 1)
    assert summary["quarantined"] == {"conflict": 1, "unparsable": 1}
    assert rows(tmp_path / "steps")["step"].to_list() == [0, 1]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    summary = take(tmp_path / "t", write(tmp_path / "a.csv", text_of(FRAME)), dry_run=True)
    assert not (tmp_path / "t").exists()
    assert summary["sources"][0]["reads"]["columns"] == {"ds": "timestamp[us]", "y": "double", "note": "string"}


@pytest.mark.sampled
@pytest.mark.parametrize("policy", ["first", "last"])
def test_a_dry_run_counts_what_the_run_would_take_and_put_aside(policy: str, tmp_path: Path) -> None:
    bad = "ds,y\n" + "".join(f"2024-01-{1 + i % 25:02},{i // 50}\n" for i in range(100)) + "soon,1\n2024-02-01,x\n,4\n"
    path = write(tmp_path / "a.csv", bad)
    more = write(tmp_path / "b.csv", "ds,y\n2024-01-02,0\n2024-01-03,7\n2099-01-01,1\n")
    options: dict[str, Any] = {"duplicates": policy, "max_ahead": "1d", "keep_going": True}
    for sources in ((path, more), (more,)):  # into no table, and into one
        dry = take(tmp_path / "t", *sources, dry_run=True, **options)
        assert dry["added"] == 0
        found = take(tmp_path / "t", *sources, **options)
        assert sum(one["would_add"] for one in dry["sources"]) == found["added"]
        assert dry["versions"] == found["versions"] and bool(found["versions"]) == (policy == "last")
        assert any("versions of others" in hint for hint in dry["hints"]) == (policy == "last")
        assert dry["quarantined"] == found["quarantined"]
        take(tmp_path / "t", path, **options)
        assert take(tmp_path / "t", path, dry_run=True, **options)["quarantined"] == {}
        more.write_text(more.read_text() + "2024-01-04,0\n2024-01-05,9\n")


def test_flags_may_repeat_but_not_contradict_the_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text_of(FRAME[:5]))
    take(tmp_path / "t", path, every="30m")
    assert Table.open(tmp_path / "t").meta.every_ns == 1800 * 10**9
    take(tmp_path / "t", path, every="0.5h", time="ds")
    take(tmp_path / "t", path, every="30m", tolerance="15m")
    assert Table.open(tmp_path / "t").meta.tolerance_ns == 900 * 10**9
    for flag, value in (("every", "1h"), ("tolerance", "10m"), ("time", "y"), ("series", "note"), ("timezone", "UTC")):
        with pytest.raises((TableError, SchemaError)):
            take(tmp_path / "t", path, **{flag: value})


def test_an_interval_may_be_declared_later(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", text_of(FRAME[:5]))
    take(tmp_path / "t", path)
    take(tmp_path / "t", path, every="30m")
    assert Table.open(tmp_path / "t").meta.every_ns == 1800 * 10**9
    assert rows(tmp_path / "t").height == 5
    take(tmp_path / "t", path, tolerance="5m", dry_run=True)
    assert Table.open(tmp_path / "t").meta.tolerance_ns is None
    take(tmp_path / "t", path, tolerance="5m")
    meta = Table.open(tmp_path / "t").meta
    assert (meta.every_ns, meta.tolerance_ns) == (1800 * 10**9, 300 * 10**9)


def test_names_of_series_stay_as_they_are(tmp_path: Path) -> None:
    take(tmp_path / "t", write(tmp_path / "a.csv", "ds,unique_id,y\n2024-01-01,007,1\n2024-01-01,7,1\n"))
    assert rows(tmp_path / "t")["unique_id"].to_list() == ["007", "7"]


def test_an_interrupted_parquet_goes_on_behind_its_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgp_data.sources.parquet.ROWS", 90)
    frame = pl.concat([FRAME, FRAME[100:150], FRAME.with_columns(pl.col("ds") + timedelta(days=90))])
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=200)
    commit, left = delta.commit, [4]

    def failing(*args: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("power cut")
        commit(*args)

    monkeypatch.setattr(delta, "commit", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        take(tmp_path / "t", tmp_path / "a.parquet")
    assert 0 < rows(tmp_path / "t").height < 1000
    take(tmp_path / "t", tmp_path / "a.parquet")
    assert rows(tmp_path / "t").select("ds", "y", "note").equals(pl.concat([frame[:500], frame[550:]]))
    assert quarantine(tmp_path / "t")["line"].to_list() == list(range(501, 551))


def test_follow_takes_what_comes_and_stops(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ds,y\n2024-01-01,1\n2024-01-02,")
    polls = iter(["2\n", "", "2024-01-03,3\n2024-01-04,4\n"])

    def stop() -> bool:
        more: Any = next(polls, None)
        if more is None:
            return True
        with path.open("a") as file:
            file.write(more)
        return False

    config = IngestConfig.read({"source": [str(path)], "table": str(tmp_path / "t"), "follow": True, "poll": 0.01})
    summary = ingest(config, stop=stop)
    assert (summary["added"], summary["quarantined"]) == (4, {})
    assert rows(tmp_path / "t")["y"].to_list() == [1, 2, 3, 4]


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", 2000)
    seen = []
    config = IngestConfig.read(
        {"source": [str(write(tmp_path / "a.csv", text_of(FRAME)))], "table": str(tmp_path / "t")}
    )
    ingest(config, progress=lambda now: seen.append(now.rows))
    assert seen == sorted(seen)
    assert seen[-1] == 500
    assert len(seen) > 3


@pytest.mark.slow
def test_small_commits_of_following_are_merged(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for i in range(70):
        (folder / f"{i:02}.csv").write_text(f"ds,y\n2024-01-01 {i // 60:02}:{i % 60:02},{i}\n")
    config = IngestConfig.read({"source": [str(folder)], "table": str(tmp_path / "t"), "follow": True})
    assert ingest(config, stop=lambda: True)["rows"] == 70
    assert len(Table.open(tmp_path / "t").log.file_uris()) < 10
