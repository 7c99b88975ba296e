"""Faults of the machine: memory, handles, clocks, time zones, languages, signals."""

from __future__ import annotations

import random
import signal
import time

import polars as pl

from tests.faults.room import TRAIN, UNTRACKED, Outcome, Room, fault, lines
from tests.faults.storage import made

GROUP = "machine"
LINE = (*TRAIN, "--table", "t", "--checkpoint", "c", "--checkpoint-every", "300", *UNTRACKED)


def wide(room: Room, rows: int = 200_000) -> str:
    """A file of some megabytes."""
    room.write("big.csv", "ds,y\n" + lines(0, rows))
    return "big.csv"


@fault(GROUP, "little memory (ulimit -v)")
def memory(room: Room) -> Outcome:
    source, said, codes = wide(room), "", []
    for megabytes in (300, 600, 1000, 1600):
        limit = megabytes << 20
        ended = room.run("ingest", source, "--table", "t", limits={"RLIMIT_AS": limit}, env={"POLARS_MAX_THREADS": "2"})
        codes.append(ended.code)
        if ended.code:
            assert "Traceback" not in ended.err, ended.err[-1500:]
            said = said or room.shown(ended.error)
            assert ended.code == 5, ended
    room.here("ingest", source, "--table", "t")
    return Outcome(f"exit {', '.join(map(str, codes))} at 300, 600, 1000, 1600 MB", room.whole(200_000), said)


@fault(GROUP, "out of file descriptors (ulimit -n)")
def handles(room: Room) -> Outcome:
    made(room)
    room.rows("a.csv", 1000, 100)
    said, codes = "", []
    for limit in (12, 16, 20, 24):
        ended = room.run("ingest", "a.csv", "--table", "t", limits={"RLIMIT_NOFILE": limit})
        codes.append(ended.code)
        if ended.code:
            assert ended.code == 5 and "Traceback" not in ended.err, (
                ended
            )  # the library in Rust has its own note before
            assert "allow more open files" in ended.err, ended
            said = said or room.shown(ended.error)
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome(f"exit {', '.join(map(str, codes))} with 12, 16, 20, 24", room.whole(1100), said)


@fault(GROUP, "no more processes and threads (ulimit -u)")
def threads(room: Room) -> Outcome:
    """Root has no such limit: it is shown where others run this."""
    made(room)
    room.rows("a.csv", 1000, 100)
    ended = room.run("ingest", "a.csv", "--table", "t", limits={"RLIMIT_NPROC": 1})
    ended.clean()
    if ended.code:
        room.here("ingest", "a.csv", "--table", "t")
    return Outcome(f"exit {ended.code}", room.whole(1100), room.shown(ended.error) or "nothing")


@fault(GROUP, "limit of processor time (SIGXCPU)")
def processor_time(room: Room) -> Outcome:
    made(room, 5000)
    ended = room.run(*LINE, limits={"RLIMIT_CPU": 2})
    assert "Traceback" not in ended.err
    room.here(*LINE)
    return Outcome(
        f"exit {ended.code}; the same command continues",
        room.whole(5000),
        room.shown(ended.error) or "the shell's message",
    )


def moments_of_ingest(room: Room, number: int) -> Outcome:
    """A signal at moments of an ingest; then it continues."""
    source, codes, said = wide(room, 500_000), [], ""
    for delay in (0.05, 0.1, 0.15, 0.2, 0.4):
        process = room.start("ingest", source, "--table", "t")
        time.sleep(delay)
        ended = room.end(process, number)
        assert "Traceback" not in ended.err or "streamgp_cli" not in ended.err, ended.err[-1500:]
        codes.append(ended.code)
        said = said or room.shown(ended.error)
    assert set(codes) <= {0, -number, 128 + number} and set(codes) != {0}, codes
    room.here("ingest", source, "--table", "t")
    return Outcome(f"exit {', '.join(map(str, sorted(set(codes))))}", room.whole(500_000), said or "nothing")


