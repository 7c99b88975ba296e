"""SVDGP in closed form: every batch is learned exactly, on a basis that grows with the rows.

A rebuild estimates the hyper-parameters by the evidence of thinned rows and chooses a new basis among the rows. Between
rebuilds the basis grows by the rows that it explains least; when it is full the least needed points give way.

Where nothing is forgotten, a rebuild loses all rows that the reservoir does not keep, and what was learned before a
basis point came knows nothing of it. A stream is settled whose rows since the last rebuild lie where those of the
reservoir do. Its rebuilds come in proportion to its length, once it is longer than the reservoir, and its basis is
almost full from the beginning: only novel rows, which the basis explains less than nearly all of the reservoir, join.

Learning is cubic in the basis however few the rows are, so that small batches wait until they are `TOGETHER` rows, or
an eighth of what was learned before. They are learned with the weights that they have by then.

Rows without lags that are fitted in batch are fitted too closely: the noise counts the degrees of freedom, and the
variance is widened by the mean squared error, over its variance, of blocks of neighbouring rows that are left out.
Windows with lags overlap, and the errors of a stream calibrate them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Shape
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import Search, SearchState, thinned
from streamgp.evidence.thinned import LogHyper, noises
from streamgp.kernels import squared_exponential
from streamgp.models._evidence import way_of
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.conjugate import Conjugate
from streamgp.online.posterior import Arrival, LearnedFunction, Look, RegressionPosterior, Rows, Units, tied
from streamgp.online.summing import Summing, running
from streamgp.recalled import Recalls
from streamgp.state import Declared, Record, Tensors, Value, Whole

CHUNK = 1024
"""Rows whose features are held at once."""
ROOM = 4
"""A rebuild leaves room for the growth until the next one, at most the basis divided by this."""
SPARE = 16
"""The same where the stream is settled."""
NOVEL, COMPARED = 0.99, 512
"""A row is novel whose unexplained variance is beyond quantile NOVEL of COMPARED rows of the reservoir."""
MANY = 2.0
"""Rows a basis point from which on it is known which rows are novel."""
STRANGE = 0.05
"""Part of novel rows beyond which a stream is not settled."""
EVIDENCE = 1600
"""Rows at most that estimate hyper-parameters in batch: each step is cubic in them."""
TOGETHER = 48
"""Rows that are learned at once on a stream, at least."""
SHARE = 0.125
"""Fewer are enough where they are this part of all rows that were learned."""
BLOCKS, CHECKED = 50, 4096
"""Equal blocks that a batch is cut into, and rows at most of those that are left out in turn, evenly spread."""


class UnlearnedRows(NamedTuple):
    """Rows that are not learned yet.

    Attributes:
        z: (N, W) standardised windows.
        phi: (N, E + m) their features.
        y: (N, T) standardised targets, NaN = not observed.
        weight: (N,) what they count for now, after forgetting.
    """

    z: Tensor
    phi: Tensor
    y: Tensor
    weight: Tensor


class BasisFeatures(NamedTuple):
    """Features of windows z (N, W), φ (N, E + m), on the basis with this factor C: no method changes one in place."""

    z: Tensor
    phi: Tensor
    lower: Tensor


class SvdgpPosterior(Declared, Recalls, RegressionPosterior):
    """See the module; built by `streamgp.models.svdgp.build`.

    Args:
        config: of the model.
        shape: of the windows.
        groups: (W,) the group of each column, of `KernelInputs`.
        count: G.

    Attributes:
        factor: (T,) on the variance, 1 but after a fit in batch.
        lasting: whether nothing is forgotten.
        novelty: unexplained variance from which on a row is novel; 0: not known.
        novel: rows since the basis was chosen that were.
        sparing: whether only these become basis points.
    """

    STATE = (
        Record("waiting", UnlearnedRows, beside="regression.weight"),
        SearchState("search"),
        Tensors("factor"),
        *(Value(name, int) for name in ("since", "epochs", "novel")),
        *(Value(name, float) for name in ("kept", "novelty")),
        Value("sparing", bool),
        Whole("regression"),
    )
    NOT_STATE: ClassVar = {
        "latest": "features kept so that they are not computed twice",
        "learning": "true only while no rows wait, and then what reads it finds none either way",
    }
    regression: Conjugate
    factor: Tensor

    def __init__(self, config: Config, shape: Shape, groups: Tensor, count: int) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        linear = config.linear and len(groups) <= config.basis
        apart = shape.outputs > 1
        self.regression = Conjugate(len(groups), shape.columns, config.basis, linear, config.beta, apart)
        kernel = squared_exponential.build(squared_exponential.Config(), len(groups))
        self.search = Search(count, config.learn == "once", way_of(config, kernel))
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.lasting, self.carries = config.forgetting(shape) is None, config.online == "transfer"
        self.novelty, self.novel, self.sparing = 0.0, 0, False
        self.since = 0  # rows since the basis was chosen
        self.epochs = 0  # of the fit that is going on
        self.waiting: UnlearnedRows | None = None
        self.learning = False  # whether the newest rows were learned with those that waited
        self.kept = 1.0  # part of the weight of what was learned that is left since
        self.latest: BasisFeatures | None = None

    @property
    def sums_rows(self) -> bool:
        return True

    @property
    def shares_rows(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.regression.points)

    def interval(self, rebuild: int, seen: int) -> float:
        return rebuild * max(1.0, seen / self.config.reservoir) if self.settled else rebuild

    @property
    def settled(self) -> bool:
        """Whether nothing is forgotten, and rows come from where those before them came."""
        return self.lasting and self.novelty > 0 and self.novel <= STRANGE * self.since

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel of `conjugate`; rows were learned with the noise of the evidence."""
        own, hyper = self.regression, self.search.hyper
        kernel = tied(squared_exponential.Config(), groups, hyper.lengthscale, hyper.outputscale)
        apart = own.noise.dim() > 0 and self.search.found
        noise = own.noise / self.config.tempering(self.shape) if apart else hyper.noise.exp()
        slopes = own.slopes if own.explicit else None
        return LearnedFunction(kernel, noise.expand(self.shape.columns), own.points / own.inverse, slopes=slopes)

    def look(self, z: Tensor) -> Look:
        phi = self._features(z)
        mean, latent = self.regression.mean(phi), self.regression.variance(phi)
        return Look(z, phi, mean, latent * self.factor, self.regression.residual * self.factor)

    def covariance(self, z: Tensor) -> Tensor:
        return self.regression.joint(z) * self.factor[:, None, None]

    def glance(self, z: Tensor) -> Look:
        """Without the latent variance, which costs as much as the features."""
        phi = self._features(z)
        mean = self.regression.mean(phi)
        return Look(z, phi, mean, mean.new_zeros(len(z), 1), self.regression.residual * self.factor)

    def _features(self, z: Tensor) -> Tensor:
        """φ of windows; of those forecast last they are not computed again to learn them."""
        last = self.latest
        if last is not None and last.lower is self.regression.lower and torch.equal(last.z, z):
            return last.phi
        recalled = self.recall()
        if recalled is None:
            phi = self.regression.features(z)
        else:
            (phi,) = recalled.of([z], lambda some: [self.regression.features(z[some])], [0])
        self.latest = BasisFeatures(z, phi, self.regression.lower) if len(z) <= CHUNK else None
        return phi

    def measured(self, look: Look, rows: Tensor) -> Look:
        variance = self.regression.variance(look.features[rows])
        latent = look.latent.repeat(1, variance.shape[1])
        latent[rows] = variance
        return look._replace(latent=latent * self.factor)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        """Learn the rows that wait and these, once they are enough."""
        new = UnlearnedRows(look.z, look.features, arrival.y, arrival.y.new_ones(len(arrival.y)))
        old, self.kept, self.learning = self.waiting, self.kept * arrival.kept, False
        if old is not None:
            old = old._replace(weight=old.weight * arrival.kept)
            new = UnlearnedRows(*(torch.cat(pair) for pair in zip(old, new, strict=True)))
        self.waiting = new
        return self._learn(new) if len(new.y) >= self._enough else ""

    def waits(self, rows: int) -> bool:
        return rows + (0 if self.waiting is None else len(self.waiting.y)) < self._enough

    @property
    def _enough(self) -> float:
        """Rows that are learned at once."""
        return min(TOGETHER, SHARE * float(self.weight))

    def _learn(self, new: UnlearnedRows) -> str:
        """Grow the basis by its share of the rows, and learn them. O(M²N + M³), M basis functions."""
        (z, phi, y, weight), growth, event = new, self.config.growth, ""
        self.learning = True
        before, self.since = self.since, self.since + len(y)
        rows = math.floor(growth * self.since) - math.floor(growth * before)
        if self.novelty:
            novel = int((self.regression.unexplained(phi) > self.novelty).sum())
            self.novel += novel
            rows = min(rows, novel) if self.sparing else rows
        excess = self.size + rows - self.config.basis
        if excess > 0:
            given = min(max(excess, self.config.basis // 8), self.size - 1)
            self.regression.shrink(given)
            phi = self.regression.features(z)
            rows = min(rows, self.config.basis - self.size)
            event = f"{given} basis points replaced"
        if rows > 0:
            phi = self.regression.grow(z, phi, rows)
        self.regression.absorb(phi, y, weight, self.kept)
        self.regression.solve()
        self.waiting, self.kept = None, 1.0
        return event

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        size, sparing = self._room(), self.settled
        self._begin(rows, units, size, self.config.evidence_rows, generator, running)
        self.sparing = sparing
        return ""

    def transfer(self, rows: Rows, units: Units, generator: Generator) -> str:
        """See `Conjugate.move`; rows that wait are learned later, on the new basis."""
        size, sparing = self._room(), self.settled
        hyper, noise = self._found(rows, units, self.config.evidence_rows)
        inverse, outputscale = units.inverse(hyper.lengthscale), hyper.outputscale.exp()
        stay, new, lost = self.regression.move(rows.z, size, inverse, outputscale, noise, generator)
        self._chosen(rows)
        if self.waiting is not None:
            self.waiting = self.waiting._replace(phi=self.regression.features(self.waiting.z))
        self.sparing = sparing
        return f"{stay} basis points kept, {new} new, {lost:.2g} nats lost"

    def _room(self) -> int:
        """Basis points after a rebuild, with room for the growth until the next."""
        coming = math.ceil(self.config.growth * self.config.rebuild) if self.config.rebuild else self.config.basis
        return self.config.basis - min(coming, self.config.basis // (SPARE if self.settled else ROOM))

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """The first epoch has the basis of a stream; every further one doubles the functions of the mean, up to
        `mean_basis`, and takes the hyper-parameters from more rows."""
        self.epochs = 0 if first else self.epochs
        most = max(self.config.basis, min(self.config.mean_basis, len(rows.y)))
        size = min(self.config.basis << self.epochs, most)
        evidence_rows = min(self.config.evidence_rows << self.epochs, EVIDENCE)
        self._begin(rows, units, size, evidence_rows, generator, self.summing)
        self.epochs += size < most
        if not self.shape.lags:
            self.regression.unbias()
            if size <= self.config.beta:  # beyond, the variance has fewer functions than the mean: it is wide enough
                self.factor = self._widening(rows)
        return size < most

    def _widening(self, rows: Rows) -> Tensor:
        """(T,) what blocks that are left out say of the variance, at least 1."""
        blocks = torch.arange(len(rows.y), device=rows.z.device).tensor_split(min(BLOCKS, len(rows.y)))
        squares = [
            self.regression.left_out(self.regression.features(rows.z[block]), rows.y[block])
            for block in blocks[:: -(-len(rows.y) // CHECKED)]
        ]
        return torch.nanmean(torch.cat(squares), 0).nan_to_num(1.0).clamp(min=1.0)

    def start_from(self, initial: Initial) -> None:
        initial.radial("svdgp", "squared_exponential")
        if self.config.jumps:
            hint = "leave out --init, or give these inputs as columns of their own"
            raise UsageError("the hyper-parameters of --init have no lengthscale of what jumps adds", hint=hint)
        self.search.initial = initial

    def _begin(
        self, rows: Rows, units: Units, size: int, evidence_rows: int, generator: Generator, summing: Summing
    ) -> None:
        """New hyper-parameters and a basis of `size` points, and the rows learned with them."""
        hyper, noise = self._found(rows, units, evidence_rows)
        chosen = torch.randperm(len(rows.y), generator=generator)[:size].to(rows.z.device)
        self.regression.begin(rows.z[chosen], units.inverse(hyper.lengthscale), hyper.outputscale.exp(), noise)
        summing(self.regression, _absorb, (rows.z, rows.filled, rows.weight), CHUNK)
        self.regression.solve()
        self.waiting, self.kept = None, 1.0
        self._chosen(rows)

    def _found(self, rows: Rows, units: Units, evidence_rows: int) -> tuple[LogHyper, Tensor]:
        """Hyper-parameters with the best evidence of thinned rows, and the noise of the updates, tempered."""
        thin = thinned(len(rows.y), self.shape.horizon, self.config.thin(evidence_rows), rows.z.device)
        z, y = rows.z[thin], rows.filled[thin]
        hyper = self.search.run(z, y, units.groups, units.inputs, units.outputs)
        noise = noises(z, y, units.groups, hyper, self.shape.outputs)
        return hyper, noise * self.config.tempering(self.shape)

    def _chosen(self, rows: Rows) -> None:
        """A new basis was chosen among these rows."""
        self.since = 0
        self.factor = torch.ones_like(self.factor)
        self.novelty, self.novel, self.sparing = 0.0, 0, False
        if self.lasting and len(rows.y) >= MANY * self.config.basis:
            some = torch.linspace(0, len(rows.y) - 1, COMPARED, device=rows.z.device).round().long()
            gap = self.regression.unexplained(self.regression.features(rows.z[some]))
            self.novelty = float(gap.quantile(NOVEL))

    def snapshot(self) -> Callable[[], None]:
        """References suffice: no method of the regression changes a tensor in place. Rows that waited are given up with
        those that could not be learned: nobody knows whose fault it was."""
        regression, hyper = self.regression.holding(), self.search.held()
        rest, waiting = (self.since, self.epochs, self.kept, self.factor), self.waiting
        growth = self.novelty, self.novel, self.sparing

        def put_back() -> None:
            regression()
            self.search.put_back(hyper)
            self.since, self.epochs, self.kept, self.factor = rest
            self.novelty, self.novel, self.sparing = growth
            self.waiting = None if self.learning else waiting

        return put_back


def _absorb(regression: Conjugate, z: Tensor, y: Tensor, weight: Tensor) -> None:
    """Standardised windows (N, W), targets (N, T) and weights (N,) into the sums."""
    regression.absorb(regression.features(z), y, weight)
