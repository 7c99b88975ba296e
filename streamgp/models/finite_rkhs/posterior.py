"""A finite-dimensional GP: features that are trained, and an exact regression on them.

Between rebuilds every row is learned exactly by the regression, with the features as they are. A rebuild estimates the
hyper-parameters of the kernel, trains the features some epochs more, and learns the rows from the beginning: statistics
of old features are worth nothing to new ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Predictive, Shape
from streamgp.encoders.identity import Identity
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import ADAM, Search, SearchState, thinned
from streamgp.kernels import Stationary
from streamgp.linalg.cholesky import whiten
from streamgp.models._evidence import way_of
from streamgp.models.finite_rkhs.config import Config
from streamgp.models.finite_rkhs.learner import FiniteLearner
from streamgp.models.finite_rkhs.training import descent
from streamgp.online.inputs import KernelInputs
from streamgp.online.posterior import Arrival, DrawsFunctions, LearnedFunction, Look, Posterior, Rows, Units
from streamgp.online.summing import Summing
from streamgp.online.variance import follow
from streamgp.predictives.gaussian import Gaussian
from streamgp.predictives.student_t import StudentT
from streamgp.state import Declared, Nested, Parts, Value, holding
from streamgp.training.fit import Fit

LEAST, MOST = 0.25, 4.0
"""Factors on the variance that a stream's errors can lead to."""


