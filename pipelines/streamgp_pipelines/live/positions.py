"""Where in its stream a table is: positions of messages in commits, and in the quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp_data.ingestion.writer import Aside
from streamgp_data.messages import Message, by_partition
from streamgp_data.quarantine import QUARANTINE
from streamgp_data.table import Table


class Positions:
    """The marks of one source in a table.

    Args:
        name: of the source.
        width: numbers of a position; 0 without positions: then messages are counted.
    """

    def __init__(self, name: str, width: int) -> None:
        self._name, self._width = name, width

    def mark(self, table: Table, partition: str) -> tuple[int, ...]:
        """The position of the last message of a partition that the table has; () before the first."""
        found = tuple(table.mark(key, -1) for key in self._keys(partition))
        return () if -1 in found else found

    def _keys(self, partition: str) -> list[str]:
        return [f"{self._name}#{partition or 'position'}{f'.{i}' if i else ''}" for i in range(self._width)]

    def fresh(self, table: Table, messages: Sequence[Message]) -> NDArray[np.bool_]:
        """(N,) messages that come after the mark of their partition."""
        fresh = np.ones(len(messages), bool)
        if self._width:
            first = by_partition(reversed(messages))
            marks = {partition: self.mark(table, partition) for partition in first}
            if all(position > marks[partition] for partition, position in first.items()):
                return fresh  # those of a partition come in the order of their positions
            for at, message in enumerate(messages):
                fresh[at] = message.position > marks[message.partition]
        return fresh

    def moved(self, table: Table, messages: Sequence[Message], fresh: NDArray[np.bool_]) -> dict[str, int]:
        """The marks after these messages."""
        if not self._width:
            return {self._count: table.mark(self._count, 0) + len(messages)}
        last = by_partition(messages if fresh.all() else compress(messages, fresh))
        return {
            key: value for partition in last for key, value in zip(self._keys(partition), last[partition], strict=True)
        }

    @property
    def _count(self) -> str:
        return f"{self._name}#messages"

    def addressed(self, refused: pa.Table, table: Table, messages: Sequence[Message]) -> list[Aside]:
        """Rows whose `line` is the place of their message, with its position, or its number, in place of that."""
        places: list[int] = refused.column("line").to_numpy().tolist()
        groups: dict[str, list[int]] = {}
        for row, place in enumerate(places):
            groups.setdefault(messages[place].partition, []).append(row)
        found = [Aside(refused.slice(0, 0), self._name, 0)]
        for partition, rows in groups.items():
            first = table.mark(self._count, 0)
            lines = [_line(messages[places[row]].position, first + places[row] + 1) for row in rows]
            mark = self.mark(table, partition)
            after = _line(mark, first) if mark or not self._width else -1
            source = f"{self._name}#{partition}" if partition else self._name
            part = refused.take(pa.array(rows, pa.int64()))
            pairs = zip(part["column"].to_pylist(), part["detail"].to_pylist(), rows, strict=True)
            said = [_said(detail or "", messages[places[row]], not column) for column, detail, row in pairs]
            for name, values in (("source", [source] * len(rows)), ("line", lines), ("detail", said)):
                at = QUARANTINE.get_field_index(name)
                part = part.set_column(at, QUARANTINE.field(at), pa.array(values, QUARANTINE.field(at).type))
            found.append(Aside(part, source, after))
        return found


def _said(detail: str, message: Message, whole: bool) -> str:
    """What is wrong with a row or, where it is `whole`, with its message, and what the broker calls that."""
    names = [name.decode("utf-8", "backslashreplace") for name in message.about]
    said = [f"{what} {name}" for what, name in zip(("message", "its only field is"), names, strict=False)]
    return "; ".join([*filter(None, [detail]), *(said if whole else said[:1])])


def _line(position: tuple[int, ...], number: int) -> int:
    """A position as one number: (milliseconds, count) of Redis have 2²⁰ for each millisecond."""
    if not position:
        return number
    first, *rest = position
    packed = (first << 20) + rest[0] if rest else first
    return packed if packed < 1 << 63 else first
