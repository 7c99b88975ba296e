"""Definitions of ROS messages that are made to keep a reader busy, or to fill its memory."""

from __future__ import annotations

import struct

import pytest

from streamgp_data.recordings.ros import Types

LINE = "=" * 80


def idl(constant: str) -> str:
    return f"module a {{ module msg {{ const long X = {constant}; struct B {{ double x; double y[X]; }}; }}; }};"


def chain(length: int) -> str:
    """Each type has the next one twice."""
    parts = [f"MSG: a/A{at}\nA{at + 1} x\nA{at + 1} y\n" for at in range(1, length)]
    return f"\n{LINE}\n".join(["A1 x", *parts, f"MSG: a/A{length}\nuint8 x\n"])


def test_brackets_of_a_constant_take_no_time() -> None:
    types = Types()
    assert types.define("a/msg/B", idl("(" * 20 + "1 + 1" + ")" * 20), idl=True) is None
    found = types.decode(b"\0\1\0\0" + struct.pack("<3d", 1, 2, 3), "a/msg/B")
    assert found["x"] == 1 and found["y"].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("string[100000] x\n", "more than 4,096"),
        (f"C[100000] x\n{LINE}\nMSG: a/C\nfloat64 x\n", "more than 4,096"),
        (chain(30), "more than 4,096"),
        (f"C[] x\n{LINE}\nMSG: a/C\n", "without fields"),
        (f"C[] x\n{LINE}\nMSG: a/C\nfloat64[0] x\n", "without fields"),
        ("B x\n", "holds itself"),
        ("float64 x\n" + "#\n" * 200_000, "more than 262,144"),
    ],
)
def test_what_has_no_bounds_is_refused(text: str, why: str) -> None:
    assert why in (Types().define("a/B", text) or "")


def test_shifts_are_refused() -> None:
    assert Types().define("a/msg/B", idl("1 << 99999999999"), idl=True) is not None


def test_large_arrays_of_numbers_are_read() -> None:
    types = Types()
    assert types.define("a/B", f"float64[100000] x\nC[3] y\n{LINE}\nMSG: a/C\nfloat64 x\n") is None
    found = types.decode(bytes(8 * 100_003), "a/B", ros1=True)
    assert len(found["x"]) == 100_000 and len(found["y"]) == 3
