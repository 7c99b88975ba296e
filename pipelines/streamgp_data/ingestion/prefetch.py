"""Reading ahead in a thread, so that parsing and committing overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE = 2.0
"""Seconds that the end waits for the thread."""


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, one of them made ahead; an exception arrives where it belongs.

    Example:
        >>> list(prefetch(range(3)))
        [0, 1, 2]
    """
    queue: Queue[tuple[str, Item | None, BaseException | None]] = Queue(1)
    stopped = Event()

    def put(entry: tuple[str, Item | None, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                queue.put(entry, timeout=0.1)
                return
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(("item", item, None))
                if stopped.is_set():
                    return
        except BaseException as error:  # handed to the consumer, whatever it is
            put(("error", None, error))
        else:
            put(("end", None, None))

    thread = Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, item, error = queue.get()
            if error is not None:
                raise error
            if kind == "end":
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join(PATIENCE)  # it may be waiting for a pipe that says nothing
