"""What a model learns of its targets: their level, their change, or their departure from the season.

A model learns y − r(x), where the reference r(x) is read off the window, and shifts its predictions back by r(x):

    level    r = 0
    change   r(t+h) = y[t]
    season   r(t+h) = y[t+h−kS] + decay^(h/4) · (y[t] − y[t−S]), k ≥ 1 the fewest seasons with t+h−kS ≤ t

The season's second term lets the present departure from the season die out over the steps ahead.

A stream teaches how much of the present value and of the season each step ahead should take:

    r_t(x) = r⁰_t(x) + c_tᵀ(g_t(x) − m_t) + d_t

where r⁰ is the departure from the season (the change where there is no season), and g holds the target's present value
and, with a season, its value one season before the step ahead and the present departure from the season. c_t is a ridge
regression of y_t − r⁰_t on weighted rows: level, change and season are all within its reach, column by column, so that
one step ahead can be a change and two days ahead a season. Windows overlap: of n rows n/H are independent, and the
prior c_t = 0 counts for one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError

Kind: TypeAlias = Literal["auto", "level", "change", "season"]

RIDGE = 1e-3
"""Ridge, in units of each regressor's variance: pulls towards r⁰."""


class Reference:
    """The reference r(x) of each output column. Without state: a pure function of the window.

    Args:
        kind: "level", "change", "season", or "auto": the season where there is one, the change where there are
            lags, the level otherwise.
        shape: what the model is built for.
        decay: what is left of the present departure from the season after four rows, 0 to 1.

    Raises:
        UsageError: "change" without lags, or "season" without a season.

    Example:
        >>> shape = Shape(targets=("y",), horizon=2, lags=1, past=("y", "season(y)"), future=("season(y)",), season=7)
        >>> x = Inputs(torch.tensor([[[5.0, 4.0]]]).double(), torch.tensor([[[10.0], [20.0]]]).double())
        >>> Reference("change", shape)(x).tolist()
        [[5.0, 5.0]]
        >>> Reference("season", shape, decay=0.0625)(x).tolist()  # 0.0625^(1/4) = 1/2, 0.0625^(2/4) = 1/4
        [[10.5, 20.25]]
    """

    def __init__(self, kind: Kind, shape: Shape, decay: float = 0.9) -> None:
        if kind == "auto":
            kind = "season" if shape.seasonal else "change" if shape.lags else "level"
        if kind == "change" and not shape.lags:
            raise UsageError("the target as a change needs lags", hint="use --lags 1 or more, or target=level")
        if kind == "season" and not shape.seasonal:
            raise UsageError("the target as a departure from the season needs a season", hint="use --season ROWS")
        self.kind = kind
        self.shape = shape
        steps = torch.arange(1, shape.horizon + 1, dtype=torch.float64)
        self.left = torch.tensor(float(decay), dtype=torch.float64) ** (steps / 4)  # (H,)

    def __call__(self, x: Inputs) -> Tensor:
        """(..., N, T) in the targets' units, of windows (..., N, L, D)."""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        if self.kind == "level":
            return x.future.new_zeros(*x.future.shape[:-2], self.shape.columns)
        present = x.past[..., -1, :outputs]  # (..., N, O)
        if self.kind == "change":
            return present.repeat_interleave(horizon, -1)
        departure = present - x.past[..., -1, -outputs:]  # (..., N, O)
        seasonal = x.future[..., :outputs].mT  # (..., N, O, H)
        return (seasonal + departure[..., None] * self.left.to(seasonal.device)).flatten(-2)


