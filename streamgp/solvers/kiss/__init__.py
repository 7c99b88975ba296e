"""The additive KISS head: a Gaussian process on a grid, from sums over rows alone.

K ≈ W K_UU Wᵀ, W the local cubic interpolation from a fixed grid (Wilson & Nickisch 2015; MSGP in Al-Shedivat et al.
2017, section 4.2), and K_UU ≈ BBᵀ, B (m, r) its truncated Kronecker eigenbasis. That is Bayesian linear regression on
the features φ = Bᵀw with u ~ N(0, I_r), whose sufficient statistics are sums: S = WᵀW, WᵀY, yᵀy and n (as in WISKI,
Stanton et al. 2021). With A_t = σ_t² I + BᵀSB and c_t = BᵀWᵀy_t

    NLML_t = ½ [ (y_tᵀy_t − c_tᵀA_t⁻¹c_t)/σ_t² + log|A_t| + (n − r) log σ_t² + n log 2π ]
    q(u_t) = N(A_t⁻¹c_t, σ_t² A_t⁻¹):  mean w_*ᵀBA_t⁻¹c_t,  latent variance σ_t² w_*ᵀBA_t⁻¹Bᵀw_*

A row of weight w counts w times in every sum: forgetting scales them and leaves the prior alone. One eigendecomposition
BᵀSB = QEQᵀ serves all T noises. The gradient in θ needs no derivative of an eigendecomposition (which is NaN where
eigenvalues repeat): ∂NLML = ½ Σ_t ⟨P_t − q_tq_tᵀ, ∂K_UU⟩, P_t = (S − SBA_t⁻¹BᵀS)/σ_t²,
q_t = (Wᵀy_t − SBA_t⁻¹c_t)/σ_t². P and q are those of the truncated model, ∂K_UU is not truncated: the gradient is
exact but for the change of what is cut off, which the guard below keeps small.

The guard: truncation lowers the prior variance of a row by at most λ_{r+1}‖w‖², and ‖w‖² <= 1 for cubic convolution;
r is raised beyond `rank` until λ_{r+1} <= 0.001 min_t σ_t², which moves NLML and gradients by about 1e-5 of themselves,
less than interpolation does. Interpolation itself leaves the prior variance slightly below k(h, h) between grid points.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Generator, Tensor

from streamgp import solvers
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.kernels import Kernel
from streamgp.linalg import banded
from streamgp.linalg.interpolate import LEAST, MOST, SIZES, Grid, Stencil, interpolate, spread, stencil
from streamgp.solvers import attach
from streamgp.solvers.kiss.basis import contract, eigenbasis, fold, widen
from streamgp.state import Tensors, Value

_LOST = 0.001
"""Part of the least noise variance that the truncation may take from the prior variance."""
_CHUNK = 8192
"""Rows whose r features are made at a time."""


class Config(BaseModel):
    """The additive KISS solver: latents in [−1, 1]^d, d <= 3; its memory does not grow with the rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: float = Field(
        0.1, ge=1e-12, le=1e6, description="initial noise variance of every column, in squared standardised units"
    )
    floor: float = Field(1e-4, ge=1e-12, le=1, description="least noise variance, in squared standardised units")
    grid: int | None = Field(
        None,
        ge=LEAST,
        le=MOST[1],
        description="grid points a dimension, two beyond each end; none: 128, 32, 16 in 1, 2, 3-D (wiski: 64, 16, 10)",
    )
    rank: int = Field(
        64, ge=1, description="eigenpairs of the grid's covariance to keep; more are kept where too much would be lost"
    )


