"""What stands around an encoder and its head: units, the target's reference, the mean function, the mode.

A model learns the residual

    r = (y − b(x)) / s,    b(x) = reference(x) + m(x) + c,    m(x) = zᵀβ or 0

of standardised windows z. c and s are the location and scale of what the mean function leaves; β is a ridge
regression on the rows that the frame was fitted on, so that far from these a prediction falls back to a linear one and
not to a constant.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Shape
from streamgp.encoders import Layout
from streamgp.errors import UsageError
from streamgp.online.reference import Kind, Reference
from streamgp.online.scaling import InputScaling, Standardiser
from streamgp.online.state import gather, scatter

Mode: TypeAlias = Literal["autoregression", "regression"]
Mean: TypeAlias = Literal["zero", "persistence", "linear"]

RIDGE = 1.0
"""Weight of the prior that the linear mean's coefficients are 0, in rows, for inputs of unit spread."""


class Frame(nn.Module):
    """Raw units on one side, standardised windows and residuals on the other; Stateful.

    Args:
        shape: of the windows.
        mode: "regression" hides the targets' own past, and their seasons', from the model.
        target: what is learned of a target (see `online.reference.Reference`); "auto" is level in regression.
        mean: the mean function. "persistence" adds y[t] to a target learned as its level.
        decay: of the season's departure.

    Attributes:
        layout: how the windows that the encoder sees are laid out.

    Raises:
        UsageError: no column is left to look at, or mean and target do not go together.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=2, past=("y", "u"), future=())
        >>> frame = Frame(shape, mode="regression", target="auto", mean="linear")
        >>> past = torch.randn(50, 2, 2, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
        >>> x = Inputs(past, torch.zeros(50, 1, 0, dtype=FLOAT))
        >>> frame.fit(x, 100 + 5 * past[:, 1, 1:])
        >>> z = frame.inputs(x)
        >>> z.shape, bool((frame.baseline(x, z) - 100 - 5 * past[:, 1, 1:]).abs().max() < 0.5)
        (torch.Size([50, 2]), True)
    """

    def __init__(self, shape: Shape, mode: Mode, target: Kind, mean: Mean, decay: float = 0.9) -> None:
        super().__init__()
        hidden = {*shape.targets, *(f"season({name})" for name in shape.targets)} if mode == "regression" else set()
        past = [i for i, name in enumerate(shape.past) if name not in hidden]
        future = [i for i, name in enumerate(shape.future) if name not in hidden]
        self.layout = Layout(shape.lags, len(past) if shape.lags else 0, shape.horizon, len(future))
        if not self.layout.width:
            raise UsageError(
                f"mode={mode} leaves the model nothing to look at", hint="name inputs with --inputs, or known ones"
            )
        if mode == "regression":
            if target not in ("auto", "level"):
                raise UsageError(f"mode=regression cannot learn a {target}", hint="use target=level")
            target = "level"
        self.reference = Reference(target, shape, decay)
        if mean == "persistence":
            if mode == "regression" or self.reference.kind != "level" or not shape.lags:
                raise UsageError(
                    f"mean=persistence does not go with mode={mode} and target={self.reference.kind}",
                    hint="use target=level with --lags, or mean=linear",
                )
            self.reference = Reference("change", shape, decay)  # y − y[t] is both
        self.linear = mean == "linear"
        self.scaling = InputScaling(shape)
        self.outputs = Standardiser(shape.columns)
        width = len(shape.past)
        lagged = [lag * width + i for lag in range(shape.lags) for i in past]
        ahead = [step * len(shape.future) + i for step in range(shape.horizon) for i in future]
        kept = torch.tensor([*lagged, *(shape.lags * width + i for i in ahead)], dtype=torch.int64)
        self.register_buffer("kept", kept, persistent=False)
        self.register_buffer("slope", torch.zeros(self.layout.width, shape.columns, dtype=FLOAT))
        self.kept: Tensor  # (W,) columns of a flattened window that are seen
        self.slope: Tensor  # (W, T) β, in units of the targets

    @property
    def fitted(self) -> bool:
        """Whether there are units yet."""
        return self.outputs.fitted

    @property
    def scale(self) -> Tensor:
        """(T,) s, units of the targets."""
        return self.outputs.scale.to(self.slope.device)

    def fit(self, x: Inputs, y: Tensor) -> None:
        """Units, and the mean function, from N windows; y: (N, T), NaN left out. O(N W² + W³)."""
        self.scaling.fit(x)
        left = y - self.reference(x)
        if self.linear:
            z = self.inputs(x)
            whole = torch.isfinite(left).all(1)
            self.slope.copy_(ridge(z[whole], left[whole]))
            left = left - z @ self.slope
        self.outputs.fit(left, y)

    def inputs(self, x: Inputs) -> Tensor:
        """(N, W): standardised, flattened, without what the mode hides."""
        flat = self.scaling.flat(x)
        return flat if len(self.kept) == flat.shape[1] else flat[:, self.kept]

    def baseline(self, x: Inputs, z: Tensor) -> Tensor:
        """(N, T) b(x), in units of the targets; z = inputs(x)."""
        found = self.reference(x) + self.outputs.location.to(z.device)
        return found + z @ self.slope if self.linear else found

    def residual(self, x: Inputs, z: Tensor, y: Tensor) -> Tensor:
        """(N, T) r; NaN stays NaN."""
        return (y - self.baseline(x, z)) / self.scale

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        return gather({"scaling": self.scaling, "outputs": self.outputs, "slope": self.slope})

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        scatter({"scaling": self.scaling, "outputs": self.outputs, "slope": self.slope}, tensors, rest)


def ridge(z: Tensor, r: Tensor) -> Tensor:
    """(ZᵀZ + κI)⁻¹ Zᵀ(r − r̄), z centred: (N, W), (N, T) -> (W, T)."""
    z, r = z - z.mean(0), r - r.mean(0)
    gram = z.T @ z
    gram.diagonal().add_(RIDGE)
    found: Tensor = torch.linalg.solve(gram, z.T @ r)
    return found