class LearnedReference(nn.Module):
    """r of each column; r⁰ until the first `fit`.

    Args:
        shape: of the windows.
        decay: of the departure in r⁰.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=1, past=("y",), future=())
        >>> x = Inputs(torch.arange(500.0).double().view(500, 1, 1) % 8, torch.zeros(500, 1, 0).double())
        >>> reference = LearnedReference(shape, decay=0.9)
        >>> reference(x)[:4, 0].tolist()
        [0.0, 1.0, 2.0, 3.0]
        >>> reference.fit(x, 1.0 + 0.5 * x.past[:, :, 0], torch.ones(500).double())
        >>> [round(value, 1) for value in reference(x)[:4, 0].tolist()]
        [1.0, 1.5, 2.0, 2.5]
    """

    def __init__(self, shape: Shape, decay: float) -> None:
        super().__init__()
        self.shape = shape
        self.base = Reference("auto", shape, decay)
        self.regressors = 3 if shape.seasonal else 1 if shape.lags else 0
        self.slope: Tensor
        self.center: Tensor
        self.offset: Tensor
        self.register_buffer("slope", torch.zeros(shape.columns, self.regressors, dtype=FLOAT))  # c
        self.register_buffer("center", torch.zeros(shape.columns, self.regressors, dtype=FLOAT))  # m
        self.register_buffer("offset", torch.zeros(shape.columns, dtype=FLOAT))  # d

    def regressed(self, x: Inputs) -> Tensor:
        """(..., N, T, K) g"""
        outputs, horizon = self.shape.outputs, self.shape.horizon
        present = x.past[..., -1, :outputs]
        parts = [present.repeat_interleave(horizon, -1)]
        if self.shape.seasonal:
            parts.append(x.future[..., :outputs].mT.flatten(-2))
            parts.append((present - x.past[..., -1, -outputs:]).repeat_interleave(horizon, -1))
        return torch.stack(parts, -1)

    def __call__(self, x: Inputs) -> Tensor:
        """(N, T) in the targets' units."""
        return self.learned(x, self._buffers)  # type: ignore[arg-type]

    def learned(self, x: Inputs, held: Mapping[str, Tensor]) -> Tensor:
        """(..., N, T) of windows (..., N, L, D), with c (..., T, K), m and d (..., T) as slope, center and offset."""
        base = self.base(x)
        if not self.regressors:
            return base
        centred = self.regressed(x) - held["center"].unsqueeze(-3)
        return base + (centred * held["slope"].unsqueeze(-3)).sum(-1) + held["offset"].unsqueeze(-2)

    def fitted(self, x: Inputs, y: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """c, m and d of N windows. y: (..., N, T), NaN = not observed; weight: (..., N) of each."""
        if not self.regressors:
            return {}
        found = ridge(y - self.base(x), self.regressed(x), weight, self.shape.horizon)
        return dict(zip(("center", "offset", "slope"), found, strict=True))

    def fit(self, x: Inputs, y: Tensor, weight: Tensor) -> None:
        """Learn `fitted`."""
        for name, value in self.fitted(x, y, weight).items():
            setattr(self, name, value)


def ridge(rest: Tensor, regressors: Tensor, weight: Tensor, horizon: int) -> tuple[Tensor, Tensor, Tensor]:
    """m (..., T, K), d (..., T) and c (..., T, K) by weighted ridge regression.

    Args:
        rest: (..., N, T) y − r⁰, NaN = not observed.
        regressors: (..., N, T, K) g.
        weight: (..., N) of each row.
        horizon: H; windows less than H rows apart share truths.
    """
    share = weight[..., None] * torch.isfinite(rest)
    rest, regressors = torch.nan_to_num(rest), torch.nan_to_num(regressors)
    total = share.sum(-2).clamp(min=1e-12)  # (..., T)
    center = (share[..., None] * regressors).sum(-3) / total[..., None]
    offset = (share * rest).sum(-2) / total
    centred = regressors - center.unsqueeze(-3)
    weighted = share[..., None] * centred
    gram = torch.einsum("...ntk,...ntl->...tkl", weighted, centred)
    moment = torch.einsum("...ntk,...nt->...tk", weighted, rest - offset.unsqueeze(-2))
    size = gram.diagonal(dim1=-2, dim2=-1)
    added = (RIDGE + horizon / total[..., None]) * size + 1e-12 * size.amax(-1, keepdim=True) + 1e-300
    return center, offset, torch.linalg.solve(gram + torch.diag_embed(added), moment)


def reference(kind: Kind, shape: Shape, decay: float) -> Reference | LearnedReference:
    """The reference of a Config: "auto" is the learned one."""
    return LearnedReference(shape, decay) if kind == "auto" else Reference(kind, shape, decay)