class FinitePosterior(Declared, Posterior, DrawsFunctions):
    """See the module; built by `streamgp.models.finite_rkhs.build`.

    Args:
        config: of the model.
        shape: of the windows.

    Attributes:
        learner: features and regression.
        factor: (T,) on the variance, by validation rows and by the stream's errors.
        fit: the fit that is going on, if one is.

    Raises:
        UsageError: encoder, kernel and windows do not go together.
    """

    STATE = (
        SearchState("search"),
        Value("learner.steady", bool, key="steady"),
        Nested(of="_parts", under="parts", made={"fit": "_fit"}),
    )

    factor: Tensor

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.family: type[Predictive] = Gaussian if config.predictive == "gaussian" else StudentT
        self.learner = FiniteLearner(config, shape)
        kernel = self.learner.features.kernel
        way = way_of(config, kernel) if self.learner.radial and isinstance(kernel, Stationary) else ADAM
        self.search = Search(KernelInputs(shape).count, config.learn == "once", way)
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.fit: Fit | None = None

    @property
    def sums_rows(self) -> bool:
        return self.config.form == "gram"

    @property
    def summing(self) -> Summing:
        return self.learner.summing

    @summing.setter
    def summing(self, summing: Summing) -> None:
        self.learner.summing = summing

    @property
    def size(self) -> int:
        return self.learner.width

    @property
    def weight(self) -> Tensor:
        return self.learner.regression.count

    @property
    def healthy(self) -> bool:
        return self.learner.finite

    @property
    def signal(self) -> float | None:
        return self.search.signal if self.search.found else None

    def learned(self, groups: Tensor) -> LearnedFunction:
        """The kernel that the features are drawn from, on the encoder's latents; training may move them from there."""
        features, noise = self.learner.features, self.learner.forecasting.noise
        encode = None if isinstance(features.encoder, Identity) else features.encoder
        slopes = features.slope.square() if features.linear else None
        return LearnedFunction(features.kernel, noise.expand(self.shape.columns), encode=encode, slopes=slopes)

    @torch.no_grad()
    def look(self, z: Tensor) -> Look:
        phi, served = self.learner.features(z), self.learner.forecasting
        latent = self.learner.regression.leverage(phi)[:, None] * served.unit
        return Look(z, phi, phi @ served.weights, latent * self.factor, served.noise * self.factor)

    @torch.no_grad()
    def covariance(self, z: Tensor) -> Tensor:
        half = whiten(self.learner.regression.posterior.lower, self.learner.features(z).T)
        return half.T @ half * (self.learner.forecasting.unit * self.factor).reshape(-1, 1, 1)

    def predictive(self, look: Look) -> Predictive:
        if self.config.predictive == "gaussian":
            return super().predictive(look)
        freedom = self.learner.regression.freedom
        variance = look.latent + look.noise
        return StudentT(look.mean, (variance * (freedom - 2) / freedom).sqrt(), freedom, look.latent)

    def scored(self, look: Look, y: Tensor) -> None:
        """The stream's errors go into the factor on the variance."""
        memory = self.config.online.variance
        if memory is None:
            return
        squares = (y - look.mean).square() / (look.latent + look.noise)
        follow(self.factor, squares, memory, LEAST, MOST)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        """The regression forgets row by row, by as much as `arrival.kept` does at once."""
        self.fit = None
        self.learner.compare(look.features, arrival.y)
        self.learner.add(look.features, arrival.y)
        self.learner.steady = True
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        self.fit = None
        count, online = len(rows.y), self.config.online
        young = not self.config.plain and count < min(self.config.rebuild, self.config.reservoir)
        epochs = online.first if young else online.epochs
        self._estimate(rows.z, rows.filled, units)
        self.learner.serve(rows.z, rows.filled, rows.weight)
        self.learner.steady = True
        event = ""
        if epochs and self.learner.learns(count):
            if not self.learner.refresh(rows.z, rows.filled, epochs, generator):
                event = "steps without a finite gradient were left out"
            self.learner.serve(rows.z, rows.filled, rows.weight)
        return event

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """Train; from the features at hand where there were some before.

        Where features have nothing to train there is one epoch: hyper-parameters and the exact regression.
        """
        learns = self.learner.learns(len(rows.y))
        held = self.config.held_out(len(rows.y)).to(rows.y.device) & torch.isfinite(rows.y).all(1) & learns
        if first:
            self._estimate(rows.z[~held], rows.y[~held], units)
            self.factor.fill_(1.0)
            self.fit = self._fit() if learns else None
            if not learns:
                self.learner.serve(rows.z, rows.y)
                self.learner.check()
        if self.fit is None or self.fit.finished:
            return False
        self.fit.epoch(rows.z, rows.y, held, self.factor, generator, left)
        return not self.fit.finished

    def _fit(self) -> Fit:
        steps = descent(self.learner.features, self.learner.head, self.config.training)
        return Fit(self.config, self.learner, steps)

    def failed(self) -> None:
        if self.fit is not None:
            self.fit.failed()

    def begin_afresh(self) -> None:
        self.search.forget()

    def checked(self, rows: int) -> bool:
        return not self.learner.learns(rows)

    def epochs_for(self, rows: int) -> int:
        return self.config.epochs_for(rows, self.config.training.batch) if self.learner.learns(rows) else 1

    def loss(self) -> float:
        """Exact NLML a row, in nats, summed over columns, in standardised units; in a fit that of the last epoch."""
        return self.fit.loss if self.fit is not None else self.learner.nlml()

    def start_from(self, initial: Initial) -> None:
        self.learner.takes(initial)
        self.search.initial = initial

    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        """One draw of the weights a path and column. s² is the posterior mean with predictive=gaussian, and one draw a
        path with student_t."""
        regression, served = self.learner.regression, self.learner.forecasting
        exact = self.config.predictive == "student_t"
        weights, variance = regression.draw(paths, generator, noise=None if exact else regression.noise)
        unit = (weights - regression.posterior.weights) / variance.sqrt()[:, None]  # (P, d, T)
        relative = variance / regression.noise * self.factor  # (P, T)
        weights = served.weights + (relative * served.unit).sqrt()[:, None] * unit
        spread = (relative * served.noise).sqrt()

        @torch.no_grad()
        def observe(z: Tensor) -> Tensor:
            size = (len(z), self.shape.columns)
            noise = torch.randn(size, generator=generator, dtype=FLOAT, device=generator.device).to(z)
            phi = self.learner.features(z).unflatten(0, (paths, -1))  # (P, S, d)
            own = phi @ weights + spread[:, None] * noise.unflatten(0, (paths, -1))
            found: Tensor = own.flatten(0, 1)
            return found

        return observe

    def _estimate(self, z: Tensor, r: Tensor, units: Units) -> None:
        """Hyper-parameters by the evidence of thinned rows, where the kernel has one that is cheap."""
        if not self.learner.radial:
            return
        thin = thinned(len(z), self.shape.horizon, self.config.thin(self.config.evidence_rows), z.device)
        profile = self.learner.profile
        hyper = self.search.run(z[thin], r[thin], units.groups, units.inputs, units.outputs, profile)
        self.learner.settle(hyper, units.inverse(hyper.lengthscale))

    def snapshot(self) -> Callable[[], None]:
        back, hyper, steady, fit = holding(self._parts()), self.search.held(), self.learner.steady, self.fit
        fit_back = holding({} if fit is None else {"fit": fit})

        def put_back() -> None:
            back()
            fit_back()
            self.search.put_back(hyper)
            self.learner.steady, self.fit = steady, fit

        return put_back

    def _parts(self) -> Parts:
        return {**self.learner.parts(), "factor": self.factor}
