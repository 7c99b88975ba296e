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
    walk = _Walk(h5py, file)
    try:
        walk.group(file, ())
    except BaseException:
        file.close()  # one that is left open would be read in place of the next of this name
        raise
    return walk.found, walk.left_out, file.close


class _Walk:
    """Through the groups of a file, each object once.

    Args:
        h5py: the module.
        file: that is open.

    Attributes:
        found: its numeric arrays.
        left_out: why a dataset is not among them, by its path.
    """

    def __init__(self, h5py: Any, file: Any) -> None:
        self._h5py, self._file = h5py, file
        self._seen = {h5py.h5o.get_info(file.id).addr}
        self.found: list[Leaf] = []
        self.left_out: dict[str, str] = {}

    def group(self, node: Any, names: tuple[str, ...]) -> None:
        """What is in a group; names: its path."""
        for key in node:
            if not names and key in _MATLAB_OWN:
                continue
            path, link = (*names, key), node.get(key, getlink=True)
            if isinstance(link, self._h5py.ExternalLink):
                self.left_out["/".join(path)] = "a link to another file, which is not followed"
            elif isinstance(link, self._h5py.HardLink):
                self._take(node[key], path)

    def _take(self, node: Any, path: tuple[str, ...]) -> None:
        info = self._h5py.h5o.get_info(node.id)
        if len(path) > _DEPTH or info.addr in self._seen:
            return
        self._seen.add(info.addr)
        if isinstance(node, self._h5py.Group):
            if not self._array_of_structs(node, path):
                self.group(node, path)
        elif isinstance(node, self._h5py.Dataset):
            self._array(node, path)

    def _array(self, node: Any, path: tuple[str, ...]) -> None:
        """A dataset: one array, or one a field."""
        name, kind = "/".join(path), node.dtype
        if node.is_virtual or node.external:
            self.left_out[name] = "its values are in another file, which is not opened"
        elif node.nbytes > _RATIO * node.id.get_storage_size() + _LEAST:
            self.left_out[name] = f"{node.nbytes:,} bytes of values that are not in the file"
        elif node.attrs.get("MATLAB_class") in (b"char", b"canonical empty") or node.attrs.get("MATLAB_empty"):
            return
        elif kind.names:
            for field in kind.names:
                if kind[field].kind in "iufb" and not kind[field].shape:
                    self.found.append(Leaf((*path, field), _Field(node, field)))
        elif kind.kind in "iufb" and node.shape:
            self.found.append(Leaf(path, node, _text(node.attrs.get("units", node.attrs.get("unit", "")))))
        elif node.shape and not (kind.hasobject and self._h5py.check_dtype(ref=kind)):
            self.left_out[name] = "text" if kind.kind in "OSU" else f"{kind}, no numbers"

    def _array_of_structs(self, node: Any, path: tuple[str, ...]) -> bool:
        """Whether a group is one of MATLAB's, whose fields are arrays of references; if so, take its elements. Each is
        named by its field Name, else by its number."""
        fields = {key: node[key] for key in node if self._of_references(node, key)}
        count = next((one.size for one in fields.values()), 0)
        if not count or len(fields) != len(node) or any(one.size != count for one in fields.values()):
            return False
        elements = {key: [self._file[ref] for ref in one[()].ravel() if ref] for key, one in fields.items()}
        names = [_characters(one) for one in elements.get("Name", [])]
        units = [_characters(one) for one in elements.get("Unit", [])]
        named = len(set(names)) == count and all(names)
        for key, values in elements.items():
            for at, value in enumerate(values):
                label = names[at] if named else str(at + 1)
                if isinstance(value, self._h5py.Dataset) and value.dtype.kind in "iufb":
                    before = len(self.found)
                    self._array(value, (*path, label, key))
                    if len(self.found) > before and at < len(units) and units[at]:
                        self.found[-1] = self.found[-1]._replace(unit=units[at])
        return True

    def _of_references(self, node: Any, key: str) -> bool:
        """Whether a member of a group is an array of references, and in this file."""
        h5py = self._h5py
        return (
            isinstance(node.get(key, getlink=True), h5py.HardLink)
            and isinstance(node[key], h5py.Dataset)
            and h5py.check_dtype(ref=node[key].dtype) is h5py.Reference
        )


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
