"""A stream that is followed for hours: memory stays flat, the lag bounded, and every row is learned once.

Four processes at the highest rate the machine sustains: this one publishes to Redis on loopback, as long as no more
than `--backlog` rows are published and not in a checkpoint; `ingest --follow` takes them into a table; `train --online
--follow` scores and learns them, tracked by MLflow; `forecast --follow` issues a forecast whenever rows have come.
Redis drops what is twice the backlog behind. Every ten seconds resident memory, open files, CPU seconds, files of the
table and the lag are written to `samples.jsonl`, so that a run that is cut short can be read too.

    python benchmarks/soak_for_two_hours.py [--minutes 120] [--rate 0] [--folder soak]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from _report import Claim, report

sys.path.insert(0, str(Path(__file__).parents[1]))

import redis

from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.learning.tail import Tail
from tests.live.brokers import PASSWORD, running

START = datetime(2026, 1, 1, tzinfo=UTC)
PIECE = 500
EVERY = 10.0
PERIOD = 96
PATIENCE = 600.0
FLAT, BOUNDED = 1.02, 2.0


class Publisher:
    """Rows a second apart: a daily cycle and noise. Remembers when each piece was published.

    Args:
        port: of Redis.
        backlog: entries that Redis keeps, halved.
    """

    def __init__(self, port: int, backlog: int) -> None:
        self.redis = redis.Redis(port=port, password=PASSWORD)
        self.sent, self._backlog = 0, backlog
        self._noise = np.random.default_rng(0)
        self._when: deque[tuple[int, float]] = deque()

    def piece(self) -> None:
        """Publish PIECE rows, acknowledged by the broker."""
        at = np.arange(self.sent, self.sent + PIECE)
        values = np.sin(2 * np.pi * at / PERIOD) + 0.1 * self._noise.standard_normal(PIECE)
        with self.redis.pipeline(transaction=False) as pipe:
            for second, value in zip(at.tolist(), values.tolist(), strict=True):
                ds = (START + timedelta(seconds=second)).isoformat()
                pipe.xadd("plant", {"v": json.dumps({"ds": ds, "y": round(value, 6)})})
            pipe.execute()
        self.sent += PIECE
        self._when.append((self.sent, time.monotonic()))

    def trim(self) -> None:
        """Drop what has long been committed."""
        self.redis.xtrim("plant", maxlen=2 * self._backlog, approximate=True, limit=0)  # else 10,000 a call

    def age(self, learned: int) -> float:
        """Seconds since the first row that is not among the first `learned` ones was published."""
        while self._when and self._when[0][0] <= learned:
            self._when.popleft()
        return time.monotonic() - self._when[0][1] if self._when else 0.0


class Commands:
    """Processes of `streamgp`, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table = folder / "table"
        self.checkpoint = folder / "model"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str) -> None:
        program = str(Path(sys.executable).parent / "streamgp")
        command = [program, name, *options, "--table", str(self._table), "--follow"]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)

    def check(self) -> None:
        """See that all of them run."""
        for name, process in self.running.items():
            if process.poll() is not None:
                log = (self._folder / f"{name}.log").read_text("utf-8", "replace")
                raise AssertionError(f"{name} has ended with {process.returncode}: {log[-2000:]}")

    def stop(self) -> dict[str, int]:
        """End them by SIGTERM; exit codes by name."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        return {name: process.wait() for name, process in self.running.items()}

    def learned(self) -> int:
        """Rows that the newest checkpoint has seen, by its name."""
        names = [path.name for path in self.checkpoint.glob("[0-9]*")] if self.checkpoint.is_dir() else []
        return max((int(name.split("-")[0]) for name in names), default=0)

    def rows(self) -> int:
        return Table.open(self._table).rows if Table.exists(self._table) else 0

    def sample(self, publisher: Publisher, began: float, extra: dict[str, int]) -> dict[str, Any]:
        """What one look shows; MB, CPU seconds and open files by process."""
        learned, rows = self.learned(), self.rows()
        files = [entry.name for entry in os.scandir(self._table)]
        found: dict[str, Any] = {
            "seconds": round(time.monotonic() - began, 1),
            "sent": publisher.sent,
            "rows": rows,
            "learned": learned,
            "lag_rows": publisher.sent - learned,
            "lag_seconds": round(publisher.age(learned), 2),
            "table_files": sum(name.endswith(".parquet") for name in files),
            "log_files": len(list(os.scandir(self._table / "_delta_log"))),
        }
        for name, pid in {**{name: one.pid for name, one in self.running.items()}, **extra}.items():
            found[f"{name}_mb"], found[f"{name}_cpu"] = resident(pid), cpu(pid)
            found[f"{name}_files"] = len(list(os.scandir(f"/proc/{pid}/fd")))
        return found


def resident(pid: int) -> float:
    """MB that a process has in memory."""
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 2)


def cpu(pid: int) -> float:
    """CPU seconds of a process, user and system."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def until(reached: Any, commands: Commands, what: str) -> None:
    """Wait while the processes run."""
    end = time.monotonic() + PATIENCE
    while not reached():
        commands.check()
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE:.0f} s: {what}")
        time.sleep(0.1)


