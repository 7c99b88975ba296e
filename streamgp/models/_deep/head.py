"""What a model behind an encoder leaves to its kind: how the head learns and predicts.

z: (N, W) standardised windows, r: (N, T) finite standardised residuals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from torch import Tensor, nn

from streamgp.online.state import Parts
from streamgp.online.training import Moments


class DeepHead(ABC):
    """The part of `DeepModel` that `DeepGp` and `DeepNet` provide.

    Attributes:
        failed: why the last update or refresh was undone; "" where it was not.
    """

    failed: str = ""

    @abstractmethod
    def _learners(self) -> Mapping[str, nn.Module]:
        """The modules that training moves."""

    @abstractmethod
    def _head(self) -> Parts:
        """Everything else of the head that a checkpoint holds."""

    @abstractmethod
    def _start(self, z: Tensor, r: Tensor) -> None:
        """Before the first epoch: optimisers without a past, and what else a fit begins with."""

    @abstractmethod
    def _span(self, epochs: int) -> None:
        """The epochs, from the first, that a schedule falls over."""

    @abstractmethod
    def _train(self, z: Tensor, r: Tensor) -> float:
        """One epoch; the loss a row."""

    @abstractmethod
    def _serve(self, z: Tensor, r: Tensor) -> None:
        """Make the head that predicts from these rows, with the weights as they are."""

    def _complete(self, z: Tensor, r: Tensor, held: Tensor) -> None:
        """`_serve`, where the head at hand is that of all rows but the `held` (N,)."""
        self._serve(z, r)

    @abstractmethod
    def _served(self) -> Callable[[], None]:
        """Holds on to the head as it is; calling the result puts it back."""

    @abstractmethod
    def _absorb(self, z: Tensor, r: Tensor) -> None:
        """Learn new rows of the stream, without a step on the encoder. A numerical failure is undone, and `failed`."""

    @abstractmethod
    def _renew(self, z: Tensor, r: Tensor, count: int, recent: int) -> None:
        """`count` steps on the encoder, and some on the hyper-parameters, on the kept rows, of which the last `recent`
        are new; and a new head from them. A numerical failure is undone, and `failed`."""

    @abstractmethod
    def _scored(self, errors: Tensor, squares: Tensor) -> None:
        """Errors (N, T) of forecasts of new rows, and their squares over the forecasts' variance, NaN where not
        observed, before these rows are learned."""

    @abstractmethod
    def _moments(self, z: Tensor) -> Moments:
        """What the head predicts."""

    @property
    @abstractmethod
    def _steady(self) -> bool:
        """Whether no step of the last training was left out, since its gradient was not finite."""

    @property
    @abstractmethod
    def basis(self) -> int:
        """Basis functions in use."""

    @abstractmethod
    def _rescaled(self, squares: Tensor) -> Tensor:
        """(T,) factor on the variance from the validation rows' mean standardised squared error (T,)."""
