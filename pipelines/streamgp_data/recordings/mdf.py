"""MDF 3 and 4: asammdf reads a channel as a whole.

Damaged bytes can end the process: `sources.mdf` has it done in another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import numpy as np

from streamgp_data.recordings.recording import NEVER, WIDEST, Lost, SignalBlock, Wanted, needs, tidy

_1980 = 315_532_800


class Mdf:
    """A Recording over one file. A signal is called as its channel; where several groups have that channel,
    channel.group from the second on."""

    def __init__(self, path: str) -> None:
        self.units: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.place = "its header"
        self._path = path
        self._asammdf = needs("asammdf", "mdf")

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The channels, group by group."""
        seen: set[str] = set()
        with self._asammdf.MDF(self._path) as file:
            moment = file.start_time
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            start = round(moment.timestamp() * 10**6) * 1000
            start = start if start >= _1980 * 10**9 else 0
            for number, group in enumerate(file.groups):
                master = file.masters_db.get(number)
                self.place = f"group {number + 1}"
                _check_size(group)
                for at, channel in enumerate(group.channels):
                    self.place = f"group {number + 1}, channel {channel.name}"
                    if at == master:
                        continue
                    name = tidy(channel.name)
                    name = f"{name}.{number + 1}" if name in seen else name
                    seen.add(name)
                    if not wanted(name):
                        continue
                    if isinstance(found := self._channel(file, number, at, name, start), str):
                        self.left_out[name] = found
                    else:
                        yield found

    def _channel(self, file: Any, group: int, at: int, name: str, start: int) -> SignalBlock | str:
        """The samples of a channel, or why there are none."""
        one = file.get(group=group, index=at)
        if one.samples.dtype.kind not in "iufb":  # texts of a table of conversion: its numbers
            one = file.get(group=group, index=at, raw=True)
        values = one.samples
        if values.dtype.kind not in "iufb":
            return "text" if values.dtype.kind in "SUO" else f"{values.dtype}, no numbers"
        if values.ndim > 2 or (values.ndim == 2 and values.shape[1] > WIDEST):
            return f"an array of more than {WIDEST} elements"
        if not len(values):
            return "no samples"
        seconds = one.timestamps.astype(np.float64)
        good = np.abs(seconds) < NEVER / 2e9  # NaN is not
        times = np.where(good, start + np.round(np.where(good, seconds, 0.0) * 1e9).astype(np.int64), NEVER)
        names = [name] if values.ndim == 1 else [f"{name}.{column}" for column in range(values.shape[1])]
        if one.unit:
            self.units |= dict.fromkeys(names, str(one.unit))
        table = values.reshape(len(values), -1).astype(np.float64)
        return SignalBlock(times, {column: table[:, at] for at, column in enumerate(names)})


def _check_size(group: Any) -> None:
    """See that the records of a group are in its data: asammdf looks for them without end.

    Raises:
        ValueError: they are not.
    """
    head = group.channel_group
    size = head.samples_byte_nr + getattr(head, "invalidation_bytes_nr", 0)
    found = sum(block.original_size for block in group.get_data_blocks())
    if group.sorted and size * max(head.cycles_nr, int(found > 0)) > found:
        raise ValueError(f"{head.cycles_nr:,} records of {size:,} bytes, of which the file has {found:,} bytes")
