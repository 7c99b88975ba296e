"""MATLAB .mat files of any version, read in a process of their own, which damaged bytes can end."""

from __future__ import annotations

from streamgp_data.recordings.joined import Joined
from streamgp_data.sources import hdf5

SUFFIXES = (".mat",)
SIGNS = {b"MATLAB": "a MATLAB file"}


class Config(hdf5.Config):
    """As of HDF5."""


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`.

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: it is of version 7.3 and h5py is not installed, or an option does not fit.
    """
    return Joined(uri, config, lambda path: hdf5.apart(path, uri, config, "matlab"))
