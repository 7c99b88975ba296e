"""What was computed for the windows of an unfinished micro-batch, kept while more of them come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn


class Recalled:
    """Results by window, of a function of one state: the first windows are asked about once, however often they come
    again with newer ones.

    Copies of what has it share it (`streamgp.fork`).

    Example:
        >>> asked, recalled = [], Recalled()
        >>> def double(x: Tensor) -> list[Tensor]:
        ...     asked.append(len(x))
        ...     return [2.0 * x]
        >>> x = torch.arange(5.0).double()
        >>> for rows in (3, 5):
        ...     found = recalled.of([x[:rows]], lambda some, rows=rows: double(x[:rows][some]), [0])
        >>> found[0].tolist(), asked
        ([0.0, 2.0, 4.0, 6.0, 8.0], [3, 2])
    """

    def __init__(self) -> None:
        self._of: list[Tensor] = []
        self._found: list[Tensor] = []

    def __deepcopy__(self, _: object) -> Recalled:
        return self

    def of(
        self, windows: Iterable[Tensor | None], make: Callable[[slice], Sequence[Tensor]], axes: Sequence[int]
    ) -> list[Tensor]:
        """Results for N windows; only those that did not stand at the beginning of the last ones are asked for.

        Args:
            windows: (N, ...) float64 each; those are the same that are equal bit for bit, NaN among them.
            make: results for some of them.
            axes: of each result, which axis is that of the windows.
        """
        now = [part.contiguous().view(torch.int64) for part in windows if part is not None]
        known = min([len(part) for part in (*now, *self._of)], default=0) if self._of else 0
        if not all(one[:known].equal(two[:known]) for one, two in zip(now, self._of, strict=bool(self._of))):
            known = 0
        found = [part.narrow(axis, 0, known) for part, axis in zip(self._found, axes, strict=True)] if known else []
        if known < len(now[0]) or not known:
            more = make(slice(known, None))
            found = [torch.cat(pair, axis) for *pair, axis in zip(found, more, axes, strict=True)] if known else [*more]
        self._of, self._found = now, found
        return found


class RecalledByName:
    """`Recalled` of a model and of the modules inside it; copies share it."""

    def __init__(self) -> None:
        self._found: dict[str, Recalled] = {}

    def __deepcopy__(self, _: object) -> RecalledByName:
        return self

    def forget(self) -> None:
        """Another state has come."""
        self._found = {}

    def __getitem__(self, name: str) -> Recalled:
        return self._found.setdefault(name, Recalled())

    def lend(self, model: nn.Module) -> None:
        """Let the modules of a copy of the model recall what they look at, in the one update that is its last."""
        for name, module in model.named_modules():
            if isinstance(module, Recalls):
                module.recalled = self[name]


class Recalls:
    """A module that recalls.

    Attributes:
        recalled: what was computed for the windows that are learned next; None but in a copy of a state that learns
            once and goes no further.
    """

    recalled: Recalled | None = None

    def recall(self) -> Recalled | None:
        """What was computed, for its one use."""
        found = self.recalled
        if found is not None:
            self.recalled = None
        return found
