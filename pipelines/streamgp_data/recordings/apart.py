"""A recording that is read in a process of its own: a fault of a C library ends that process, and no other."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from threading import Timer
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from streamgp import errors
from streamgp_data.reading.process import end_in, limit_memory, started, time_limit
from streamgp_data.recordings.recording import Lost, SignalBlock, Wanted

if TYPE_CHECKING:
    from streamgp.base import Json


class Apart:
    """A Recording over the recording that a class makes of a path.

    Args:
        path: of the file. module, name: of the class.
        patterns: of the signals that are read; none: all.
        options: what the class is given beside the path.
    """

    def __init__(
        self,
        path: str,
        module: str,
        name: str,
        patterns: tuple[str, ...] = (),
        options: Mapping[str, Json] | None = None,
    ) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = ""
        with_unit = (f"{pattern}*[[(]*" for pattern in patterns)  # more than are wanted, which `blocks` leaves out
        self._words = (module, name, path, json.dumps(options or {}), *patterns, *with_unit)
        self._time_limit = time_limit(path)

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """As the recording's own.

        Raises:
            StreamgpError: it raised one.
            ValueError: it raised something else, or the process died, or said nothing for long and was ended.
        """
        with started(__name__, *self._words) as process:
            assert process.stdout is not None
            try:
                while (report := self._next(process, process.stdout)) is not None:
                    self.units, self.left_out, self.place = report["units"], report["left_out"], report["place"]
                    if "refused" in report:
                        kind, message, hint = report["refused"]
                        raise getattr(errors, kind)(message, hint=hint)
                    if "error" in report:
                        raise ValueError(report["error"])
                    if "end" in report:
                        return
                    if "lost" in report:
                        yield Lost(*report["lost"])
                        continue
                    shape = 1 + len(report["names"]), report["count"]
                    numbers = process.stdout.read(8 * shape[0] * shape[1])
                    if len(numbers) < 8 * shape[0] * shape[1]:
                        break
                    found = np.frombuffer(numbers, np.int64).reshape(shape)
                    values = zip(report["names"], found[1:].view(np.float64), strict=True)
                    yield SignalBlock(found[0], {name: row for name, row in values if wanted(name)})
            finally:
                process.kill()
        raise ValueError("the library that reads it died, or was ended because it said nothing any more")

    def _next(self, process: subprocess.Popen[bytes], stream: IO[Any]) -> dict[str, Any] | None:
        """The next line; None where the process is gone."""
        watch = Timer(self._time_limit, process.kill)
        watch.start()
        try:
            line = stream.readline()
        finally:
            watch.cancel()
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found


def main(module: str, name: str, path: str, options: str, *patterns: str) -> None:
    """Read a recording, and write what it gives to standard output: a line of JSON each, and the numbers of a block."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    limit_memory(path)
    most = 1.5 * time_limit(path)  # who waits gives up before
    end_in(most)
    recording: Any = None

    def send(numbers: bytes = b"", **what: Any) -> None:
        usual: dict[str, Any] = {"units": {}, "left_out": {}, "place": ""}
        report = {key: getattr(recording, key, nothing) for key, nothing in usual.items()} | what
        end_in(0)  # who reads may take time
        out.write(json.dumps(report).encode() + b"\n" + numbers)
        out.flush()
        end_in(most)

    def wanted(name: str) -> bool:
        return not patterns or name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    try:
        recording = getattr(importlib.import_module(module), name)(path, **json.loads(options))
        for item in recording.blocks(wanted):
            if isinstance(item, Lost):
                send(lost=list(item))
            elif item.values:
                rows = [item.times, *(np.ascontiguousarray(row).view(np.int64) for row in item.values.values())]
                send(np.stack(rows).tobytes(), names=list(item.values), count=len(item.times))
    except errors.StreamgpError as error:
        send(refused=[type(error).__name__, error.message, error.hint])
    except Exception as error:
        send(error=f"{type(error).__name__} {error}"[:300])
    else:
        send(end=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
