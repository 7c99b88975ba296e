"""`streamgp serve` answers quickly, and loses no row when it is killed under load.

The command line itself, on loopback, with clients in processes of their own that keep their connections. The default
model on half-hourly electricity demand, a day ahead, is asked and sent rows by 1, 8 and 32 clients. Then 100,000 rows
of an hourly stream are posted to `linear` by 8 clients, out of order by some requests, while the service is killed
(SIGKILL) five times; whatever has no answer is sent again. In the end the table, the answers and the learned rows must
be the same rows, and the checkpoint that of `train --online` on the table, bit for bit.

    python benchmarks/serve_answers_under_load.py [--rows 100000] [--kills 5] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from http.client import HTTPConnection, HTTPException
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _report import Claim, report
from _serving import ask, day_ahead, once, run, start

HOURLY = ["--target", "y", "--horizon", "12", "--season", "24", "--model", "linear", "--batch", "256"]
HOURLY += ["--warmup", "1000"]
BODY, LEARNED = 100, 8000
"""Rows of a request while the service is killed, and rows of demand that were learned before it starts."""


def client(url: str, path: str, bodies: list[Any] | None, seconds: float) -> list[float]:
    """Ask again and again on one connection; seconds of each answer."""
    connection, found = HTTPConnection(urlsplit(url).netloc, timeout=60), []
    end, sent = time.monotonic() + seconds, iter(bodies or [])
    while (began := time.monotonic()) < end:
        body = None if bodies is None else next(sent, None)
        if bodies is not None and body is None:
            break
        status, _ = once(connection, path, body)
        assert status == 200
        found.append(time.monotonic() - began)
    return found


def measure(url: str, path: str, clients: int, seconds: float, rows: Any = None) -> list[str]:
    """Requests a second, p50 and p99 in ms."""
    with ProcessPoolExecutor(min(clients, 4)) as pool:
        bodies = [None] * clients if rows is None else [list(islice(rows, 2000)) for _ in range(clients)]
        list(pool.map(len, [[]] * clients))  # the processes are there
        began = time.monotonic()
        per = -(-clients // min(clients, 4))
        parts = [bodies[at : at + per] for at in range(0, clients, per)]
        times = sorted(chain.from_iterable(pool.map(several, [(url, path, part, seconds) for part in parts])))
        took = time.monotonic() - began
    return [f"{len(times) / took:,.0f}", *(f"{1e3 * times[int(q * (len(times) - 1))]:.1f}" for q in (0.5, 0.99))]


def several(asked: tuple[str, str, list[Any], float]) -> list[float]:
    """Clients in the threads of one process."""
    url, path, bodies, seconds = asked
    found: list[float] = []
    threads = [
        threading.Thread(target=lambda body=body: found.extend(client(url, path, body, seconds))) for body in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def hour(row: int) -> dict[str, Any]:
    """One row of the hourly stream."""
    day, clock = divmod(row, 24)
    y = 10 + 3 * math.sin(clock / 24 * 2 * math.pi) + math.sin(row * row % 1013) + 0.5 * (day % 7 // 5)
    return {"ds": time.strftime("%Y-%m-%dT%H:00:00", time.gmtime(946_684_800 + 3600 * row)), "y": round(y, 6)}


def killed(home: Path, rows: int, kills: int) -> tuple[list[str], bool]:
    """Post rows while the service is killed; what came of them."""
    from streamgp_data import checkpoint
    from streamgp_data.table import Table
    from streamgp_pipelines.learning.checkpointing import state_digest

    first = 2000
    (home / "first.jsonl").write_text("".join(json.dumps(hour(row)) + "\n" for row in range(first)))
    run("ingest", str(home / "first.jsonl"), "--table", str(home / "hours"), "--every", "1h")
    train = ["train", "--online", "--table", str(home / "hours"), *HOURLY, "--tracking-uri", "none", "--checkpoint"]
    run(*train, str(home / "served"))
    shutil.copytree(home / "served", home / "straight")
    requests = [[hour(first + row) for row in range(at, min(at + BODY, rows))] for at in range(0, rows, BODY)]
    answers: list[dict[str, int]] = []
    process, url = start(home / "served", "--checkpoint-every", "5000")
    place, again = [url], [0]

    def post(mine: list[Any]) -> None:
        for body in mine:
            while True:
                try:
                    status, found = ask(place[0], "/rows", {"rows": body})
                except (OSError, HTTPException, ValueError):
                    status = 0
                if status == 200:
                    answers.append(found)
                    break
                again[0] += 1
                time.sleep(0.1)

    began = time.monotonic()
    threads = [threading.Thread(target=post, args=(requests[at::8],)) for at in range(8)]
    for thread in threads:
        thread.start()
    draw = random.Random(0)
    for kill in range(kills):
        goal = len(requests) * (kill + draw.uniform(0.5, 0.9)) / (kills + 0.5)
        while len(answers) < goal:
            time.sleep(0.01)
        process.kill()
        process.wait()
        process, place[0] = start(home / "served", "--checkpoint-every", "5000")
    for thread in threads:
        thread.join()
    posted = time.monotonic() - began
    while ask(place[0], "/models")[1][0]["learned_rows"] < first + rows:
        time.sleep(0.2)
    learned = time.monotonic() - began
    process.terminate()
    process.wait()
    table = Table.open(home / "hours")
    run(*train, str(home / "straight"))
    one, two = checkpoint.read(home / "served"), checkpoint.read(home / "straight")
    equal = (one.rows, state_digest(one)) == (two.rows, state_digest(two))
    acknowledged = sum(found["accepted"] + found["duplicates"] for found in answers)
    twice = sum(found["duplicates"] for found in answers)
    good = equal and acknowledged == rows == table.rows - first
    shown = [f"{rows:,}", str(kills), str(again[0]), f"{acknowledged:,}", f"{twice:,}", f"{table.rows - first:,}"]
    return [*shown, f"{table.version:,}", "yes" if equal else "no", f"{posted:.0f}", f"{learned:.0f}"], good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        year = day_ahead(home, LEARNED)
        process, url = start(home / "day-ahead")
        seconds, speed, p50 = asked.seconds, [], {}
        for clients in (1, 8, 32):
            speed.append(["GET /forecast, 48 steps", str(clients), *measure(url, "/forecast", clients, seconds)])
            p50[clients] = float(speed[-1][3])
            print(speed[-1], flush=True)
        same = cycle([{"rows": year[:10]}])
        ask(url, "/rows", {"rows": year[:10]})
        for clients in (1, 8, 32):
            name = "POST /rows, 10 that are there"
            speed.append([name, str(clients), *measure(url, "/rows", clients, seconds, same)])
            print(speed[-1], flush=True)
        process.terminate()
        process.wait()
        lost, good = killed(home, asked.rows, asked.kills)
        print(lost, flush=True)
    report(
        __file__,
        Claim(
            "Requests to the service",
            "Clients that ask one request after another on loopback, service and clients on the same cores; ms. The "
            f"default model, {LEARNED:,} rows learned. A forecast of a state is computed once and then kept. Claimed: "
            "p50 of one client that asks for 48 steps is at most 10 ms.",
            ["request", "clients", "requests a second", "p50", "p99"],
            speed,
            [] if p50[1] <= 10 else [f"p50 {p50[1]} ms"],
        ),
        Claim(
            "Rows posted to a service that is killed",
            f"8 clients post requests of {BODY} rows; the service is killed (SIGKILL) and started again; what has no "
            "answer is sent again. Claimed: rows answered, in the table and learned are the same, and the checkpoint "
            "is that of `train --online` on the table, bit for bit.",
            ["rows", "kills", "sent again", "answered", "of these duplicates", "in the table", "commits", "equal",
             "s until answered", "s until learned"],
            [lost],
            [] if good else ["rows were lost or learned twice"],
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
