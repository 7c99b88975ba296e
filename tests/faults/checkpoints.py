"""Faults of checkpoints, of runs in the middle, and of the MLflow store."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from streamgp_data import checkpoint
from streamgp_data.remote import LOCK
from streamgp_pipelines.learning.checkpointing import state_digest
from tests.faults.room import POWERLESS, TRAIN, UNTRACKED, Outcome, Room, fault
from tests.faults.storage import made

GROUP = "checkpoint and run"
LINE = (*TRAIN, "--table", "t", "--checkpoint", "c", "--checkpoint-every", "300")


def trained(room: Room, *more: str) -> list[Path]:
    """Two checkpoints, the newest last, of 900 and 1,000 rows."""
    made(room)
    room.here(*LINE, *UNTRACKED, *more)
    return sorted((room.path / "c").glob("0*"))


def state(room: Room, name: str = "c") -> str:
    return state_digest(checkpoint.read(room.path / name))


def same_end(room: Room, damage: Callable[[Path], None], *codes: int) -> Outcome:
    """Damage the newest checkpoint; the run continues from the one before, and ends as if nothing had been."""
    newest = trained(room)[-1]
    wanted = state(room)
    damage(newest)
    ended = room.run(*LINE, *UNTRACKED, "--json").fine()
    assert state(room) == wanted
    (warning,) = json.loads(ended.out)["warnings"]
    return Outcome("continues from the one before; ends with the same digest", "nothing", room.shown(warning))


@fault(GROUP, "newest checkpoint truncated")
def truncated(room: Room) -> Outcome:
    return same_end(
        room, lambda path: (path / checkpoint.TENSORS).write_bytes((path / checkpoint.TENSORS).read_bytes()[:100])
    )


@fault(GROUP, "newest checkpoint with empty files, as after a power cut")
def emptied(room: Room) -> Outcome:
    return same_end(room, lambda path: [one.write_bytes(b"") for one in path.iterdir()] and None)


@fault(GROUP, "flipped bit in a checkpoint")
def flipped(room: Room) -> Outcome:
    def flip(path: Path) -> None:
        data = bytearray((path / "state.json").read_bytes())
        data[len(data) // 2] ^= 1
        (path / "state.json").write_bytes(data)

    return same_end(room, flip)


@fault(GROUP, "all checkpoints damaged")
def all_damaged(room: Room) -> Outcome:
    for path in trained(room):
        (path / "state.json").write_text("{}")
    ended = room.run(*LINE, *UNTRACKED).refused(4)
    room.here(*LINE, *UNTRACKED, "--fresh")
    return Outcome("exit 4; --fresh learns the table again", "nothing", room.shown(ended.error))


@fault(GROUP, "checkpoint of another version")
def other_version(room: Room) -> Outcome:
    for path in trained(room):
        whole = json.loads((path / "state.json").read_text())
        whole["format"] = 1
        (path / "state.json").write_text(json.dumps(whole))
    ended = room.run(*LINE, *UNTRACKED).refused(4)
    return Outcome("exit 4", "nothing", room.shown(ended.error))


@fault(GROUP, "checkpoint with other options")
def other_options(room: Room) -> Outcome:
    trained(room)
    ended = room.run(*LINE, *UNTRACKED, "--lags", "5").refused(4)
    return Outcome("exit 4", "nothing", room.shown(ended.error))


@fault(GROUP, "half-written checkpoint and stale lock of a killed run")
def stale(room: Room) -> Outcome:
    newest = trained(room)[-1]
    wanted = state(room)
    shutil.copytree(newest, room.path / "c" / ".tmp-4711")
    assert (room.path / "c" / LOCK).exists()  # a file stays, its lock does not
    shutil.rmtree(newest)
    room.here(*LINE, *UNTRACKED)
    assert state(room) == wanted and not list((room.path / "c").glob(".tmp-*"))
    return Outcome("the lock is of a process, and gone with it; leftovers are deleted", "nothing", "nothing")


@fault(GROUP, "two trainings in one checkpoint")
def two_trainings(room: Room) -> Outcome:
    made(room)
    first = room.start(*LINE, *UNTRACKED, "--follow")
    room.until(lambda: (room.path / "c").is_dir() and bool(list((room.path / "c").glob("0*"))), "a checkpoint")
    ended = room.run(*LINE, *UNTRACKED).refused(4)
    room.end(first, signal.SIGTERM).clean()
    return Outcome("the second ends with 4", "nothing", room.shown(ended.error))


@fault(GROUP, "permission of the checkpoint lost in the middle of a run")
def permission(room: Room) -> Outcome:
    made(room)
    process = room.start(*LINE, *UNTRACKED, "--follow", prefix=POWERLESS)
    room.until(
        lambda: (room.path / "c" / f"{1000:012d}").is_dir() or bool(list((room.path / "c").glob("000000000[3-9]*"))),
        "a checkpoint",
    )
    (room.path / "c").chmod(0o555)
    room.rows("a.csv", 1000, 1000)
    room.here("ingest", "a.csv", "--table", "t")
    ended = room.end(process).refused(4, 5)
    (room.path / "c").chmod(0o755)
    room.here(*LINE, *UNTRACKED)
    return Outcome(f"exit {ended.code}; continues from the last one", "nothing", room.shown(ended.error))


@fault(GROUP, "checkpoint removed in the middle of a run")
def removed(room: Room) -> Outcome:
    made(room)
    process = room.start(*LINE, *UNTRACKED, "--follow")
    room.until(
        lambda: (room.path / "c").is_dir() and bool(list((room.path / "c").glob("000000000[3-9]*"))), "a checkpoint"
    )
    while (room.path / "c").exists():  # the run may be writing there
        shutil.rmtree(room.path / "c", ignore_errors=True)
    room.rows("a.csv", 1000, 1000)
    room.here("ingest", "a.csv", "--table", "t")
    time.sleep(3)
    ended = room.end(process, signal.SIGTERM).clean()
    there = bool(list((room.path / "c").glob("0*"))) if (room.path / "c").is_dir() else False
    assert ended.code in (4, 5) or there, ended
    return Outcome(f"exit {ended.code}; written again: {'yes' if there else 'no'}", "nothing", room.shown(ended.error))


def killed(room: Room, number: int, name: str) -> Outcome:
    """Signals at moments of a training, until it has ended by itself; the digest is that of a run without."""
    made(room, 6000)
    room.here(*TRAIN, "--table", "t", "--checkpoint", "whole", "--checkpoint-every", "300", *UNTRACKED)
    codes: list[int] = []
    delay = 0.2
    for _ in range(12):
        process = room.start(*LINE, *UNTRACKED)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        ended = room.end(process).clean()
        codes.append(ended.code)
        if ended.code == 0:
            break
        delay *= 1.5
    if codes[-1]:
        room.here(*LINE, *UNTRACKED)
    assert state(room) == state(room, "whole")
    known = sorted(set(codes))
    assert len(known) > 1 or known != [0], "no signal came in time"
    assert set(known) <= {0, -number, 128 + number}, known
    return Outcome(
        f"exit {', '.join(map(str, known))}; ends with the digest of an undisturbed run",
        "nothing",
        "interrupted: the same command continues from what is saved" if number != signal.SIGKILL else "nothing",
    )


@fault(GROUP, "SIGKILL at moments of a training")
def sigkill(room: Room) -> Outcome:
    return killed(room, signal.SIGKILL, "SIGKILL")


@fault(GROUP, "SIGTERM at moments of a training")
def sigterm(room: Room) -> Outcome:
    return killed(room, signal.SIGTERM, "SIGTERM")


@fault(GROUP, "SIGHUP (a terminal that is closed) at moments of a training")
def sighup(room: Room) -> Outcome:
    return killed(room, signal.SIGHUP, "SIGHUP")


def tracked(room: Room) -> tuple[str, ...]:
    return (*LINE, "--tracking-uri", f"sqlite:///{room.path}/runs.db")


@fault(GROUP, "MLflow store locked by another program")
def store_locked(room: Room) -> Outcome:
    made(room)
    room.here(*tracked(room), "--max-rows", "300")
    lock = sqlite3.connect(room.path / "runs.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    ended = room.run(*tracked(room))
    lock.execute("ROLLBACK")
    lock.close()
    said = room.shown(ended.refused(5).error) if ended.code else room.shown(ended.clean().error)
    room.here(*tracked(room))
    return Outcome(f"exit {ended.code}; the same command continues", "nothing", said)


@fault(GROUP, "MLflow store removed between two runs")
def store_gone(room: Room) -> Outcome:
    made(room)
    room.here(*tracked(room), "--max-rows", "600")
    (room.path / "runs.db").unlink()
    ended = room.run(*tracked(room))
    said = room.shown(ended.error if ended.code == 0 else ended.refused(4, 5).error)
    ended.clean()
    return Outcome(f"exit {ended.code}", "nothing of the model", said or "nothing")


@fault(GROUP, "MLflow store is no database")
def store_garbage(room: Room) -> Outcome:
    made(room)
    room.write("runs.db", b"not a database" * 1000)
    ended = room.run(*tracked(room)).refused(2, 5)
    return Outcome(f"exit {ended.code}", "nothing", room.shown(ended.error))


@fault(GROUP, "MLflow server that does not answer")
def server_gone(room: Room) -> Outcome:
    made(room)
    ended = room.run(*LINE, "--tracking-uri", "http://127.0.0.1:9").refused(5)
    return Outcome("exit 5", "nothing", room.shown(ended.error))


@fault(GROUP, "ten-thousand-fold spike in a stream")
def spike(room: Room) -> Outcome:
    return stream(room, {1500: "1e7"}, "the model continues")


@fault(GROUP, "burst of missing values")
def burst(room: Room) -> Outcome:
    return stream(room, {row: "NaN" if row % 2 else "" for row in range(1200, 1500)}, "the model waits, and continues")


@fault(GROUP, "infinite values and integers of 400 digits")
def infinite(room: Room) -> Outcome:
    return stream(
        room,
        {1200: "inf", 1300: "-Infinity", 1400: "9" * 400, 1500: "1e308", 1501: "-1e308"},
        "missing values; the model continues",
    )


@fault(GROUP, "constant target")
def constant(room: Room) -> Outcome:
    return stream(room, dict.fromkeys(range(2000), "5"), "the model continues")


def stream(room: Room, cells: dict[int, str], happened: str) -> Outcome:
    """Train on 2,000 rows with some cells replaced; every score is finite."""
    text = "".join(
        f"2024-01-{1 + row // 1440:02d} {row // 60 % 24:02d}:{row % 60:02d}:00,{cells.get(row, str(row % 60))}\n"
        for row in range(2000)
    )
    room.here("ingest", room.write("a.csv", "ds,y\n" + text), "--table", "t")
    ended = room.run(*LINE, *UNTRACKED, "--json").fine()
    found = json.loads(ended.out)
    assert found["rows"] == len(room.taken()) and len(room.taken()) + len(room.aside()) == 2000, found["rows"]
    for name in ("rmse", "crps"):
        assert isinstance(found[name], float), found
    forecast = room.run("forecast", "--checkpoint", "c", "--table", "t", "--json").fine()
    (row,) = json.loads(forecast.out)["forecast"]
    assert all(isinstance(row[name], float) for name in ("linear", "linear-lo-95", "linear-hi-95")), row
    return Outcome(
        f"{happened}; RMSE {found['rmse']:.3g}",
        "nothing",
        room.shown("; ".join(found["warnings"])) or "nothing",
    )


@fault(GROUP, "target that is always missing")
def missing(room: Room) -> Outcome:
    text = "".join(f"2024-01-{1 + row // 1440:02d} {row // 60 % 24:02d}:{row % 60:02d}:00,,1\n" for row in range(2000))
    room.here("ingest", room.write("a.csv", "ds,y,x\n" + text), "--table", "t")
    ended = room.run(*LINE, *UNTRACKED).fine()
    note = "no row has a value of 'y'"
    assert note in ended.out + ended.err, ended
    return Outcome("nothing is scored", "nothing", note)
