"""Maps from a flattened, standardised window to the latent space in which a kernel measures distance.

An encoder's module has a frozen `Config` and `build(config, layout) -> Encoder` (see `Encoder`).
"""

from __future__ import annotations

from streamgp.encoders._base import Dropout, Encoder, Layout
from streamgp.encoders._bounded import BoundedEncoder
from streamgp.encoders._recurrent import Recurrent

__all__ = ["BoundedEncoder", "Dropout", "Encoder", "Layout", "Recurrent"]
