"""Libraries that damaged bytes can crash or fill the memory of, in a process of their own, which that ends alone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

PATIENCE = 60.0
"""Seconds without a word, and as many more for each 100 MB of the file, after which reading has hung."""
PACKED, LEAST = 200, 3 << 29
"""Bytes of memory that reading may take: PACKED for each byte of the file, and LEAST more."""


def started(module: str, *words: str) -> subprocess.Popen[bytes]:
    """A process of a module's own, which is given words; only its output is read."""
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env=os.environ | paths,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def time_limit(path: str) -> float:
    """Seconds to wait for a word about a file."""
    return PATIENCE * (1 + os.path.getsize(path) / 1e8)


def end_in(seconds: float) -> None:
    """Let the kernel end this process by then, whatever its library does and whether anybody waits for it; 0: never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def limit_memory(path: str) -> None:
    """Let this process take as much memory as a file is worth, and no more."""
    limit = LEAST + PACKED * os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
