"""SVDGP of many series at once, on hyper-parameters and a basis that they share.

Two thirds of what a single SVDGP on a short series costs is the evidence of its own thinned rows. Here it is computed
for a sample of the series only (`shared`), and each has its own units and reference. So
φ(x) = C⁻¹k(Z, x) of the windows of all series is one product, and what is a series' own is a Bayesian linear regression
on φ, of which the Cholesky factorisations are batched (`shared_posterior`). The basis has its full size from the
beginning.

The life of a series on its stream is that of a `StreamModel`, which here is of K series at once: its tensors are those
of a few series of one generation, taken from where the states of all are, and put back. A series is rebuilt from its
reservoir when a single model would be: on the newest kernel and basis there are, which are estimated again, on a sample
of the series that come together, when the series have grown as far since.

With `pooled` the linear parts have a prior mean in common (`pooled_prior`), and the reference is fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar, cast

import torch
from torch import Generator, Tensor, nn

from streamgp.base import FLOAT, Inputs, Json, Shape, Step
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.posterior import SvdgpPosterior
from streamgp.models.svdgp.shared import SharedKernels, some_series
from streamgp.models.svdgp.shared_posterior import ROOT, SharedPosterior
from streamgp.online.fleet import NEAR, StackedFleet
from streamgp.online.inputs import KernelInputs, reporting
from streamgp.online.model import StreamModel
from streamgp.online.posterior import no_rows
from streamgp.online.reference import LearnedReference, Reference, reference
from streamgp.online.reservoir import WINDOWS, Reservoir, Sample, StackedReservoir
from streamgp.online.scaling import Standardiser
from streamgp.online.stacked import Packed, Stacked, chosen
from streamgp.online.standardised import Standardised
from streamgp.online.winsorise import far_off
from streamgp.regression import additive
from streamgp.state import Nested, RandomState, Whole

LIMITS = "winsorise.excess", "winsorise.far"
"""What a series learns of its windows also where an update is undone."""
OUTER, GENERATION = "posterior.regression.outer", "posterior.generation"
PARTS = (
    *("inputs.scaling.past", "inputs.scaling.future", "outputs", "reference", "winsorise", "memory"),
    *("posterior", "posterior.regression"),
)
"""Of the model, whose tensors are each series' own."""


