"""GPs on the latents of an encoder: k̃(x, x') = k_θ(φ_W(x), φ_W(x')), one a column (Al-Shedivat et al. 2017).

Training alternates steps on the encoder and on the kernel (`alternating`). Between trainings a stream is learned by
the solver's own data alone, which for the additive KISS head is exact, at a cost that does not depend on the rows seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import torch
from pydantic import BaseModel
from torch import Generator, Tensor, nn

from streamgp import choice
from streamgp.base import Shape
from streamgp.encoders import BoundedEncoder, Dropout, Encoder, Layout
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.models.deep.alternating import Alternating, learn_at_once
from streamgp.models.deep.config import GRID_WIDTH, DeepGpConfig
from streamgp.models.deep.posterior import CHUNK, DeepPosterior
from streamgp.models.deep.squared_error import SquaredError
from streamgp.online.posterior import Arrival, DrawsFunctions, LearnedFunction, Look, Units
from streamgp.online.summing import OnFeatures
from streamgp.solvers import Conditional, Data, Solver
from streamgp.state import Parts
from streamgp.training.fit import Optimiser, Standing, training
from streamgp.training.shared_gradients import here

SETTLED, SPREAD, SMOOTH = 2048, 0.35, 0.1
"""Rows on which latents are settled; their spread on a grid, where tanh is still nearly linear; without one, at
most: a perceptron's first latents are of order 1, and a GP on few rows that starts rough stays rough."""
TINY, LATENT = 1e-12, (0.1, 10.0)
"""Least squared distance that a lengthscale is read off; lengthscales of the latents that a file can lead to: those on
a grid spread `SPREAD`."""
FEW, SOME, JITTER, AGAIN = 64, 512, 1e-6, 5
"""Of the posterior that a gradient goes through: latents U, rows at most, what is added to K_UU's diagonal; times that
the kernel has its steps after a stage."""


