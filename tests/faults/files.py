"""Faults of source files: what is in them, and what becomes of them while they are read."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import zipfile
from pathlib import Path

import polars as pl

from tests.faults.room import POWERLESS, Outcome, Room, fault, lines

GROUP = "source file"


def ingested(room: Room, *words: object, table: str = "t", **more: object) -> str:
    ended = room.run("ingest", *words, "--table", table, **more).fine()
    return room.shown(ended.error)


def aside(room: Room, table: str = "t") -> str:
    """How many rows are in the quarantine, by reason."""
    found = room.aside(table)
    return ", ".join(f"{found.count(one):,} {one}" for one in sorted(set(found)))


@fault(GROUP, "last line half-written, whole later", fast=True)
def half_a_line(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    path.write_bytes(path.read_bytes()[:-9])
    ingested(room, path)
    room.whole(49)
    path.write_text("ds,y\n" + lines(0, 60))
    ingested(room, path)
    return Outcome("the line waits until it is whole", room.whole(60), "column `waiting`: yes")


@fault(GROUP, "bytes that are no UTF-8", fast=True)
def no_utf8(room: Room) -> Outcome:
    text = "ds,y,note\n" + "".join(line + ",ü\n" for line in lines(0, 50).splitlines())
    path = room.write("a.csv", text)
    ingested(room, path)
    with path.open("ab") as file:
        file.write(b"2024-01-01 00:50:00,50,\xff\xfe\n2024-01-01 00:51:00,50,\xc3\xbc\n")
    ingested(room, path)
    assert len(room.taken()) == 51 and len(room.aside()) == 1, (len(room.taken()), room.aside())
    return Outcome("one row is put aside", "nothing: it is in the quarantine", aside(room))


@fault(GROUP, "NUL bytes, as after a power cut")
def nul_bytes(room: Room) -> Outcome:
    path = room.write("a.csv", b"ds,y\n" + lines(0, 50).encode() + b"\0" * 4096 + b"\n" + lines(50, 50).encode())
    ingested(room, path)
    assert len(room.aside()) == 1
    return Outcome("one line is put aside", room.whole(100), aside(room))


@fault(GROUP, "byte order mark in UTF-8 and in UTF-16")
def byte_order_mark(room: Room) -> Outcome:
    text = "ds,y\n" + lines(0, 50)
    ingested(room, room.write("a.csv", text.encode("utf-8-sig")))
    ended = room.run("ingest", room.write("b.csv", text.encode("utf-16")), "--table", "u")
    if ended.code == 0:
        room.whole(50, "u")
        return Outcome("both are read", room.whole(50), "nothing")
    said = room.shown(ended.refused(3).error)
    return Outcome("UTF-8 is read, UTF-16 refused", room.whole(50), said)


@fault(GROUP, "mixed line ends", fast=True)
def line_ends(room: Room) -> Outcome:
    ends = ("\n", "\r\n")
    text = "ds,y\r\n" + "".join(line + ends[at % 2] for at, line in enumerate(lines(0, 50).splitlines()))
    ingested(room, room.write("a.csv", text))
    return Outcome("all rows are taken", room.whole(50), "nothing")


@fault(GROUP, "decimal commas in the middle of a file")
def decimal_commas(room: Room) -> Outcome:
    text = lines(0, 40).replace(",", ";") + "".join(
        f"2024-01-01 00:{minute}:00;{minute},5\n" for minute in range(40, 50)
    )
    ended = room.run("ingest", room.write("a.csv", "ds;y\n" + text), "--table", "t").fine()
    found = room.taken()
    assert found[39] == 39 and found[40] == 40.5, found[38:42]
    return Outcome(f"{len(found)} rows are taken", f"nothing: {aside(room) or 'none'} aside", room.shown(ended.error))


@fault(GROUP, "header repeated in the middle")
def header_again(room: Room) -> Outcome:
    ingested(room, room.write("a.csv", "ds,y\n" + lines(0, 50) + "ds,y\n" + lines(50, 50)))
    assert len(room.aside()) == 1
    return Outcome("the second header is put aside", room.whole(100), aside(room))


@fault(GROUP, "row of 1 MB")
def large_row(room: Room) -> Outcome:
    text = "ds,y,note\n" + "".join(line + ",a\n" for line in lines(0, 50).splitlines())
    text += f"2024-01-01 00:50:00,50,{'x' * 1_000_000}\n" + "2024-01-01 00:51:00,51,b\n"
    ingested(room, room.write("a.csv", text))
    return Outcome("the row is taken", room.whole(52), "nothing")


@fault(GROUP, "line of 100 MB without an end")
def endless_line(room: Room) -> Outcome:
    path = room.write("a.csv", "ds,y\n" + lines(0, 50) + "x" * 100_000_000)
    ended = room.run("ingest", path, "--table", "t")
    if ended.code:
        return Outcome(f"exit {ended.code}", room.whole(50), room.shown(ended.refused(3).error))
    ended.fine()
    return Outcome("rows before it are taken", room.whole(50), room.shown(ended.error) or "column `waiting`: yes")


@fault(GROUP, "quote that is never closed", fast=True)
def open_quote(room: Room) -> Outcome:
    text = "ds,y,note\n" + "".join(
        line + (',"a\n' if at == 10 else ",a\n") for at, line in enumerate(lines(0, 50).splitlines())
    )
    ended = room.run("ingest", room.write("a.csv", text), "--table", "t", "--final")
    if ended.code:
        return Outcome(f"exit {ended.code}", "nothing: no row was taken", room.shown(ended.refused(3).error))
    ended.fine()
    assert len(room.taken()) + len(room.aside()) >= 11, (len(room.taken()), room.aside())
    return Outcome(f"{len(room.taken())} rows are taken", f"nothing: {aside(room)}", room.shown(ended.error))


@fault(GROUP, "column more in the middle of a stream", fast=True)
def wider_rows(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    ingested(room, path)
    with path.open("a") as file:
        file.write("".join(line + ",7\n" for line in lines(50, 10).splitlines()))
    ended = room.run("ingest", path, "--table", "t").refused(3)
    assert len(room.aside()) == 10
    return Outcome(
        "exit 3, as most are; wider rows are put aside", room.whole(50), aside(room) + room.shown(ended.error)
    )


@fault(GROUP, "column of another name in the next file")
def renamed_column(room: Room) -> Outcome:
    ingested(room, room.rows("a.csv", 0, 50))
    path = room.write("b.csv", "ds,value\n" + lines(50, 10))
    ended = room.run("ingest", path, "--table", "t").refused(3)
    return Outcome("exit 3, no row of it is taken", room.whole(50), room.shown(ended.error))


@fault(GROUP, "numbers become text in the next file")
def other_type(room: Room) -> Outcome:
    ingested(room, room.rows("a.csv", 0, 50))
    path = room.write("b.csv", "ds,y\n" + "".join(f"2024-01-02 00:{m}:00,high\n" for m in range(10, 20)))
    ended = room.run("ingest", path, "--table", "t")
    room.whole(50)
    if ended.code == 0:
        assert len(room.aside()) == 10
        return Outcome("its rows are put aside", "nothing", aside(room))
    return Outcome("exit 3", "nothing", room.shown(ended.refused(3).error))


@fault(GROUP, "duplicate storm: a row 50,000 times", fast=True)
def duplicates(room: Room) -> Outcome:
    ingested(room, room.write("a.csv", "ds,y\n" + lines(0, 50) + 50_000 * lines(49, 1) + lines(50, 50)))
    assert len(room.aside()) == 50_000
    return Outcome("one is taken, the others are put aside", room.whole(100), aside(room))


@fault(GROUP, "empty file, and one with a header alone", fast=True)
def empty_file(room: Room) -> Outcome:
    said = ""
    for text in ("", "ds,y\n", "\n\n\n"):
        ended = room.run("ingest", room.write("a.csv", text), "--table", "t").refused(3)
        said = said or room.shown(ended.error)
    room.rows("a.csv", 0, 5)
    room.write("a.csv", "ds,y\n" + lines(0, 50))
    ingested(room, "a.csv")
    return Outcome("exit 3; taken once it has rows", room.whole(50), said)


@fault(GROUP, "empty folder")
def empty_folder(room: Room) -> Outcome:
    (room.path / "logs").mkdir()
    ended = room.run("ingest", "logs", "--table", "t").refused(2, 3)
    return Outcome(f"exit {ended.code}", "nothing", room.shown(ended.error))


@fault(GROUP, "file disappears while it is followed")
def disappears(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    process = room.start("ingest", path, "--table", "t", "--follow", "--poll", "0.05")
    room.until(lambda: room.count() == 50, "the rows")
    path.unlink()
    try:
        process.wait(5)
    except Exception:  # it continues: the file may come back
        path.write_text("ds,y\n" + lines(0, 60))
        room.until(lambda: room.count() == 60, "the rows of the file that came back")
        ended = room.end(process, signal.SIGTERM).clean()
        return Outcome("it waits for the file", room.whole(60), room.shown(ended.error))
    ended = room.end(process).refused(3)
    path.write_text("ds,y\n" + lines(0, 60))
    ingested(room, path)
    return Outcome("exit 3; the same command continues when it is back", room.whole(60), room.shown(ended.error))


@fault(GROUP, "file truncated while it is followed")
def truncated(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    process = room.start("ingest", path, "--table", "t", "--follow", "--poll", "0.05")
    room.until(lambda: room.count() == 50, "the rows")
    path.write_text("ds,y\n" + lines(50, 20))
    ended = room.end(process).refused(3)
    ingested(room, path, "--as", "a.csv.1")
    return Outcome("exit 3; taken under another name", room.whole(70), room.shown(ended.error))


@fault(GROUP, "file rotated while it is followed")
def rotated(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    process = room.start("ingest", path, "--table", "t", "--follow", "--poll", "0.05")
    room.until(lambda: room.count() == 50, "the rows")
    with path.open("a") as file:
        file.write(lines(50, 10))
    path.rename(room.path / "a.csv.1")
    room.rows("a.csv", 60, 40)
    ended = room.end(process).refused(3)
    ingested(room, room.path / "a.csv.1", "--format", "csv")
    ingested(room, path, "--as", "a.csv.2")
    found = room.taken()
    assert sorted(found) == [float(row) for row in range(100)], len(found)
    return Outcome("exit 3; both files taken by name, old rows are known", room.whole(100), room.shown(ended.error))


@fault(GROUP, "gzip bomb: 1 GB in 1 MB, one line")
def gzip_bomb(room: Room) -> Outcome:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as file:
        file.write(b"ds,y\n" + lines(0, 50).encode())
        for _ in range(256):
            file.write(b"0" * (4 << 20))
    ended = room.run("ingest", room.write("a.csv.gz", out.getvalue()), "--table", "t", "--json", prefix=MEASURED)
    peak = int(ended.err.rsplit("peak", 1)[1].split()[0]) / 1e3
    assert peak < 1500, f"{peak:.0f} MB"
    clean = ended.clean()
    assert room.count() in (0, 50)
    return Outcome(
        f"exit {ended.code} at {peak:.0f} MB",
        "nothing",
        room.shown(clean.err.rsplit("peak", 1)[0]) or "column `waiting`",
    )


MEASURED = (
    "/bin/sh",
    "-c",
    "python3 - \"$@\" <<'END'\nimport resource, subprocess, sys\ndone = subprocess.run(sys.argv[1:])\n"
    "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n"
    "sys.exit(done.returncode)\nEND",
    "sh",
)
"""Writes the largest memory of a command, in kB, behind what it writes on standard error."""


@fault(GROUP, "gzip cut short, then whole")
def cut_gzip(room: Room) -> Outcome:
    data = gzip.compress(("ds,y\n" + lines(0, 2000)).encode())
    path = room.write("a.csv.gz", data[: len(data) // 2])
    ended = room.run("ingest", path, "--table", "t").clean()
    said, count = room.shown(ended.error), room.count()
    path.write_bytes(data)
    ingested(room, path)
    return Outcome(f"exit {ended.code}, {count} rows; the rest once it is whole", room.whole(2000), said)


@fault(GROUP, "archive with names outside of its folder")
def traversal(room: Room) -> Outcome:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("../../escaped.csv", "ds,y\n" + lines(0, 5))
        file.writestr("xl/../../escaped.csv", "x")
    said = ""
    for name in ("a.zip", "a.xlsx"):
        ended = room.run("ingest", room.write(name, out.getvalue()), "--table", "t").refused(2, 3)
        said = said or room.shown(ended.error)
    assert not list(room.path.parent.rglob("escaped.csv"))
    return Outcome("exit 3; nothing is unpacked", "nothing", said)


@fault(GROUP, "Excel file with a sheet of 1 GB in 1 MB")
def excel_bomb(room: Room) -> Outcome:
    whole = io.BytesIO()
    pl.DataFrame({"ds": ["2024-01-01"], "y": [1.0]}).write_excel(whole)
    out = io.BytesIO()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name == "xl/worksheets/sheet1.xml":
                with new.open(name, "w", force_zip64=True) as file:
                    for _ in range(256):
                        file.write(b" " * (4 << 20))
            else:
                new.writestr(name, old.read(name))
    ended = room.run("ingest", room.write("a.xlsx", out.getvalue()), "--table", "t", prefix=MEASURED)
    peak = int(ended.err.rsplit("peak", 1)[1].split()[0]) / 1e3
    assert peak < 1500, f"{peak:.0f} MB"
    return Outcome(f"exit {ended.code} at {peak:.0f} MB", "nothing", room.shown(ended.refused(3).error))


@fault(GROUP, "symbolic link to nothing, and in a circle", fast=True)
def links(room: Room) -> Outcome:
    (room.path / "gone.csv").symlink_to("nowhere.csv")
    (room.path / "ring.csv").symlink_to("ring.csv")
    said = [
        room.shown(room.run("ingest", name, "--table", "t").refused(2, 3, 5).error) for name in ("gone.csv", "ring.csv")
    ]
    return Outcome("refused", "nothing", said[1])


@fault(GROUP, "link that is moved to another file")
def moved_link(room: Room) -> Outcome:
    first, second = room.rows("a.csv", 0, 50), room.rows("b.csv", 50, 50)
    link = room.path / "now.csv"
    link.symlink_to(first)
    ingested(room, link)
    link.unlink()
    link.symlink_to(second)
    ended = room.run("ingest", link, "--table", "t")
    if ended.code:
        said = room.shown(ended.refused(3).error)
        ingested(room, link, "--as", "second")
        return Outcome("exit 3; taken under another name", room.whole(100), said)
    ended.fine()
    return Outcome("it is another source: taken", room.whole(100), room.shown(ended.error) or "nothing")


@fault(GROUP, "device, named pipe or folder in place of a file", fast=True)
def not_a_file(room: Room) -> Outcome:
    os.mkfifo(room.path / "pipe.csv")
    (room.path / "folder.csv").mkdir()
    said = ""
    for name in ("/dev/zero", "/dev/urandom", "pipe.csv", "folder.csv"):
        ended = room.run("ingest", name, "--table", "t", prefix=("timeout", "20")).refused(2, 3)
        said = said or room.shown(ended.error)
    return Outcome("refused at once", "nothing", said)


@fault(GROUP, "permission lost", fast=True)
def unreadable(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    path.chmod(0)
    ended = room.run("ingest", path, "--table", "t", prefix=POWERLESS)
    said = room.shown(ended.refused(2, 3, 5).error)
    path.chmod(0o644)
    room.run("ingest", path, "--table", "t", prefix=POWERLESS).fine()
    return Outcome(f"exit {ended.code}; taken once it may be read", room.whole(50), said)


@fault(GROUP, "odd file names: newline, bytes that are no text, a dash first")
def odd_names(room: Room) -> Outcome:
    names = [b"a\nb.csv", b"\xff\xfe.csv", b"-a.csv", "übung 1.csv".encode(), b"%41*.csv"]
    for at, name in enumerate(names):
        Path(os.fsdecode(os.fsencode(room.path) + b"/" + name)).write_text("ds,y\n" + lines(10 * at, 10))
    ended = room.run("ingest", room.path, "--table", "t", "--json")
    if ended.code:
        return Outcome(f"exit {ended.code}", "nothing", room.shown(ended.refused(2, 3).error))
    json.loads(ended.fine().out)
    return Outcome("all are taken", room.whole(50), "nothing")


@fault(GROUP, "Parquet file cut, and a CSV with its name", fast=True)
def cut_parquet(room: Room) -> Outcome:
    out = io.BytesIO()
    pl.DataFrame({"ds": range(500), "y": [float(row) for row in range(500)]}).write_parquet(out)
    said = ""
    for data in (out.getvalue()[:-100], b"ds,y\n1,2\n", b"PAR1"):
        ended = room.run("ingest", room.write("a.parquet", data), "--table", "t", "--time", "ds").refused(3)
        said = said or room.shown(ended.error)
    room.write("a.parquet", out.getvalue())
    ingested(room, "a.parquet", "--time", "ds")
    return Outcome("exit 3; taken once it is whole", room.whole(500), said)


@fault(GROUP, "JSON nested 100,000 deep")
def deep_json(room: Room) -> Outcome:
    text = "".join(f'{{"ds": {row}, "y": {row}}}\n' for row in range(50))
    text = text + '{"ds": 50, "y": ' + "[" * 100_000 + "]" * 100_000 + "}\n" + '{"ds": 51, "y": 50}\n'
    ended = room.run("ingest", room.write("a.jsonl", text), "--table", "t", "--time", "ds").fine()
    assert len(room.aside()) == 1
    return Outcome("the line is put aside", room.whole(51), aside(room) + room.shown(ended.error))


@fault(GROUP, "two columns of one name", fast=True)
def same_names(room: Room) -> Outcome:
    ended = room.run("ingest", room.write("a.csv", "ds,y,y\n2024-01-01,1,2\n"), "--table", "t").refused(3)
    return Outcome("exit 3", "nothing", room.shown(ended.error))


@fault(GROUP, "5,000 columns")
def many_columns(room: Room) -> Outcome:
    names = ",".join(f"c{at}" for at in range(5000))
    cells = ",1" * 5000
    text = f"ds,y,{names}\n" + "".join(f"{line}{cells}\n" for line in lines(0, 20).splitlines())
    ingested(room, room.write("a.csv", text))
    return Outcome("all rows are taken", room.whole(20), "nothing")


@fault(GROUP, "text in place of a spreadsheet, and a spreadsheet in place of text", fast=True)
def other_kind(room: Room) -> Outcome:
    whole = io.BytesIO()
    pl.DataFrame({"ds": ["2024-01-01"], "y": [1.0]}).write_excel(whole)
    said = ""
    for name, data in (("a.csv", whole.getvalue()), ("a.xlsx", b"ds,y\n1,2\n")):
        ended = room.run("ingest", room.write(name, data), "--table", "t").refused(3)
        said = said or room.shown(ended.error)
    return Outcome("exit 3", "nothing", said)
