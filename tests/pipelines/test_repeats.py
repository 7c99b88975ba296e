"""What is remembered of rows, so that those that come again are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamgp_data.ingestion import repeats as repeats_of
from streamgp_data.ingestion.repeats import Repeats
from streamgp_data.meaning import TableMeta


def test_memory_is_that_of_the_newest_rows_and_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats_of, "PENDING", 5)
    repeats = Repeats(TableMeta("t", "s", clock=False), most=50)
    for start in range(0, 1000, 10):
        t = np.arange(start, start + 10)
        assert (repeats.look(pa.table({"t": t, "s": ["a"] * 10, "y": t * 1.0}), waiting=800).first == -1).all()
        assert len(repeats.seen()) <= max(100, start + 10 - 800 + 50)
    asked = pa.table(
        {"t": [100, 805, 960, 960, 960], "s": ["a", "a", "a", "a", "b"], "y": [0.0, 805.0, 960.0, 1.0, 960.0]}
    )
    found = repeats.look(asked, waiting=800)
    assert found.first.tolist() == [-1, 805, 960, 960, -1]  # the hundredth is forgotten
    assert found.other.tolist() == [False, False, False, True, False]
