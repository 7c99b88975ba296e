"""A net on what a regression leaves: ŷ = b(x) + w f(x), with b the forecast of `linear`, which learns beside it.

The net learns y − b(x), with the b that was issued. Its share w of a column, 0 to 1, and the variance around ŷ are
learned from the errors of b and of b + f as they were issued (`mixing`): a net that is worth nothing leaves the
regression's forecast alone. In batch, before any forecast was issued, w = 1 and the variance is the net's.

Where simulations are planned (`Shape.simulated`) a training of the net ends on the simulation error of b + w f
(`simulation`), which also says how much of the noise a path feeds back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Model, OutputError, Predictive, Shape, Step
from streamgp.evidence.initial import Initial
from streamgp.mixing.mixer import Mixer, forgetting
from streamgp.models import linear
from streamgp.models.deep.config import DeepConfig
from streamgp.models.deep.posterior import DeepPosterior
from streamgp.models.linear import Linear
from streamgp.online.inputs import reporting, usable, usable_rows
from streamgp.online.model import SimulatedStreamModel
from streamgp.predictives.mixed import Mixed
from streamgp.state import Declared, Nested, Tensors

NOTHING = 1e-9
"""Largest error of a regression over the largest target, for a column of which nothing is left: then the variance is
the regression's."""
REGRESSION, NET = range(2)
"""Places of the two whose share is learned: b(x), and b(x) with what the net adds."""


