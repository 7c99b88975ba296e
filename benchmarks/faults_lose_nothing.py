"""Claim: no fault of files, disks, machines, brokers or stores loses a row, and the message names a remedy.

Each fault is injected into real commands, in a folder of its own: full disks are small file systems, brokers and stores
are servers on loopback, limits are those of the operating system. Each asserts what it claims (tests/faults): the rows
that are there, the exit code, a message with a remedy, and no traceback. Needs root for disks of its own, and the
packages mosquitto, nats-server, redis-server, faketime and util-linux.

    python benchmarks/faults_lose_nothing.py [--only NAME ...] [--scripts]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from _report import Claim, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults import checkpoints, files, limits, room, services, storage
from tests.faults.room import FAULTS, Listed, Room

MODULES = (files, storage, checkpoints, limits, services)  # which list their faults
WANTED = 60
"""Faults that the claim is about, at least."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--scripts", action="store_true", help="start each command as the installed script")
    asked = parser.parse_args()
    room.FORKING = not asked.scripts
    chosen = [one for one in FAULTS if not asked.only or any(word in one.inject.__name__ for word in asked.only)]
    rows: dict[str, list[list[str]]] = {}
    missed = []
    for listed in chosen:
        began = time.monotonic()
        row, fault = inject(listed)
        rows.setdefault(listed.group, []).append([listed.name, *row])
        if fault:
            missed.append(f"{listed.name}: {fault}")
        print(
            f"{'MISSED' if fault else 'ok':6} {time.monotonic() - began:5.1f} s {listed.name}: {' | '.join(row)}",
            flush=True,
        )
    text = (
        "Faults injected into real commands. Claimed of each: no row is lost or counted twice, the command ends with "
        "its exit code, without a traceback, and with a message that names a remedy; the same command then continues."
    )
    columns = ["fault", "what happened", "what was lost", "what the user is shown"]
    claims = [
        Claim(
            f"Faults: {group}", text, columns, found, [one for one in missed if one.partition(":")[0] in _names(found)]
        )
        for group, found in rows.items()
    ]
    if not asked.only:
        if len(chosen) < WANTED:
            missed.append(f"{len(chosen)} faults, not {WANTED}")
        report(__file__, *claims)
    sys.exit(f"MISSED {len(missed)}" if missed else 0)


def inject(listed: Listed) -> tuple[list[str], str]:
    """What happened, what was lost, what was shown; and what broke the claim."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "room"
        path.mkdir()
        made = Room(path)
        try:
            found = listed.inject(made)
            fault = "" if found.lost.startswith("nothing") else found.lost
            return [cell.replace("|", "/")[:300] for cell in found], fault
        except (AssertionError, OSError) as error:
            return ["not as claimed", "not known", ""], made.shown(str(error) or type(error).__name__)[:300]
        finally:
            made.close()


def _names(rows: list[list[str]]) -> set[str]:
    return {row[0] for row in rows}


if __name__ == "__main__":
    main()