class GpPosterior(DeepPosterior, DrawsFunctions):
    """See the module.

    Args:
        config: of the model.
        shape: of the windows.
        layout: of the windows that it sees.

    Raises:
        UsageError: the layout does not go with the encoder or the solver, or draws are asked of an encoder without
            dropout.
    """

    config: DeepGpConfig

    def __init__(self, config: DeepGpConfig, shape: Shape, layout: Layout) -> None:
        super().__init__(config, shape, layout)
        encoder = config.encoder
        if config.draws and not any(getattr(encoder, name, 0.0) for name in ("dropout", "recurrent_dropout")):
            raise UsageError(
                "draws averages over networks drawn by dropout, and the encoder has none",
                hint="set encoder.dropout or encoder.recurrent_dropout, such as 0.1, or leave draws out",
            )
        if "width" not in encoder.model_fields_set:
            encoder = encoder.model_copy(update={"width": GRID_WIDTH})
        inner: Encoder = choice.build("encoders", encoder, layout)
        kernel = choice.build("kernels", gridded(config), inner.width)
        self.solver: Solver = choice.build("solvers", config.solver, kernel, shape.columns)
        self.encoder: Encoder = BoundedEncoder(inner) if self.solver.bounded else inner
        self.optimiser()  # refuses a scheme that the solver has not
        self.data: Data = self.solver.data()
        self.given: Conditional = self.solver.condition(self.data)

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel on the encoder's latents."""
        return LearnedFunction(self.solver.kernel, self.given.noise.expand(self.shape.columns), encode=self.encoder)

    @property
    def size(self) -> int:
        return self.given.basis

    @property
    def trained(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "solver": self.solver}

    def parts(self) -> Parts:
        return {"data": self.data}

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch)

    def drawn(self, paths: int, generator: Generator) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """One function a path and column from the posterior, and noise at every step."""
        given, draw = self.given, self.given.draw(paths, generator)

        @torch.no_grad()
        def observe(z: Tensor) -> tuple[Tensor, Tensor]:
            mean = torch.stack([given.mean(self.encoder(z, network)) for network in self._networks()]).mean(0)
            drawn = draw(self._latents_of_paths(z, paths)).flatten(0, 1)
            noise = torch.randn(drawn.shape, generator=generator, dtype=drawn.dtype).to(drawn) * given.noise.sqrt()
            spread = self.factor.sqrt()
            return mean + (drawn - mean) * spread, mean + (drawn - mean + noise) * spread

        return observe

    def put(self) -> None:
        """Data and posterior to where the solver is: they are no modules, which PyTorch would move."""
        self.data.move(self.solver.log_noise.device)
        self.given = self.solver.condition(self.data)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.put()
        return self

    def _networks(self) -> list[Dropout | None]:
        """What the encoder is asked with: as it is, or as one network after another, the same at every call."""
        generator = torch.Generator().manual_seed(self.config.seed)
        return [Dropout(generator, shared=True)] * self.config.draws or [None]

    def _latents_of_paths(self, z: Tensor, paths: int) -> Tensor:
        """(P · S, W) -> (P, S, d); each path sees through one network, whenever it asks."""
        networks = self._networks()
        each = z.unflatten(0, (paths, -1))
        h: Tensor = each.new_zeros(*each.shape[:2], self.solver.kernel.dims)
        for number, network in enumerate(networks[:paths]):
            own = each[number :: len(networks)]
            h[number :: len(networks)] = self.encoder(own.flatten(0, 1), network).unflatten(0, own.shape[:2])
        return h

    def optimiser(self) -> Alternating:
        return Alternating(self.encoder, self.solver, self.config.alternating)

    @property
    def shares_rows(self) -> bool:
        return self.solver.additive

    def descend(self, optimiser: Optimiser, z: Tensor, r: Tensor, generator: Generator) -> float:
        assert isinstance(optimiser, Alternating)
        if self.solver.additive:
            optimiser.sharing, optimiser.learn = self.sharing, self._learn_rows
        try:
            return super().descend(optimiser, z, r, generator)
        finally:
            optimiser.sharing, optimiser.learn = here, learn_at_once  # a copy of the model has no part in who shares

    def _learn_rows(self, encoder: Encoder, data: Data, z: Tensor, r: Tensor) -> None:
        """All rows into additive data."""
        if len(z):
            self.summing(OnFeatures(encoder, cast(Any, data)), _absorb, (z, r), CHUNK)

    def start_from(self, initial: Initial) -> None:
        """What the first fit begins with instead of its own (`_weigh`, `_take`)."""
        if self.config.mode == "regression":
            raise UsageError(
                "mode=regression hides the targets' past, which the hyper-parameters are of",
                hint="leave out --init, or --set mode",
            )
        initial.radial("a GP on a net")
        initial.fits(self.config.kernel)
        self.initial = initial

    def start(self, z: Tensor, r: Tensor, units: Units, generator: Generator) -> None:
        """At the first training: pre-training where it pays; then latents and noise are put to where the kernel's
        training starts well, or to where hyper-parameters of a file say. Later too where the target itself is learned:
        the marginal likelihood alone folds the latents into a shape that fits the rows at hand and no others."""
        epochs = self.config.pretrain_epochs(len(z), again=bool(self.trained_at))
        if self.trained_at and not epochs:
            return
        initial, self.initial = None if self.trained_at else self.initial, None
        if initial is not None:
            self._weigh(initial, units)
        if epochs:
            self._expect(r.new_tensor([self._pretrain(z, r, epochs, generator)]))
        some = z[:: len(z) // SETTLED + 1]
        if self.solver.bounded:
            self.encoder.settle(some, SPREAD)
        elif not epochs:
            self.encoder.settle(some, SMOOTH, widen=False)
        if initial is not None:
            self._take(initial, units, some)

    @torch.no_grad()
    def _expect(self, noise: Tensor) -> None:
        """Give the solver these σ², (T,) or (1,)."""
        floor = self.solver.floor
        self.solver.log_noise.copy_((noise.clamp(min=2 * floor) - floor).log().expand_as(self.solver.log_noise))

    def _weigh(self, initial: Initial, units: Units) -> None:
        """The encoder sees windows in lengthscales, 1/(ℓ_g √s_g) a column, times what makes their mean square 1.

        Then the squared distance of two windows in a perceptron's first layer, before its activation, is on average
        over its random weights in proportion to that of the file's kernel.
        """
        inverse = units.inverse(initial.hyper(units.inputs, units.outputs).lengthscale)
        relevance, layout = inverse / inverse.square().mean().sqrt(), self.layout
        cut = layout.lags * layout.past
        self.encoder.weigh(relevance[:cut][: layout.past], relevance[cut:][: layout.future])

    @torch.no_grad()
    def _take(self, initial: Initial, units: Units, z: Tensor) -> None:
        """Noise; where the target itself is learned ρ² too, and a lengthscale of the latents under which two of these
        rows are on average as many lengthscales apart as under the file's kernel. What a regression leaves has the same
        noise, and is another function.

        z: (N, W) rows, whose latents are where the kernel's training starts.
        """
        hyper, log_noise = initial.hyper(units.inputs, units.outputs), initial.log_noise(units.outputs)
        self._expect(log_noise.exp().clamp(max=1.0))  # of a standardised target
        if self.config.on_regression(self.shape):
            return
        apart = (z * units.inverse(hyper.lengthscale)).var(0, correction=0).sum()
        latent = self.encoder(z).var(0, correction=0).sum()
        lengthscale = (latent / apart.clamp(min=TINY)).sqrt().clamp(*LATENT)
        for name, value in self.solver.kernel.named_parameters():
            if name == "log_lengthscale":
                value.fill_(lengthscale.log())
            elif name == "log_outputscale":
                value.fill_(hyper.outputscale)
            else:
                value.copy_(initial.values[name])

    def _pretrain(self, z: Tensor, r: Tensor, epochs: int, generator: Generator) -> float:
        """An encoder with a linear head, by squared error; returns its last mean. Where the target itself is learned
        before any bound on the latents, so that they stay linear in what they explain; later from the best head."""
        encoder = self.encoder.inner if self.config.alone and isinstance(self.encoder, BoundedEncoder) else self.encoder
        first = SquaredError(encoder, r.shape[1], self.config.pretraining, epochs)
        if self.trained_at:
            first.head.regress(torch.cat([encoder(part) for part in z.split(CHUNK)]), r)
        first.sharing = self.sharing
        with training(self.encoder):
            for _ in range(epochs):
                loss = first.epoch(z, r, generator)
        return loss

    def moving(self) -> nn.Module:
        """The encoder: kernel and noise stay those of one step ahead."""
        return self.encoder

    def function(self, z: Tensor, r: Tensor, generator: Generator) -> Callable[[Tensor], Tensor]:
        """The posterior mean by Nyström's method, k(h, U)(σ² K_UU + K_UH K_HU)⁻¹ K_UH r, U some of the latents H.

        Of more rows than `SOME` the noise is reduced in proportion, as if each stood for several.
        """
        order = torch.randperm(len(z), generator=generator)[:SOME].to(z.device)
        h = self.encoder(z[order])
        few = h[:FEW]
        kernel, noise = self.solver.kernel, self.solver.noise.detach() * len(h) / len(z)
        own, cross = kernel(few, few), kernel(few, h)
        own = own + JITTER * own.diagonal().mean() * torch.eye(len(few)).to(own)
        weights = [
            torch.linalg.solve(one * own + cross @ cross.T, cross @ y) for one, y in zip(noise, r[order].T, strict=True)
        ]
        found = torch.stack(weights, 1)

        def mean(some: Tensor) -> Tensor:
            covariance: Tensor = kernel(self.encoder(some), few)
            return covariance @ found

        return mean

    def fit_again(self, z: Tensor, r: Tensor, held: Tensor, generator: Generator) -> None:
        """Kernel and noise by some steps on the marginal likelihood; the validation rows widen the variance."""
        optimiser = self.optimiser()
        for _ in range(AGAIN):
            optimiser.steps(z[~held], r[~held], 0, generator)
        self.serve(z[~held], r[~held])
        self.factor.fill_(1.0)
        if bool(held.any()):
            own = self.standing(z[held])
            squares = (r[held] - own.mean).square() / (own.latent + own.noise)
            self.factor.copy_(squares.mean(0).clamp(min=1.0))
            self.complete(z[held], r[held])

    def serve(self, z: Tensor, r: Tensor) -> None:
        self.data = self.solver.data()
        if not self.solver.additive:
            self.complete(z, r)
            return
        self._learn_rows(self.encoder, self.data, z, r)
        self.given = self.solver.condition(self.data)

    @torch.no_grad()
    def complete(self, z: Tensor, r: Tensor) -> None:
        for some, part in zip(z.split(CHUNK), r.split(CHUNK), strict=True):
            self.data.add(self.encoder(some), part)
        self.given = self.solver.condition(self.data)

    def served(self) -> Callable[[], None]:
        data, given = self.data, self.given

        def put_back() -> None:
            self.data, self.given = data, given

        return put_back

    @torch.no_grad()
    def learn(self, look: Look, r: Tensor, arrival: Arrival) -> None:
        self.data.forget(arrival.kept)
        if self.data.rows + len(r) > 2 * len(arrival.shares()):  # a solver that keeps rows
            rows = arrival.memory()
            self.serve(rows.z, rows.filled)
            return
        self.data.add(look.features, r)
        self.given = self.solver.condition(self.data)

    @torch.no_grad()
    def look(self, z: Tensor) -> Look:
        """The latents are kept, to be learned."""
        h = torch.cat([self.encoder(part) for part in z.split(CHUNK)])
        own = self.standing(z) if self.config.draws else Standing(*self.given.moments(h), self.given.noise)
        return Look(z, h, own.mean, own.latent * self.factor, own.noise * self.factor)

    def moments(self, z: Tensor) -> Standing:
        """Of the mixture of networks, where there are several."""
        given, latents = self.given, [self.encoder(z, network) for network in self._networks()]
        if len(latents) == 1:
            return Standing(*given.moments(latents[0]), given.noise)
        means = torch.stack([given.mean(h) for h in latents])
        within = torch.stack([given.variance(h) for h in latents]).mean(0)
        return Standing(means.mean(0), within + means.var(0, correction=0), given.noise)


@torch.no_grad()
def _absorb(own: OnFeatures[Encoder, Any], z: Tensor, r: Tensor) -> None:
    """Standardised windows (N, W) and what is learned of them (N, T) into the sums."""
    own.regression.add(own.features(z), r)


def gridded(config: DeepGpConfig) -> BaseModel:
    """The kernel's Config; in front of a grid, the product over dimensions of a kernel that offers both forms."""
    fields = type(config.kernel).model_fields
    if (
        choice.part_name(config.solver) == "exact"
        or "separable" not in fields
        or "separable" in config.kernel.model_fields_set
    ):
        return config.kernel
    return config.kernel.model_copy(update={"separable": True})
