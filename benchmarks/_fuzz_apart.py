"""Recordings whose library is in a process of its own in streamgp: HDF5, MATLAB and MDF. Here it is in this one."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import _fuzz
import _fuzz_workbooks as workbooks
from _fuzz import Check, Found, Make, damaged, of_file, of_pool, pool, tried

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
        file["a/wide"] = np.outer(t, [1, 2])
        if chance.random() < 0.5:
            file["rec"] = np.zeros(rows, [("x", "f4"), ("s", "S3")])
        if chance.random() < 0.5:
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
    """As SciPy reads them in a process of its own."""
    from streamgp.streaming.recordings import matlab

    return _apart(home, "mat", _matlab_files(home), _here(matlab))


def of_hdf5(home: Path) -> Check:
    """As h5py reads them in a process of its own; where they are ingested, in one."""
    from streamgp.streaming.recordings import hdf5 as source

    if _fuzz.INGESTED:
        return of_pool("h5", hdf5)(home)

    return _apart(home, "h5", _hdf5_files(home), _here(source))


def _here(module: Any) -> Callable[[str], Any]:
    """Sources whose recordings are read in this process."""
    from streamgp.streaming.recordings.joined import Joined
    from streamgp.streaming.sources.hdf5 import Config

    return lambda path: Joined(path, Config(), lambda file: module.recording(file, file, None, None, False))


def _hdf5_files(home: Path) -> Make:
    return pool("h5", hdf5, 60, home)


def _matlab_files(home: Path) -> Make:
    valid = [matlab(random.Random(at), home) for at in range(20)]

    def make(chance: random.Random) -> bytes:
        data = damaged(chance.choice(valid), chance, 0 if chance.random() < 0.1 else 128)
        if chance.random() < 0.3:
            packed = zlib.compress(data[128:])
            data = data[:128] + struct.pack("<2I", 15, len(packed)) + packed
        return data

    return make


def of_mdf(home: Path) -> Check:
    """As asammdf reads them in a process of its own."""
    from streamgp.streaming.recordings.joined import Joined
    from streamgp.streaming.recordings.mdf import Mdf
    from streamgp.streaming.sources.mdf import Config

    return _apart(home, "mf4", _mdf_files(home), lambda path: Joined(path, Config(), Mdf))


def _apart(home: Path, suffix: str, make: Make, source: Callable[[str], Any]) -> Check:
    """Reads in this process what streamgp reads in another one."""
    numbers = iter(range(10**9))  # HDF5 knows a file that it has open by its name

    def check(chance: random.Random) -> Found:
        path = home / f"{next(numbers)}.{suffix}"
        path.write_bytes(make(chance))
        try:
            return tried(lambda: ((one.rows.num_rows, 0) for one in source(str(path)).read({})))
        finally:
            path.unlink()

    return check


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


def as_streamgp_reads(kind: str, home: Path, chance: random.Random) -> Found:
    """What becomes of the file of a case, where its library is in a process of its own."""
    if kind in workbooks.KINDS:
        check = workbooks.KINDS[kind](home)
        workbooks.excel.read_sheets = workbooks.workbook.read_sheets
        return check(chance)
    make, suffix = {"MATLAB 5": (_matlab_files, "mat"), "HDF5": (_hdf5_files, "h5"), "MDF": (_mdf_files, "mf4")}[kind]
    return of_file(home, suffix)(make(home)(chance), None)


KINDS: dict[str, Callable[[Path], Check]] = {"MATLAB 5": of_matlab, "HDF5": of_hdf5, "MDF": of_mdf, **workbooks.KINDS}
