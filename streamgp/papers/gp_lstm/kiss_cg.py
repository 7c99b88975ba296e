"""Structured kernel interpolation by conjugate gradients: K = W K_UU Wᵀ + σ²I, one matrix product at a time.

W interpolates from a fixed grid with Keys' cubic weights, K_UU is a sum of Kronecker products of Toeplitz matrices
(KISS-GP, Wilson & Nickisch 2015; MSGP, Wilson, Dann & Nickisch 2015; the paper's section 4.2). Solves are by
preconditioned conjugate gradients, log|K| by stochastic Lanczos quadrature, and the gradient by probes:

    ∂NLML = ½ Σ_t [ tr(A_t⁻¹ ∂A_t) − α_tᵀ ∂A_t α_t ],    tr(A⁻¹∂A) ≈ tr(P⁻¹∂A) + (1/p) Σ_j (u_j − v_j)ᵀ ∂A v_j

with P the preconditioner, u = A⁻¹P^½ε, v = P^−½ε. That departs from the usual (1/p) Σ z_jᵀA⁻¹ ∂A z_j by a control
variate: it is unbiased as well, and its error vanishes as P approaches A, as that of log|A| does. The value of NLML and
its gradient are then those of `kiss` at full rank; otherwise they are two estimates from one set of probes, and the
gradient is not to the last digit that of the value.

With the circulant preconditioner P is a multiple of the identity here: plain probes.

Cost of an NLML: r products of one column for the preconditioner, then about (1 + p) T columns a step of the
iterations; a product takes O(N 4^d) a column and one with K_UU. Memory is O(N (4^d + r + p T)).

On a stream it keeps the rows, with their weights: new rows join them, and `condition` solves again from nothing, so
that a restored model has the same bits. A micro-batch thus costs r + T · iterations + `variance_rank` products of one
column with all N rows, where `kiss` pays for its grid alone; the model's window bounds N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel
from streamgp.linalg.interpolate import MOST, SIZES, Grid, stencil
from streamgp.papers.gp_lstm.grid_posterior import GridPosterior
from streamgp.papers.gp_lstm.system import CgSettings, KissSystem, Sparse, grid_variance
from streamgp.papers.gp_lstm.toeplitz import DENSE, KroneckerSum
from streamgp.solvers import Data, Solver
from streamgp.solvers.kiss.basis import widen
from streamgp.solvers.kiss_cg import Config
from streamgp.state import Tensors, Value

POINTS = {**SIZES, 4: 12}
"""Grid points a dimension, by dimensions, where none are asked for."""
LARGEST = {**MOST, 4: 16}
"""Grid points a dimension, at most."""


class LatentRows(Data):
    """The rows themselves: latents, targets, weights; W is made of them when it is asked for."""

    STATE = (Tensors("h", "y", "weight", grows=(0,)), Value("count", float))
    NOT_STATE: ClassVar[Mapping[str, str]] = {"_sparse": "made of the rows when it is asked for"}

    def __init__(self, grid: Grid, columns: int, device: torch.device | None = None) -> None:
        self.count = 0.0
        self.h = torch.zeros(0, grid.dims, dtype=FLOAT, device=device)  # (N, d)
        self.y = torch.zeros(0, columns, dtype=FLOAT, device=device)  # (N, T)
        self.weight = torch.zeros(0, dtype=FLOAT, device=device)  # (N,)
        self._grid = grid
        self._sparse: Sparse | None = None

    @property
    def rows(self) -> int:
        """N"""
        return len(self.weight)

    def add(self, h: Tensor, y: Tensor) -> None:
        self.h, self.y = torch.cat((self.h.to(h), h)), torch.cat((self.y.to(y), y))
        self.weight = torch.cat((self.weight.to(y), y.new_ones(len(y))))
        self.count += len(y)
        self._sparse = None

    def forget(self, kept: float) -> None:
        self.weight, self.count = self.weight * kept, self.count * kept
        self._sparse = None

    def move(self, device: torch.device) -> None:
        super().move(device)
        self._sparse = None

    def sparse(self) -> Sparse:
        """W D^½ of all rows."""
        if self._sparse is None:
            self._sparse = Sparse(stencil(self._grid, self.h), self.weight.sqrt(), self._grid.count)
        return self._sparse

    def restored(self) -> None:
        self._sparse = None


class KissCG(Solver):
    """See the module; `build` makes one.

    Attributes:
        grid: U.
        settings: of the iterations.
    """

    bounded = True

    def __init__(self, config: Config, kernel: Kernel, columns: int) -> None:
        super().__init__(kernel, columns, config.noise, config.floor)
        dims = kernel.dims
        if dims not in POINTS:
            raise UsageError(
                f"kiss_cg works on a grid of up to 4 dimensions, the kernel has {dims}",
                hint="lower the latent width, or use solver=exact",
            )
        size = config.grid or POINTS[dims]
        if size > LARGEST[dims]:
            raise UsageError(
                f"a grid of {size:,} points in each of {dims} dimensions is beyond memory",
                hint=f"use grid={LARGEST[dims]} or less",
            )
        self.config, self.grid = config, Grid.cover(dims, size)
        rank = config.rank if config.preconditioner == "pivoted" else 0
        self.settings = CgSettings(config.tolerance, config.iterations, rank, config.probes, config.steps, config.seed)
        with torch.no_grad():
            kernel.grid_terms(self.grid.axes)  # a kernel without Toeplitz structure is refused here

    def project(self) -> None:
        """Lengthscales at least five cells, as with `kiss`: below, interpolation errs."""
        widen(self.kernel, self.grid)

    def _covariance(self) -> KroneckerSum:
        """K_UU, where the kernel is."""
        axes = [axis.to(self.log_noise.device) for axis in self.grid.axes]
        return KroneckerSum(self.kernel.grid_terms(axes), DENSE if self.config.products == "auto" else 0)

    def data(self) -> LatentRows:
        return LatentRows(self.grid, len(self.log_noise), self.log_noise.device)

    def nlml(self, data: Data) -> Tensor:
        """Σ_t ½[ỹᵀα + log|A| − N log σ² + n log 2πσ²], n the sum of the weights; the log-determinant by the probes.

        Raises:
            NumericalError: a solve did not converge.
        """
        assert isinstance(data, LatentRows)
        covariance, noise = self._covariance(), self.noise
        if not len(data.y):
            return 0.0 * noise.sum()
        system = self._system(data, covariance)
        surrogate = _surrogate(system, covariance, noise, data.count)
        rows, constant = len(data.y), data.count * math.log(2 * math.pi)
        with torch.no_grad():
            fit = (system.y * system.alpha).sum(0) + system.stochastic.log_determinant.mean(1)
            value = 0.5 * (fit + (data.count - rows) * noise.log() + constant).sum()
        return value + (surrogate - surrogate.detach())

    def condition(self, data: Data) -> GridPosterior:
        assert isinstance(data, LatentRows)
        with torch.no_grad():
            covariance = self._covariance().detach()
            noise = self.noise.detach().clone()
            system = self._system(data, covariance) if len(data.y) else None
            return GridPosterior(self.grid, covariance, noise, system, self.config.variance_rank)

    def _system(self, data: LatentRows, covariance: KroneckerSum) -> KissSystem:
        with torch.no_grad():
            sparse, noise = data.sparse(), self.noise.detach().clone()
            return KissSystem(sparse, covariance.detach(), noise, sparse.scale[:, None] * data.y, self.settings)


def _surrogate(system: KissSystem, covariance: KroneckerSum, noise: Tensor, count: float) -> Tensor:
    """(): its gradient in the hyper-parameters is the NLML's; its value means nothing.

    The vectors are constants, taken to the grid; what depends on θ is one product with K_UU and a trace, so that the
    cost of the gradient beyond the solves is O(m) a vector and O(N 4^d) for the trace.
    """
    with torch.no_grad():
        found, p = system.stochastic, system.low_rank
        held, probes = system.noise, found.start.shape[2]
        # tr(P⁻¹∂K̃) = [tr ∂K̃ − Σ_r λ_r/(λ_r + s) ∂K̃_rr]/s, s the shift, ∂K̃_rr = u_rᵀ∂K̃u_r; the columns share u_r
        share = (p.values[:, None] / (p.values[:, None] + p.shift) / p.shift).sum(1)
        change, start = (part.movedim(0, 1).flatten(1) for part in (found.change, found.start))
        left = system.sparse.spread(torch.cat((-system.alpha, change / probes, -share * p.vectors), 1))
        right = system.sparse.spread(torch.cat((system.alpha, start, p.vectors), 1))
        slope = found.inverse_trace.mean(1) - system.alpha.square().sum(0) + (count - len(system.y)) / held
    trace = system.sparse.scale.square() @ grid_variance(system.sparse.stencil, covariance)
    return 0.5 * ((left * covariance.multiply(right)).sum() + (1 / p.shift).sum() * trace + slope @ noise)