class GridSums(solvers.Data):
    """Sums over rows: m (7^d + T) + T + 1 numbers, however many rows.

    Attributes:
        grid: of the solver.
        gram: (m, 7^d) S = WᵀW by its bands, see `streamgp.linalg.banded`.
        cross: (m, T) WᵀY.
        square: (T,) yᵀy.
        count: n.
    """

    STATE = (Tensors("gram", "cross", "square"), Value("count", float))

    def __init__(self, grid: Grid, columns: int) -> None:
        self.grid, self.count = grid, 0.0
        self.gram = banded.empty(grid)
        self.cross = torch.zeros(grid.count, columns, dtype=FLOAT)
        self.square = torch.zeros(columns, dtype=FLOAT)

    def add(self, h: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """O(N (16^d + 4^d T)), whatever was learned before. weight: (N,) of each row, at least 0; 1 without."""
        self.gram, self.cross, self.square = (part.to(h.device) for part in (self.gram, self.cross, self.square))
        rows = stencil(self.grid, h.detach())
        if weight is not None:
            root = weight.sqrt()[:, None]
            rows, y = Stencil(rows.index, root * rows.weight), root * y
        banded.gram(rows, self.grid, out=self.gram)
        self.cross += spread(rows, y, self.grid.count)
        self.square += y.square().sum(0)
        self.count += len(y) if weight is None else float(weight.sum())

    def sums(self) -> tuple[Tensor, ...]:
        """See `streamgp.online.summing.Additive`."""
        count = torch.tensor(self.count, dtype=FLOAT)
        return self.gram.clone(), self.cross.clone(), self.square.clone(), count  # `add` works in place

    def put(self, sums: tuple[Tensor, ...]) -> None:
        self.gram, self.cross, self.square, count = sums
        self.count = float(count)

    def zero(self) -> None:
        self.gram, self.cross, self.square = (torch.zeros_like(part) for part in (self.gram, self.cross, self.square))
        self.count = 0.0

    def forget(self, kept: float) -> None:
        """Scale every sum, O(m)."""
        for total in (self.gram, self.cross, self.square):
            total *= kept
        self.count *= kept


class GridConditional(solvers.Conditional):
    """q(u) in the eigenbasis of BᵀSB; see `solvers.Conditional`.

    The mean costs O(4^d T) a row, the variance O((4^d + T) r), whatever the data.
    """

    def __init__(self, grid: Grid, system: _System, noise: Tensor) -> None:
        self.noise = noise
        self._grid, self._basis = grid, system.basis @ system.rotation  # (m, r) BQ
        spectrum = system.spectrum[:, None] + noise  # (r, T) eigenvalues of A_t
        self._centre = system.cross / spectrum  # (r, T) Qᵀ E[u_t]
        self._spread = noise / spectrum  # (r, T) variances of Qᵀu_t
        self._mean = self._basis @ self._centre  # (m, T) on the grid

    @property
    def basis(self) -> int:
        """r"""
        return len(self._centre)

    def mean(self, h: Tensor) -> Tensor:
        """The grid's mean, interpolated."""
        return interpolate(stencil(self._grid, h), self._mean)

    def variance(self, h: Tensor) -> Tensor:
        """Σ_j (Qᵀφ)_j² σ_t²/(σ_t² + e_j); rows go in chunks of bounded memory."""
        return torch.cat([self._variance(stencil(self._grid, part)) for part in h.split(_CHUNK)])

    def moments(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one stencil a row."""
        found = [stencil(self._grid, part) for part in h.split(_CHUNK)]
        mean = torch.cat([interpolate(rows, self._mean) for rows in found])
        return mean, torch.cat([self._variance(rows) for rows in found])

    def divergence(self) -> Tensor:
        """KL(q(u_t) ‖ N(0, I_r)) = ½ [‖E u‖² + tr Σ − r − log|Σ|], the same as over the function."""
        terms: Tensor = self._centre.square() + self._spread - 1 - self._spread.log()
        return 0.5 * terms.sum(0)

    def draw(self, paths: int, generator: Generator) -> solvers.Draw:
        """One u ~ q(u) a path and column, as values on the grid: P m T numbers. A value costs O(4^d T)."""
        rank, columns = self._spread.shape
        fresh = torch.randn(paths, rank, columns, generator=generator, dtype=FLOAT).to(self._spread.device)
        own = (self._centre + self._spread.sqrt() * fresh).transpose(0, 1)  # (r, P, T)
        values = (self._basis @ own.flatten(1)).view(-1, columns)  # (m P, T), one product
        return _Functions(self._grid, values, paths)

    def _variance(self, rows: Stencil) -> Tensor:
        """(N, T) from (N, r) Qᵀφ."""
        return interpolate(rows, self._basis).square() @ self._spread


class _Functions:
    """P functions by their values on the grid, (m P, T): the P of a grid point stand together."""

    def __init__(self, grid: Grid, values: Tensor, paths: int) -> None:
        self._grid, self._values, self._paths = grid, values, paths

    @torch.no_grad()
    def __call__(self, h: Tensor) -> Tensor:
        """(P, S, d) -> (P, S, T)"""
        paths, size, width = h.shape
        rows = stencil(self._grid, h.reshape(paths * size, width))
        path = torch.arange(paths, device=h.device).repeat_interleave(size)
        own = Stencil(rows.index * self._paths + path[:, None], rows.weight)
        out: Tensor = interpolate(own, self._values).unflatten(0, (paths, size))
        return out


class Kiss(solvers.Solver):
    """See the module; `build` makes one.

    `nlml` with its gradient costs O(m (7^d + r + T) r + r³), `condition` as much; neither depends on the rows.

    Attributes:
        grid: what the latents are interpolated from.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> solver = build(Config(), squared_exponential.build(squared_exponential.Config(), 2), columns=1)
        >>> data, h = solver.data(), torch.rand(500, 2, dtype=FLOAT, generator=torch.Generator().manual_seed(0))
        >>> data.add(h, h.sum(1, keepdim=True).sin())
        >>> posterior = solver.condition(data)
        >>> error = posterior.mean(h[:5])[:, 0] - h[:5].sum(1).sin()
        >>> bool(error.abs().max() < 0.05), solver.grid.shape
        (True, (32, 32))
    """

    bounded, additive = True, True

    def __init__(self, config: Config, kernel: Kernel, columns: int) -> None:
        super().__init__(kernel, columns, config.noise, config.floor)
        if kernel.dims not in SIZES:
            raise UsageError(
                f"solver kiss has grids of 1 to 3 dimensions, not {kernel.dims}",
                hint="lower the latent width to 2 or 3, or use solver=exact",
            )
        self.rank, self.grid = config.rank, Grid.cover(kernel.dims, config.grid or SIZES[kernel.dims])
        with torch.no_grad():
            kernel.grid_terms(self.grid.axes)  # a kernel without grid structure says so here

    def project(self) -> None:
        """Lengthscales at least five cells: below, interpolation errs and the rank that is needed explodes."""
        widen(self.kernel, self.grid)

    def data(self) -> GridSums:
        return GridSums(self.grid, self.log_noise.shape[0])

    def nlml(self, data: solvers.Data) -> Tensor:
        """() The closed form of the module; its gradient is once differentiable only."""
        rows = _sums(data)
        terms = self.kernel.grid_terms(self._axes(rows))
        with torch.no_grad():
            system, noise = self._system(rows, terms), self.noise.detach()
        value = _nlml(system, rows, self.noise)
        if not torch.is_grad_enabled() or not any(column.requires_grad for term in terms for column in term):
            return value
        with torch.no_grad():
            folded = _folded_gradient(system, rows, noise)
        sensitivity = contract(folded, terms)
        return attach(value, sensitivity, torch.ones_like(sensitivity))

    def condition(self, data: solvers.Data) -> GridConditional:
        rows = _sums(data)
        with torch.no_grad():
            system = self._system(rows, self.kernel.grid_terms(self._axes(rows)))
            return GridConditional(rows.grid, system, self.noise.clone())

    def _axes(self, data: GridSums) -> list[Tensor]:
        """The grid, where the data is."""
        return [axis.to(data.gram.device) for axis in self.grid.axes]

    def _system(self, data: GridSums, terms: list[list[Tensor]]) -> _System:
        """BᵀSB = QEQᵀ and what goes with it."""
        detached = [[column.detach() for column in term] for term in terms]
        basis = eigenbasis(detached, self.rank, _LOST * float(self.noise.detach().min()))
        product = banded.multiply(data.gram, self.grid, basis)  # (m, r) SB
        spectrum, rotation = torch.linalg.eigh(basis.T @ product)
        return _System(basis, product, rotation, spectrum.clamp(min=0.0), rotation.T @ (basis.T @ data.cross))


def build(config: Config, kernel: Kernel, columns: int) -> Kiss:
    """The solver of `columns` Gaussian processes that share `kernel`.

    Raises:
        UsageError: more than three dimensions, or a kernel that is no sum of products of stationary ones.
    """
    return Kiss(config, kernel, columns)


class _System(NamedTuple):
    """(m, r) B, (m, r) SB, (r, r) Q, (r,) e, (r, T) Qᵀc."""

    basis: Tensor
    product: Tensor
    rotation: Tensor
    spectrum: Tensor
    cross: Tensor


def _nlml(system: _System, data: GridSums, noise: Tensor) -> Tensor:
    """() summed over columns; differentiable in `noise`."""
    spectrum = system.spectrum[:, None] + noise  # (r, T)
    fit = (data.square - (system.cross.square() / spectrum).sum(0)) / noise
    rank = len(system.spectrum)
    return (
        0.5
        * (fit + spectrum.log().sum(0) + (data.count - rank) * noise.log() + data.count * math.log(2 * math.pi)).sum()
    )


def _folded_gradient(system: _System, data: GridSums, noise: Tensor) -> Tensor:
    """(m_1, …, m_d) `fold` of ½ Σ_t (P_t − q_tq_tᵀ), the derivative of the NLML in K_UU."""
    spectrum = system.spectrum[:, None] + noise  # (r, T)
    shrink = (1 / (noise * spectrum)).sum(1)  # (r,)
    product = system.product @ system.rotation  # (m, r) SBQ
    q = (data.cross - product @ (system.cross / spectrum)) / noise  # (m, T)
    low = fold(torch.cat([product, q], 1), torch.cat([shrink, torch.ones_like(noise)]), data.grid.shape)
    return 0.5 * (banded.folded(data.gram, data.grid) * (1 / noise).sum() - low)


def _sums(data: solvers.Data) -> GridSums:
    """What this solver's `data` made."""
    assert isinstance(data, GridSums), "data of another solver"
    return data
