"""MDF 3 and 4, read in a process of their own, which damaged bytes can end."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from streamgp_data.recordings.apart import Apart
from streamgp_data.recordings.joined import Joined
from streamgp_data.recordings.recording import RecordingOptions, missing

SUFFIXES = (".mf4", ".mdf", ".mf3")
SIGNS = {b"MDF ": "an MDF recording"}
_READER = "streamgp_data.recordings.mdf"


class Config(RecordingOptions):
    """As of every recording."""


def build(config: Config, uri: str) -> Joined:
    """The file at `uri`, or standard input for "-".

    Raises:
        DataError: there is no such file, it is damaged, or has no signals.
        UsageError: asammdf is not installed, or an option does not fit.
    """
    if find_spec("asammdf") is None:
        raise missing("asammdf", "mdf")
    return Joined(uri, config, partial(Apart, module=_READER, name="Mdf", patterns=config.read))
