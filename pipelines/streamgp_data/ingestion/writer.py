"""The one writer of a table in a process that takes rows as they come; other processes may write too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgp.errors import ServiceError, TableError
from streamgp_data.admission import Admission
from streamgp_data.compaction import Compaction
from streamgp_data.delta import Conflict
from streamgp_data.quarantine import Quarantine
from streamgp_data.table import Table


class Aside(NamedTuple):
    """Rows for the quarantine, of `source` after line `after`; see `Quarantine.add`."""

    rows: pa.Table
    source: str
    after: int


class Lot(NamedTuple):
    """What one commit takes, against what the table holds; without rows and marks there is nothing to commit.
    revises, late: (N,) as those of `Verdict`."""

    accepted: pa.Table
    quarantined: Sequence[Aside]
    marks: Mapping[str, int]
    revises: NDArray[np.int64]
    late: NDArray[np.bool_]


class Writer:
    """Commits rows and marks together, quarantine first: what survives a kill at any moment, as in `ingest`.

    Args:
        table: its handle; it moves with every commit.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.admission = Admission(table)
        self._quarantine, self._compaction = Quarantine(table), Compaction(table)
        self._committed = self._unsure = False

    def write(self, judge: Callable[[], Lot]) -> None:
        """Commit what `judge` gives; after another writer's commit it is asked again, with all that is new.

        Raises:
            TableError: the table or its quarantine is damaged.
            ServiceError: the storage refused; nothing was committed.
        """
        if self._unsure:  # whether the last commit is there, which was not answered
            self.catch_up()
        self._unsure = True
        while True:
            lot = judge()
            try:
                for part in lot.quarantined:
                    self._quarantine.add(part.rows, part.source, part.after)
                if lot.accepted.num_rows:
                    self.table.commit(lot.accepted, lot.marks, lot.revises, lot.late)
                elif lot.marks:
                    self.table.commit(None, lot.marks)
                self._committed |= bool(lot.accepted.num_rows or lot.marks)
                self._unsure = False
                return
            except Conflict:
                self.catch_up()

    def catch_up(self) -> None:
        """See what others have committed; rows are judged against all of it from here on."""
        self.table.refresh()
        self.admission = Admission(self.table)
        self._unsure = False

    def tidy(self) -> None:
        """Merge small files, from time to time; to be called after `write`, when nobody waits for it."""
        if self._committed:
            self._committed = False
            with suppress(TableError, ServiceError):  # said to those who read the damaged file, or write next
                self._compaction.committed()
