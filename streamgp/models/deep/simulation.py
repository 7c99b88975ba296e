"""Training on simulation error, after that of one step: regression and net, run on their own output.

Stages of more and more steps (`models.deep.unrolled`) move the encoder, with gradients through the whole forecast: the
regression below, which stays as it is, and what the net or the GP adds. The mean of a GP is that of its posterior given
some of the rows, through whose latents the gradient goes too, so that what is trained is what a posterior on the new
latents forecasts. Behind a stage the posterior is fitted again, to one step ahead. A stage is kept where simulations
of the validation rows got better.

An output error model takes all noise for that of the measurement: nothing of it is fed back (Ljung 1999, section 4.2).
The share that paths feed back is what it takes for them to spread as far as simulations err (`Chain.fed_back`), over
all steps that are planned where as many windows follow each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Generator, Tensor

from streamgp.encoders import Layout
from streamgp.models.deep.unrolled import Chain
from streamgp.training.descent import Descent, DescentConfig
from streamgp.training.early_stopping import FEWEST, load, weights
from streamgp.training.fit import training

if TYPE_CHECKING:
    from streamgp.models.deep.posterior import DeepPosterior

STAGES = ((5, 150), (20, 100))
"""Steps ahead, and mini-batches."""
RATE = 3e-3
"""Learning rate of these, which falls to 0 in each stage."""


def unroll(
    posterior: DeepPosterior,
    onto: Callable[[Tensor, Tensor], Tensor],
    layout: Layout,
    rows: tuple[Tensor, Tensor, Tensor],
    generator: Generator,
) -> None:
    """Train on simulations of these rows; nothing is done where too few windows follow each other.

    Args:
        posterior: fitted to one step.
        onto: windows (B, W), what the posterior forecasts of them (B, T) -> the targets' newest lags next (B, O).
        layout: of the windows.
        rows: (N, W) standardised windows in the order of their arrival, (N, T) what is learned of them, (N,) which are
            for validation.
        generator: of mini-batches.

    Raises:
        NumericalError: a factorisation failed.
    """
    z, r, held = rows
    batch, outputs = posterior.config.training.batch, posterior.shape.outputs
    every, chain = Chain(z, outputs, layout), Chain(z[~held], outputs, layout)
    other = Chain(z[held], outputs, layout) if bool(held.any()) else chain

    def forecast(some: Tensor) -> Tensor:
        return onto(some, posterior.standing(some).mean)

    for most, count in STAGES:
        ahead = min(most, posterior.shape.simulated)
        if len(chain.starts(ahead)) < batch:
            return
        judge = other if len(other.starts(ahead)) >= FEWEST else chain
        typical, usual = judge.typical(forecast, ahead), chain.typical(forecast, ahead)
        before, first = weights(posterior.trained), judge.score(forecast, typical)
        descent = Descent(posterior.moving(), RATE, DescentConfig(schedule="cosine"), 1)
        with training(posterior.trained["encoder"]):
            for done in range(count):
                function = posterior.function(z[~held], r[~held], generator)
                starts = chain.draw(ahead, batch, generator)
                descent.step(chain.loss(partial(_forecast, onto, function), starts, usual), done / count)
        posterior.fit_again(z, r, held, generator)

        if not judge.score(forecast, typical) < first:
            load(posterior.trained, before)
            posterior.fit_again(z, r, held, generator)
        planned = posterior.shape.simulated
        far = planned if len(every.starts(planned)) >= FEWEST else ahead
        posterior.fed_back.copy_(every.fed_back(forecast, far, generator))


def _forecast(onto: Callable[[Tensor, Tensor], Tensor], function: Callable[[Tensor], Tensor], some: Tensor) -> Tensor:
    return onto(some, function(some))
