"""SVDGP in closed form on a stream: learns every batch exactly, and rebuilds itself from its reservoir now and then.

A rebuild takes a new scaling, new hyper-parameters (by the evidence of thinned rows) and a new basis from a bounded,
recency-weighted sample of the stream, and learns that sample. Between rebuilds the basis grows by the rows that it
explains least; when it is full the least needed points give way. A row of the stream is limited before it is learned or
kept (`online.winsorise`): one glitch kept would set the scaling and the hyper-parameters of the next rebuild.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from streamgp.base import Inputs, Json, Model, Shape, Step
from streamgp.errors import NumericalError
from streamgp.evidence.initial import Initial
from streamgp.evidence.thinned import Hyper, estimate
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.conjugate import Conjugate
from streamgp.online.inputs import KernelInputs
from streamgp.online.learned_reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir, Sample
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts, holding
from streamgp.online.winsorise import Limit
from streamgp.predictives.gaussian import Gaussian

CHUNK = 1024
"""Rows whose features are held at once."""
ROOM = 4
"""A rebuild leaves room for the growth until the next one, at most the basis divided by this."""
EVIDENCE = 1600
"""Rows at most that estimate hyper-parameters in batch: each step is cubic in them."""
STEPS, FURTHER = 60, 30
"""Of Adam on the hyper-parameters, at first and from others."""
PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""


class OnlineSvdgp(Model):
    """See the module; built by `build`."""

    family = Gaussian

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        width = len(self.inputs.groups)
        linear = config.linear and width <= config.basis
        self.posterior = Conjugate(width, shape.columns, config.basis, linear, covariance=config.basis)
        self.outputs = Standardiser(shape.columns)
        self.reservoir = Reservoir(config.reservoir, shape, config.forgetting(shape))
        self.limit = Limit(shape, config.limit)
        self.reference = reference(config.target, shape, config.decay)
        self.hyper = Hyper.start(self.inputs.count)
        self.initial: Initial | None = None
        self.generator = torch.Generator().manual_seed(config.seed)
        self.rebuilt = 0  # rows seen at the last rebuild

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def predict(self, x: Inputs) -> Gaussian:
        phi = self.posterior.features(self.inputs(x))
        scale = self.outputs.scale.to(phi.device)
        mean = self.posterior.mean(phi) * scale + self.outputs.location.to(phi.device) + self.reference(x)
        latent = self.posterior.variance(phi)[:, None] * scale.square()
        return Gaussian(mean, latent, self.posterior.residual * scale.square())

    def update(self, x: Inputs, y: Tensor) -> Step:
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return Step(self.posterior.loss(), self._size, True, "nothing observed")
        if self.rebuilt:
            y = self.limit(y, self.predict(x), self.posterior.weight)
        since = self.seen + len(y) - self.rebuilt
        if not self.rebuilt:
            return self._rebuild(x, y, "rebuild: first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            step = self._rebuild(x, y, f"rebuild: {since} rows")
            self.rebuilt = self.seen
            return step
        return self._undoing(lambda: self._learn(x, y, since), "update", {})

    def _undoing(self, work: Callable[[], Step], what: str, kept: Parts) -> Step:
        """Do it; where it fails numerically all is put back, `kept` too, and the step tells."""
        posterior, hyper, rebuilt = self.posterior.holding(), self.hyper, self.rebuilt
        learned = {"reference": self.reference} if isinstance(self.reference, LearnedReference) else {}
        others = holding({"inputs": self.inputs, "outputs": self.outputs, **learned, **kept})
        try:
            step = work()
            why = "" if step.healthy else "its numbers are not finite"
        except NumericalError as error:
            why = error.message
        if not why:
            return step
        posterior()
        others()
        self.hyper, self.rebuilt = hyper, rebuilt
        return Step(self.posterior.loss(), self._size, False, f"{what}; undone: {why}")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """The first epoch fits the basis of a stream to all windows, equally weighted; every further one doubles the
        functions of the mean, up to `mean_basis`, and takes the hyper-parameters from more rows. Then there is no more.
        """
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if epochs < 1 or not len(y):
            return
        self.reservoir.offer(x, y, self.generator)
        most = max(self.config.basis, min(self.config.mean_basis, len(y)))
        for epoch in range(epochs):
            size = min(self.config.basis << epoch, most)
            rows = min(self.config.evidence_rows << epoch, EVIDENCE)
            yield self._learn_anew(Sample(x, y, y.new_ones(len(y))), size, rows)._replace(done="epoch")
            if size == most:
                return

    @property
    def _size(self) -> int:
        return len(self.posterior.points)

    def _step(self, done: str) -> Step:
        loss = self.posterior.loss()
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.posterior.coefficients).all())
        return Step(loss, self._size, healthy, done)

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised; NaN stays NaN."""
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)

    def _learn(self, x: Inputs, y: Tensor, since: int) -> Step:
        """Grow the basis by its share of the new rows, and learn and keep them; `since`: rows since the rebuild."""
        z = self.inputs(x)
        phi = self.posterior.features(z)
        done, growth = "update", self.config.growth
        rows = math.floor(growth * since) - math.floor(growth * (since - len(y)))
        excess = self._size + rows - self.config.basis
        if excess > 0:
            given = min(max(excess, self.config.basis // 8), self._size - 1)
            self.posterior.shrink(given)
            phi = self.posterior.features(z)
            rows = min(rows, self.config.basis - self._size)
            done = f"update: {given} basis points replaced"
        if rows > 0:
            phi = self.posterior.grow(z, phi, rows)
        memory = self.config.forgetting(self.shape)
        kept = 1.0 if memory is None else math.exp(-len(y) / memory)
        self.posterior.absorb(phi, self._targets(x, y), y.new_ones(len(y)), kept)
        self.posterior.solve()
        self.reservoir.offer(x, y, self.generator)
        return self._step(done)

    def _rebuild(self, x: Inputs, y: Tensor, what: str) -> Step:
        """Keep the new rows, and start anew from the reservoir, with room in the basis for what comes."""
        config = self.config
        coming = math.ceil(config.growth * config.rebuild) if config.rebuild else config.basis
        size = config.basis - min(coming, config.basis // ROOM)

        def anew() -> Step:
            self.reservoir.offer(x, y, self.generator)
            return self._learn_anew(self.reservoir.sample(), size, config.evidence_rows)._replace(done=what)

        return self._undoing(anew, what, {"reservoir": self.reservoir})

    def _learn_anew(self, sample: Sample, size: int, evidence_rows: int) -> Step:
        """New scaling, hyper-parameters and basis of `size` points, and the sample learned with them."""
        x, y, weight = sample
        if self.rebuilt and not bool(torch.isfinite(y).all()):  # the missing as predicted: it teaches nothing new
            y = torch.where(torch.isfinite(y), y, self.predict(x).mean)
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)
        thin = self._thin(len(y), evidence_rows)
        self.hyper, steps = self._start()
        if steps:
            target = torch.nan_to_num(self._targets(x.rows(thin), y[thin]))
            self.hyper = estimate(self.inputs(x.rows(thin)), target, self.inputs.groups, self.hyper, steps=steps)
        chosen = torch.randperm(len(y), generator=self.generator)[:size].to(y.device)
        inverse = self.inputs.inverse(self.hyper.lengthscale)
        noise = self.hyper.noise.exp() * self.config.tempering(self.shape)
        self.posterior.begin(self.inputs(x.rows(chosen)), inverse, self.hyper.outputscale.exp(), noise)
        for start in range(0, len(y), CHUNK):
            part = slice(start, start + CHUNK)
            phi = self.posterior.features(self.inputs(x.rows(part)))
            self.posterior.absorb(phi, self._targets(x.rows(part), y[part]), weight[part])
        self.posterior.solve()
        self.rebuilt = self.seen
        return self._step("")

    def _start(self) -> tuple[Hyper, int]:
        """Where an estimation of hyper-parameters starts, under the scaling of now, and how many steps it takes."""
        once = self.config.learn == "once"
        if self.initial is not None and (once or not self.rebuilt):
            return self.initial.hyper(self.inputs.scale, self.outputs.scale), 0 if once else FURTHER
        return (self.hyper, 0 if once else FURTHER) if self.rebuilt else (self.hyper, STEPS)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that."""
        initial.check(self.shape, self.config.target, self.config.decay)
        initial.radial("svdgp", ("squared_exponential",))
        self.initial = initial

    def _thin(self, rows: int, most: int) -> Tensor:
        """Indices of the rows for the evidence, evenly spread: about three a horizon."""
        count = max(3 * rows // self.shape.horizon, 60)
        count = min(count, most, rows)
        return torch.linspace(0, rows - 1, count, device=self.inputs.groups.device).round().long()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"hyper": self.hyper.pack(), "generator": self.generator.get_state()}
        rest: dict[str, Json] = {"rebuilt": self.rebuilt}
        for name, part in (("inputs", self.inputs), ("posterior", self.posterior), ("outputs", self.outputs)):
            inner, more = part.state()
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
            rest[name] = more
        tensors |= {f"buffers.{name}": value for name, value in self._plain().items()}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        self.hyper = Hyper.unpack(tensors["hyper"].clone())
        self.generator.set_state(tensors["generator"].cpu())
        self.rebuilt = int(str(rest["rebuilt"]))
        for name, part in (("inputs", self.inputs), ("posterior", self.posterior), ("outputs", self.outputs)):
            more = rest[name]
            assert isinstance(more, dict)
            part.restore({key[len(name) + 1 :]: t for key, t in tensors.items() if key.startswith(f"{name}.")}, more)
        for name, value in self._plain().items():
            value.copy_(tensors[f"buffers.{name}"])

    def _plain(self) -> dict[str, Tensor]:
        """Buffers of fixed shape that need nothing beside them."""
        return {
            name: value
            for name, value in self.named_buffers()
            if name.startswith(("reservoir.", "reference.", "limit."))
        }
