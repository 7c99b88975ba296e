"""MATLAB .mat: version 7.3 is HDF5; older versions are read by SciPy, as a whole. Both in a process of their own, which
damaged bytes can end."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgp.errors import DataError
from streamgp.streaming.recordings.joined import Joined
from streamgp.streaming.recordings.tree import Leaf, Tree
from streamgp.streaming.sources import hdf5

SUFFIXES = (".mat",)
_DEPTH = 32


class Config(hdf5.Config):
    """As of HDF5."""


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`.

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: it is of version 7.3 and h5py is not installed, or an option does not fit.
    """
    return Joined(uri, config, lambda path: hdf5.apart(path, uri, config, __name__))


def recording(path: str, uri: str, time: str | None, form: str | None, look: bool) -> Tree:
    """What that process reads: the file at `path`, which the user calls `uri`.

    Raises:
        DataError: it is damaged.
        UsageError: it is of version 7.3 and h5py is not installed, or there is no such time.
    """
    with open(path, "rb") as file:
        head = file.read(520)
    return _tree(hdf5.leaves(path, uri) if b"\x89HDF" in head else _leaves(path, uri), time, form, look)


def _tree(found: hdf5.Found, time: str | None, form: str | None, look: bool) -> Tree:
    names = {leaf.path[0] for leaf in found[0]}
    if len(names) == 1 and all(len(leaf.path) > 1 for leaf in found[0]):  # one struct, called as its file
        found = ([leaf._replace(path=leaf.path[1:]) for leaf in found[0]], *found[1:])
    return Tree(*found, time, form, look)


def _leaves(path: str, uri: str) -> hdf5.Found:
    from scipy.io import loadmat

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


def _word(element: Any, field: str) -> str:
    """The text in a field of a struct; "" for anything else."""
    value = element[field]
    return (
        str(value.ravel()[0]) if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size == 1 else ""
    )
