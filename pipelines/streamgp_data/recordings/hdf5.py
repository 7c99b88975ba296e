"""The numeric arrays of an HDF5 file; links to other files are never followed.

Damaged bytes can make the library read for ever, or end the process: `sources.hdf5` has it done in another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from streamgp.errors import DataError
from streamgp_data.recordings.recording import needs
from streamgp_data.recordings.tree import Leaf, Tree

_DEPTH = 32
_RATIO, _LEAST = 2000, 1 << 24
"""What a dataset may be larger than its stored bytes: HDF5 fills in what is not there."""
_MATLAB_OWN = ("#refs#", "#subsystem#")

Found: TypeAlias = "tuple[list[Leaf], dict[str, str], Callable[[], None]]"


def recording(path: str, uri: str, time: str | None, form: str | None, look: bool, interval: int | None = None) -> Tree:
    """The file at `path`, which the user calls `uri`.

    Raises:
        DataError: it is damaged.
        UsageError: h5py is not installed, or there is no such time.
    """
    return Tree(*leaves(path, uri), time, form, look, interval)


def leaves(path: str, uri: str) -> Found:
    """The numeric arrays of a file, what is left out, and what closes the file.

    Raises:
        DataError: it is no HDF5 file.
        UsageError: h5py is not installed.
    """
    h5py = needs("h5py", "hdf5")
    if not os.path.getsize(path):
        raise DataError(f"{uri}: the file is empty", hint="bring the whole file")
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except OSError as error:
        hint = "bring the whole file, closed by its writer"
        raise DataError(f"{uri}: not a whole HDF5 file: {error}", hint=hint) from None
    found: list[Leaf] = []
    out: dict[str, str] = {}
    seen = {h5py.h5o.get_info(file.id).addr}

    def group(node: Any, names: tuple[str, ...]) -> None:
        for key in node:
            if not names and key in _MATLAB_OWN:
                continue
            path, link = (*names, key), node.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                out["/".join(path)] = "a link to another file, which is not followed"
            elif isinstance(link, h5py.HardLink):
                take(node[key], path)

    def take(node: Any, path: tuple[str, ...]) -> None:
        info = h5py.h5o.get_info(node.id)
        if len(path) > _DEPTH or info.addr in seen:
            return
        seen.add(info.addr)
        if isinstance(node, h5py.Group):
            if not array_of_structs(node, path):
                group(node, path)
        elif isinstance(node, h5py.Dataset):
            array(node, path)

    def array(node: Any, path: tuple[str, ...]) -> None:
        name, kind = "/".join(path), node.dtype
        if node.is_virtual or node.external:
            out[name] = "its values are in another file, which is not opened"
        elif node.nbytes > _RATIO * node.id.get_storage_size() + _LEAST:
            out[name] = f"{node.nbytes:,} bytes of values that are not in the file"
        elif node.attrs.get("MATLAB_class") in (b"char", b"canonical empty") or node.attrs.get("MATLAB_empty"):
            return
        elif kind.names:
            for field in kind.names:
                if kind[field].kind in "iufb" and not kind[field].shape:
                    found.append(Leaf((*path, field), _Field(node, field)))
        elif kind.kind in "iufb" and node.shape:
            found.append(Leaf(path, node, _text(node.attrs.get("units", node.attrs.get("unit", "")))))
        elif node.shape and not (kind.hasobject and h5py.check_dtype(ref=kind)):
            out[name] = "text" if kind.kind in "OSU" else f"{kind}, no numbers"

    def array_of_structs(node: Any, path: tuple[str, ...]) -> bool:
        """MATLAB's: fields that are arrays of references; an element is named by its field Name, else by its number."""
        fields = {
            key: node[key]
            for key in node
            if isinstance(node.get(key, getlink=True), h5py.HardLink)
            and isinstance(node[key], h5py.Dataset)
            and h5py.check_dtype(ref=node[key].dtype) is h5py.Reference
        }
        count = next((one.size for one in fields.values()), 0)
        if not count or len(fields) != len(node) or any(one.size != count for one in fields.values()):
            return False
        elements = {key: [file[ref] for ref in one[()].ravel() if ref] for key, one in fields.items()}
        names = [_characters(one) for one in elements.get("Name", [])]
        units = [_characters(one) for one in elements.get("Unit", [])]
        named = len(set(names)) == count and all(names)
        for key, values in elements.items():
            for at, value in enumerate(values):
                label = names[at] if named else str(at + 1)
                if isinstance(value, h5py.Dataset) and value.dtype.kind in "iufb":
                    before = len(found)
                    array(value, (*path, label, key))
                    if len(found) > before and at < len(units) and units[at]:
                        found[-1] = found[-1]._replace(unit=units[at])
        return True

    try:
        group(file, ())
    except BaseException:
        file.close()  # one that is left open would be read in place of the next of this name
        raise
    return found, out, file.close


class _Field:
    """One field of an array of records, as an array."""

    def __init__(self, node: Any, field: str) -> None:
        self._node, self._field = node, field
        self.shape, self.dtype = node.shape, node.dtype[field]

    def __getitem__(self, which: Any) -> Any:
        return self._node.fields(self._field)[which]


def _characters(node: Any) -> str:
    """The text of a MATLAB char array; "" for anything else."""
    if node.attrs.get("MATLAB_class") != b"char" or node.attrs.get("MATLAB_empty") or node.size > 1000:
        return ""
    return "".join(map(chr, np.asarray(node).ravel().tolist()))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