def soak(
    folder: Path, minutes: float, rate: float, backlog: int, model: str
) -> tuple[list[dict[str, Any]], list[str], int]:
    """Samples of the whole time, what is wrong at its end, and rows that were published."""
    commands, samples = Commands(folder), list[dict[str, Any]]()
    with running("redis", folder) as (server, _):
        publisher = Publisher(server.port, backlog)
        try:
            commands.start("ingest", server.url.format(f":{PASSWORD}"))
            while publisher.sent < 4 * PIECE:
                publisher.piece()
            until(lambda: commands.rows() >= publisher.sent, commands, "a table")
            options = ["--online", "--horizon", "4", "--model", model, "--checkpoint", str(commands.checkpoint)]
            commands.start("train", *options)
            until(lambda: commands.learned() > 0, commands, "a checkpoint")
            commands.start("forecast", "--checkpoint", str(commands.checkpoint), "--output", str(folder / "next.csv"))
            began = looked = time.monotonic()
            extra = {"redis": int(publisher.redis.info("server")["process_id"]), "publisher": os.getpid()}
            learned = commands.learned()
            with (folder / "samples.jsonl").open("a") as out:
                while time.monotonic() - began < 60 * minutes:
                    if time.monotonic() - looked >= EVERY:
                        looked += EVERY
                        publisher.trim()
                        commands.check()
                        samples.append(commands.sample(publisher, began, extra))
                        out.write(json.dumps(samples[-1]) + "\n")
                        out.flush()
                    learned = commands.learned()
                    early = rate and publisher.sent - 4 * PIECE > rate * (time.monotonic() - began)
                    if early or publisher.sent + PIECE - learned > backlog:
                        time.sleep(0.05)
                    else:
                        publisher.piece()
            until(lambda: commands.rows() >= publisher.sent, commands, "all rows in the table")
            until(lambda: in_model(commands.checkpoint) >= publisher.sent, commands, "all rows in the model")
        finally:
            codes = commands.stop()
    ended = [f"{name} ended with {code}" for name, code in codes.items() if code not in (0, 128 + signal.SIGTERM)]
    return samples, [*wrong(folder, publisher.sent), *ended], publisher.sent


def in_model(folder: Path) -> int:
    """Rows that the newest checkpoint has seen, those behind the last whole micro-batch with them."""
    saved, tail = checkpoint.read(folder), Tail()
    saved.restore({"tail": tail})
    return saved.rows + (0 if tail.rows is None else tail.rows.num_rows)


