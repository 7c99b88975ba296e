"""QSGP on a stream: blocks of a random Fourier basis, trained from the stream and a bounded reservoir.

Every update lets new windows into a recency-weighted reservoir, takes the residuals of those that came in, and visits
the head and the `visits` blocks whose turn it is (`_qsgp_blocks`). Forgetting changes nothing but the weights of the
kept rows. A rebuild takes a new scaling, reference and hyper-parameters (by the evidence of thinned rows) from the
reservoir, keeps the frequencies, and sweeps over all blocks from zero.

A missing target of a row that has others is taken as predicted when the row comes in: this leaves its column as it is.
The row then weighs as much as its observed share, in what all columns have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Shape, Step
from streamgp.features import fourier
from streamgp.kernels import squared_exponential
from streamgp.models._qsgp_blocks import WORK, Blocks
from streamgp.models._qsgp_config import Config
from streamgp.models._qsgp_features import Held
from streamgp.models._reservoir import Reservoir
from streamgp.models._scaling import Standardiser
from streamgp.models._state import gather, scatter
from streamgp.models._svdgp_features import KernelInputs
from streamgp.models._svdgp_hyperparameters import Hyper, estimate
from streamgp.models._svdgp_reference import LearnedReference, reference
from streamgp.predictives.gaussian import Gaussian

PATIENCE = 0.5
"""Early on a rebuild comes when the stream has grown by this part since the last."""
RECENT = 2000.0
"""Rows after which the error of a prediction counts 1/e in the noise."""
ENOUGH = 200.0
"""Errors of predictions that are needed before they count at all."""


class OnlineQsgp(Model):
    """See the module; built by `streamgp.models.qsgp.build`."""

    family = Gaussian

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.inputs = KernelInputs(shape)
        width, capacity = len(self.inputs.groups), config.reservoir
        self.kernel = squared_exponential.build(squared_exponential.Config(), width)
        assert isinstance(config.features, fourier.Config)
        features = Held(config.features, self.kernel)
        self.blocks = Blocks(features, shape.columns, config.linear and width <= features.width)
        self.outputs = Standardiser(shape.columns)
        self.reservoir = Reservoir(capacity, shape, config.forgetting(shape))
        self.reference = reference(config.target, shape, config.decay)
        self.hyper = Hyper.start(self.inputs.count)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.rebuilt = 0  # rows seen at the last rebuild
        self.turn = 1  # the block whose turn is next
        self.residual: Tensor
        self.observed: Tensor
        self.misfit: Tensor
        self.rows: Tensor
        self.excess: Tensor
        self.judged: Tensor
        self.z: Tensor
        self.register_buffer("residual", torch.zeros(capacity, shape.columns, dtype=WORK))  # r of every kept row
        self.register_buffer("observed", torch.zeros(capacity, dtype=FLOAT))  # the observed share of its columns
        self.register_buffer("misfit", torch.ones(shape.columns, dtype=FLOAT))  # Σ ν r_t²
        self.register_buffer("rows", torch.ones((), dtype=FLOAT))  # N = Σ ν
        self.register_buffer("excess", torch.zeros(shape.columns, dtype=FLOAT))  # Σ e_t² − latent variance
        self.register_buffer("judged", torch.zeros(shape.columns, dtype=FLOAT))  # how many of them, after forgetting
        self.register_buffer("z", torch.zeros(capacity, width, dtype=WORK), persistent=False)  # kernel inputs

    @property
    def seen(self) -> int:
        """Rows learned."""
        return int(self.reservoir.seen)

    def predict(self, x: Inputs) -> Gaussian:
        z = self.inputs(x)
        scale = self.outputs.scale.to(z.device)
        mean = self.blocks.mean(z) * scale + self.outputs.location.to(z.device) + self.reference(x)
        latent = self.blocks.variance(z)[:, None] * scale.square()
        return Gaussian(mean, latent, self._noise() * scale.square())

    def _noise(self) -> Tensor:
        """(T,) σ_t²: Σ ν r_t²/Σ ν of the rows learned; one step ahead also what new rows showed, if that is more.

        Many steps ahead the errors of new rows come in long runs, and an average of them is late: on the electricity
        data it costs 0.045 of NLPD.
        """
        kept = (self.misfit / self.rows).clamp(min=1e-9)
        if self.shape.horizon > 1:
            return kept
        shown = self.excess / self.judged.clamp(min=1.0)
        return torch.where(self.judged >= ENOUGH, torch.maximum(kept, shown), kept)

    def update(self, x: Inputs, y: Tensor) -> Step:
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if not len(y):
            return self._step("nothing observed")
        before = self.reservoir.key.clone()
        self.reservoir.offer(x, y, self.generator)
        since = self.seen - self.rebuilt
        if not self.rebuilt:
            return self._rebuild("first windows")
        if self.config.rebuild and since >= min(self.config.rebuild, PATIENCE * self.rebuilt + len(y)):
            return self._rebuild(f"{since} rows")
        self._enter(x, y, (self.reservoir.key != before).nonzero()[:, 0])
        turns = [0]
        for _ in range(min(self.config.visits, self.blocks.count - 1)):
            turns.append(self.turn)
            self.turn = self.turn % (self.blocks.count - 1) + 1
        z, residual, weight = self._kept()
        for b in turns:
            self.blocks.visit(b, z, residual, weight, None if b else self.blocks.root)
        self._weigh(residual, weight)
        return self._step("update")

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Sweeps over all windows, equally weighted; `sweeps` an epoch. `update` goes on from the reservoir of them."""
        seen = torch.isfinite(y).any(1)
        x, y = x.rows(seen), y[seen]
        if epochs < 1 or not len(y):
            return
        self.reservoir.offer(x, y, self.generator)
        self._begin(x, y, y.new_ones(len(y)))
        z, residual, share = self._compare(x, y)
        for _ in range(epochs):
            self.blocks.sweep(self.config.sweeps, z, residual, share)
            self._weigh(residual, share)
            self._take_up(*self._in_order())
            yield self._step("epoch")

    def _step(self, done: str) -> Step:
        loss = self.blocks.loss(self.misfit, self.rows)
        healthy = math.isfinite(loss) and bool(torch.isfinite(self.blocks.coefficients).all())
        return Step(loss, self.blocks.features.size, healthy, done)

    def _targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised; NaN stays NaN."""
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self.outputs.scale.to(y.device)

    def _compare(self, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Kernel inputs (N, W), residuals (N, T), 0 where nothing was observed, and observed shares (N,); `WORK`."""
        z, target = self.inputs(x).to(WORK), self._targets(x, y)
        seen = torch.isfinite(target)
        residual = torch.where(seen, target - self.blocks.mean(z), 0.0)
        return z, residual.to(WORK), seen.to(WORK).mean(1)

    def _enter(self, x: Inputs, y: Tensor, places: Tensor) -> None:
        """New windows: all into the head's Gram matrix, and beside the reservoir those that it took to `places`."""
        z, residual, share = self._compare(x, y)
        seen, left = torch.isfinite(y).to(FLOAT), math.exp(-len(y) / RECENT)
        self.excess.mul_(left).add_(residual.to(FLOAT).square().sum(0) - self.blocks.variance(z.to(FLOAT)) @ seen)
        self.judged.mul_(left).add_(seen.sum(0))
        memory = self.config.forgetting(self.shape)
        self.blocks.absorb(z, share, 1.0 if memory is None else math.exp(-len(y) / memory))
        came = self.reservoir.arrival[places] - (self.seen - len(y))
        self.z[places], self.residual[places], self.observed[places] = z[came], residual[came], share[came].to(FLOAT)

    def _take_up(self, x: Inputs, y: Tensor, places: Tensor) -> None:
        """The reservoir's windows anew."""
        z, residual, share = self._compare(x, y)
        self.z[places], self.residual[places], self.observed[places] = z, residual, share.to(FLOAT)

    def _in_order(self) -> tuple[Inputs, Tensor, Tensor]:
        """The reservoir's windows, their targets and their places, in the order of arrival."""
        kept = self.reservoir
        filled = torch.isfinite(kept.key).nonzero()[:, 0]
        places = filled[torch.argsort(kept.arrival[filled], stable=True)]
        return Inputs(kept.past[places], kept.future[places]), kept.y[places], places

    def _filled(self) -> slice:
        """Places in use: a reservoir fills from its end."""
        return slice(len(self.z) - int(self.reservoir.count), None)

    def _kept(self) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the kernel inputs and residuals of the kept rows, and their weights (R,); `WORK`."""
        filled = self._filled()
        weight = (shares(self.reservoir) * self.observed)[filled]
        return self.z[filled], self.residual[filled], weight.to(WORK)

    def _weigh(self, residual: Tensor, weight: Tensor) -> None:
        """What the means leave of the rows that they were learned from."""
        self.misfit.copy_(weight @ residual.square())
        self.rows.copy_(weight.sum())

    def _begin(self, x: Inputs, y: Tensor, weight: Tensor) -> None:
        """New scaling, reference and hyper-parameters; what was learned is forgotten."""
        if isinstance(self.reference, LearnedReference):
            self.reference.fit(x, y, weight)
        self.inputs.scaling.fit(x)
        before = self.outputs.scale
        self.outputs.fit(y - self.reference(x))
        self.excess.mul_((before / self.outputs.scale).square())
        count = min(max(3 * len(y) // self.shape.horizon, 60), self.config.evidence_rows, len(y))  # three a horizon
        thin = torch.linspace(0, len(y) - 1, count, device=y.device).round().long()
        self.hyper = estimate(
            self.inputs(x.rows(thin)),
            torch.nan_to_num(self._targets(x.rows(thin), y[thin])),
            self.inputs.groups,
            self.hyper,
            steps=30 if self.rebuilt else 60,
        )
        self.kernel.log_lengthscale.copy_(-self.inputs.inverse(self.hyper.lengthscale).log())
        self.kernel.log_outputscale.copy_(self.hyper.outputscale)
        self.blocks.begin(self.hyper.noise.exp() * self.config.tempering(self.shape))
        self.rebuilt, self.turn = self.seen, 1

    def _rebuild(self, why: str) -> Step:
        """Start anew from the reservoir."""
        x, y, places = self._in_order()
        if self.rebuilt and not bool(torch.isfinite(y).all()):  # the missing as predicted: it teaches nothing new
            seen = torch.isfinite(y)
            y = torch.where(seen, y, self.predict(x).mean)
            share = seen.to(FLOAT).mean(1)
        else:
            share = torch.isfinite(y).to(FLOAT).mean(1)
        self._begin(x, y, shares(self.reservoir)[places])
        self._take_up(x, y, places)
        self.observed[places] = share
        z, residual, weight = self._kept()
        self.blocks.sweep(self.config.sweeps, z, residual, weight)
        self._weigh(residual, weight)
        return self._step(f"rebuild: {why}")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = gather(self._parts())
        tensors |= {"hyper": self.hyper.pack(), "generator": self.generator.get_state()}
        return tensors, {"parts": rest, "rebuilt": self.rebuilt, "turn": self.turn}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = rest["parts"]
        assert isinstance(parts, dict)
        scatter(self._parts(), tensors, parts)
        self.hyper = Hyper.unpack(tensors["hyper"].clone())
        self.generator.set_state(tensors["generator"].cpu())
        self.rebuilt, self.turn = int(str(rest["rebuilt"])), int(str(rest["turn"]))
        self.blocks.refresh()
        kept, filled = self.reservoir, self._filled()
        self.z[filled] = self.inputs(Inputs(kept.past[filled], kept.future[filled])).to(WORK)

    def _parts(self) -> dict[str, torch.nn.Module | Standardiser | Tensor]:
        names = (
            "inputs",
            "blocks",
            "outputs",
            "reservoir",
            "residual",
            "observed",
            "misfit",
            "rows",
            "excess",
            "judged",
        )
        parts = {name: getattr(self, name) for name in names}
        return parts | ({"reference": self.reference} if isinstance(self.reference, LearnedReference) else {})


def shares(kept: Reservoir) -> Tensor:
    """(C,) how many rows of the forgetting stream each place stands for; 0 where it is empty."""
    age = (kept.seen - 1 - kept.arrival).to(FLOAT)
    share = torch.exp(-kept.rate * age)
    if math.isfinite(float(kept.threshold)):
        kappa = torch.exp(kept.threshold + kept.rate * (kept.seen - 1).to(FLOAT))
        share = share / -torch.expm1(-share * kappa).clamp(max=-1e-300)
    return torch.where(torch.isfinite(kept.key), share, 0.0)
