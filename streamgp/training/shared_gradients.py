"""Gradients of a mini-batch, in blocks of its rows: one after the other here, or side by side in other processes.

On a CPU a mini-batch is cut into even blocks of at most `BLOCK` rows, whose gradients are added in the order of the
blocks. How many processes there are changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import torch
from torch import Generator, Tensor, nn

BLOCK = 512
"""Rows of a block, at most: a step on fewer costs more a row."""

Gradients: TypeAlias = tuple[Tensor, ...]
"""The loss, then its gradient by each parameter that asks for one."""
Loss: TypeAlias = Callable[[nn.Module, Sequence[Tensor], int, Generator], Tensor]
"""Of a net, tensors with the rows of a block, a count that the sum over them is divided by, and what dropout is drawn
from; a function of a module, which can be pickled."""


class Sharing(Protocol):
    """Computes the gradient of a mini-batch."""

    def __call__(
        self, net: nn.Module, loss: Loss, rows: Sequence[Tensor], batch: Tensor, count: int, generator: Generator
    ) -> Gradients:
        """The loss of a mini-batch, and its gradient.

        Args:
            net: whose parameters are trained.
            loss: see `Loss`.
            rows: tensors with a row for each in common, all of an epoch.
            batch: (B,) which of the rows.
            count: what the sum over the mini-batch is divided by.
            generator: of dropout.
        """


def here(
    net: nn.Module, loss: Loss, rows: Sequence[Tensor], batch: Tensor, count: int, generator: Generator
) -> Gradients:
    """See `Sharing`: in this process.

    Example:
        >>> line = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> _ = nn.init.zeros_(line.weight)
        >>> def loss(net, rows, count, generator): return (net(rows[0]) - rows[1]).square().sum() / count
        >>> x = torch.ones(1000, 1, dtype=torch.float64)
        >>> found = here(line, loss, [x, 2 * x], torch.arange(1000), 1000, Generator())
        >>> [round(part.item(), 9) for part in found]
        [4.0, -4.0]
    """
    parts = blocks(batch)
    if len(parts) == 1:
        return block_gradients(net, loss, [part[batch] for part in rows], count, generator)
    total: Gradients | None = None
    for places, seed in zip(parts, seeds(parts, generator), strict=True):
        found = block_gradients(net, loss, [part[places] for part in rows], count, seeded(seed))
        total = added(total, found)
    assert total is not None
    return total


def blocks(batch: Tensor) -> Sequence[Tensor]:
    """Even parts of a mini-batch (B,); one part on a GPU, which is fast with many rows.

    Example:
        >>> [len(part) for part in blocks(torch.arange(1200))]
        [400, 400, 400]
    """
    count = -(-len(batch) // BLOCK) if batch.device.type == "cpu" else 1
    return batch.tensor_split(count) if count > 1 else [batch]


def seeds(parts: Sequence[Tensor], generator: Generator) -> list[int]:
    """A seed for the dropout of each block."""
    drawn = torch.randint(2**62, (len(parts),), generator=generator, device=generator.device)
    found: list[int] = drawn.tolist()
    return found


def seeded(seed: int) -> Generator:
    """What the dropout of a block is drawn from."""
    return Generator().manual_seed(seed)


def block_gradients(net: nn.Module, loss: Loss, rows: Sequence[Tensor], count: int, generator: Generator) -> Gradients:
    """The part of a block."""
    own = [p for p in net.parameters() if p.requires_grad]
    value = loss(net, rows, count, generator)
    found = torch.autograd.grad(value, own, allow_unused=True)
    return value.detach(), *(torch.zeros_like(p) if g is None else g for p, g in zip(own, found, strict=True))


def added(total: tuple[Tensor, ...] | None, more: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Sums of blocks, and those of the next one."""
    return more if total is None else tuple(a + b for a, b in zip(total, more, strict=True))
