"""The exact GP as a model: fits a bounded set of rows whole, and keeps the newest ones of a stream.

A row of a stream extends the Cholesky factor (`posterior`), O(W²) for W rows kept. Once there would be more rows
than the model may keep, the oldest fifth is dropped and the rest factorised anew: O(W³) once in W/5 rows, O(W²) a row.
Scaling and hyper-parameters are learned anew from the rows kept every so many rows. What fails numerically is undone
and told. A row is limited before it is learned or kept (`online.winsorise`).

A target that is missing where others of its row are not is replaced by the forecast of the model: its column's mean
stays as it is, the variance shrinks as if it had been seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Shape, Step
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.initial import Initial
from streamgp.models.exact.config import Config
from streamgp.models.exact.hyper import Hyperparameters
from streamgp.online.inputs import KernelInputs
from streamgp.online.learned_reference import LearnedReference, reference
from streamgp.online.recent import RecentWindows
from streamgp.online.scaling import Standardiser
from streamgp.online.state import Parts, gather, holding, scatter
from streamgp.online.variance import random_walk_variance
from streamgp.online.winsorise import Limit
from streamgp.predictives.gaussian import Gaussian

PATIENCE = 0.5
"""Early on a refit comes when the stream has grown by this part since the last."""
DROPPED = 5
"""Once too many rows are kept, one of so many is dropped."""


class ExactGp(Model):
    """See the module; built by `build`."""

    family = Gaussian

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        if not shape.width:
            raise UsageError("a GP needs something to look at", hint="use --lags 1 or more, or name --inputs")
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        self.hyper = Hyperparameters(config, shape, self.inputs)
        self.outputs = Standardiser(shape.columns)
        self.reference = reference(config.target, shape, config.decay)
        self.limit = Limit(shape, config.limit)
        self.recent = RecentWindows(config.rows, shape)
        self.posterior = self.hyper.prior()
        self.refitted = 0  # rows seen at the last refit

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.recent.seen)

    def predict(self, x: Inputs) -> Gaussian:
        """The posterior predictive; before any data N(r(x), random-walk variance)."""
        reference = self.reference(x)
        if not self.posterior.rows:
            return Gaussian(reference, torch.zeros_like(reference), random_walk_variance(x, self.shape))
        mean, latent = self.posterior.moments(self.inputs(x))
        scale = self.outputs.scale.to(mean.device)
        centre = reference + self.outputs.location.to(mean.device)
        noise = (self.posterior.noises * scale.square()).expand_as(mean)
        return Gaussian(mean * scale + centre, latent * scale.square(), noise)

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`: the first search starts there, or with learn=once there is none.

        The kernel is that of the file, or, with linear=true, the one beside the linear kernel.
        """
        self.hyper.initialise(initial)

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: one function a path and column, and noise at every step."""
        posterior, scale, location = self.posterior, self.outputs.scale, self.outputs.location
        draw = posterior.draw(paths, generator) if posterior.rows else None

        def observe(x: Inputs) -> Tensor:
            reference = self.reference(x)
            noise = torch.randn(reference.shape, generator=generator, dtype=FLOAT, device=generator.device)
            noise = noise.to(reference.device)
            if draw is None:
                return reference + random_walk_variance(x, self.shape).sqrt() * noise
            z = self.inputs(x)
            mean = posterior.mean(z)
            spread = (draw(z.unflatten(0, (paths, -1))).flatten(0, 1) - mean) * posterior.scale.sqrt()
            value = mean + spread + noise * posterior.noises.sqrt()
            return reference + location.to(mean.device) + scale.to(mean.device) * value

        return observe

    def update(self, x: Inputs, y: Tensor) -> Step:
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return Step(self.posterior.loss(), self.posterior.rows, True, "nothing observed")
        if self.posterior.rows:
            y = self.limit(y, self.predict(x), self.recent.seen)
        since = self.seen + len(y) - self.refitted
        if not self.posterior.rows:
            return self._undoing(lambda: self._refit(x, y), "fit: first windows")
        if self.config.refit and since >= min(self.config.refit, PATIENCE * self.refitted + len(y)):
            return self._undoing(lambda: self._refit(x, y), f"refit: {since} rows")
        return self._undoing(lambda: self._learn(x, y), "update")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Start over from these windows; one epoch is exact, so that there is never a second.

        Raises:
            UsageError: there are more than `rows`.
        """
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if epochs < 1 or not len(y):
            return
        if len(y) > self.config.rows:
            raise UsageError(
                f"the exact GP is asked to factorise {len(y):,} rows, and takes {self.config.rows:,} at most",
                hint="use --model svgp, qsgp or svdgp, which take any number of rows, fewer rows (--warmup on a "
                f"stream), or --set rows={len(y)} if memory ({8e-6 * len(y) ** 2:,.0f} MB a factor) and patience allow",
            )
        self._start_over()
        yield self._refit(x, y)._replace(done="epoch")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        """Rows, and in which blocks they came: the factor follows from them, bit for bit."""
        tensors, rest = gather(self._parts())
        tensors["targets"] = self.posterior.y.new_zeros(self.config.rows, self.shape.columns)
        tensors["targets"][: self.posterior.rows] = self.posterior.y
        return tensors, rest | {"refitted": self.refitted, "blocks": list(self.posterior.blocks)}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        scatter(self._parts(), tensors, rest)
        self.refitted = int(str(rest["refitted"]))
        blocks = rest["blocks"]
        assert isinstance(blocks, list)
        sizes = [int(str(size)) for size in blocks]
        self._replay(sizes, tensors["targets"][: sum(sizes)].to(self.hyper.log_noise.device))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The posterior to where the rows are: it is no module, which PyTorch would move."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._replay(list(self.posterior.blocks), self.posterior.y.to(self.hyper.log_noise.device))
        return self

    def _start_over(self) -> None:
        self.hyper.reset()
        for count in (self.recent.seen, self.limit.excess, self.limit.far):
            count.zero_()
        self.refitted = 0
        self.posterior = self.hyper.prior()

    def _replay(self, blocks: list[int], y: Tensor) -> None:
        posterior = self.hyper.prior()
        if blocks:
            z = self.inputs(self.recent.rows()[0])[-sum(blocks) :]
            for h, own in zip(z.split(blocks), y.split(blocks), strict=True):
                posterior = posterior.append(h.contiguous(), own.contiguous())
        self.posterior = posterior

    def _parts(self) -> Parts:
        return {
            "inputs": self.inputs,
            "hyper": self.hyper,
            "outputs": self.outputs,
            "limit": self.limit,
            "recent": self.recent,
            **({"reference": self.reference} if isinstance(self.reference, LearnedReference) else {}),
        }

    def _undoing(self, work: Callable[[], Step], what: str) -> Step:
        """Do it; where it fails numerically all is put back, and the step tells."""
        posterior, refitted = self.posterior, self.refitted
        put_back = holding({name: part for name, part in self._parts().items() if name != "limit"})
        try:
            step = work()
            why = "" if step.healthy else "its numbers are not finite"
        except NumericalError as error:
            why = error.message
        if not why:
            return step._replace(done=what + step.done)
        put_back()
        self.posterior, self.refitted = posterior, refitted
        return Step(posterior.loss(), posterior.rows, False, f"{what}; undone: {why}")

    def _step(self, done: str = "") -> Step:
        loss = self.posterior.loss()
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.posterior.alpha).all())
        return Step(loss, self.posterior.rows, healthy, done)

    def _learn(self, x: Inputs, y: Tensor) -> Step:
        """Extend the factor, after it was made anew without the oldest rows where there would be too many."""
        x, y = x.rows(slice(-self.config.rows, None)), y[-self.config.rows :]
        h, done = self.inputs(x), ""
        r = self._targets(x, y)
        r = torch.where(torch.isfinite(r), r, self.posterior.mean(h))
        posterior, most = self.posterior, self.config.rows
        if posterior.rows + len(r) > most:
            kept = max(most - most // DROPPED - len(r), 0)
            done = f": {posterior.rows - kept} rows dropped"
            posterior = posterior.newest(kept) if kept else self.hyper.prior()
        self.posterior = posterior.append(h, r)
        self.recent.push(x, y)
        return self._step(done)

    def _refit(self, x: Inputs, y: Tensor) -> Step:
        """New scaling and hyper-parameters from the rows kept, these among them, and all of them learned with these."""
        self.recent.push(x, y)
        x, y = self.recent.rows()
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, y.new_ones(len(y)))
        self.inputs.scaling.fit(x)
        self.outputs.fit(y - self.reference(x), y)
        h, r = self.inputs(x), self._targets(x, y)
        failures = self.hyper.learn(h, r, self.inputs.scale, self.outputs.scale, first=not self.refitted)
        self.posterior = self.hyper.prior()
        whole = torch.isfinite(r).all(1)
        if not bool(whole.all()):
            known = self.posterior.append(h[whole], r[whole]).mean(h) if bool(whole.any()) else torch.zeros_like(r)
            r = torch.where(torch.isfinite(r), r, known)
        self.posterior = self.posterior.append(h, r)
        self.refitted = self.seen
        return self._step("".join(f"; {failure}" for failure in failures))

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised; NaN stays NaN."""
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)