@fault(GROUP, "SIGKILL at moments of an ingest")
def ingest_killed(room: Room) -> Outcome:
    return moments_of_ingest(room, signal.SIGKILL)


@fault(GROUP, "SIGTERM at moments of an ingest")
def ingest_terminated(room: Room) -> Outcome:
    return moments_of_ingest(room, signal.SIGTERM)


@fault(GROUP, "SIGHUP at moments of an ingest")
def ingest_hung_up(room: Room) -> Outcome:
    return moments_of_ingest(room, signal.SIGHUP)


@fault(GROUP, "SIGINT at moments of an ingest")
def ingest_interrupted(room: Room) -> Outcome:
    return moments_of_ingest(room, signal.SIGINT)


@fault(GROUP, "machine asleep (SIGSTOP, SIGCONT) in the middle of an ingest")
def asleep(room: Room) -> Outcome:
    source = wide(room)
    process = room.start("ingest", source, "--table", "t")
    time.sleep(1.2)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    other = room.start("ingest", source, "--table", "t")
    room.end(other).fine()
    ended = room.end(process, signal.SIGCONT).fine()
    return Outcome(
        "another ingest took the rows; both end well", room.whole(200_000), room.shown(ended.error) or "nothing"
    )


@fault(GROUP, "clock 10 years back, and 50 years ahead")
def clock(room: Room) -> Outcome:
    made(room)
    said = ""
    for at, moment in enumerate(("-10y", "+50y", "+0")):
        room.rows("a.csv", 1000 + 100 * at, 100)
        room.run("ingest", "a.csv", "--table", "t", prefix=("faketime", "-f", moment)).fine()
        ended = room.run(*LINE, prefix=("faketime", "-f", moment)).fine()
        said = said or room.shown(ended.error)
    ended = room.run("doctor", "--table", "t", "--checkpoint", "c", "--mend", prefix=("faketime", "-f", "-10y")).clean()
    assert ended.code in (0, 4)
    return Outcome("all go on; merges delete nothing early", room.whole(1300), said or "nothing")


@fault(GROUP, "another time zone and language from run to run")
def zones(room: Room) -> Outcome:
    room.rows("a.csv", 0, 100)
    environments = [
        {"TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8"},
        {"TZ": "America/St_Johns", "LC_ALL": "C"},
        {"TZ": "nonsense/zone", "LANG": "nonsense"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ]
    for at, given in enumerate(environments):
        room.rows("a.csv", 100 + 10 * at, 10)
        room.run("ingest", "a.csv", "--table", "t", env=given).fine()
    whole = pl.concat([pl.DataFrame(pl.from_arrow(chunk.rows)) for chunk in _read(room)])
    assert [str(one) for one in whole["ds"][:2]] == ["2024-01-01 00:00:00", "2024-01-01 00:01:00"]
    assert whole["ds"].is_sorted() and (whole["ds"].diff().drop_nulls().dt.total_seconds() == 60).all()
    return Outcome("the same rows and times", room.whole(140), "nothing")


def _read(room: Room):  # type: ignore[no-untyped-def]
    from streamgp_data.table import Table

    return Table.open(room.path / "t").read()


@fault(GROUP, "messages with letters that the terminal has not", fast=True)
def ascii_terminal(room: Room) -> Outcome:
    path = room.write("übung.csv", "größe,größe\n1,2\n")
    ended = room.run(
        "ingest",
        path,
        "--table",
        "t",
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    ).refused(3)
    return Outcome("exit 3", "nothing", room.shown(ended.error))


@fault(GROUP, "leap second, 24:00, 30 February", fast=True)
def leap(room: Room) -> Outcome:
    text = (
        "ds,y\n"
        + lines(0, 40)
        + "2024-02-30 00:00:00,1\n2016-12-31 23:59:60,2\n2024-01-02 24:00:00,3\n"
        + lines(40, 10)
    )
    ended = room.run("ingest", room.write("a.csv", text), "--table", "t").fine()
    taken, aside = room.taken(), room.aside()
    assert len(taken) + len(aside) == 53, (len(taken), aside)
    return Outcome(f"{len(aside)} of the three are put aside", "nothing: in the quarantine", room.shown(ended.error))


@fault(GROUP, "rows of the year 9999 and of the year 1")
def far_times(room: Room) -> Outcome:
    text = (
        "ds,y\n"
        + lines(0, 500)
        + "9999-12-31 23:59:59,1\n0001-01-01 00:00:00,2\n99999-01-01 00:00:00,3\n"
        + lines(500, 500)
    )
    room.write("a.csv", text)
    ended = room.run("ingest", "a.csv", "--table", "t").fine()
    assert len(room.taken()) + len(room.aside()) == 1003, (len(room.taken()), room.aside())
    room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "d").fine()
    assert room.run("doctor", "--table", "t").clean().code == 0
    return Outcome(
        f"{len(room.aside())} rows are put aside; the rest is trained on",
        "nothing: in the quarantine",
        room.shown(ended.error),
    )


