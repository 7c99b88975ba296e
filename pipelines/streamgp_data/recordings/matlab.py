"""The numeric arrays of a MATLAB .mat file: version 7.3 is HDF5; older versions are read by SciPy, as a whole.

Damaged bytes can end the process: `sources.matlab` has it done in another one.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from typing import IO, Any

import numpy as np

from streamgp.errors import DataError
from streamgp_data.recordings import hdf5
from streamgp_data.recordings.tree import Leaf, Tree

_DEPTH = 32
_HEAD, _MATRIX, _PACKED = 128, 14, 15
"""Bytes of the header of version 5; types of its elements."""
_CELL, _STRUCT, _ARRAYS = 1, 2, range(4, 16)
"""Classes of variables."""
_PIECE = 1 << 20


def recording(path: str, uri: str, time: str | None, form: str | None, look: bool, interval: int | None = None) -> Tree:
    """The file at `path`, which the user calls `uri`.

    Raises:
        DataError: it is damaged.
        UsageError: it is of version 7.3 and h5py is not installed, or there is no such time.
    """
    with open(path, "rb") as file:
        head = file.read(520)
    return _tree(hdf5.leaves(path, uri) if b"\x89HDF" in head else _leaves(path, uri), time, form, look, interval)


def _tree(found: hdf5.Found, time: str | None, form: str | None, look: bool, interval: int | None) -> Tree:
    names = {leaf.path[0] for leaf in found[0]}
    if len(names) == 1 and all(len(leaf.path) > 1 for leaf in found[0]):  # one struct, called as its file
        found = ([leaf._replace(path=leaf.path[1:]) for leaf in found[0]], *found[1:])
    return Tree(*found, time, form, look, interval)


def _leaves(path: str, uri: str) -> hdf5.Found:
    from scipy.io import loadmat

    with open(path, "rb") as file:
        if not os.path.getsize(path):
            raise DataError(f"{uri}: the file is empty", hint="bring the whole file")
        _check_elements(file, os.path.getsize(path), uri)
    try:
        content = loadmat(path, verify_compressed_data_integrity=True)
    except Exception as error:  # whatever SciPy raises on damaged bytes
        what = f"{type(error).__name__} {error}".splitlines()[0]
        raise DataError(f"{uri}: not a whole MATLAB file: {what}", hint="bring the whole file") from None
    found: list[Leaf] = []
    out: dict[str, str] = {}

    def take(value: Any, path: tuple[str, ...]) -> None:
        if not isinstance(value, np.ndarray) or len(path) > _DEPTH:
            return
        if value.dtype.names and type(value).__name__ == "ndarray":
            names = [_word(one, "Name") for one in value.ravel()] if "Name" in value.dtype.names else []
            named = len(set(names)) == value.size and all(names)
            for at, element in enumerate(value.ravel()):
                label = () if value.size == 1 and not named else (names[at] if named else str(at + 1),)
                before = len(found)
                for field in value.dtype.names:
                    take(element[field], (*path, *label, field))
                if "Unit" in value.dtype.names and (unit := _word(element, "Unit")):
                    found[before:] = [leaf if leaf.unit else leaf._replace(unit=unit) for leaf in found[before:]]
        elif value.dtype == object:
            for at, element in enumerate(value.ravel()):
                take(element, (*path, str(at + 1)))
        elif value.dtype.kind in "iufb" and type(value).__name__ == "ndarray":
            found.append(Leaf(path, value))
        elif value.dtype.kind not in "SU":
            out["/".join(path)] = "an object of a MATLAB class: save its numbers, such as t = ts.Time; y = ts.Data"

    for name, value in content.items():
        if not name.startswith("__"):
            take(value, (name,))
    return found, out, lambda: None


def _check_elements(file: IO[bytes], size: int, uri: str) -> None:
    """See that each variable of version 5 is as long as it says: SciPy ends at one that is not, or misses the next.

    Raises:
        DataError: one is not.
    """
    head = file.read(_HEAD)
    order = {b"IM": "<", b"MI": ">"}.get(head[126:128])
    if order is None:  # version 4, or no such file
        return
    at = len(head)
    while at < size:
        tag = file.read(8)
        kind, length = struct.unpack(order + "II", tag) if len(tag) == 8 else (0, 0)
        if kind not in (_MATRIX, _PACKED) or at + 8 + length > size:
            whole = False
        elif kind == _MATRIX:
            whole = _fits(file, length, order)
        else:
            whole = _unpacks(file, length, order)
        if not whole:
            raise DataError(f"{uri}: damaged at byte {at:,}: a variable of another length", hint="bring the whole file")
        at += 8 + length
        file.seek(at)


def _fits(file: IO[bytes], length: int, order: str) -> bool:
    """Whether the parts of a variable, each a tag and its bytes to a multiple of 8, have that length together, and it
    holds as many variables as it says."""
    parts: list[bytes] = []  # the first ones: flags, shape, name, and of a struct the width and the names of its fields
    held = 0
    while length >= 8:
        tag = file.read(8)
        first, count = struct.unpack(order + "II", tag)
        if first >> 16:  # up to 4 bytes are in the tag itself
            data, step = tag[4 : 4 + (first >> 16)], 8
        else:
            step = 8 + 8 * -(-count // 8)
            keep = count if len(parts) < 6 and count <= _PIECE and first != _MATRIX else 0
            data = file.read(keep)
            file.seek(step - 8 - keep, os.SEEK_CUR)
        held += first == _MATRIX
        parts += [data] if len(parts) < 6 else []
        length -= step
    return length == 0 and held == _wanted(parts, order, held)


def _wanted(parts: list[bytes], order: str, held: int) -> int:
    """How many variables a variable of these first parts holds; `held` for objects, whose form is not published."""
    kind = struct.unpack(order + "I", parts[0][:4])[0] & 0xFF if parts and len(parts[0]) >= 4 else 0
    if kind not in (_CELL, _STRUCT):
        return 0 if kind in _ARRAYS else held
    if len(parts) < 3:
        return -1
    cells: int = math.prod(struct.unpack(f"{order}{len(parts[1]) // 4}i", parts[1][: len(parts[1]) // 4 * 4]))
    if kind == _CELL:
        return cells
    width = int.from_bytes(parts[3], "little" if order == "<" else "big") if len(parts) > 4 else 0
    return cells * (len(parts[4]) // width) if width else -1


def _unpacks(file: IO[bytes], length: int, order: str) -> bool:
    """Whether that many bytes are one compressed variable of the length that is in it."""
    unpack, start, count = zlib.decompressobj(), b"", 0
    try:
        while length and not unpack.eof:
            piece = file.read(min(length, _PIECE))
            length -= len(piece)
            while piece:
                found = unpack.decompress(piece, _PIECE)
                start, count, piece = (start + found)[:8], count + len(found), unpack.unconsumed_tail
    except zlib.error:
        return False
    if len(start) < 8 or not unpack.eof or length or unpack.unused_data:
        return False
    kind, own = struct.unpack(order + "II", start)
    return bool(kind == _MATRIX and count == 8 + own)


def _word(element: Any, field: str) -> str:
    """The text in a field of a struct; "" for anything else."""
    value = element[field]
    return (
        str(value.ravel()[0]) if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size == 1 else ""
    )
