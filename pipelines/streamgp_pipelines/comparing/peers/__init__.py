"""Other forecasters, run on the same stream for `streamgp compare`: LightGBM, models of statsforecast, and a ridge.

They are set up as a practitioner would, from the same windows: a model a step ahead, chosen by its own past errors, and
fitted again on a schedule. They see the same rows at the same origins, and their forecasts are scored by the same code.
They keep no checkpoint: a comparison that is run again runs them from the first row. LightGBM and statsforecast are the
extra `streamgp[peers]`; the ridge needs none.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from streamgp.errors import UsageError

if TYPE_CHECKING:
    from streamgp_pipelines.comparing.peers.peer import PeerOptions

PEERS = {"lightgbm": "trees", "ridge": "ridge"} | dict.fromkeys(("autoets", "autoarima", "mstl"), "statistical")
"""Name -> module of this folder."""
_LIBRARIES = {"trees": "lightgbm", "ridge": "numpy", "statistical": "statsforecast"}


def options_of(name: str, given: Mapping[str, Any]) -> PeerOptions:
    """The options of a peer.

    Raises:
        UsageError: its library is not installed, or an option is unknown or wrong.
    """
    from streamgp_pipelines.assembly import read_settings

    home = PEERS[name]
    if importlib.util.find_spec(_LIBRARIES[home]) is None:
        raise UsageError(
            f"--models {name} needs {_LIBRARIES[home]}, which is not installed",
            hint="pip install 'streamgp[peers]'",
        )
    module = importlib.import_module(f"{__name__}.{home}")
    found: Any = read_settings(module.Config, given, f"there are: {', '.join(module.Config.model_fields)}", name)
    return cast("PeerOptions", found)
