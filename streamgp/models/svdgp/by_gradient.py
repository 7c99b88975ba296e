"""SVDGP by stochastic gradients as a model: units, references and windows around `gradient`.

For likelihoods without a closed form, and for encoders, which move the kernel's inputs with every step. The scaling is
that of the first rows learned, and stays: what was learned would mean something else under another. Targets without
units (outcomes of 0 and 1) are learned as they are: no scaling, no reference.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from streamgp import choice
from streamgp.base import Inputs, Json, Model, Predictive, Shape, Step
from streamgp.encoders import Encoder, Layout
from streamgp.errors import UsageError
from streamgp.likelihoods import Likelihood
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.gradient import GradientPosterior
from streamgp.online.inputs import KernelInputs, reporting, usable
from streamgp.online.reference import LearnedReference, reference
from streamgp.online.scaling import Standardiser


class GradientSvdgp(Model):
    """See the module; built by `build`.

    Args:
        config: of the model.
        shape: of the windows.

    Raises:
        UsageError: the encoder runs over a past, and the windows have none; targets without units are to be learned
            as a change or as a departure.
    """

    untuned = "finds its lengthscales along with its posterior where inference goes by gradients"

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.inputs = KernelInputs(shape)
        self.outputs = Standardiser(shape.columns)
        likelihood: Likelihood = choice.build("likelihoods", config.likelihood, shape.columns)
        if not likelihood.units and config.target not in ("auto", "level"):
            raise UsageError(
                f"target={config.target} has no meaning for likelihood={choice.part_name(config.likelihood)}, whose "
                "targets are no amounts",
                hint="leave out --set target: what the target was stands in the lags",
            )
        self.reference = reference(config.target if likelihood.units else "level", shape, config.decay)
        width = len(self.inputs.groups)
        layout = Layout(shape.lags, len(shape.past) if shape.lags else 0, shape.horizon, len(shape.future))
        encoder: Encoder = choice.build("encoders", config.encoder, layout)
        self.posterior = GradientPosterior(config.gradient, width, shape.columns, likelihood, encoder, config.seed)
        self.family = likelihood.family

    def predict(self, x: Inputs) -> Predictive:
        issued = self.posterior.predictive(self.inputs(x))
        if not self.posterior.likelihood.units:
            return issued
        return issued.affine(self._scale(x), self.outputs.location.to(x.future.device) + self.reference(x))

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        self.posterior.likelihood.check(y, self.shape.targets)
        x, y, left_out = usable(x, y)
        if not len(y):
            return reporting(Step(float("nan"), 0, True, "nothing observed"), left_out)
        return reporting(self.posterior.update(self.inputs(x), self.targets(x, y)), left_out)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        self.posterior.likelihood.check(y, self.shape.targets)
        x, y, left_out = usable(x, y)
        if len(y):
            targets = self.targets(x, y)
            for step in self.posterior.fit(self.inputs(x), targets, epochs):
                yield reporting(step, left_out)

    def _scale(self, x: Inputs) -> Tensor:
        return self.outputs.scale.to(x.future.device)

    def targets(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) standardised where they have units, NaN stays; the first rows decide on the scaling."""
        if not self.posterior.likelihood.units:
            if not self.inputs.scaling.fitted:
                self.inputs.scaling.fit(x)
            return y
        if not self.outputs.fitted:
            if isinstance(self.reference, LearnedReference):
                self.reference.fit(x, y, y.new_ones(len(y)))
            self.inputs.scaling.fit(x)
            self.outputs.fit(y - self.reference(x), y)
        return (y - self.reference(x) - self.outputs.location.to(y.device)) / self._scale(x)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors: dict[str, Tensor] = {}
        rest: dict[str, Json] = {}
        for name, part in self._parts().items():
            inner, more = part.state()
            tensors |= {f"{name}.{key}": value for key, value in inner.items()}
            rest[name] = more
        tensors |= {name: value for name, value in self.named_buffers() if name.startswith("reference.")}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        for name, part in self._parts().items():
            more = rest[name]
            assert isinstance(more, dict)
            part.restore({key[len(name) + 1 :]: t for key, t in tensors.items() if key.startswith(f"{name}.")}, more)
        for name, value in self.named_buffers():
            if name.startswith("reference."):
                value.copy_(tensors[name])

    def _parts(self) -> dict[str, KernelInputs | Standardiser | GradientPosterior]:
        return {"inputs": self.inputs, "outputs": self.outputs, "posterior": self.posterior}
