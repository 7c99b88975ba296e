"""Early stopping on a validation score, with the validation rows inside the training span."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from streamgp.errors import UsageError
from streamgp.state import Copies, Declared, Value

LONG = 5000
"""Rows above which the last tenth alone says enough."""
FEWEST = 20
"""Validation rows under which none are held out: so few say little, and the training rows miss them."""


class EarlyStoppingOptions(BaseModel):
    """Options of a model that is trained in epochs.

    A Config that has them says how many mini-batches a fit from scratch wants, and within which numbers of epochs.
    """

    usual: ClassVar[int]
    """Mini-batches after which a model of the default size has learned most of what it learns."""
    fewest: ClassVar[int] = 8
    most: ClassVar[int]

    epochs: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="epochs of a fit from scratch, such as a warm-up; auto: fewer the more rows there are"
    )
    validation: Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"] = Field(
        "auto",
        description="part of the training rows that selects the best epoch and scales the variance; auto: 0.15, above "
        "5000 rows 0.1",
    )
    blocks: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="blocks of neighbouring rows that the validation rows form; one: the last rows; auto: 5, above "
        "5000 rows one, since rows amid others are forecast better than rows to come",
    )
    patience: int = Field(10, ge=1, description="epochs without a better score after which training stops")
    rescale: float = Field(
        1.0,
        ge=0,
        le=1,
        description="power of the validation rows' mean squared standardised error, where above 1, that widens the "
        "variance; 0: never",
    )

    def held_out(self, rows: int) -> Tensor:
        """(rows,) bool: which rows of a fit are for validation."""
        long = rows > LONG
        fraction = self.validation if self.validation != "auto" else 0.1 if long else 0.15
        blocks = self.blocks if self.blocks != "auto" else 1 if long else 5
        held = validation_rows(rows, fraction, blocks)
        return held & (int(held.sum()) >= FEWEST)

    def epochs_for(self, rows: int, batch: int) -> int:
        """Epochs of a fit from scratch on this many rows, in mini-batches of `batch`."""
        if self.epochs != "auto":
            return self.epochs
        return min(max(math.ceil(self.usual * batch / max(rows, 1)), self.fewest), self.most)


def validation_rows(n: int, fraction: float, blocks: int) -> Tensor:
    """Which of n rows in order of time are held out: a contiguous block in the middle of each of `blocks` equal spans.

    The rows at both ends are then trained on: the end is what comes closest to what will be asked. One block is the
    last rows: what is then scored lies ahead of everything trained on, as what will be asked does.

    Args:
        n: rows.
        fraction: of the rows held out, in [0, 1).
        blocks: contiguous blocks, at least one.

    Returns:
        (n,) bool, round(n · fraction) of them True; fewer where a block does not fit into its span.

    Raises:
        UsageError: a fraction or a number of blocks out of range.

    Example:
        >>> validation_rows(12, 0.34, 2).int().tolist()
        [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0]
        >>> validation_rows(12, 0.34, 1).int().tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    if not 0 <= fraction < 1 or blocks < 1:
        raise UsageError(
            f"{blocks} validation blocks with {fraction:g} of the rows cannot be cut",
            hint="use a fraction in [0, 1) and at least one block",
        )
    held, mask = round(n * fraction), torch.zeros(n, dtype=torch.bool)
    for block in range(blocks):
        start, end = n * block // blocks, n * (block + 1) // blocks
        size = min(held * (block + 1) // blocks - held * block // blocks, end - start)
        first = end - size if blocks == 1 else start + (end - start - size) // 2
        mask[first : first + size] = True
    return mask


class EarlyStopping(Declared):
    """Keeps the best of what modules have been, by a score that should be small, and says when to stop. Stateful.

    Args:
        patience: scores in a row without a new best, after which to stop.

    Attributes:
        score: the smallest so far; infinite before the first. One that is not finite is never the best.
        since: scores since then.
        best: the modules' parameters and buffers at that score, as "module.tensor"; empty before the first.

    Example:
        >>> line, stopping = nn.Linear(1, 1), EarlyStopping(patience=2)
        >>> seen = []
        >>> for score in (3.0, 1.0, 2.0, 4.0):
        ...     _ = nn.init.constant_(line.bias, score)
        ...     seen.append((stopping.add(score, {"line": line}), stopping.finished))
        >>> stopping.rewind({"line": line})
        >>> seen, line.bias.item()
        ([(True, False), (True, False), (False, False), (False, True)], 1.0)
    """

    STATE = (Value("score", float, none=math.inf), Value("since", int), Copies("best"))

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.score, self.since = math.inf, 0
        self.best: dict[str, Tensor] = {}

    @property
    def finished(self) -> bool:
        """Whether patience is at its end."""
        return self.since >= self.patience

    def add(self, score: float, modules: Mapping[str, nn.Module]) -> bool:
        """Take note of a score of the modules as they are now, NLPD for instance.

        Returns:
            whether it is the best so far; then the modules' tensors are copied.
        """
        if not (math.isfinite(score) and score < self.score):
            self.since += 1
            return False
        self.score, self.since = score, 0
        self.best = weights(modules)
        return True

    def rewind(self, modules: Mapping[str, nn.Module]) -> None:
        """Put the modules back to where the score was best; they stay as they are, where there was none."""
        load(modules, self.best)


def weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Copies of parameters and buffers, as "module.tensor".

    Example:
        >>> sorted(weights({"head": nn.Linear(2, 1)}))
        ['head.bias', 'head.weight']
    """
    return {
        f"{name}.{key}": value.detach().clone()
        for name, module in modules.items()
        for key, value in module.state_dict().items()
    }


@torch.no_grad()
def load(modules: Mapping[str, nn.Module], copies: Mapping[str, Tensor]) -> None:
    """Put the modules back to such copies; without any they stay as they are."""
    for name, module in modules.items():
        for key, value in module.state_dict().items():
            if f"{name}.{key}" in copies:
                value.copy_(copies[f"{name}.{key}"])
