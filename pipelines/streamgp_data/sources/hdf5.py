"""HDF5: every numeric dataset with a time beside it.

A file is read in a process of its own: damaged bytes can make the library read for ever, or end the process.
"""

from __future__ import annotations

from importlib.util import find_spec

from streamgp_data.recordings.apart import Apart
from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.recording import RecordingOptions, missing

SUFFIXES = (".h5", ".hdf5", ".hdf")
SIGNS = {b"\x89HDF": "an HDF5 file"}


class Config(RecordingOptions):
    """time: the vector of times, by name. time_format: what its numbers count: epoch-s, elapsed-ms, ... interval:
    nanoseconds between samples, whose number is their time; SECONDS (tree.py): a second, where none has times."""

    time: str | None = None
    time_format: str | None = None
    interval: int | None = None


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`.

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: h5py is not installed, or an option does not fit.
    """
    if find_spec("h5py") is None:
        raise missing("h5py", "hdf5")
    return Joined(uri, config, lambda path: apart(path, uri, config, "hdf5"))


def apart(path: str, uri: str, config: Config, reader: str) -> Apart:
    """The file at `path`, which the user calls `uri`, as the function `recording` of that reader reads it."""
    about = {
        "uri": uri,
        "time": config.time,
        "form": config.time_format,
        "look": config.look,
        "interval": config.interval,
    }
    return Apart(path, f"streamgp_data.recordings.{reader}", "recording", config.read, about)
