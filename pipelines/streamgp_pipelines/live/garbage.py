"""Python's search for cyclic garbage, in a process that makes many small objects and few cycles."""

from __future__ import annotations

import gc

OBJECTS = 50_000
"""New objects from one look at them to the next; Python's 700 look at each message of a large batch many times."""


def collect_seldom() -> None:
    """Look for garbage less often, and never among what is there now: half of the time that a message takes, else."""
    gc.freeze()
    gc.set_threshold(OBJECTS, 20, 20)
