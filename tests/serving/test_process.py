"""The process of `streamgp serve`: killed under load, ended, refused."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from streamgp_data import checkpoint
from streamgp_data.table import Table
from streamgp_pipelines.learning.checkpointing import state_digest
from tests.forked import Forked, start
from tests.pipelines.killed import wait_for
from tests.pipelines.worlds import run
from tests.serving.conftest import LINE, ROWS, as_objects, new_rows

pytestmark = pytest.mark.slow


RUNNING: list[Forked] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for process in RUNNING:
        process.kill()
        process.communicate()
    RUNNING.clear()


def begun(home: Path, *words: str) -> tuple[Forked, dict[str, Any]]:
    """The command, when it answers or has ended."""
    line = ["serve", "--checkpoint", home / "plain", "--table", home / "table", "--port", "0", "--json", *words]
    process = start(*line, folder=home)
    RUNNING.append(process)
    wait_for(lambda: "\n" in process.told() or process.poll() is not None)
    told = process.told()
    return process, json.loads(told.partition("\n")[0]) if told else {}


def ask(url: str, body: Any = None, token: str = "") -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)


def end(process: Forked, number: int = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_rows_posted_while_it_is_killed_are_learned_once(home: Path) -> None:
    """As long as a request has no answer it is sent again; then table, answers and learned rows are the same rows."""
    shutil.copytree(home / "plain", home / "straight")
    rows, place = as_objects(new_rows(750)), {"url": ""}
    requests = [rows[at : at + 5] for at in range(0, len(rows), 5)]
    answered: list[int] = []

    def client(mine: list[list[Any]]) -> None:
        for body in mine:
            while True:
                try:
                    found = ask(f"{place['url']}/rows", {"rows": body})
                except (OSError, HTTPException, ValueError):
                    time.sleep(0.05)
                    continue
                answered.append(found["accepted"] + found["duplicates"])
                break

    process, told = begun(home, "--checkpoint-every", "100")
    place["url"] = told["url"]
    threads = [threading.Thread(target=client, args=(requests[at::3],)) for at in range(3)]  # out of order, a little
    for thread in threads:
        thread.start()
    draw = random.Random(0)
    for kill in range(2):
        wait_for(lambda kill=kill: len(answered) > 40 * (kill + 1) + draw.randrange(20))
        process.kill()
        process.communicate()
        process, told = begun(home, "--checkpoint-every", "100")
        place["url"] = told["url"]
    for thread in threads:
        thread.join(300)
    assert sum(answered) == len(rows)
    wait_for(lambda: ask(f"{told['url']}/models")[0]["learned_rows"] == ROWS + len(rows), 120)
    assert end(process)[0] == 143
    assert Table.open(home / "table").rows == ROWS + len(rows)
    run(home / "table", home / "straight", **LINE)
    one, two = checkpoint.read(home / "plain"), checkpoint.read(home / "straight")
    assert (one.rows, state_digest(one)) == (two.rows, state_digest(two))


def test_it_ends_in_order_and_keeps_its_token(home: Path) -> None:
    process, told = begun(home, "--host", "0.0.0.0")
    url = told["url"].replace("0.0.0.0", "127.0.0.1")
    token = Path(told["token_file"]).read_text().strip()
    with pytest.raises(HTTPError):
        ask(f"{url}/models")
    assert ask(f"{url}/rows", as_objects(new_rows(30)), token)["accepted"] == 30
    code, said = end(process)  # at once: the rows are learned at the next start, or in the last checkpoint
    assert code == 143 and "Traceback" not in said and token not in said + json.dumps(told)
    process, told = begun(home, "--host", "0.0.0.0")
    url = told["url"].replace("0.0.0.0", "127.0.0.1")
    wait_for(lambda: ask(f"{url}/models", token=token)[0]["learned_rows"] == ROWS + 30, 60)
    assert end(process, signal.SIGINT)[0] == 130
    assert not list((home / "plain").glob(".tmp-*"))


def test_what_cannot_be_served_ends_with_its_code(home: Path) -> None:
    process, told = begun(home)
    port = told["url"].rpartition(":")[2]
    for words, code in ((["--port", port], 5), (["--checkpoint", str(home / "none")], 4), (["--rate", "x"], 2)):
        other, _ = begun(home, *words)
        _, said = other.communicate(timeout=60)
        assert other.returncode == code and json.loads(said.splitlines()[-1])["hint"], said
    assert end(process)[0] == 143
