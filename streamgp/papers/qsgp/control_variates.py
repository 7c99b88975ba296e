"""Control variates on a few support rows for sampled features (Evans & Nair 2020, section 2.4 and appendix F).

The fit estimates (Φμ)ᵀ(Φμ) by two independent draws of features, (m/m̃ Φ_jμ_j)ᵀ(m/m̃ Φ_iμ_i). On n̄ support rows p both
the estimate and its expectation are known: subtract the one, add the other (eq. 3). The expectation needs Φ_pμ for the
whole μ, which a `RunningExpectation` keeps up to date at O(n̄ m̃) a step (Prop. 3).

Too few support rows add variance: multiply the result by a coefficient below 1 there, or take more.

**Hyper-parameters in motion** (F.3): the running expectation is that of the features at which it was started. Evaluate
the support rows' features at those hyper-parameters, without a gradient for them. The control variate then has
expectation 0 for every μ and θ, and only its correlation fades, until it is restarted at O(n̄ m).

The same functions serve every term:

| term | image of the drawn features | precision |
|---|---|---|
| μᵀΦᵀΦμ/σ² | Φ_{p,i}μ_i (n̄, T) | (n/n̄)/σ_t² |
| c_rᵀΦᵀΦc_r/σ², dense columns | Φ_{p,i}C_{i,1:k} (n̄, k) | (n/n̄) Σ_t 1/σ_t², as (n̄, 1) |
| μᵀSμ, S = K(Z, Z) | L⁻¹K(U, Z_i)μ_i, LLᵀ = K(U, U): Nyström (F.2) | 1 |
| yᵀΦμ/σ² from the support rows | Σ_p precision · y · Φ_{p,i}μ_i (T,), `linear` | |
| yᵀΦμ/σ² from all rows | b_iᵀμ_i (T,) with b = Φᵀ(y/σ²) kept for good: O(nm) once | |
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.state import Declared, Tensors


def attach(expectation: Tensor, image: Tensor, scale: float | Tensor) -> Tensor:
    """a = stop(a − Φ_{p,U}μ_U) + Φ_{p,U}μ_U, with `scale` times the gradient of its last term.

    The gradient of an expectation is dense. Kept on U = i ∪ j only, it is unbiased times m/|U| (F.1, where the scale
    stands before aᵀa; here it is on a, so that the gradient for a noise variance in the precision is not scaled).

    Args:
        expectation: (..., n̄, T) Φ_pμ at the present μ.
        image: (..., n̄, T) Φ_{p,U}μ_U, U without repetitions; for two different cells the sum of their images.
        scale: m/|U|.

    Returns:
        (..., n̄, T)

    Example:
        >>> mu = torch.tensor(2.0, requires_grad=True)
        >>> a = attach(torch.tensor(7.0), 3.0 * mu, scale=5.0)
        >>> a.item(), torch.autograd.grad(a, mu)[0].item()
        (7.0, 15.0)
    """
    return expectation.detach() + scale * (image - image.detach())


def quadratic(image_i: Tensor, image_j: Tensor, expectation: Tensor, precision: Tensor, weight: float) -> Tensor:
    """−(nm²/σ²n̄m̃²) μ_jᵀΦ_{pj}ᵀΦ_{pi}μ_i + (n/σ²n̄) aᵀa (eq. 3, Prop. 3), to be added to the estimate; expectation 0.

    Args:
        image_i, image_j: (..., n̄, T) Φ_{p,i}μ_i and Φ_{p,j}μ_j, with gradients.
        expectation: (..., n̄, T) of `attach`.
        precision: broadcasts against (..., n̄, T): rows that a support row stands for, over σ².
        weight: features that a drawn one stands for.

    Returns:
        (...)

    Example:
        >>> image, precision = torch.ones(3, 1), torch.ones(3, 1)
        >>> quadratic(image, image, 2.0 * image, precision, weight=2.0).item()  # the drawn half stands for all: 0
        0.0
    """
    return (precision * (expectation.square() - weight**2 * image_i * image_j)).sum((-2, -1))


def linear(product_i: Tensor, expectation: Tensor, weight: float) -> Tensor:
    """(2m/σ²m̃) b_iᵀμ_i − (2/σ²) bᵀμ (F.2), to be added to the estimate; expectation 0.

    b is Φᵀy over all rows, or over the support rows: then bᵀμ = y_pᵀa, and nothing but a is kept.

    Args:
        product_i: (..., T) b_iᵀμ_i/σ_t², with gradients.
        expectation: (..., T) bᵀμ/σ_t², by `attach`.
        weight: features that a drawn one stands for.

    Returns:
        (...)
    """
    return 2.0 * (weight * product_i - expectation).sum(-1)


class RunningExpectation(Declared):
    """a = Φ_pμ for the whole μ, kept up to date from the features that change (Prop. 3).

    In float64 whatever the parameters are stored in, and every change is that of the parameters **as stored**: then the
    error is one of rounding only.

    Args:
        rows: (n̄,) where the support rows are, in the caller's numbering, drawn once before the first step.
        columns: columns of μ, or k for the dense columns of C.

    Attributes:
        value: (n̄, columns) float64; 0 at the start, where μ is 0.

    Example:
        >>> running = RunningExpectation(torch.tensor([4, 7]), columns=1)
        >>> phi, before, after = torch.ones(2, 3), torch.zeros(3, 1), torch.ones(3, 1)
        >>> running.move(phi, after - before)
        >>> running.value.tolist()
        [[3.0], [3.0]]
    """

    STATE = (Tensors("rows", "value", grows=(0,)),)

    def __init__(self, rows: Tensor, columns: int) -> None:
        self.rows = rows
        self.value = torch.zeros(len(rows), columns, dtype=torch.float64, device=rows.device)

    @torch.no_grad()
    def move(self, phi: Tensor, change: Tensor) -> None:
        """a ← a + Φ_{p,U}(μ_U − μ_U before). phi: (n̄, |U|); change: (|U|, columns)."""
        self.value += phi.to(self.value.dtype) @ change.to(self.value.dtype)

    @torch.no_grad()
    def start(self, rows: Tensor, value: Tensor) -> None:
        """Begin again with other support rows, other features or other parameters. rows: (n̄,); value: (n̄, columns)."""
        self.rows, self.value = rows, value.detach().to(torch.float64).clone()
