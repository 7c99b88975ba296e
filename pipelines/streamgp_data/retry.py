"""Retry with back-off while an object store is unreachable, as while a broker is: nothing is taken meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from streamgp_data.numbers import lasting
from streamgp_data.remote import unanswered, without_credentials

SHORTEST, LONGEST = 0.5, 30.0
"""Seconds from one attempt to reach a service to the next, which double."""

T = TypeVar("T")


@dataclass
class Stored:
    """Of what is kept in a store.

    Attributes:
        away_since: since when the store has not answered, monotonic seconds; None while it does.
    """

    away_since: float | None = None

    @property
    def away(self) -> float:
        """Seconds for which the store has not answered; 0 while it does."""
        since = self.away_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def said(self) -> str:
        """The same in words; "" while it answers."""
        return "" if self.away_since is None else f", the store has not answered for {lasting(self.away)}"


class Retry:
    """Retries while a store does not answer.

    Args:
        name: of what is in the store.
        say: called when it does not answer, and when it does again.
        ending: once it is set, nothing is waited for.
        health: `away_since` of it is kept up to date.

    Example:
        >>> attempts = iter([OSError("error sending request"), None])
        >>> def read():
        ...     if (error := next(attempts)) is not None:
        ...         raise error
        ...     return 7
        >>> Retry("s3://bucket/t", print, Event(), Stored(), shortest=0.0).wait_for(read)
        s3://bucket/t: the store does not answer (error sending request); trying again
        s3://bucket/t: the store is back after 0 s
        7
    """

    def __init__(
        self,
        name: str,
        say: Callable[[str], None],
        ending: Event,
        health: Stored,
        shortest: float = SHORTEST,
    ) -> None:
        self._reached = False
        self._name, self._say, self._ending, self._health, self._shortest = name, say, ending, health, shortest

    def wait_for(self, work: Callable[[], T]) -> T:
        """What `work` gives; it is called until the store answers. It must do no harm to call it again.

        Raises:
            Exception: of `work`; that the store does not answer only after the end, and that there are no credentials
                only before it has answered once.
        """
        wait, since = self._shortest, time.monotonic()
        while True:
            try:
                found = work()
            except Exception as error:
                if not unanswered(error) or self._ending.is_set():
                    raise
                if not self._reached and without_credentials(error):
                    raise
                if self._health.away_since is None:
                    self._health.away_since = since
                    reason = str(error).splitlines()[0].removeprefix(f"{self._name}: ")
                    self._say(f"{self._name}: the store does not answer ({reason}); trying again")
                self._ending.wait(wait * random.uniform(0.5, 1.0))
                wait = min(2 * wait, LONGEST)
                continue
            self._reached = True
            if self._health.away_since is not None:
                self._health.away_since = None
                self._say(f"{self._name}: the store is back after {time.monotonic() - since:.0f} s")
            return found
