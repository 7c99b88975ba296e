"""How a run spent its time, over all its restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from streamgp.base import FLOAT, Json
from streamgp.state import Declared, Tensors, Value

KEPT_UPDATES = 4096
"""Newest updates whose durations are kept for the percentiles: memory stays bounded."""


class Stopwatch(Declared):
    """Seconds in the online loop, in `predict` and in `update`; Stateful, so a total survives a kill.

    Example:
        >>> clock = Stopwatch()
        >>> with clock.measure("total"):
        ...     clock.took("assess", 0.25)
        ...     clock.took("update", 0.5)
        >>> summary = clock.summary(rows=10)
        >>> sorted(summary), summary["update_ms"]
        (['rows_per_second', 'seconds', 'update_ms'], {'p50': 750.0, 'p99': 750.0, 'row': 75.0})
    """

    STATE = (
        Tensors("durations"),
        *(Value(name, float) for name in ("total", "predict", "update")),
        Value("updates", int),
    )

    def __init__(self) -> None:
        self.total = 0.0
        self.predict = 0.0
        self.update = 0.0
        self.updates = 0
        self.durations = torch.zeros(KEPT_UPDATES, dtype=FLOAT)  # (KEPT_UPDATES,) seconds, a ring
        self._assessed = 0.0  # since the last update

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the seconds inside to a stage, as `took` does."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.took(stage, time.perf_counter() - began)

    def took(self, stage: str, seconds: float) -> None:
        """Add seconds to "total", "predict" or "update", which is also counted; "assess" is part of the next update."""
        if stage == "assess":
            self._assessed += seconds
            return
        if stage == "update":
            seconds, self._assessed = seconds + self._assessed, 0.0
        setattr(self, stage, getattr(self, stage) + seconds)
        if stage == "update":
            self.durations[self.updates % KEPT_UPDATES] = seconds
            self.updates += 1

    def summary(self, rows: int) -> dict[str, Json]:
        """Seconds by stage, rows a second, and of one update (of a micro-batch; in batch training an epoch) the
        percentiles, and of all the share of a `row`, in milliseconds."""
        kept = self.durations[: min(self.updates, KEPT_UPDATES)]
        p50, p99 = torch.quantile(kept, torch.tensor([0.5, 0.99], dtype=FLOAT)).tolist() if len(kept) else (None, None)
        times = {"p50": p50, "p99": p99, "row": self.update / rows if len(kept) and rows else None}
        return {
            "rows_per_second": rows / self.total if self.total > 0 else None,
            "seconds": {"total": self.total, "predict": self.predict, "update": self.update},
            "update_ms": {name: None if value is None else 1e3 * value for name, value in times.items()},
        }
