"""What became of every forecast of a run: scored, or skipped with the reason. The parts add up to all forecasts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor

from streamgp.base import Json, Shape, Step
from streamgp.forecasting.scores import Scores
from streamgp.state import Declared, Listed, Value
from streamgp.windows.windows import Windows

_NAMES = ("warmup", "before", "whole", "broken", "late_used", "held", "missing", "undone", "beyond")


class Counts(Declared):
    """Rows of the stream by what became of the question at each; Stateful.

    A row is counted once, when it becomes current. Late rows that are left out never do; rows that wait for known
    inputs, not yet.

    Attributes:
        warmup: rows of the warm-up.
        before: rows after it at which scoring had not started.
        whole: rows at which a forecast that counts was issued.
        broken: rows at which one would have counted, but the window was not whole.
        late_used: late rows that took their places, where one would have counted: nothing is forecast at them.
        held: in batch training, held-out rows; `missing`: their targets without a value.
        beyond: values outside of --lower and --upper.
        undone: updates that were not healthy; `reason`: what the last of them did.
        found: what was found of sentinels, dead sensors and bounds, a sentence each.

    Example:
        >>> import torch
        >>> counts, warm = Counts(), torch.tensor([True, False, False, False])
        >>> counts.add(warm, ~warm, asked=1, filed=torch.tensor([False, True, False, False]))
        >>> counts.warmup, counts.before, counts.whole, counts.late_used, counts.broken
        (1, 0, 1, 1, 1)
    """

    STATE = (*(Value(name, int) for name in _NAMES), Value("reason", str), Listed("found", str))

    def __init__(self) -> None:
        self.warmup = self.before = self.whole = self.broken = self.late_used = 0
        self.held = self.missing = self.undone = self.beyond = 0
        self.reason = ""
        self.found: list[str] = []

    def add(self, warm: Tensor, counting: Tensor, asked: int, filed: Tensor) -> None:
        """Count the rows of one micro-batch.

        Args:
            warm: (R,) which rows that became current belong to the warm-up.
            counting: (R,) which are after it, and not before scoring starts.
            asked: at how many of the latter there was a whole window.
            filed: (R,) as of Answers.
        """
        counted, late_used = int(counting.sum()), int((counting & filed).sum())
        self.warmup += int(warm.sum())
        self.before += int((~warm & ~counting).sum())
        self.whole += asked
        self.late_used += late_used
        self.broken += counted - asked - late_used

    def add_held(self, y: Tensor) -> None:
        """Count the targets (R, O) of held-out rows."""
        self.held += len(y)
        self.missing += int(y.isnan().sum())

    def add_values(self, y: Tensor, lower: float | None, upper: float | None) -> None:
        """Count values (R, O) outside of the bounds."""
        if lower is not None:
            self.beyond += int((y < lower).sum())
        if upper is not None:
            self.beyond += int((y > upper).sum())

    def add_step(self, step: Step) -> None:
        """Count an update or an epoch that was not healthy."""
        if not step.healthy:
            self.undone += 1
            self.reason = step.done

    def say(self, text: str) -> None:
        """Note findings; that a column has one is said once, whatever its numbers."""
        if _plain(text) not in map(_plain, self.found):
            self.found.append(text)

    def gather(self, parts: Iterable[Counts]) -> None:
        """Become the sum of the counts of parts of the series."""
        every = list(parts)
        for name in _NAMES:
            setattr(self, name, sum(getattr(part, name) for part in every))
        self.reason = next((part.reason for part in every if part.reason), "")
        self.found = list(dict.fromkeys(text for part in every for text in part.found))

    def warnings(self) -> list[str]:
        """What was not learned, and which truths no band can hold, a sentence each."""
        found = list(self.found)
        if self.beyond:
            found.append(f"values outside of --lower and --upper: {self.beyond}; forecasts and bands never go there")
        if not self.undone:
            return found
        updates = "1 update was" if self.undone == 1 else f"{self.undone} updates were"
        return [*found, f"{updates} not learned in full; the last: {self.reason.rpartition('undone: ')[2]}"]


def _plain(text: str) -> str:
    return re.sub(r"[\d.,]+%", "#", text)


def online_forecasts(counts: Counts, shape: Shape, windows: Windows, scores: Scores, to_come: int) -> dict[str, Json]:
    """The T forecasts at each of the rows read: all, scored, and skipped by the first reason that holds.

    Args:
        to_come: forecasts that count and whose truth is not due yet.
    """
    current = counts.warmup + counts.before + counts.whole + counts.broken + counts.late_used
    waiting = windows.rows - windows.late - current
    width = shape.columns
    return {
        "all": windows.rows * width,
        "scored": scores.scored,
        "skipped": {
            "warm_up": counts.warmup * width,
            "before_score_from": counts.before * width,
            "late_row": windows.late * width,
            "late_row_used": counts.late_used * width,
            "window_not_whole": counts.broken * width,
            "not_yet_due": waiting * width + to_come,
            "truth_missing": counts.whole * width - scores.scored - to_come,
        },
    }


def held_out_forecasts(counts: Counts, shape: Shape, held: int, scores: Scores) -> dict[str, Json]:
    """The T forecasts of each of the `held` rows held out: all, scored, and skipped by the first reason that holds."""
    width, missing = shape.columns, counts.missing * shape.horizon
    return {
        "all": held * width,
        "scored": scores.scored,
        "skipped": {
            "late_row": (held - counts.held) * width,
            "truth_missing": missing,
            "window_not_whole": counts.held * width - missing - scores.scored,
        },
    }
