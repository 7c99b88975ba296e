"""SVGP as a model: units, references and windows around prior, head and training, on a stream and in batch.

On a stream a batch is learned once, with kernel and inducing inputs as they are: exactly under Gaussian noise, and by
streaming variational Bayes otherwise. Every `rebuild` rows scaling, reference, hyper-parameters and inducing inputs are
taken anew from a bounded, recency-weighted reservoir, trained for some mini-batches, and the reservoir is learned.
Under Gaussian noise a row of the stream is limited before it is learned or kept (`online.winsorise`). What fails
numerically is undone.

In batch the first epoch starts from the evidence of some rows and learns all windows; every further one first trains by
mini-batches. A fit of the same windows goes on where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from streamgp.base import Inputs, Step
from streamgp.errors import NumericalError
from streamgp.models.svgp.head import Part
from streamgp.models.svgp.parts import SvgpParts
from streamgp.online.posterior import no_rows
from streamgp.online.reservoir import Sample
from streamgp.online.state import fingerprint, holding

PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
SWEEPS = 6
"""Over all rows where q has no closed form and starts from the prior; one where it starts from what it was."""


class OnlineSvgp(SvgpParts):
    """See the module; built by `build`."""

    def update(self, x: Inputs, y: Tensor) -> Step:
        x, y = self._observed(x, y)
        if not len(y):
            return Step(float("nan"), self._size, True, "nothing observed")
        if self.rebuilt:
            y = self.limit(y, self.predict(x), self.head.weight)
        self.fitted = ""
        since = self.seen + len(y) - self.rebuilt
        if not self.rebuilt:
            return self._undoing(lambda: self._rebuild(x, y), "rebuild: first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._undoing(lambda: self._rebuild(x, y), f"rebuild: {since} rows")
        return self._undoing(lambda: self._learn(x, y), "update")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """See the module. An epoch that fails numerically is undone and told; the first raises."""
        x, y = self._observed(x, y)
        if epochs < 1 or not len(y):
            return
        batch = fingerprint(x, y)
        first = batch != self.fitted
        if first:
            self.reservoir.offer(x, y, self.generator)
            self._begin(Sample(x, y, y.new_ones(len(y)), no_rows(y)))
            self.fitted = batch
        z, target = self.inputs(x), self._targets(x, y)
        weight = y.new_full((len(y),), 1.0 / self.config.tempering(self.shape))
        for _ in range(epochs):

            def epoch(first: bool = first) -> Step:
                if not first or self._eager:
                    self.trainer.steps(z, target, weight, self.generator)
                self._relearn(z, target, weight, SWEEPS if first else 1)
                return self._step()

            if first:
                step = epoch()._replace(done="epoch")
                first = False
            else:
                step = self._undoing(epoch, "epoch")
            yield step

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(self.shape, rows)

    @property
    def _size(self) -> int:
        return int(self.prior.count)

    @property
    def _eager(self) -> bool:
        """Whether an epoch without training would be worth little."""
        return self.config.encoded or not self.config.gaussian

    def _step(self) -> Step:
        loss = self.head.loss()
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.head.natural.moment).all())
        return Step(loss, self._size, healthy, "")

    def _undoing(self, work: Callable[[], Step], what: str) -> Step:
        """Do it; where it fails numerically all is put back, and the step tells."""
        rebuilt, put_back = self.rebuilt, holding({k: v for k, v in self._parts().items() if k != "limit"})
        try:
            step = work()
            why = "" if step.healthy else "its numbers are not finite"
        except NumericalError as error:
            why = error.message
        if not why:
            return step._replace(done=what + step.done)
        put_back()
        self.rebuilt = rebuilt
        self._settle()
        return Step(self.head.loss(), self._size, False, f"{what}; undone: {why}")

    def _learn(self, x: Inputs, y: Tensor) -> Step:
        """Rows of the stream, once."""
        _countable(x)
        memory = self.config.forgetting(self.shape)
        phi, variance = self.prior.features(self.inputs(x))
        weight = y.new_full((len(y),), 1.0 / self.config.tempering(self.shape))
        kept = 1.0 if memory is None else math.exp(-len(y) / memory)
        self.head.absorb(Part(phi, variance, self._targets(x, y), weight), kept)
        self.reservoir.offer(x, y, self.generator)
        return self._step()

    def _rebuild(self, x: Inputs, y: Tensor) -> Step:
        """Start anew from the reservoir, these rows among them."""
        _countable(x)
        self.reservoir.offer(x, y, self.generator)
        sample = self.reservoir.sample()
        if self.rebuilt and self.config.gaussian and not bool(torch.isfinite(sample.y).all()):
            known = self.predict(sample.x).mean  # the missing as predicted: it teaches nothing new
            sample = sample._replace(y=torch.where(torch.isfinite(sample.y), sample.y, known))
        self._begin(sample)
        z, target = self.inputs(sample.x), self._targets(sample.x, sample.y)
        weight = sample.weight / self.config.tempering(self.shape)
        self._relearn(z, target, weight, SWEEPS)
        if steps := self.config.steps(self.shape):
            self.trainer.steps(z, target, weight, self.generator, steps)
            self._relearn(z, target, weight, 2)
        return self._step()


def _countable(x: Inputs) -> None:
    """See that windows have squares: one without, kept, would void every scaling to come.

    Raises:
        NumericalError: one has not.
    """
    if not all(bool(torch.isfinite(torch.nan_to_num(part, posinf=torch.inf).square().sum())) for part in x):
        raise NumericalError("a window is beyond all numbers", hint="look for infinite or huge values in the inputs")
