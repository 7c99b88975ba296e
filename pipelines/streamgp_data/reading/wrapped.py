"""What sources over another source have in common."""

from __future__ import annotations

from typing import Any

from streamgp_data.reading.files import FileSource
from streamgp_data.reading.records import Stopped


class Wrapped:
    """A FileSource over another one: what it has not itself is that of the other.

    Attributes:
        inner: the other source.
    """

    inner: FileSource

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def stopped(self) -> Stopped | None:
        """Where the other source stopped before its end, and why."""
        return self.inner.stopped

    @stopped.setter
    def stopped(self, value: Stopped | None) -> None:
        self.inner.stopped = value
