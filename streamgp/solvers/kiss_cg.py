"""KISS-GP by conjugate gradients on Toeplitz products and stochastic Lanczos quadrature; latents in [−1, 1]^d, d <= 4.

K = W K_UU Wᵀ + σ²I as in `kiss`, but nothing is truncated and no matrix is made: see `streamgp.papers.gp_lstm.kiss_cg`,
which is imported once the solver is built. It keeps the rows, so that its cost grows with them; `kiss`, the default,
keeps sums.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamgp.kernels import Kernel
from streamgp.linalg.interpolate import LEAST, MOST

if TYPE_CHECKING:
    from streamgp.papers.gp_lstm.kiss_cg import KissCG


class Config(BaseModel):
    """KISS-GP by conjugate gradients and stochastic Lanczos quadrature."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance of every column, in squared standardised units"
    )
    floor: float = Field(1e-4, ge=1e-12, le=1, description="least noise variance, in squared standardised units")
    grid: int | None = Field(
        None,
        ge=LEAST,
        le=MOST[1],
        description="grid points a dimension, two beyond each end; none: 128, 32, 16 or 12 in 1, 2, 3 or 4-D",
    )
    products: Literal["auto", "fft"] = Field(
        "auto",
        description="with Toeplitz factors: by FFT of their circulant embedding; auto: factors of up to 128 points as "
        "matrices, several times faster there",
    )
    preconditioner: Literal["pivoted", "circulant"] = Field(
        "pivoted",
        description="of a solve: pivoted Cholesky, which is a control variate of log-determinant and gradient too; or "
        "circulant factors on the grid, exact where rows lie evenly over it, with plain probes",
    )
    rank: int = Field(200, ge=1, description="rank of the pivoted Cholesky preconditioner, at most")
    tolerance: float = Field(1e-8, gt=0, lt=1, description="residual of a solve, relative to its right-hand side")
    iterations: int = Field(2000, ge=1, description="most iterations of a solve; more are an error")
    probes: int = Field(8, ge=1, description="random vectors for the log-determinant and the gradient")
    steps: int = Field(20, ge=1, description="Lanczos iterations a probe, at most")
    variance_rank: int = Field(300, ge=1, description="rank of the variance cache, at most")
    seed: int = Field(0, ge=0, description="of the probes; they stay the same for the solver's life")


def build(config: Config, kernel: Kernel, columns: int) -> KissCG:
    """The solver of `columns` Gaussian processes that share `kernel`, on up to four dimensions.

    Raises:
        UsageError: the kernel has more dimensions, or no Toeplitz structure on a grid; or the grid is beyond memory.

    Example:
        >>> import torch
        >>> from streamgp.kernels import squared_exponential
        >>> solver = build(Config(noise=0.01), squared_exponential.build(squared_exponential.Config(), 1), 1)
        >>> data = solver.data()
        >>> h = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
        >>> data.add(h, h.sin())
        >>> [round(value, 2) for value in solver.condition(data).mean(h[::25])[:, 0].tolist()]
        [-0.83, 0.02]
    """
    paper = import_module("streamgp.papers.gp_lstm.kiss_cg")  # of a room above: by name, when it is asked for
    made: KissCG = paper.KissCG(config, kernel, columns)
    return made
