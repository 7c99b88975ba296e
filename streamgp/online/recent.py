"""The newest windows of a stream, in raw units, at most C."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.online.reservoir import Offered, Sample


class RecentWindows(nn.Module):
    """A ring of C windows and their truths. Memory C · (L·D + H·F + T) numbers, allocated at once.

    Args:
        capacity: C.
        shape: of the windows.

    Attributes:
        seen: () windows ever pushed.

    Example:
        >>> recent = RecentWindows(3, Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=()))
        >>> x = Inputs(torch.arange(5.0).double().view(5, 1, 1), torch.zeros(5, 1, 0).double())
        >>> recent.push(x, x.past[:, :, 0] + 1)
        >>> recent.rows()[1][:, 0].tolist(), len(recent), int(recent.seen)
        ([3.0, 4.0, 5.0], 3, 5)
    """

    def __init__(self, capacity: int, shape: Shape) -> None:
        super().__init__()
        self.past: Tensor
        self.future: Tensor
        self.y: Tensor
        self.seen: Tensor
        self.register_buffer("past", torch.zeros(capacity, shape.lags, len(shape.past), dtype=FLOAT))
        self.register_buffer("future", torch.zeros(capacity, shape.horizon, len(shape.future), dtype=FLOAT))
        self.register_buffer("y", torch.zeros(capacity, shape.columns, dtype=FLOAT))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @property
    def capacity(self) -> int:
        """C."""
        return len(self.y)

    def __len__(self) -> int:
        return min(int(self.seen), self.capacity)

    def offer(self, x: Inputs, y: Tensor, generator: Generator) -> Offered:
        """`push` as a memory does it: all of the newest windows are kept, and nothing is drawn."""
        skipped = max(len(y) - self.capacity, 0)
        rows = torch.arange(skipped, len(y), device=self.y.device)
        places = (int(self.seen) + rows) % self.capacity
        held = [(whole, whole[places]) for whole in (self.past, self.future, self.y)]
        seen = self.seen.clone()
        self.push(x, y)

        def put_back() -> None:
            for whole, part in held:
                whole[places] = part
            self.seen.copy_(seen)

        return Offered(rows, places, put_back)

    def sample(self) -> Sample:
        """What is kept, oldest first, equally weighted."""
        x, y = self.rows()
        return Sample(x, y, y.new_ones(len(y)), self.places())

    def places(self) -> Tensor:
        """(R,) those that are taken, in the order of arrival."""
        first = int(self.seen) - len(self)
        return (first + torch.arange(len(self), device=self.y.device)) % self.capacity

    def shares(self) -> Tensor:
        """(C,) 1, and 0 where a place is empty."""
        shares = self.y.new_zeros(self.capacity)
        shares[self.places()] = 1.0
        return shares

    def push(self, x: Inputs, y: Tensor) -> None:
        """N windows in order of arrival; y: (N, T)."""
        skipped = max(len(y) - self.capacity, 0)
        start = int(self.seen) + skipped
        places = (start + torch.arange(len(y) - skipped, device=self.y.device)) % self.capacity
        self.past[places], self.future[places] = x.past[skipped:], x.future[skipped:]
        self.y[places] = y[skipped:]
        self.seen += len(y)

    def rows(self) -> tuple[Inputs, Tensor]:
        """What is kept, oldest first."""
        places = self.places()
        return Inputs(self.past[places], self.future[places]), self.y[places]