@fault(GROUP, "epoch in seconds, then in milliseconds")
def other_epoch(room: Room) -> Outcome:
    text = "ds,y\n" + "".join(f"{1_700_000_000 + 60 * row},{row}\n" for row in range(100))
    room.write("a.csv", text)
    room.here("ingest", "a.csv", "--table", "t")
    with (room.path / "a.csv").open("a") as file:
        file.write("".join(f"{1_700_000_000_000 + 60_000 * row},{row}\n" for row in range(100, 120)))
    ended = room.run("ingest", "a.csv", "--table", "t")
    ended.clean()
    count = len(room.taken()) + len(room.aside())
    assert count == 120 or ended.code, count
    return Outcome(
        f"exit {ended.code}; {len(room.aside())} put aside", "nothing: in the quarantine", room.shown(ended.error)
    )


@fault(GROUP, "clock of a device set back by an hour")
def device_clock(room: Room) -> Outcome:
    room.write(
        "a.csv",
        "ds,y\n"
        + lines(0, 600)
        + "".join(f"{line.split(',')[0]},{row}\n" for row, line in enumerate(lines(540, 200).splitlines(), 600)),
    )
    ended = room.run("ingest", "a.csv", "--table", "t").fine()
    assert len(room.taken()) + len(room.aside()) == 800
    trained = room.run(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c").fine()
    return Outcome(
        f"{len(room.aside())} times come twice: put aside",
        "nothing: in the quarantine",
        room.shown(ended.error + " " + trained.error),
    )


@fault(GROUP, "series without end: 20,000 names")
def many_series(room: Room) -> Outcome:
    text = "ds,unique_id,y\n" + "".join(
        f"2024-01-01,{random.Random(row).randbytes(8).hex()},{row}\n" for row in range(20_000)
    )
    room.write("a.csv", text)
    room.run("ingest", "a.csv", "--table", "t").fine()
    ended = room.run(*LINE).refused(2, 3)
    return Outcome("taken; training refuses rows without a past", room.whole(20_000), room.shown(ended.error))


@fault(GROUP, "environment full of nonsense", fast=True)
def environment(room: Room) -> Outcome:
    room.rows("a.csv", 0, 50)
    nonsense = {"STREAMGP_LOG": "xml"}
    ended = room.run("ingest", "a.csv", "--table", "t", env=nonsense).refused(2)
    room.run(
        "ingest",
        "a.csv",
        "--table",
        "t",
        env={"COLUMNS": "-5", "TERM": "", "OMP_NUM_THREADS": "x", "POLARS_MAX_THREADS": "-1"},
    ).clean()
    room.here("ingest", "a.csv", "--table", "t")
    return Outcome("exit 2", room.whole(50), room.shown(ended.error))
