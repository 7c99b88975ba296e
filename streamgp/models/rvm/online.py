"""A relevance vector machine on a stream: selected anew from its reservoir now and then, exact in between.

A rebuild takes a new scaling, new hyper-parameters (by the evidence of thinned rows) and a new dictionary, the kept
windows and others from a bounded, recency-weighted sample of the stream, and selects from it. Between rebuilds the kept
functions are a fixed basis, whose posterior is exact (`posterior`). Selection and evidence know no missing target:
they take one as it is predicted, and as noisy as it would be; what is selected then learns from what was observed.

All T columns share the functions, their precisions, and so one Cholesky factor: a forecast of 48 steps ahead costs what
one step does, and has one set of relevance vectors.

A sum of local functions is certain that it is 0 far from them. Proposition 4 of Evans & Nair (2020) adds a function at
the test point, with the outputscale of the exact GP as prior variance of its weight: that restores the prior's variance
away from the rows and adds about σ²/n' near n' of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Shape, Step
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.lbfgs import Evidence, descend
from streamgp.evidence.lbfgs import start as beginning
from streamgp.evidence.thinned import Hyper
from streamgp.features.inducing import augmentation
from streamgp.kernels import squared_exponential
from streamgp.models.rvm.config import Config
from streamgp.models.rvm.functions import Functions
from streamgp.models.rvm.posterior import Regression
from streamgp.models.rvm.selection import select
from streamgp.online.inputs import KernelInputs
from streamgp.online.learned_reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir, Sample
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts, gather, scatter
from streamgp.online.winsorise import Limit
from streamgp.predictives.gaussian import Gaussian

CHUNK = 1024
"""Rows whose functions are held at once."""
EVIDENCE = 1000
"""Rows at most that estimate hyper-parameters in batch: each evaluation is cubic in them."""
EVALUATIONS = 30
"""Of the evidence, at the first estimate; a third of them later."""
PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
ANCHORS = 256
"""Rows that Σ_n k(x_n, x)² is estimated from."""


class RelevanceVectors(NamedTuple):
    """What a model is made of.

    Attributes:
        x: b windows, in the units of the columns.
        precision: (b,) s of their functions' weights, in units of the standardised targets.
        weight: (b, T) the weights, in the targets' units.
        columns: (a,) columns of the flattened window whose linear functions are kept as well; W is the constant.
    """

    x: Inputs
    precision: Tensor
    weight: Tensor
    columns: Tensor


class OnlineRvm(Model):
    """See the module; built by `build`.

    Raises:
        UsageError: linear functions are wanted, and are more than half of the dictionary.
    """

    family = Gaussian

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        self.width = len(self.inputs.groups)
        if config.linear is True and not self._linear:
            raise UsageError(
                f"linear=true: {self.width + 1} linear functions are more than half of dictionary={config.dictionary}",
                hint=f"set dictionary to {2 * (self.width + 1)} or more, or leave out linear",
            )
        self.kernel = squared_exponential.build(squared_exponential.Config(), self.width).requires_grad_(False)
        self.functions = Functions(shape, self.kernel, config.basis)
        self.regression = Regression(shape.columns, config.basis)
        self.outputs = Standardiser(shape.columns)
        self.reservoir = Reservoir(config.reservoir, shape, config.forgetting(shape))
        self.limit = Limit(shape, config.limit)
        self.reference = reference(config.target, shape, config.decay)
        self.hyper = beginning(self.inputs.count)
        self.initial: Initial | None = None
        self.generator = torch.Generator().manual_seed(config.seed)
        self.rebuilt = 0  # rows seen at the last rebuild
        self.fitted = ""  # the batch that was fitted last
        self.anchors: Tensor
        self.register_buffer("anchors", torch.zeros(ANCHORS, self.width, dtype=FLOAT))  # kernel inputs of some rows

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def relevance_vectors(self) -> RelevanceVectors:
        """The windows that predictions are made of, with the precisions and weights of their functions.

        Example:
            >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
            >>> OnlineRvm(Config(), shape).relevance_vectors().weight.shape
            torch.Size([0, 1])
        """
        ahead = len(self.functions.columns)
        weight = self.regression.coefficients[ahead:] * self.outputs.scale.to(self.anchors.device)
        return RelevanceVectors(
            self.functions.x, self.regression.precision[ahead:], weight, self.functions.columns.clone()
        )

    def predict(self, x: Inputs) -> Gaussian:
        z = self.inputs(x)
        phi, scale = self.functions(z), self.outputs.scale.to(z.device)
        mean = self.regression.mean(phi) * scale + self.outputs.location.to(z.device) + self.reference(x)
        latent = self.regression.variance(phi)[:, None].expand(-1, self.shape.columns)
        if self.config.augment:
            latent = latent + self._beyond(z)
        return Gaussian(mean, latent * scale.square(), self.regression.residual * scale.square())

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that."""
        initial.check(self.shape, self.config.target, self.config.decay)
        initial.radial("rvm", ("squared_exponential",))
        self.initial = initial

    def _beyond(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T): what a function at each row would add to the latent variance."""
        outputscale = self.hyper.outputscale.exp().to(z.device)
        rows = self.regression.weight / self.config.tempering(self.shape)
        norm = outputscale.square() * self.kernel.correlation(z, self.anchors).square().mean(1) * rows
        return augmentation(outputscale.expand(len(z)), norm, self.regression.residual)

    def update(self, x: Inputs, y: Tensor) -> Step:
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return self._step("nothing observed")
        self.fitted = ""
        if self.rebuilt:
            y = self.limit(y, self.predict(x), self.regression.weight)
        self.reservoir.offer(x, y, self.generator)
        since = self.seen - self.rebuilt
        if not self.rebuilt:
            return self._rebuild("first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._rebuild(f"{since} rows")
        memory = self.config.forgetting(self.shape)
        kept = 1.0 if memory is None else math.exp(-len(y) / memory)
        self.regression.absorb(self.functions(self.inputs(x)), self._targets(x, y), y.new_ones(len(y)), kept)
        self.regression.solve()
        return self._step("update")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """An epoch selects from the windows kept so far and others of these, equally weighted, with the evidence of
        more rows than the last. There is no more when all windows have been in one dictionary. A fit of the same
        windows selects once more, and has no new rows.
        """
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if epochs < 1 or not len(y):
            return
        batch = f"{len(y)} " + " ".join(repr(float(torch.nan_to_num(part).sum())) for part in (*x, y))
        if batch != self.fitted:
            self.reservoir.offer(x, y, self.generator)
            self.fitted = batch
        sample = Sample(x, y, y.new_ones(len(y)))
        for epoch in range(epochs):
            rows = max(min(self.config.evidence_rows << epoch, EVIDENCE), self.config.evidence_rows)
            yield self._learn_anew(sample, rows, "epoch")
            if len(y) <= self._room:
                return

    @property
    def _room(self) -> int:
        """Windows that a dictionary holds, beside the linear functions."""
        return max(self.config.dictionary - self._linear, 1)

    @property
    def _linear(self) -> int:
        """Linear functions in a dictionary: all columns and a constant, or none where that is more than half of it."""
        wanted = bool(self.shape.lags) if self.config.linear == "auto" else self.config.linear
        return self.width + 1 if wanted and 2 * (self.width + 1) <= self.config.dictionary else 0

    def _step(self, done: str) -> Step:
        loss = self.regression.loss()
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.regression.coefficients).all())
        return Step(loss, len(self.functions), healthy, done)

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised; NaN stays NaN."""
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)

    def _rebuild(self, why: str) -> Step:
        return self._learn_anew(self.reservoir.sample(), self.config.evidence_rows, f"rebuild: {why}")

    def _learn_anew(self, sample: Sample, evidence_rows: int, why: str) -> Step:
        """New scaling, hyper-parameters and selection, and the sample learned with them."""
        x, y, _ = sample
        first, filled = not self.rebuilt, y
        if not bool(torch.isfinite(y).all()):
            if first:  # nothing predicts yet: the mean of what is seen
                self._take(sample, y, evidence_rows, EVALUATIONS)
            issued = self.predict(x)
            draw = torch.randn(y.shape, generator=self.generator, dtype=FLOAT).to(y.device)
            filled = torch.where(torch.isfinite(y), y, issued.mean + issued.noise.sqrt() * draw)
        done = self._take(sample, filled, evidence_rows, EVALUATIONS if first else EVALUATIONS // 3)
        self.rebuilt = self.seen
        return self._step(f"{why}; {done}")

    def _take(self, sample: Sample, filled: Tensor, evidence_rows: int, evaluations: int) -> str:
        """See `_learn_anew`. filled: (N, T) targets to estimate and select by; what is NaN counts as the mean."""
        x, y, weight = sample
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)
        z, target = self.inputs(x), self._targets(x, y)
        filled = torch.nan_to_num(self._targets(x, filled))
        self._estimate(z, filled, evidence_rows, evaluations)
        dictionary = self._dictionary(x)
        temper = self.config.tempering(self.shape)
        share = weight * torch.isfinite(target).to(FLOAT).mean(1) / temper
        noise = float(self.hyper.noise.exp())
        kept = select(self.config, dictionary, z, filled, share, noise, self.generator)
        ahead = len(dictionary.columns)
        windows = kept.places[kept.places >= ahead] - ahead
        points = dictionary.features.points[windows]
        self.functions.put(kept.places[kept.places < ahead], dictionary.x.rows(windows), points)
        self.regression.begin(kept.precision, kept.noise * temper)
        parts = [slice(start, start + CHUNK) for start in range(0, len(y), CHUNK)]
        self.regression.learn(lambda: ((self.functions(z[part]), target[part], weight[part]) for part in parts))
        chosen = torch.multinomial(weight.cpu(), ANCHORS, replacement=True, generator=self.generator)
        self.anchors.copy_(z[chosen.to(z.device)])
        return f"{len(windows)} relevance vectors of {len(dictionary.x.past)}"

    def _dictionary(self, x: Inputs) -> Functions:
        """The kept windows and others of x, in random order, and the linear functions."""
        fresh = torch.randperm(len(x.past), generator=self.generator)
        old = self.functions.x.rows(slice(None if len(x.past) > self._room else 0)).to(x.past.device)
        fresh = fresh[: max(self._room - len(old.past), 0)].to(x.past.device)
        windows = Inputs(torch.cat((old.past, x.past[fresh])), torch.cat((old.future, x.future[fresh])))
        dictionary = Functions(self.shape, self.kernel, self._linear + len(windows.past)).to(x.past.device)
        dictionary.put(torch.arange(self._linear, device=x.past.device), windows, self.inputs(windows))
        return dictionary

    def _estimate(self, z: Tensor, target: Tensor, most: int, evaluations: int) -> None:
        """Hyper-parameters of an exact GP on at most so many rows, evenly spread: about three a horizon."""
        count = min(max(3 * len(z) // self.shape.horizon, 60), most, len(z))
        thin = torch.linspace(0, len(z) - 1, count, device=z.device).round().long()
        once = self.config.learn == "once"
        if self.initial is not None and (once or not self.rebuilt):
            self.hyper = self.initial.hyper(self.inputs.scale, self.outputs.scale)
        if not once or not (self.rebuilt or self.initial):
            evidence = Evidence(z[thin], target[thin], self.inputs.groups, self.kernel.profile)
            self.hyper, _ = descend(evidence, self.hyper, evaluations)
        width = math.log(self.config.widening)
        self.kernel.log_lengthscale.copy_(width - self.inputs.inverse(self.hyper.lengthscale).log())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = gather(self._parts())
        tensors |= {"hyper": self.hyper.pack(), "generator": self.generator.get_state()}
        return tensors, {"parts": rest, "rebuilt": self.rebuilt, "fitted": self.fitted}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        scatter(self._parts(), tensors, parts)
        self.hyper = Hyper.unpack(tensors["hyper"].clone())
        self.generator.set_state(tensors["generator"].cpu())
        self.rebuilt, self.fitted = int(str(rest["rebuilt"])), str(rest["fitted"])

    def _parts(self) -> Parts:
        names = ("inputs", "kernel", "functions", "regression", "outputs", "reservoir", "limit", "anchors")
        parts = {name: getattr(self, name) for name in names}
        return parts | ({"reference": self.reference} if isinstance(self.reference, LearnedReference) else {})
