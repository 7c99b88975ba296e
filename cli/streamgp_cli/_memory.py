"""Memory of a process that runs one command and ends: time is worth more than its last 100 MB."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

OBJECTS = 50_000
"""New objects from one search for cyclic garbage to the next."""
TRIM, MAPPED = -1, -3
"""glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
LARGE, SPARE = 32 << 20, 256 << 20
"""Bytes of an array that has pages of its own, the most that glibc takes, and of freed memory that is kept."""


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


def leave() -> None:
    """Leave the objects of now to the operating system: Python would search them all for garbage before it ends, 1.4
    seconds where MLflow and PyTorch were imported."""
    gc.freeze()