def wrong(folder: Path, sent: int) -> list[str]:
    """What is not as it was published: each row once in the table, and as many in the model."""
    parts = [
        chunk.rows.column("ds").cast("int64").to_numpy() for chunk in Table.open(folder / "table").read({}, ["ds"])
    ]
    found = np.sort((np.concatenate(parts) - int(START.timestamp()) * 10**6) // 10**6)
    faults = list[str]()
    if len(found) != sent or (found != np.arange(sent)).any():
        faults.append(f"the table has {len(np.unique(found)):,} of {sent:,} rows, in {len(found):,}")
    if (seen := in_model(folder / "model")) != sent:
        faults.append(f"the model has seen {seen:,} rows of {sent:,}")
    return faults


def quarters(samples: list[dict[str, Any]], name: str) -> list[np.ndarray[Any, Any]]:
    """The values of the samples, a quarter of the time each."""
    return np.array_split(np.array([one[name] for one in samples], float), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=0.0, help="rows a second at most; 0: as many as are learned")
    parser.add_argument("--backlog", type=int, default=50_000)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = asked.folder or Path(home)
        folder.mkdir(parents=True, exist_ok=True)
        samples, faults, sent = soak(folder, asked.minutes, asked.rate, asked.backlog, asked.model)
    processes, rows = list[list[str]](), quarters(samples, "rows")
    for name in ("ingest", "train", "forecast", "redis"):
        memory, files, spent = (quarters(samples, f"{name}_{what}") for what in ("mb", "files", "cpu"))
        means = [part.mean() for part in memory]
        each = [
            (cpu[-1] - cpu[0]) / max(1.0, count[-1] - count[0]) * 1e6 for cpu, count in zip(spent, rows, strict=True)
        ]
        shown = [f"{mean:.0f}" for mean in means] + [f"{means[3] / means[1]:.3f}"]
        processes.append([name, *shown, f"{files[1].max():.0f}, {files[3].max():.0f}", f"{each[1]:.0f}, {each[3]:.0f}"])
        if name != "redis" and means[3] / means[1] > FLAT:
            faults.append(f"{name}: memory {means[3] / means[1]:.3f} times")
    lags = list[list[str]]()
    for at, (lag, count, behind) in enumerate(zip(*(quarters(samples, name) for name in _LAGS), strict=True)):
        speed = (count[-1] - count[0]) / (len(count) - 1) / EVERY
        quantiles = [f"{np.quantile(lag, level):.1f}" for level in (0.5, 0.99)]
        tables = quarters(samples, "table_files")[at].max(), quarters(samples, "log_files")[at].max()
        lags.append([str(at + 1), f"{count[-1]:,.0f}", f"{speed:,.0f}", *quantiles, f"{behind.max():,.0f}"])
        lags[-1] += [f"{number:.0f}" for number in tables]
    early, late = (np.quantile(quarters(samples, "lag_seconds")[at], 0.99) for at in (1, 3))
    if late > BOUNDED * early:
        faults.append(f"lag {late / early:.2f} times")
    for line in [*processes, *lags, faults]:
        print(*line, flush=True)
    begun = f"{sent:,} rows in {asked.minutes:g} minutes, through Redis, `ingest --follow`, `train --online --follow` "
    report(
        __file__,
        Claim(
            "Memory over hours",
            f"{begun}(`{asked.model}`, tracked by MLflow) and `forecast --follow`: mean resident MB by quarter; most "
            "open files, and CPU microseconds a row, in the second and the last quarter. Redis is not ours. Claimed: "
            f"the mean of the last quarter is at most {FLAT} times that of the second, every row is once in the table "
            "and the model has seen as many.",
            ["process", "1", "2", "3", "4", "last / second", "open files", "CPU µs a row"],
            processes,
            [fault for fault in faults if not fault.startswith("lag")],
        ),
        Claim(
            "Lag over hours",
            "The same run: seconds and rows from publishing to the checkpoint that holds the row. The publisher waits "
            f"for the checkpoint when {asked.backlog:,} rows are not in one. Claimed: the 99th percentile of the last "
            f"quarter is at most {BOUNDED:g} times that of the second.",
            ["quarter", "rows", "rows a second", "p50, s", "p99, s", "most rows", "table files", "log files"],
            lags,
            [fault for fault in faults if fault.startswith("lag")],
        ),
    )
    if faults:
        raise SystemExit(1)


_LAGS = ("lag_seconds", "rows", "lag_rows")


if __name__ == "__main__":
    main()