class OnRegression(Declared, Model):
    """See the module.

    Args:
        net: the model of y − b(x), before any data.
        options: of the net; which rows of a fit are for validation, and whether it is trained on simulations.
        shape: of the windows.
    """

    STATE = (Nested("below", "net", "share"), Tensors("idle"))

    family = Mixed

    def __init__(self, net: SimulatedStreamModel, options: DeepConfig, shape: Shape) -> None:
        super().__init__()
        self.net, self.options, self.shape = net, options, shape
        self.below = self._regression()
        self.share = Mixer(2, shape, forgetting(shape))
        self.idle: Tensor  # (T,) columns of which the regression left nothing to learn
        self.register_buffer("idle", torch.zeros(shape.columns, dtype=torch.bool))
        self.unrolled = options.unrolled(shape)
        if self.unrolled:
            self._deep.onto = self._next

    @property
    def above_linear(self) -> Model:
        return self.net

    @property
    def _deep(self) -> DeepPosterior:
        assert isinstance(self.net.posterior, DeepPosterior)
        return self.net.posterior

    def inner_models(self) -> dict[str, Model]:
        return {"linear": self.below, "net": self.net}

    def initialise(self, initial: Initial) -> None:
        """See `evidence.initial.TakesInitial`."""
        initial.check(self.shape, self.options.target, self.options.decay)
        self._deep.start_from(initial)

    def predict(self, x: Inputs) -> Mixed:
        """The mix of b and b + f; its experts are these two, and those of the regression where it is a mix."""
        return self._predict(x)[0]

    def _predict(self, x: Inputs) -> tuple[Mixed, Predictive]:
        """The mix, and what the net forecasts of y − b."""
        below, rest = self.below.predict(x), self.net.predict(seen(x))
        means = torch.stack([below.mean, below.mean + rest.mean])
        own = self.idle.logical_not() & bool(self.net.rebuilt)
        latent, noise = self.share.variances(means, torch.where(own, rest.variance, below.variance))
        experts = torch.cat([means, below.experts]) if isinstance(below, Mixed) else means
        mean = self.share.mean(means) if bool(self.share.rows.any()) else means[NET]
        return Mixed(mean, latent, noise, experts), rest

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows: share and regression from what was issued, the net what the regression left."""
        y, taken, (left_out,) = usable_rows(x, y)
        x, y = x.rows(taken), y[taken]
        if not len(y):
            return reporting(Step(float("nan"), 0, True, "nothing observed"), left_out)
        given = self.predict(x) if issued is None else Mixed.from_parameters(issued.parameters()[:, taken])
        if self.net.rebuilt:
            self.share.learn(given.experts[:2], y)
        memories = Mixed(given.mean, given.latent_variance, given.noise, given.experts[2:])
        below = self.below.update(x, y, memories if len(memories.experts) else None)
        step = self.net.update(seen(x), y - given.experts[0])
        if step.healthy and not below.healthy:
            step = step._replace(healthy=False, done=below.done)
        return reporting(step, left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn all windows: the net what a regression leaves that has not seen the validation rows."""
        x, y, left_out = usable(x, y)
        if epochs < 1 or not len(y):
            return
        held = self.options.held_out(len(y)).to(y.device)
        other = self._regression().to(y.device)
        for model, rows in ((other, ~held), (self.below, torch.ones_like(held))):
            for _ in model.fit(x.rows(rows), y[rows], 1):
                pass
        left = y - other.predict(x).mean
        self.idle = left.abs().nan_to_num().amax(0) <= NOTHING * y.abs().nan_to_num().amax(0)
        for step in self.net.fit(seen(x), left, epochs):
            yield reporting(step, left_out)

    def functions(self, paths: int, generator: Generator) -> Callable[[Inputs], Tensor]:
        """See `streamgp.base.Simulates`: what the net draws, around the mix and with its variance.

        Where the net was trained on simulation error, a part of the noise is that of a measurement: paths go on without
        it, n = p + m with p | n ~ N(φ n, φ(1 − φ) s²) for noise n of variance s², and the share φ of `simulation`.
        """
        net = self.net

        def around(x: Inputs, *drawn: Tensor) -> list[Tensor]:
            mixed, rest = self._predict(x)
            spread = (mixed.variance / rest.variance).sqrt()
            return [mixed.mean + (one - rest.mean) * spread for one in drawn]

        if not self.unrolled or not net.rebuilt:
            draw = net.functions(paths, generator)
            return lambda x: around(x, draw(seen(x)))[0]
        both = self._deep.drawn(paths, generator)

        def apart(x: Inputs) -> tuple[Tensor, Tensor]:
            value, observed = around(x, *(net.outputs.inverse(one) for one in both(net.inputs(seen(x)))))
            noise, share = observed - value, self._deep.fed_back
            fresh = torch.randn(noise.shape, generator=generator, dtype=FLOAT, device=generator.device).to(noise)
            size = share * (1.0 - share) * noise.square().mean(0)
            return value + share * noise + size.sqrt() * fresh, observed

        return OutputError(apart)

    def _next(self, z: Tensor, found: Tensor) -> Tensor:
        """Standardised windows (N, W), what the net forecasts (N, O) -> the targets' newest lags of the next (N, O)."""
        assert isinstance(self.below, Linear)
        past, future = self.net.inputs.layout.split(z)
        scaling = self.net.inputs.scaling
        x = Inputs(scaling.past.inverse(past), scaling.future.inverse(future.unflatten(1, (1, -1))))
        share = self.share.weights[:, NET] if bool(self.share.rows.any()) else 1.0
        y = self.below.mean(x) + share * self.net.outputs.inverse(found)
        size = self.shape.outputs
        return (y - scaling.past.location[:size].to(y)) / scaling.past.scale[:size].to(y)

    def epochs_for(self, rows: int) -> int:
        return self.net.epochs_for(rows)

    def warmup_epochs(self, rows: int) -> int:
        return self.net.warmup_epochs(rows)

    def figures(self) -> dict[str, float]:
        """The shares of the regression and of what the net adds, the mean over the output columns."""
        return {f"weight_{name}": float(share.mean()) for name, share in self.shares().items()}

    def shares(self) -> dict[str, Tensor]:
        weights = self.share.weights.unflatten(0, (-1, self.shape.horizon)).mean(0)
        return {"linear": weights[:, REGRESSION], "net": weights[:, NET]}

    def _regression(self) -> Model:
        return linear.build(linear.Config(), self.shape)


def seen(x: Inputs) -> Inputs:
    """What the net sees of windows."""
    return Inputs(x.past, x.future)
