"""Faults of disks, permissions and of the files of a table."""

from __future__ import annotations

import random
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.faults.room import POWERLESS, TRAIN, UNTRACKED, Outcome, Room, fault, lines, small_disk

GROUP = "disk and table"


def made(room: Room, count: int = 1000, commits: int = 2) -> None:
    """A table of `count` rows in some commits."""
    for at in range(commits):
        room.rows("a.csv", at * count // commits, count // commits)
        room.here("ingest", "a.csv", "--table", "t")


def fill(disk: Path) -> None:
    """Leave no room."""
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


@fault(GROUP, "disk full while rows are written")
def disk_full(room: Room) -> Outcome:
    source = room.write(
        "a.csv",
        "ds,y,note\n"
        + "".join(
            f"{line},{random.Random(at).randbytes(200).hex()}\n"
            for at, line in enumerate(lines(0, 20_000).splitlines())
        ),
    )
    with small_disk(room, 2) as disk:
        ended = room.run("ingest", source, "--table", "disk/t")
        said, before = room.shown(ended.refused(5).error), room.count("disk/t") if (disk / "t").exists() else 0
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        room.here("ingest", source, "--table", "disk/t")
        return Outcome(f"exit 5, {before:,} rows; continues when there is room", room.whole(20_000, "disk/t"), said)


@fault(GROUP, "disk full while a checkpoint is written")
def disk_full_of_checkpoint(room: Room) -> Outcome:
    made(room, 4000)
    with small_disk(room, 1) as disk:
        line = [*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "disk/c", "--checkpoint-every", "500"]
        room.here(*line, "--max-rows", "1500")
        fill(disk)
        ended = room.run(*line)
        said = room.shown(ended.refused(5).error)
        (disk / "ballast").unlink()
        room.here(*line)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "whole", "--checkpoint-every", "500")
    return Outcome("exit 5; continues from the checkpoint before", "nothing", said)


