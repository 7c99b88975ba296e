"""A relevance vector machine: functions selected from the rows, and an exact posterior on them.

A rebuild estimates hyper-parameters (by the evidence of thinned rows), takes a new dictionary, the kept windows and
others of the rows, and selects from it. Between rebuilds the kept functions are a fixed basis, whose posterior is exact
(`regression`). Selection and evidence know no missing target: they take one as it is predicted, and as noisy as it
would be; what is selected then learns from what was observed.

All T columns share the functions, their precisions, and so one Cholesky factor: a forecast of 48 steps ahead costs what
one step does, and has one set of relevance vectors.

A sum of local functions is certain that it is 0 far from them. Proposition 4 of Evans & Nair (2020) adds a function at
the test point, with the outputscale of the exact GP as prior variance of its weight: that restores the prior's variance
away from the rows and adds about σ²/n' near n' of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.evidence.search import Search, SearchState, Way, thinned
from streamgp.evidence.thinned import LogHyper, by_lbfgs, noises, start
from streamgp.features.inducing import augmentation
from streamgp.kernels import squared_exponential
from streamgp.linalg.cholesky import whiten
from streamgp.linalg.levels import each_column
from streamgp.models._evidence import way_of
from streamgp.models.rvm.config import Config
from streamgp.models.rvm.functions import Functions, Relevance
from streamgp.models.rvm.regression import RelevanceRegression
from streamgp.models.rvm.selection import select
from streamgp.online.inputs import KernelInputs
from streamgp.online.posterior import Arrival, LearnedFunction, Look, RegressionPosterior, Rows, Units, tied
from streamgp.online.summing import OnFeatures, Summing, running
from streamgp.state import Declared, Nested, Value

CHUNK = 1024
"""Rows whose functions are held at once."""
EVIDENCE = 1000
"""Rows at most that estimate hyper-parameters in batch: each evaluation is cubic in them."""
EVALUATIONS, FURTHER = 30, 10
"""Of the evidence, at the first estimate and from others."""
SHORTER = 1.2
"""log of the factor by which lengthscales are shorter where a second search starts: from the first alone, few rows of a
fast wave look like noise."""
WIDENING = 1.2
"""Lengthscales of the functions, relative to those of a GP that explains the same rows: chosen on 16 noisy sincs."""
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


class RvmPosterior(Declared, RegressionPosterior):
    """See the module; built by `streamgp.models.rvm.build`.

    Args:
        config: of the model.
        shape: of the windows.

    Attributes:
        anchors: (A, W) kernel inputs of some rows.
        scale: (T,) what one unit of the targets is, in the units of the columns.

    Raises:
        UsageError: linear functions are wanted, and are more than half of the dictionary.
    """

    STATE = (
        Nested("kernel", "functions", "regression", "anchors", "scale", under="parts"),
        SearchState("search"),
        Value("epochs", int),
    )

    regression: RelevanceRegression

    def __init__(self, config: Config, shape: Shape) -> None:
        super().__init__()
        inputs = KernelInputs(shape)
        self.config, self.shape, self.width = config, shape, len(inputs.groups)
        if config.linear is True and not self._linear:
            raise UsageError(
                f"linear=true: {self.width + 1} linear functions are more than half of dictionary={config.dictionary}",
                hint=f"set dictionary to {2 * (self.width + 1)} or more, or leave out linear",
            )
        self.kernel = squared_exponential.build(squared_exponential.Config(), self.width).requires_grad_(False)
        self.functions = Functions(shape, self.kernel, config.basis)
        self.regression = RelevanceRegression(shape.columns, config.basis, shape.outputs > 1)
        way = way_of(config, self.kernel, Way(by_lbfgs, starts, EVALUATIONS, FURTHER))
        self.search = Search(inputs.count, config.learn == "once", way)
        self.epochs = 0  # of the fit that is going on
        self.anchors: Tensor
        self.scale: Tensor
        self.register_buffer("anchors", torch.zeros(ANCHORS, self.width, dtype=FLOAT))
        self.register_buffer("scale", torch.ones(shape.columns, dtype=FLOAT))

    def relevance_vectors(self) -> RelevanceVectors:
        """The windows that predictions are made of, with the precisions and weights of their functions.

        Example:
            >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
            >>> RvmPosterior(Config(), shape).relevance_vectors().weight.shape
            torch.Size([0, 1])
        """
        ahead = len(self.functions.columns)
        weight = self.regression.coefficients[ahead:] * self.scale
        return RelevanceVectors(
            self.functions.x, self.regression.precision[ahead:], weight, self.functions.columns.clone()
        )

    def learned(self, groups: Tensor) -> LearnedFunction:
        """k(x, z) = Σ_i φ_i(x) φ_i(z)/s_i: a relevance vector machine is the Gaussian process with this covariance
        (Tipping 2001, section 5.2)."""
        hyper = self.search.hyper
        height = hyper.outputscale.new_zeros(())
        one = tied(squared_exponential.Config(), groups, hyper.lengthscale + math.log(WIDENING), height)
        noise, own = hyper.noise.exp().expand(self.shape.columns), self.functions
        if self.shape.outputs > 1 and self.search.found:
            noise = self.regression.noise / self.config.tempering(self.shape)
        return LearnedFunction(Relevance(own, self.regression.precision), noise, own.points, functions=one)

    @property
    def sums_rows(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.functions)

    def look(self, z: Tensor) -> Look:
        phi = self.functions(z)
        latent = self.regression.known(phi).expand(-1, self.shape.columns)
        if self.config.augment:
            latent = latent + self._beyond(z)
        return Look(z, phi, self.regression.mean(phi), latent, self.regression.residual)

    def covariance(self, z: Tensor) -> Tensor:
        """What a function at each row would add to its variance is its own."""
        phi, own = self.functions(z), self.regression
        halves = [whiten(root, phi.T) for _, _, root in own.parts()]
        found = each_column(own.noise, [half.T @ half for half in halves]).expand(self.shape.columns, -1, -1)
        return found + torch.diag_embed(self._beyond(z).T) if self.config.augment else found

    def absorb(self, look: Look, arrival: Arrival) -> str:
        self.regression.absorb(look.features, arrival.y, arrival.y.new_ones(len(arrival.y)), arrival.kept)
        self.regression.solve()
        return ""

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        return self._learn(rows, units, rows.filled, self.config.evidence_rows, generator, running)

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """An epoch selects from the windows kept so far and others of these, with the evidence of more rows than the
        last. There is no more when all windows have been in one dictionary.
        """
        self.epochs = 0 if first else self.epochs
        evidence_rows = max(min(self.config.evidence_rows << self.epochs, EVIDENCE), self.config.evidence_rows)
        self.epochs += 1
        known = rows.filled if first else torch.where(torch.isfinite(rows.y), rows.y, self._means(rows.z))
        self._learn(rows, units, known, evidence_rows, generator, self.summing)
        return len(rows.y) > self._room

    def start_from(self, initial: Initial) -> None:
        initial.radial("rvm", "squared_exponential")
        self.search.initial = initial

    @property
    def _room(self) -> int:
        """Windows that a dictionary holds, beside the linear functions."""
        return max(self.config.dictionary - self._linear, 1)

    @property
    def _linear(self) -> int:
        """Linear functions in a dictionary: all columns and a constant, or none where that is more than half of it."""
        wanted = bool(self.shape.lags) if self.config.linear == "auto" else self.config.linear
        return self.width + 1 if wanted and 2 * (self.width + 1) <= self.config.dictionary else 0

    def _beyond(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, T): what a function at each row would add to the latent variance."""
        outputscale = self.search.hyper.outputscale.exp().to(z.device)
        rows = self.regression.weight / self.config.tempering(self.shape)
        norm = outputscale.square() * self.kernel.correlation(z, self.anchors).square().mean(1) * rows
        return augmentation(outputscale.expand(len(z)), norm, self.regression.residual)

    def _means(self, z: Tensor) -> Tensor:
        """(N, T) predicted means."""
        return torch.cat([self.regression.mean(self.functions(part)) for part in z.split(CHUNK)])

    def _learn(
        self, rows: Rows, units: Units, known: Tensor, evidence_rows: int, generator: Generator, summing: Summing
    ) -> str:
        """New hyper-parameters and selection, and the rows learned with them. known: (N, T) targets, the missing as
        predicted, NaN where nothing predicts yet."""
        filled, missing = known, ~torch.isfinite(rows.y)
        if bool(missing.any()):
            spread = self.regression.residual.sqrt() * (units.before / units.outputs).to(known)
            if not bool(torch.isfinite(known).all()):  # nothing predicts yet: the mean of what is seen
                self._take(rows, units, known, evidence_rows, generator, summing)
                known = torch.where(missing, self._means(rows.z), rows.y)
                spread = self.regression.residual.sqrt()
            draw = torch.randn(known.shape, generator=generator, dtype=FLOAT).to(known.device)
            filled = torch.where(missing, known + spread * draw, rows.y)
        return self._take(rows, units, filled, evidence_rows, generator, summing)

    def _take(
        self, rows: Rows, units: Units, filled: Tensor, evidence_rows: int, generator: Generator, summing: Summing
    ) -> str:
        """See `_learn`. filled: (N, T) targets to estimate and select by; what is NaN counts as the mean."""
        z, y, weight, filled = rows.z, rows.y, rows.weight, torch.nan_to_num(filled)
        thin = thinned(len(y), self.shape.horizon, self.config.thin(evidence_rows), z.device)
        profile = self.kernel.profile
        hyper = self.search.run(z[thin], filled[thin], units.groups, units.inputs, units.outputs, profile)
        self.kernel.log_lengthscale.copy_(math.log(WIDENING) - units.inverse(hyper.lengthscale).log())
        dictionary = self._dictionary(rows.x, units, generator)
        temper = self.config.tempering(self.shape)
        share = weight * torch.isfinite(y).to(FLOAT).mean(1) / temper
        own = noises(z[thin], filled[thin], units.groups, hyper, self.shape.outputs, profile=profile)
        noise, unlike = float(hyper.noise.exp()), bool((own != own.max()).any())
        if unlike:  # each counts in units of its noise, and weights have the prior of the one with the least
            kept = select(self.config, dictionary, z, filled / own.sqrt(), share, 1.0, generator)
            kept = kept._replace(precision=kept.precision / own.min(), noise=noise)
        else:
            kept = select(self.config, dictionary, z, filled, share, noise, generator)
        ahead = len(dictionary.columns)
        windows = kept.places[kept.places >= ahead] - ahead
        points = dictionary.points[windows]
        self.functions.put(kept.places[kept.places < ahead], dictionary.x.rows(windows), points)
        self.regression.begin(kept.precision, kept.noise * temper)
        parts = [slice(start, start + CHUNK) for start in range(0, len(y), CHUNK)]
        whole = bool(torch.isfinite(y).all())
        self.regression.learn(
            lambda: summing(OnFeatures(self.functions, self.regression), _absorb, (z, y, weight), CHUNK),
            None if whole else lambda: ((self.functions(z[part]), y[part], weight[part]) for part in parts),
        )
        self.regression.part(temper, self.shape.outputs)
        chosen = torch.multinomial(weight.cpu(), ANCHORS, replacement=True, generator=generator)
        self.anchors, self.scale = z[chosen.to(z.device)], units.outputs.to(z).clone()
        return f"{len(windows)} relevance vectors of {len(dictionary.x.past)}"

    def _dictionary(self, x: Inputs, units: Units, generator: Generator) -> Functions:
        """The kept windows and others of x, in random order, and the linear functions."""
        fresh = torch.randperm(len(x.past), generator=generator)
        old = self.functions.x.rows(slice(None if len(x.past) > self._room else 0)).to(x.past.device)
        fresh = fresh[: max(self._room - len(old.past), 0)].to(x.past.device)
        windows = Inputs(torch.cat((old.past, x.past[fresh])), torch.cat((old.future, x.future[fresh])))
        dictionary = Functions(self.shape, self.kernel, self._linear + len(windows.past)).to(x.past.device)
        dictionary.put(torch.arange(self._linear, device=x.past.device), windows, units.standardise(windows))
        return dictionary

    def snapshot(self) -> Callable[[], None]:
        """References suffice, but for the kernel's: nothing else is changed in place."""
        functions, regression, hyper = self.functions.holding(), self.regression.holding(), self.search.held()
        anchors, scale, epochs = self.anchors, self.scale, self.epochs
        lengthscale = self.kernel.log_lengthscale.clone()

        def put_back() -> None:
            functions()
            regression()
            self.search.put_back(hyper)
            self.anchors, self.scale, self.epochs = anchors, scale, epochs
            self.kernel.log_lengthscale.copy_(lengthscale)

        return put_back


def _absorb(own: OnFeatures[Functions, RelevanceRegression], z: Tensor, y: Tensor, weight: Tensor) -> None:
    """Standardised windows (N, W), targets (N, T) and weights (N,) into the sums."""
    own.regression.absorb(own.features(z), y, weight)


def starts(groups: int) -> list[LogHyper]:
    """Where searches of hyper-parameters start."""
    usual = start(groups)
    return [usual, usual._replace(lengthscale=usual.lengthscale - SHORTER)]
