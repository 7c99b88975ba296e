"""QSGP as a model: units, references and windows around its engine, on a stream and in batch.

Every update lets new windows into a recency-weighted reservoir, takes the residuals of those that came in, and visits
the first block and the `visits` others whose turn it is (`engine`). Forgetting changes nothing but the weights of
the kept rows. A rebuild takes a new scaling, reference and hyper-parameters from the reservoir, keeps the frequencies,
and sweeps over all blocks from zero.

With a Gaussian likelihood a row of the stream is limited before it is learned or kept (`online.winsorise`), and an
update that fails numerically is undone.

In batch all windows count alike, and every sweep over all blocks is an epoch; where windows do not overlap some are
held out for the noise, since of the others a large basis leaves too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from streamgp import choice
from streamgp.base import Inputs, Json, Model, Predictive, Shape, Step
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.thinned import Hyper
from streamgp.likelihoods import gaussian
from streamgp.likelihoods._base import Likelihood
from streamgp.models.qsgp.config import MANY, Config
from streamgp.models.qsgp.engine import Engine, Lesson
from streamgp.models.qsgp.held import enough, judge, shares, undoing
from streamgp.models.qsgp.hyper import Estimate, accept, estimate, given, height, thinned
from streamgp.models.qsgp.parts import engine_of
from streamgp.models.qsgp.sites import RECENT
from streamgp.online.inputs import KernelInputs
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.reservoir import Reservoir
from streamgp.online.scaling import Standardiser
from streamgp.online.state import fingerprint, gather, scatter
from streamgp.online.winsorise import SETTLED, Limit

PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
ENOUGH = 1e-4
"""Nats a row; a sweep that gains less is the last."""


class OnlineQsgp(Model):
    """See the module; built by `build`.

    Raises: UsageError: targets without units are to be learned as a change or departure.
    """

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        self.outputs = Standardiser(shape.columns)
        self.likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        if config.outcomes and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood=logistic, whose targets are no amounts",
                hint="leave out --set target: what the target was stands in the lags",
            )
        self.reference = reference("level" if config.outcomes else config.target, shape, config.decay)
        self.engine: Engine = engine_of(config, shape, len(self.inputs.groups), self.likelihood)
        self.family = self.engine.sites.family
        self.reservoir = Reservoir(config.reservoir, shape, config.forgetting(shape))
        most = config.limit if isinstance(config.likelihood, gaussian.Config) else None
        self.limit = Limit(shape, most, max(SETTLED, 20.0 * (shape.lags + shape.horizon)))  # as windows overlap
        self.found: Estimate | None = None
        self.initial: Initial | None = None
        self.generator = torch.Generator().manual_seed(config.seed)
        self.rebuilt = 0  # rows seen at the last rebuild
        self.fitted = ""  # the batch that was fitted last
        self.epochs = 0  # of its fit
        self.stale = False  # whether rows are kept that the engine does not have yet

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first estimate starts there, or with learn=once is that."""
        accept(initial, self.config, self.shape, self.engine.kernel)
        self.initial = initial

    def predict(self, x: Inputs) -> Predictive:
        z = self.inputs(x)
        mean = self.engine.mean(z)
        issued = self.engine.sites.predictive(mean, self.engine.variance(z)[:, None].expand_as(mean))
        if self.config.outcomes:
            return issued
        return issued.affine(self.outputs.scale.to(z.device), self.outputs.location.to(z.device) + self.reference(x))

    def update(self, x: Inputs, y: Tensor) -> Step:
        x, y = self._observed(x, y)
        if not len(y):
            return Step(float("nan"), self.engine.basis.size, True, "nothing observed")
        return undoing(self, lambda: self._learn(x, y), self.engine.basis.inner.capacity <= MANY)

    def _learn(self, x: Inputs, y: Tensor) -> Step:
        if self.rebuilt:
            y = self.limit(y, self.predict(x), self.reservoir.seen)
        before, self.fitted = self.reservoir.key.clone(), ""
        if self.stale:
            self._take_up()
        self.reservoir.offer(x, y, self.generator)
        since = self.seen - self.rebuilt
        if not self.rebuilt:
            return self._rebuild("first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._rebuild(f"{since} rows")
        self._enter(x, y, (self.reservoir.key != before).nonzero()[:, 0])
        self.engine.learn(len(y))
        return self._step("update", self.engine.current)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Sweeps over all windows, equally weighted, until one changes nothing; a fit of the same windows goes on where
        the last one ended. `update` goes on from the reservoir of them.
        """
        x, y = self._observed(x, y)
        if epochs < 1 or not len(y):
            return
        sites, batch = self.engine.sites if self.shape.horizon == 1 else None, fingerprint(x, y)
        share = shares(len(y), sites, self.config.seed).to(y.device)
        if batch != self.fitted:
            self.reservoir.offer(x, y, self.generator)
            self._begin(x, y, torch.ones_like(share))
            self.fitted, self.epochs, self.stale = batch, 0, True
        z, target = self.inputs(x), self._targets(x, y)
        lesson = self.engine.lesson(z, target, share)
        if not enough(lesson):
            share = torch.ones_like(share)
            lesson = self.engine.lesson(z, target, share)
        if self.engine.summed:
            self._sum_up(z, target, share)
        start, loss = self.epochs, math.inf
        for place in range(start, start + epochs):
            self.engine.epoch(lesson, place, start + epochs)
            self.epochs += 1
            if self.engine.outdated:
                self._sum_up(z, target, share)
            step = self._step("epoch", lesson)
            judge(self.engine, lesson)
            yield step
            before, loss = loss, step.loss
            if abs(before - loss) < ENOUGH and self.engine.settled:
                return

    def epochs_for(self, rows: int) -> int:
        return self.engine.epochs

    def _step(self, done: str, lesson: Lesson) -> Step:
        self.engine.settle(lesson, self._least())
        loss = self.engine.loss(lesson)
        healthy = math.isfinite(loss) and self.engine.healthy and bool(self.outputs.scale.square().isfinite().all())
        return Step(loss, self.engine.basis.size, healthy, done)

    def _least(self) -> float:
        """The noise that rows cannot lower: with one step ahead no tempering guards against overfitting."""
        return float(self.found.hyper.noise.exp()) if self.found and self.shape.horizon == 1 else 0.0

    def _observed(self, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
        """The windows of which at least one target is known.

        Raises:
            DataError: the likelihood knows no such value.
        """
        self.likelihood.check(y, self.shape.targets)
        seen = torch.isfinite(y).any(1)
        return x.rows(seen), y[seen]

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised where they have units; NaN stays NaN."""
        if self.config.outcomes:
            return y
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)

    def _enter(self, x: Inputs, y: Tensor, places: Tensor) -> None:
        """New windows: all into the sums of the head, and those that the reservoir took to `places` into its rows."""
        z, target = self.inputs(x), self._targets(x, y)
        if self.shape.horizon == 1:
            error = target - self.engine.mean(z) - self.engine.sites.offset
            self.engine.sites.judge(error, self.engine.variance(z), math.exp(-len(y) / RECENT))
        memory = self.config.forgetting(self.shape)
        self.engine.count_in(z, target, y.new_ones(len(y)), 1.0 if memory is None else math.exp(-len(y) / memory))
        came = self.reservoir.arrival[places] - (self.seen - len(y))
        self.engine.keep(z[came], target[came], self.reservoir.shares(), places)

    def _take_up(self) -> None:
        """The reservoir's windows anew, and nothing else."""
        x, y, share = self.reservoir.sample()
        z, target = self.inputs(x), self._targets(x, y)
        self.engine.keep(z, target, self.reservoir.shares(), self.reservoir.places())
        self._sum_up(z, target, share)
        self.stale = False

    def _sum_up(self, z: Tensor, target: Tensor, share: Tensor) -> None:
        """The sums of the head; of at most so many rows as the reservoir has, unless the head is the whole basis."""
        if len(z) > self.config.reservoir and not self.engine.whole:
            some = torch.linspace(0, len(z) - 1, self.config.reservoir, device=z.device).round().long()
            z, target, share = z[some], target[some], share[some] * (share.sum() / share[some].sum())
        self.engine.count_in(z, target, share, 0.0)

    def _begin(self, x: Inputs, y: Tensor, weight: Tensor) -> None:
        """New scaling, reference and hyper-parameters; what was learned is forgotten."""
        thin = thinned(len(y), self.shape.horizon, self.config.thinned(self.shape)).to(y.device)
        filled = y[thin]
        if self.rebuilt and not bool(torch.isfinite(filled).all()):  # the missing as predicted: it teaches nothing new
            filled = torch.where(torch.isfinite(filled), filled, self.predict(x.rows(thin)).mean)
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        if not self.config.outcomes:
            before = self.outputs.scale
            self.outputs.fit(y - self.reference(x), y)
            self.engine.sites.rescale(before / self.outputs.scale)
        z, kernel = self.inputs(x), self.engine.kernel
        if self.initial is not None and (self.config.learn == "once" or not self.rebuilt):
            self.found = given(self.initial, kernel, self.inputs.scale, self.outputs.scale)
        if self.found is None or self.config.learn == "rebuild":
            some = 2.0 * filled - 1.0 if self.config.outcomes else self._targets(x.rows(thin), filled)
            told = {"outcomes": self.config.outcomes, "slowly": bool(self.shape.lags) and not self.config.outcomes}
            self.found = estimate(z[thin], torch.nan_to_num(some), self.inputs.groups, kernel, self.found, **told)
        hyper = self.found.hyper
        logit = float(kernel.log_outputscale.exp()) if self.config.outcomes and self.rebuilt else None
        kernel.take(self.found.kernel)
        kernel.log_lengthscale.copy_(-self.inputs.inverse(hyper.lengthscale).log())
        kernel.log_outputscale.copy_(hyper.outputscale)
        chosen = torch.randperm(len(y), generator=self.generator)[: self.engine.basis.inner.capacity]
        self.engine.basis.begin(z[chosen.to(z.device)])
        target, noise = self._targets(x, y), hyper.noise.exp()
        if self.config.outcomes and (self.config.learn == "rebuild" or not self.rebuilt):
            kernel.log_outputscale.fill_(
                height(self.engine, z, target, weight, noise, logit, late=bool(self.shape.lags))
            ).log_()
        elif logit is not None:
            kernel.log_outputscale.fill_(logit).log_()
        self.engine.begin(noise, target)
        self.rebuilt = self.seen

    def _rebuild(self, why: str) -> Step:
        """Start anew from the reservoir."""
        x, y, share = self.reservoir.sample()
        self._begin(x, y, share)
        return self._sweep(f"rebuild: {why}")

    def _sweep(self, done: str) -> Step:
        """Learn the reservoir under the hyper-parameters of now; what was learned is forgotten."""
        x, y, share = self.reservoir.sample()
        z, target = self.inputs(x), self._targets(x, y)
        lesson = self.engine.lesson(z, target, share)
        self._sum_up(z, target, share)
        for place in range(self.config.sweeps):
            self.engine.epoch(lesson, place, self.config.sweeps)
            if self.engine.settled:
                break
            if self.engine.outdated and self.engine.sites.varies:
                self._sum_up(z, target, share)
        step = self._step(done, lesson)
        self.engine.adopt(lesson, self.reservoir.places(), self.reservoir.shares())
        self.stale = False
        return step

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, parts = gather(self._parts())
        tensors["generator"] = self.generator.get_state()
        if self.found is not None:
            tensors["hyper"] = self.found.hyper.pack()
        rest: dict[str, Json] = {
            "parts": parts,
            "rebuilt": self.rebuilt,
            "turn": self.engine.turn,
            "kernel": -1 if self.found is None else self.found.kernel,
            "fitted": self.fitted,
            "epochs": self.epochs,
            "stale": self.stale,
        }
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        scatter(self._parts(), tensors, parts)
        self.generator.set_state(tensors["generator"].cpu())
        index = int(str(rest["kernel"]))
        self.found = None if index < 0 else Estimate(index, Hyper.unpack(tensors["hyper"].clone()))
        self.rebuilt, self.engine.turn, self.epochs = (int(str(rest[name])) for name in ("rebuilt", "turn", "epochs"))
        self.fitted, self.stale = str(rest["fitted"]), bool(rest["stale"])
        z = self.inputs(Inputs(self.reservoir.past, self.reservoir.future))
        empty = ~torch.isfinite(self.reservoir.key)  # where no row has been, what is computed is that of 0
        self.engine.attach(z.masked_fill(empty[:, None], 0.0))

    def _parts(self) -> dict[str, nn.Module | Standardiser | Tensor]:
        names = ("inputs", "outputs", "engine", "reservoir", "limit")
        parts: dict[str, nn.Module | Standardiser | Tensor] = {name: getattr(self, name) for name in names}
        return parts | ({"reference": self.reference} if isinstance(self.reference, LearnedReference) else {})