@fault(GROUP, "disk full under the MLflow store")
def disk_full_of_store(room: Room) -> Outcome:
    made(room, 2000)
    with small_disk(room, 2) as disk:
        uri = f"sqlite:///{disk}/runs.db"
        line = [*TRAIN, "--table", "t", "--tracking-uri", uri, "--checkpoint", "c"]
        fill(disk)
        ended = room.run(*line)
        said = room.shown(ended.refused(5).error)
        (disk / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        room.here(*line)
    return Outcome("exit 5; the same command continues", "nothing", said)


@fault(GROUP, "disk full under a forecast's file", fast=False)
def disk_full_of_output(room: Room) -> Outcome:
    made(room)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    said = ""
    with small_disk(room, 1) as disk:
        room.write("disk/f.csv", "the forecast before")
        fill(disk)
        for name in ("f.csv", "f.parquet"):
            ended = room.run("forecast", "--checkpoint", "c", "--table", "t", "--output", disk / name)
            said = said or room.shown(ended.refused(5).error)
        assert (disk / "f.csv").read_text() == "the forecast before"
    return Outcome("exit 5; the file before stays", "nothing", said)


@fault(GROUP, "limit of file sizes (ulimit -f)", fast=True)
def file_size(room: Room) -> Outcome:
    source = room.write(
        "a.csv",
        "ds,y,note\n"
        + "".join(
            f"{line},{random.Random(at).randbytes(200).hex()}\n" for at, line in enumerate(lines(0, 2000).splitlines())
        ),
    )
    ended = room.run("ingest", source, "--table", "t", limits={"RLIMIT_FSIZE": 100_000})
    said = room.shown(ended.refused(5).error)
    room.here("ingest", source, "--table", "t")
    return Outcome("exit 5; continues without the limit", room.whole(2000), said)


@fault(GROUP, "table may not be written")
def unwritable(room: Room) -> Outcome:
    made(room)
    room.rows("a.csv", 1000, 10)
    said = ""
    for name in ("t", "t/_delta_log"):
        (room.path / name).chmod(0o555)
        ended = room.run("ingest", "a.csv", "--table", "t", prefix=POWERLESS)
        said = said or room.shown(ended.refused(5).error)
        room.run("describe", "--table", "t", prefix=POWERLESS).fine()
        (room.path / name).chmod(0o755)
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome("exit 5; taken once it may be", room.whole(1010), said)


@fault(GROUP, "table may not be read")
def unreadable(room: Room) -> Outcome:
    made(room)
    said = ""
    part = next(path for path in (room.path / "t").iterdir() if path.suffix == ".parquet")
    for path in (part, room.path / "t" / "_delta_log", room.path / "t"):
        before = path.stat().st_mode
        path.chmod(0)
        ended = room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c", prefix=POWERLESS)
        said = said or room.shown(ended.refused(2, 4, 5).error)
        path.chmod(before)
    return Outcome("refused", room.whole(1000), said)


@fault(GROUP, "immutable data file (chattr +i) while files are merged")
def immutable(room: Room) -> Outcome:
    made(room)
    files = [path for path in (room.path / "t").iterdir() if path.suffix == ".parquet"]
    try:
        subprocess.run(["chattr", "+i", *map(str, files)], check=True, capture_output=True)
        ended = room.run("doctor", "--table", "t", "--mend")
        room.rows("a.csv", 1000, 10)
        room.here("ingest", "a.csv", "--table", "t")
        ended.clean()
    finally:
        subprocess.run(["chattr", "-i", *map(str, files)], check=True, capture_output=True)
    return Outcome(
        f"doctor ends with {ended.code}, ingest continues",
        room.whole(1010),
        room.shown(ended.error) or "table of findings",
    )


@fault(GROUP, "flipped bit in a data file")
def flipped(room: Room) -> Outcome:
    made(room)
    part = sorted(path for path in (room.path / "t").iterdir() if path.suffix == ".parquet")[-1]
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 16
    copy = bytes(part.read_bytes())
    part.write_bytes(data)
    ended = room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c").refused(4, word=part.name)
    part.write_bytes(copy)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    return Outcome("exit 4 before any of its rows is learned", room.whole(1000), room.shown(ended.error))


@fault(GROUP, "data file gone", fast=False)
def gone(room: Room) -> Outcome:
    made(room)
    part = sorted(path for path in (room.path / "t").iterdir() if path.suffix == ".parquet")[-1]
    part.rename(room.path / "kept")
    ended = room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c").refused(4, word=part.name)
    (room.path / "kept").rename(part)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    return Outcome("exit 4; continues when it is back", room.whole(1000), room.shown(ended.error))


@fault(GROUP, "last entry of the log empty, as after a power cut")
def empty_entry(room: Room) -> Outcome:
    made(room)
    entry = max((room.path / "t" / "_delta_log").glob("0*.json"))
    kept = entry.read_bytes()
    entry.write_bytes(b"")
    room.rows("a.csv", 1000, 10)
    ended = room.run("ingest", "a.csv", "--table", "t")
    if ended.code == 0:
        ended.clean()
        return Outcome(
            "its rows are taken again from the source", room.whole(1010), room.shown(ended.error) or "nothing"
        )
    said = room.shown(ended.refused(4).error)
    entry.write_bytes(kept)
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome("exit 4; continues with the entry from a copy", room.whole(1010), said)


@fault(GROUP, "last entry of the log cut in half")
def half_entry(room: Room) -> Outcome:
    made(room)
    entry = max((room.path / "t" / "_delta_log").glob("0*.json"))
    kept = entry.read_bytes()
    entry.write_bytes(kept[: len(kept) // 2])
    room.rows("a.csv", 1000, 10)
    ended = room.run("ingest", "a.csv", "--table", "t").refused(4)
    entry.write_bytes(kept)
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome("exit 4; continues with the entry from a copy", room.whole(1010), room.shown(ended.error))


@fault(GROUP, "entry in the middle of the log gone")
def hole(room: Room) -> Outcome:
    made(room, commits=4)
    entry = sorted((room.path / "t" / "_delta_log").glob("0*.json"))[2]
    kept = entry.read_bytes()
    entry.unlink()
    ended = room.run("describe", "--table", "t")
    said = room.shown(ended.refused(4).error)
    entry.write_bytes(kept)
    room.here("describe", "--table", "t")
    return Outcome("exit 4", room.whole(1000), said)


@fault(GROUP, "table rolled back behind a checkpoint")
def rolled_back(room: Room) -> Outcome:
    made(room)
    shutil.copytree(room.path / "t", room.path / "backup")
    room.rows("a.csv", 1000, 500)
    room.here("ingest", "a.csv", "--table", "t")
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    shutil.rmtree(room.path / "t")
    shutil.copytree(room.path / "backup", room.path / "t")
    ended = room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c").refused(4)
    room.here("ingest", "a.csv", "--table", "t")
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    return Outcome("exit 4; continues when the rows are ingested again", room.whole(1500), room.shown(ended.error))


@fault(GROUP, "table removed while it is followed")
def removed(room: Room) -> Outcome:
    made(room)
    process = room.start(
        *TRAIN,
        "--table",
        "t",
        *UNTRACKED,
        "--checkpoint",
        "c",
        "--follow",
        "--checkpoint-every",
        "300",
    )
    room.until(
        lambda: (room.path / "c" / f"{1000:012d}").exists() or len(list((room.path / "c").glob("0*"))) > 1,
        "a checkpoint",
    )
    shutil.rmtree(room.path / "t")
    ended = room.end(process).refused(4)
    return Outcome("exit 4; the checkpoint stays", "nothing but what was removed", room.shown(ended.error))


@fault(GROUP, "another table in the place of one that is followed")
def replaced(room: Room) -> Outcome:
    made(room)
    room.here("ingest", "a.csv", "--table", "other")
    process = room.start(
        *TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c", "--checkpoint-every", "300", "--follow"
    )
    room.until(lambda: (room.path / "c").is_dir() and len(list((room.path / "c").glob("0*"))) > 0, "a checkpoint")
    (room.path / "t").rename(room.path / "old")
    (room.path / "other").rename(room.path / "t")
    ended = room.end(process).refused(4)
    return Outcome("exit 4", "nothing", room.shown(ended.error))


@fault(GROUP, "two writers of one file at once")
def two_writers(room: Room) -> Outcome:
    room.rows("a.csv", 0, 100_000)
    both = [room.start("ingest", "a.csv", "--table", "t") for _ in range(2)]
    said = [room.end(one).fine().error for one in both]
    return Outcome("both end well", room.whole(100_000), room.shown(" ".join(said)) or "nothing")


@fault(GROUP, "half-written files of killed writers in the table")
def litter(room: Room) -> Outcome:
    made(room)
    first = next(path for path in (room.path / "t").iterdir() if path.suffix == ".parquet")
    (room.path / "t" / f"{first.name}.12345.tmp").write_bytes(first.read_bytes()[:100])
    (room.path / "t" / "part-000000001000-00000000000000000000000000000000.parquet").write_bytes(b"PAR1")
    (room.path / "t" / "_delta_log" / "_commit_0000.json.tmp").write_bytes(b"{")
    room.rows("a.csv", 1000, 10)
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome("they are not looked at", room.whole(1010), "doctor shows them after an hour")


@fault(GROUP, "quarantine removed")
def no_quarantine(room: Room) -> Outcome:
    room.write("a.csv", "ds,y\n" + lines(0, 50) + "x,y\n")
    room.here("ingest", "a.csv", "--table", "t")
    shutil.rmtree(room.path / "t" / "_quarantine")
    with (room.path / "a.csv").open("a") as file:
        file.write(lines(50, 10) + "z,y\n")
    ended = room.run("ingest", "a.csv", "--table", "t").fine()
    assert len(room.aside()) == 1
    return Outcome("it is made again", room.whole(60), room.shown(ended.error))


@fault(GROUP, "table path is a file, or below a file", fast=True)
def path_is_a_file(room: Room) -> Outcome:
    room.rows("a.csv", 0, 50)
    room.write("t", "x")
    said = ""
    for name in ("t", "t/below"):
        ended = room.run("ingest", "a.csv", "--table", name)
        said = said or room.shown(ended.refused(2, 4, 5).error)
    return Outcome("refused", "nothing", said)


@fault(GROUP, "standard output is a full disk, or closed", fast=True)
def output_full(room: Room) -> Outcome:
    room.rows("a.csv", 0, 50)
    with open("/dev/full", "w") as full:
        ended = room.run("ingest", "a.csv", "--table", "t", stdout=full)
    said = room.shown(ended.refused(5).error)
    closed = room.run("ingest", "a.csv", "--table", "t", prefix=("/bin/sh", "-c", '"$@" >&-', "sh"))
    closed.clean()
    gone = room.run("ingest", "a.csv", "--table", "t", prefix=("/bin/sh", "-c", '"$@" 2>&-', "sh"))
    assert gone.code == 0, gone
    return Outcome("exit 5, the rows are in the table", room.whole(50), said)


@fault(GROUP, "working directory removed")
def no_directory(room: Room) -> Outcome:
    path = room.rows("a.csv", 0, 50)
    (room.path / "here").mkdir()
    ended = room.run(
        "ingest", path, "--table", "t", prefix=("/bin/sh", "-c", 'cd here && rmdir "$PWD" && exec "$@"', "sh")
    )
    if ended.code == 0:
        return Outcome("it continues", "nothing", "nothing")
    return Outcome(f"exit {ended.code}", "nothing", room.shown(ended.refused(2, 3, 4, 5).error))


@fault(GROUP, "no folder for temporary files, and no home", fast=True)
def no_home(room: Room) -> Outcome:
    room.rows("a.csv", 0, 50)
    ended = room.run("ingest", "a.csv", "--table", "t", env={"TMPDIR": "/nonexistent", "HOME": "/nonexistent"})
    ended.fine()
    return Outcome("it continues", room.whole(50), "nothing")
