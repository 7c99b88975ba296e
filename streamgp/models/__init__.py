"""The models, one a file; each is an assembly of parts and satisfies base.Model."""

from __future__ import annotations

from streamgp.models._naive import Naive

__all__ = ["Naive"]
