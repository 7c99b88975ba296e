"""Memory of a process that runs one command and ends: time is worth more than its last 100 MB."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from contextlib import suppress

OBJECTS = 50_000
"""New objects from one search for cyclic garbage to the next."""
TRIM, MAPPED, HEAPS = -1, -3, -8
"""glibc's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX."""
LARGE, SPARE = 32 << 20, 256 << 20
"""Bytes of an array that has pages of its own, the most that glibc takes, and of freed memory that is kept."""
TABLES, MODELS, TRACKED, CORE = 1_840_000, 2_480_000, 2_800_000, 16_000
"""kB of addresses, as `ulimit -v` counts them, that a command on a small table takes: 1,855,000 to ingest on two cores,
2,497,000 with PyTorch and 2,781,000 with MLflow; and of each core more, whose threads have stacks of their own."""
WITH_TABLES = ("ingest", "describe", "compact", "vacuum", "models")
"""Commands that load no PyTorch."""


def spend() -> None:
    """Look for garbage seldom, and keep freed pages.

    Python searches each 700 new objects, and all of a million again and again while libraries are imported. glibc gives
    the pages of a freed matrix back, and the next matrix of that size waits for the kernel to clear them.
    """
    gc.set_threshold(OBJECTS, 20, 20)
    with suppress(OSError, AttributeError):  # another C library
        glibc = ctypes.CDLL(None)
        glibc.mallopt(MAPPED, LARGE)
        glibc.mallopt(TRIM, SPARE)
        if limit() is not None:
            glibc.mallopt(HEAPS, 1)  # each thread's own heap takes 64 MB of addresses


def limit() -> int | None:
    """kB of addresses that this process may have (`ulimit -v`); None: as many as there are."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft // 1024


def check(command: str, tracked: bool) -> None:
    """See that the libraries of a command can start their threads: without addresses for these, some wait for ever, and
    others abort the process.

    Args:
        command: its name.
        tracked: whether it writes to a tracking store, by MLflow.

    Raises:
        ServiceError: the limit is too small; the hint says which is enough.
    """
    allowed = limit()
    needed = TABLES if command in WITH_TABLES else TRACKED if tracked else MODELS
    needed += CORE * (os.cpu_count() or 1)
    if allowed is None or allowed >= needed:
        return
    from streamgp.errors import ServiceError

    without = "; --tracking-uri none needs less" if tracked and command in ("train", "compare", "demo") else ""
    raise ServiceError(
        f"this process may have {allowed:,} kB of addresses (ulimit -v), and {command} needs {needed:,} kB to begin",
        hint=f"ulimit -v {needed} or more, or unlimited; a control group bounds memory itself{without}",
    )


def leave() -> None:
    """Leave the objects of now to the operating system: Python would search them all for garbage before it ends, 1.4
    seconds where MLflow and PyTorch were imported."""
    gc.freeze()
