"""Recordings whose library is in a process of its own in streamgp: HDF5, MATLAB and MDF."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import _fuzz_workbooks as workbooks
from _fuzz import Check, Make, damaged, of_file, pool
from _fuzz_here import here

ROWS = 5
EPOCH = 1_700_000_000


def hdf5(chance: random.Random, home: Path) -> bytes:
    import h5py
    import numpy as np

    out, rows = io.BytesIO(), chance.randrange(2, ROWS + 1)
    with h5py.File(out, "w", libver=chance.choice(["earliest", "latest"])) as file:
        t = np.arange(rows) / 10
        file.create_dataset("t", data=t, compression=chance.choice([None, "gzip"]))
        kind = chance.choice(["f4", ">f8", "i2", "u8", "?", "f2"])
        some = file.create_dataset("a/y", data=t.astype(kind), chunks=(2,), fletcher32=chance.random() < 0.5)
        some.attrs["units"] = chance.choice(["V", b"\xff", 5])
        if chance.random() < 0.5:
            file["a/wide"] = np.outer(t, [1, 2])
        if chance.random() < 0.3:
            file["rec"] = np.zeros(rows, [("x", "f4"), ("s", "S3")])
        if chance.random() < 0.3:
            file["text"] = np.array(["a"] * rows, dtype=h5py.string_dtype())
        if chance.random() < 0.3:
            file["ref"] = np.array([file["a"].ref] * rows, dtype=h5py.ref_dtype)
            file["soft"], file["ext"] = h5py.SoftLink("/a"), h5py.ExternalLink("/etc/none.h5", "/x")
        if chance.random() < 0.3:
            file.create_dataset("empty", (rows,), "f8")
    return out.getvalue()


def matlab(chance: random.Random, home: Path) -> bytes:
    import numpy as np
    from scipy.io import savemat
    from scipy.sparse import eye

    out, rows = io.BytesIO(), chance.randrange(2, ROWS + 1)
    t = np.arange(rows) / 10
    values = [t, t.astype("f4"), t.astype("u1"), t + 1j, np.c_[t, t], eye(rows).tocsc(), "text", True, t > 0, {"z": t}]
    found = {"t": t, "y": chance.choice(values), "s": {"t": t, "u": chance.choice(values)}}
    found["c"] = np.array([t, "a", 5], dtype=object)
    savemat(out, found, do_compression=False)
    return out.getvalue()


def of_matlab(home: Path) -> Check:
    """As SciPy reads them."""
    return _check(home, "mat", _matlab_files(home))


def of_hdf5(home: Path) -> Check:
    """As h5py reads them."""
    return _check(home, "h5", pool("h5", hdf5, 60, home))


def of_mdf(home: Path) -> Check:
    """As asammdf reads them."""
    return _check(home, "mf4", _mdf_files(home))


def _check(home: Path, suffix: str, make: Make) -> Check:
    read = here(of_file(home, suffix))
    return lambda chance: read(make(chance), None)


def _matlab_files(home: Path) -> Make:
    valid = [matlab(random.Random(at), home) for at in range(20)]

    def make(chance: random.Random) -> bytes:
        data = damaged(chance.choice(valid), chance, 0 if chance.random() < 0.1 else 128)
        if chance.random() < 0.3:
            packed = zlib.compress(data[128:])
            data = data[:128] + struct.pack("<2I", 15, len(packed)) + packed
        return data

    return make


def _mdf_files(home: Path) -> Make:
    import numpy as np
    from asammdf import MDF, Signal

    valid = []
    for at in range(12):
        t, path = np.arange(3 + at % 3) / 10, home / f"o{at}.mf4"
        with MDF(version=("4.10", "3.30", "4.11")[at % 3]) as file:
            file.start_time = datetime.fromtimestamp(EPOCH, UTC)
            file.append([Signal(np.sin(t), t, unit="V", name="volt"), Signal(t.astype("u2"), t, name="n")])
            if at % 2:
                file.append([Signal(np.array([b"on"] * len(t)), t, name="text", encoding="utf-8")])
            valid.append(Path(file.save(path, overwrite=True, compression=0)).read_bytes())
    return lambda chance: damaged(chance.choice(valid), chance)


KINDS: dict[str, Callable[[Path], Check]] = {"MATLAB 5": of_matlab, "HDF5": of_hdf5, "MDF": of_mdf, **workbooks.KINDS}
