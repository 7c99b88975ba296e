"""WISKI on a stream: a projection and hyper-parameters that stay between rebuilds, and sums that new rows are added to.

A rebuild estimates the projection from the rows that the memory keeps, lays them on the grid, and maximises the
marginal likelihood of the sums: an evaluation costs what the grid costs, whatever the rows (`solvers.kiss`). The search
starts from the last hyper-parameters and from the default, and the better one wins. Between rebuilds a micro-batch of N
rows costs O(N 16^d) to be added and one factorisation in the eigenbasis of the grid, O(m (7^d + r) r + r³).

A departure from Stanton et al. (2021): they keep a low-rank root of WᵀW and take a step on the hyper-parameters with
every row; here WᵀW is kept whole, by its bands, forgetting scales it, and hyper-parameters are searched at rebuilds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Generator, Tensor

from streamgp import choice, solvers
from streamgp.base import FLOAT, Shape
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.minimise import BOUND, HUGE, lbfgs
from streamgp.evidence.search import thinned
from streamgp.linalg.interpolate import SIZES
from streamgp.models.wiski.config import Config
from streamgp.models.wiski.projection import Projection
from streamgp.online.inputs import KernelInputs
from streamgp.online.posterior import Arrival, DrawsFunctions, LearnedFunction, Look, Posterior, Rows, Units
from streamgp.solvers import kiss
from streamgp.state import Declared, Nested, Parts, holding

POINTS = {1: 64, 2: 16, 3: 10}
"""Grid points a dimension, by dimensions: fewer than on a net, as a lengthscale spans five cells at least, and a
smooth function of few projections is what a stream bears out."""
CHUNK = 4096
"""Rows that are laid on the grid at once."""


class WiskiPosterior(Declared, Posterior, DrawsFunctions):
    """See the module; built by `streamgp.models.wiski.build`.

    Args:
        config: of the model.
        shape: of the windows.

    Attributes:
        projection: of windows onto the grid's dimensions.
        solver: kernel, noise and grid.
        data: the sums.
        given: the posterior of them.
        found: () whether hyper-parameters were estimated.

    Raises:
        UsageError: as `build`.
    """

    STATE = (Nested("projection", "solver", "data", "found"),)

    found: Tensor

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        width = len(KernelInputs(shape).groups)
        most = max(SIZES)
        if not width:
            raise UsageError("the windows of a GP need a column", hint="use --lags 1 or more, or name --inputs")
        if config.projection == "none" and width > most:
            raise UsageError(
                f"projection=none: windows of {width} columns on a grid of at most {most} dimensions",
                hint="leave out projection, or use fewer lags and inputs",
            )
        dims = width if config.projection == "none" else min(config.dims, width)
        self.share = 1.0 / config.tempering(shape)  # likelihood tempering
        self.projection = Projection(config.projection, width, dims)
        fields = type(config.kernel).model_fields
        product = "separable" in fields and "separable" not in config.kernel.model_fields_set
        kernel = config.kernel.model_copy(update={"separable": True}) if product else config.kernel
        built = choice.build("kernels", kernel, dims)
        grid = config.solver.grid or POINTS[dims]
        solver = config.solver.model_copy(update={"grid": grid})
        self.solver: kiss.Kiss = kiss.build(solver, built, shape.columns).requires_grad_(False)
        self.solver.project()
        self.start = self._pack()
        self.register_buffer("found", torch.zeros((), dtype=torch.bool))
        self.data: kiss.GridSums = self.solver.data()
        self.given: solvers.Conditional = self.solver.condition(self.data)

    @property
    def size(self) -> int:
        """r, eigenvectors of the grid's covariance."""
        return self.given.basis

    @property
    def weight(self) -> Tensor:
        return self.given.noise.new_tensor(self.data.count / self.share)

    @property
    def healthy(self) -> bool:
        return bool(torch.stack([self.data.cross.sum(), self.data.square.sum(), self._pack().sum()]).isfinite().all())

    @property
    def signal(self) -> float | None:
        if not bool(self.found):
            return None
        at = self.given.noise.new_zeros(1, self.projection.dims)
        return float(self.solver.kernel.diagonal(at)[0] / self.given.noise.mean())

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel of the grid, which sees projections of a window."""
        return LearnedFunction(self.solver.kernel, self.given.noise.expand(self.shape.columns), encode=self.projection)

    @torch.no_grad()
    def look(self, z: Tensor) -> Look:
        """The projected windows are kept, to be learned."""
        h = self.projection(z)
        mean, latent = self.given.moments(h)
        return Look(z, h, mean, latent, self.given.noise)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        """Exact under the projection and the hyper-parameters of now; a missing target counts as predicted."""
        y = torch.where(arrival.y.isnan(), look.mean, arrival.y)
        self.data.forget(arrival.kept)
        self.data.add(look.features, y, y.new_full((len(y),), self.share))
        self.given = self.solver.condition(self.data)
        return ""

    @torch.no_grad()
    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        z, y = rows.z, rows.filled
        whole = torch.isfinite(y).all(1)
        usable = whole if bool(whole.any()) else torch.ones_like(whole)
        known = torch.where(torch.isfinite(y), y, 0.0)
        self.projection.fit(z[usable], known[usable], rows.weight[usable])
        h = self.projection(z)
        self._estimate(h[usable], known[usable])
        self._learn(h[usable], known[usable], rows.weight[usable])
        if not bool(usable.all()):
            filled = torch.where(torch.isfinite(y), y, self.given.mean(h))
            self._learn(h, filled, rows.weight)
        return ""

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """One epoch is exact, so that there is nothing left for another."""
        if first:
            self.found.fill_(False)
            self._put(self.start)
            self.rebuild(rows, units, generator)
        return False

    def loss(self) -> float:
        """The NLML a row and column, in nats."""
        with torch.no_grad():
            return float(self.solver.nlml(self.data)) / max(self.data.count * self.shape.columns, 1.0)

    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        given, drawn = self.given, self.given.draw(paths, generator)

        @torch.no_grad()
        def observe(z: Tensor) -> Tensor:
            value = drawn(self.projection(z).unflatten(0, (paths, -1))).flatten(0, 1)
            noise = torch.randn(value.shape, generator=generator, dtype=FLOAT, device=generator.device)
            return value + noise.to(value) * given.noise.sqrt()

        return observe

    def _learn(self, h: Tensor, y: Tensor, weight: Tensor) -> None:
        """These rows from the beginning. h: (N, d), y: (N, T) finite, weight: (N,)."""
        self.data = self.solver.data()
        for parts in zip(h.split(CHUNK), y.split(CHUNK), (self.share * weight).split(CHUNK), strict=True):
            self.data.add(*parts)
        self.given = self.solver.condition(self.data)

    def _estimate(self, h: Tensor, y: Tensor) -> None:
        """Hyper-parameters by the marginal likelihood of rows thinned in time.

        Raises:
            NumericalError: it has no value where the search starts.
        """
        first = not bool(self.found)
        if self.config.learn == "once" and not first:
            return
        some = thinned(len(h), self.shape.horizon, self.config.evidence_rows, h.device)
        data = self.solver.data()
        data.add(h[some], y[some])
        starts = [self.start] if first else [self._pack(), self.start]
        before, best, least = self._pack(), None, HUGE
        bounds = [(least, BOUND) for least in self._least().tolist()]
        for start in starts:
            found = lbfgs(lambda at: self._nlml(data, at), start.to(h.device), self.config.evaluations, bounds=bounds)
            if found.value < least:
                best, least = found.at, found.value
        self._put(before if best is None else best)
        self.solver.project()
        if best is None:
            raise NumericalError(
                "the marginal likelihood has no value where its search starts", hint="set kernel and noise otherwise"
            )
        self.found.fill_(True)

    def _least(self) -> Tensor:
        """(P,) the least hyper-parameters: where the grid is accurate."""
        held = self._pack()
        self._put(torch.full_like(held, -BOUND))
        self.solver.project()
        least = self._pack()
        self._put(held)
        return least

    def _nlml(self, data: kiss.GridSums, at: Tensor) -> tuple[float, Tensor]:
        """Value and gradient at packed hyper-parameters."""
        self._put(at)
        parameters = list(self.solver.parameters())
        for one in parameters:
            one.requires_grad_(True)
        try:
            with torch.enable_grad():
                value = self.solver.nlml(data)
                slopes = torch.autograd.grad(value, parameters)
        except NumericalError:
            return HUGE, torch.zeros_like(at)
        finally:
            self.solver.requires_grad_(False)
        slope = torch.cat([one.flatten() for one in slopes])
        value = value.detach()
        finite = bool(value.isfinite()) and bool(slope.isfinite().all())
        return (float(value), slope) if finite else (HUGE, torch.zeros_like(at))

    def _pack(self) -> Tensor:
        """(P,) all hyper-parameters."""
        return torch.cat([one.detach().flatten() for one in self.solver.parameters()])

    @torch.no_grad()
    def _put(self, packed: Tensor) -> None:
        """The inverse of `_pack`."""
        parameters = list(self.solver.parameters())
        for one, part in zip(parameters, packed.split([one.numel() for one in parameters]), strict=True):
            one.copy_(part.view_as(one))

    def snapshot(self) -> Callable[[], None]:
        back, given = holding(self._parts()), self.given

        def put_back() -> None:
            back()
            self.given = given

        return put_back

    def restored(self) -> None:
        self.given = self.solver.condition(self.data)

    def _parts(self) -> Parts:
        return {"projection": self.projection, "solver": self.solver, "data": self.data, "found": self.found}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The sums to where the hyper-parameters are: they are no module, which PyTorch would move."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.data.move(self.solver.log_noise.device)
        self.given = self.solver.condition(self.data)
        return self