class SharedFleet(StackedFleet):
    """Many SVDGP on one kernel and basis; Stateful.

    Args:
        config: of each.
        shape: of the windows of each.
        device: where the sums live.

    Attributes:
        model: of some of the series at a time.
        series: the states of all; their names are those of the attributes of the model.

    Example:
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> fleet = SharedFleet(Config(basis=32), shape)
        >>> u, series = torch.linspace(-3, 3, 400, dtype=torch.float64), torch.arange(400) % 2
        >>> x, y = Inputs(u.new_zeros(400, 0, 2), u.view(400, 1, 1)), torch.sin(u + series)[:, None]
        >>> _ = fleet.fit(x, y, series)
        >>> bool((fleet.predict(x, series)[0] - y).abs().max() < 0.05)
        True
    """

    STATE = (
        Nested("series", bare=True),
        RandomState("generator"),
        Whole("shared"),
    )
    NOT_STATE: ClassVar = dict.fromkeys(("model", "tried", "_memory", "_posterior"), "of what was learned last")

    def __init__(self, config: Config, shape: Shape, device: torch.device | None = None) -> None:
        if config.pooled and config.target == "auto":
            config = config.model_copy(update={"target": Reference("auto", shape).kind})
        self.config, self.shape, self._device = config, shape, device or torch.device("cpu")
        self.shared = SharedKernels(config, shape, self._units, self._device)
        units, memory = self._units(), StackedReservoir(config.reservoir, shape, config.forgetting(shape))
        posterior = SharedPosterior(config, shape, self.shared)
        self.model = StreamModel(posterior, config, shape, memory, inputs=units.inputs).to(self._device)
        self.model.rebuilt = 1
        self.series = Stacked(self._fresh(), symmetric=(OUTER,), derived=(ROOT,))
        self._memory, self._posterior, self._posterior.series = memory, posterior, self.series
        memory.series, posterior.standardised = self.series, self.model.standardised
        alone = SvdgpPosterior(config, shape, units.inputs.groups, units.inputs.count)
        before = StreamModel(alone, config, shape, Reservoir(2, shape, None), inputs=self._units().inputs)  # any data
        self._before = before.to(self._device)
        windows = {f"memory.{name}" for name in WINDOWS}
        self._changing = self.series.fresh.keys() - {ROOT, *windows}  # what an update depends on
        learning = {OUTER, "posterior.regression.moment", "posterior.regression.square", "tried", *LIMITS[:1]}
        kept = {name for name in self._changing if name.startswith("memory.")}
        self._looked = (self._changing | {ROOT}) - learning - kept  # what forecasts depend on

    @property
    def generator(self) -> Generator:
        return self.model.generator

    def _units(self) -> Standardised:
        """Of one series before any data."""
        inputs = KernelInputs(self.shape, jumps=self.config.turning).to(self._device)
        kind = reference(self.config.target, self.shape, self.config.decay)
        kind = kind.to(self._device) if isinstance(kind, LearnedReference) else kind
        return Standardised(inputs, kind, Standardiser(self.shape.columns))

    def _places(self) -> dict[str, dict[str, Any]]:
        """Where the tensors of a series are: by the names of parts, those of the part by their own names."""
        found: dict[str, Any] = {"": self} | {part: attrgetter(part)(self.model) for part in PARTS}
        return {part: of._buffers if isinstance(of, nn.Module) else of.__dict__ for part, of in found.items()}

    def _fresh(self) -> dict[str, Tensor]:
        """The tensors of a series before any data."""
        self.tried = torch.zeros((), dtype=FLOAT)
        found = {
            f"{part}.{name}".removeprefix("."): value
            for part, held in self._places().items()
            for name, value in held.items()
            if isinstance(value, Tensor)
        }
        return {name: value.to(self._device) for name, value in found.items()}

    def _hold(self, codes: Tensor, names: Collection[str]) -> None:
        """Let the model be of these series, as far as these tensors say."""
        self._memory.codes = self._posterior.codes = codes
        places = self._places()
        for name, part in self.series.take(codes, names).items():
            of, _, leaf = name.rpartition(".")
            places[of][leaf] = part

    def _keep(self, well: Tensor) -> None:
        """Put the states of these series back, but of those that failed only their limits. well: (K,)"""
        places, held = self._places(), dict[str, Tensor]()
        for name in (*self._changing, ROOT):
            of, _, leaf = name.rpartition(".")
            held[name] = places[of][leaf]
        codes = self._posterior.codes
        self.series.put(codes, {name: held.pop(name) for name in LIMITS})
        self.series.put(*chosen(codes, held, well))
        self._memory.keep(well)

    def begin(self) -> None:
        """See `Timed`."""
        if self.shared.pooled is not None:
            self.shared.pooled.begin()

    def reach(self, together: int, newest: int) -> None:
        """See `Timed`."""
        if self.shared.pooled is not None:
            self.shared.pooled.reach(together, newest)

    def predict(self, x: Inputs, series: Tensor, batch: int = 1) -> Tensor:
        """(P, R, T) parameters of what each window's model forecasts; nothing changes."""
        found = x.past.new_empty(3, len(series), self.shape.columns)
        generation = self._generation(series)
        new = generation < 0
        if bool(new.any()):
            found[:, new] = self._before.predict(x.rows(new)).parameters()
        self._posterior.seen.clear()
        for some in self._parts(series, generation, self._looked):
            issued = self.model.forecast(some.windows(x)).parameters()
            found[:, some.rows[some.there]] = issued[:, some.there]
        return found

    def _update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None) -> dict[int, Step]:
        """Each model learns its windows, or is rebuilt with them."""
        begun, steps, due = self._generation(series), dict[int, Step](), list[Tensor]()
        new = begun < 0
        if bool(new.any()):
            codes = series[new].unique().tolist()
            steps |= zip(codes, self.fit(x.rows(new), y[new], series[new]), strict=True)
        if self.shared.pooled is not None:
            for some in self._parts(series, begun, self._looked):
                self.shared.pooled.add(self.model.standardised, some.windows(x), some.truths(y), self.series.size)
            self.shared.pooled.use()
        for some in self._parts(series, begun, self._changing):
            own, again = self._learned(some.windows(x), some.truths(y), some.there)
            steps |= zip(some.codes.tolist(), own, strict=True)
            due.append(some.codes[again])
        self._posterior.seen.clear()
        for code, rebuilt in self._rebuild(torch.cat(due)).items() if due else ():
            learned = steps[code]
            well = rebuilt.healthy and learned.healthy
            steps[code] = rebuilt if well else rebuilt._replace(healthy=False, done=f"{rebuilt.done}; {learned.done}")
        return steps

    def _learned(self, x: Inputs, y: Tensor, there: Tensor) -> tuple[list[Step], Tensor]:
        """Learn windows (K, N, ...); a step of each series, and (K,) which are due to be rebuilt."""
        model, z = self.model, self.model.inputs(x)
        near = model.winsorise.admits(z, there, self._posterior.weight)
        beyond = (there & ~near).sum(1).tolist()
        if any(beyond):
            y, z = torch.where(near[..., None], y, torch.nan), torch.where(near[..., None], z, 0.0)
        look, shift, y = model.limited(x, y, z)
        steps = model.learn(x, y, look, shift, "update")
        seen, count = self._memory.seen, torch.isfinite(y).any(2).sum(1).to(FLOAT)
        due = model.due(seen - self.tried, count, self.tried)
        self._keep(torch.tensor([step.healthy for step in steps], device=self._device))
        return [reporting(step, far_off(out)) for step, out in zip(steps, beyond, strict=True)], due

    def _rebuild(self, codes: Tensor) -> dict[int, Step]:
        """Rebuild series from their reservoirs; their steps."""
        found = dict[int, Step]()
        if not len(codes):
            return found
        sample = codes[some_series(len(codes))]
        self._hold(sample, self._changing)
        x, y, *_ = self._memory.sample()
        filled = torch.isfinite(y).any(2).unbind(0)
        some = [(Inputs(x.past[k][there], x.future[k][there]), y[k][there]) for k, there in enumerate(filled)]
        self.shared.renew(self.series.take(codes, ("memory.seen",))["memory.seen"], some, self.generator)
        kind = self._generation(codes)  # missing targets are filled in by the kernel that a series had
        for own in (some for one in kind.unique() for some in codes[kind == one].split(self._near)):
            self._hold(own, self._changing)
            since = (self._memory.seen - self.tried).tolist()
            steps = self._begun(self._memory.sample(), "rebuild", fill=True)
            for code, count, step in zip(own.tolist(), since, steps, strict=True):
                found[code] = step._replace(done=step.done.replace("rebuild", f"rebuild: {count:.0f} rows"))
        self.shared.forget(self._generations().unique().tolist())
        return found

    def _begun(self, sample: Sample, done: str, fill: bool) -> list[Step]:
        """Start the series that are held over from these windows, on the newest kernel and basis; their steps."""
        steps = self.model.begin(sample, done, fill)
        self.tried = self._memory.seen
        well = torch.tensor([step.healthy for step in steps], device=self._device)
        self._keep(well)
        self.series.put(self._posterior.codes, {"tried": self.tried})
        return steps

    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        steps, packed = dict[int, Step](), Packed.of(series)
        if self.shared.pooled is not None:
            for some in packed.parts(self._near):
                self._hold(some.codes, self._looked)
                units, own, truth = self.model.standardised, some.windows(x), some.truths(y)
                units.fit(own, truth, some.there.to(FLOAT))
                self.shared.pooled.add(units, own, truth, self.series.size)
            self.shared.pooled.use()
        few = some_series(len(packed.codes))
        sample = [own[there] for own, there in zip(packed.rows[few], packed.there[few], strict=True)]
        self.shared.renew(packed.counts, [(x.rows(own), y[own]) for own in sample], self.generator)
        for some in packed.parts(self._near):
            self._hold(some.codes, self._changing)
            own, truth = some.windows(x), some.truths(y)
            self._memory.offer(own, truth, self.generator)
            whole = Sample(own, truth, some.there.to(FLOAT), no_rows(truth))
            steps |= zip(some.codes.tolist(), self._begun(whole, "epoch", fill=False), strict=True)
        return steps

    def _forget(self, codes: Tensor) -> None:
        self.series.reserve(codes)
        self.series.put(codes, self.series.fresh)
        self._posterior.seen.clear()

    def _size(self, code: int) -> int:
        return self.config.basis

    @property
    def _near(self) -> int:
        return max(NEAR // self.series.bytes, 1)

    def _generation(self, series: Tensor) -> Tensor:
        """(R,) of the series of each window; −1 where it has not begun."""
        if not len(series):
            return series.new_zeros(0)
        codes, place = series.unique(return_inverse=True)
        return self.series.take(codes, (GENERATION,))[GENERATION].long()[place]

    def _parts(self, series: Tensor, generation: Tensor, names: Collection[str]) -> Iterator[Packed]:
        """The windows of the series that have begun: a few series of one generation at a time, which the model then
        is of, as far as these tensors say. series, generation: (R,) of each window."""
        for one, packed in Packed.by_kind(series, generation):
            for some in packed.parts(self._near) if one >= 0 else ():
                self._hold(some.codes, names)
                yield some

    def _generations(self) -> Tensor:
        """(S,) of all series."""
        every = torch.arange(self.series.size, device=self._device)
        return self.series.take(every, (GENERATION,))[GENERATION].long()

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        used = set(tensors[f"series.{GENERATION}"].tolist())
        there = cast("dict[str, Json]", rest["shared"])
        if not used <= {-1.0, *map(float, there)}:
            raise ValueError(f"series.{GENERATION} has {sorted(used)}, and shared has {sorted(there)}")

    def restored(self) -> None:
        self._posterior.seen.clear()
        for one, kernel in self.shared.kernels.items():
            own = (self._generations() == one).nonzero()[:, 0]
            outer = self.series.take(own, (OUTER,))[OUTER]
            self.series.put(own, {ROOT: additive.root(outer, kernel.noise)[0]})
