"""Names and their codes, and clocks that only go on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamgp.windows.rows import Names, increasing


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_codes_are_in_order_of_first_appearance(as_dictionary: bool) -> None:
    random, names, known = np.random.default_rng(0), Names(), dict[str, int]()
    for turn in range(20):
        batch = [f"s{at}" for at in random.integers(5 * turn + 1, size=30)]
        column = pa.array(batch)
        found = names.codes(column.dictionary_encode() if as_dictionary else column)
        assert found.tolist() == [known.setdefault(name, len(known)) for name in batch]
        if turn == 10:
            names.restore(list(known))
    assert names.codes(pa.array(["s0", "new"]), grow=False).tolist() == [known["s0"], -1]
    assert names.all == list(known)
    assert names.codes(pa.array([3, 4, 3])).tolist() == [len(known), len(known) + 1, len(known)]


@pytest.mark.parametrize("far", [0, 2**62])
def test_a_clock_is_beyond_every_earlier_one(far: int) -> None:
    random = np.random.default_rng(1)
    code = np.sort(random.integers(6, size=200))
    clock, last = random.integers(30, size=200) + far * (code % 2), random.integers(-2, 10, size=6)[code]
    highest, expected = dict[int, int](), []
    for one, at, before in zip(code.tolist(), clock.tolist(), last.tolist(), strict=True):
        highest[one] = max(highest.get(one, before), before)
        expected.append(at > highest[one])
        highest[one] = max(highest[one], at)
    assert increasing(code, clock, last).tolist() == expected
    assert increasing(code[:0], clock[:0], last[:0]).tolist() == []
