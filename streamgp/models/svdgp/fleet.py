"""SVDGP of many series at once, on hyper-parameters and a basis that they share.

Two thirds of what a single SVDGP on a short series costs is the evidence of its own thinned rows. Here it is computed
for a sample of the series only (`shared`), and each has its own units and reference. So
φ(x) = C⁻¹k(Z, x) of the windows of all series is one product, and what is a series' own is a Bayesian linear regression
on φ, of which the Cholesky factorisations are batched (`regression.additive`). The basis has its full size from the
beginning.

A series is rebuilt from its own reservoir when a single model would be: on the newest kernel and basis there are, which
are estimated again, on a sample of the series that come together, when the series have grown as far since.

With `pooled` the linear parts have a prior mean in common (`pooled_prior`), and the reference is fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Shape, Step
from streamgp.models.svdgp.config import Config
from streamgp.models.svdgp.look import FleetLook, Seen
from streamgp.models.svdgp.posterior import SvdgpPosterior
from streamgp.models.svdgp.shared import SharedKernels, some_series
from streamgp.online import reservoir
from streamgp.online.blown import NOT_FINITE, absurd, blown, some_of
from streamgp.online.fleet import NEAR, StackedFleet
from streamgp.online.inputs import KernelInputs, learned, reporting
from streamgp.online.model import PATIENCE, StreamModel
from streamgp.online.reference import Reference
from streamgp.online.reservoir import WINDOWS, Entered, Reservoir, State
from streamgp.online.stacked import Packed, Stacked, chosen
from streamgp.online.stacked_units import StackedRows, StackedUnits
from streamgp.online.winsorise import Winsoriser, far_off
from streamgp.regression import additive
from streamgp.state import Nested, RandomState, Whole


class SharedFleet(StackedFleet):
    """Many SVDGP on one kernel and basis; Stateful.

    Args:
        config: of each.
        shape: of the windows of each.
        device: where the sums live.

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

    def __init__(self, config: Config, shape: Shape, device: torch.device | None = None) -> None:
        self.config, self.shape = config, shape
        self._device = device or torch.device("cpu")
        self._inputs = KernelInputs(shape, jumps=config.turning).to(self._device)
        kind = Reference("auto", shape).kind if config.pooled and config.target == "auto" else config.target
        self._units = StackedUnits(self._inputs, kind, config.decay, shape)
        self._rate = reservoir.rate_of(config.forgetting(shape))
        self._limit = Winsoriser(shape, config.limit)
        posterior = SvdgpPosterior(config, shape, self._inputs.groups, self._inputs.count)
        before = StreamModel(posterior, config, shape, Reservoir(2, shape, None), inputs=self._inputs)  # any data
        self._before = before.to(self._device)
        self.shared = SharedKernels(config, shape, self._units, self._device)
        self._seen: list[Seen] = []  # what was forecast last, until something is learned
        self.generator = torch.Generator().manual_seed(config.seed)
        fresh = {name: part.to(self._device) for name, part in self._fresh().items()}
        self.series = Stacked(fresh, symmetric=("outer",), derived=("root",))
        own = {"root", "coefficients", "residual", "far", "seen", "weight", "generation"}
        self._looked = own | self._units.fresh().keys()  # what forecasts depend on
        self._changing = self.series.fresh.keys() - {"root", *WINDOWS}  # what an update depends on

    def _fresh(self) -> State:
        """Of a series before any data."""
        columns = self.shape.columns
        found = {
            "excess": torch.zeros(columns, dtype=FLOAT),
            "far": torch.zeros((), dtype=FLOAT),
            "tried": torch.zeros((), dtype=FLOAT),
            "generation": torch.full((), -1.0, dtype=FLOAT),
        }
        own = self._units.fresh() | reservoir.fresh(self.config.reservoir, self.shape)
        return additive.fresh(self.shared.size, columns) | found | own

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
        new = self._generation(series) < 0
        if bool(new.any()):
            found[:, new] = self._before.predict(x.rows(new)).parameters()
        self._seen = []
        for packed, held in self._parts(series, self._looked):
            own = x if self.config.limit is None else self._units.bridged(packed, held, x)
            windows = own.rows(packed.rows.flatten())
            look = self._glance(held, windows)
            if own is x and bool(packed.there.all()):
                self._seen.append(Seen(packed.codes, windows, look))
            issued = self._measured(held, look).issued().parameters()
            found[:, packed.rows[packed.there]] = issued[:, packed.there]
        return found

    def _update(self, x: Inputs, y: Tensor, series: Tensor, issued: Tensor | None) -> dict[int, Step]:
        """Each model learns its windows, or is rebuilt with them."""
        new, steps = self._generation(series) < 0, dict[int, Step]()
        if bool(new.any()):
            codes = series[new].unique().tolist()
            steps |= zip(codes, self.fit(x.rows(new), y[new], series[new]), strict=True)
        rebuilt = list[Tensor]()
        begun = torch.where(new, -1, series)
        if self.shared.pooled is not None:
            for some, held in self._parts(begun, self._looked):
                self.shared.pooled.add(some, held, x, some.truths(y), self.series.size)
            self.shared.pooled.use()
        for some, held in self._parts(begun, self._changing):
            own, due = self._learned(some, held, x, y)
            steps |= own
            rebuilt.append(due)
        self._seen = []
        for code, again in self._rebuild(torch.cat(rebuilt)).items() if rebuilt else ():
            learned = steps[code]
            well = again.healthy and learned.healthy
            steps[code] = again if well else again._replace(healthy=False, done=f"{again.done}; {learned.done}")
        return steps

    def _fit(self, x: Inputs, y: Tensor, series: Tensor, codes: Tensor) -> dict[int, Step]:
        steps, packed = dict[int, Step](), Packed.of(series)
        if self.shared.pooled is not None:
            for some in packed.parts(self._near):
                held, truth = self.series.take(some.codes, self._looked), some.truths(y)
                self._units.fit(held, StackedRows(x.rows(some.rows.flatten()), truth, some.there.to(FLOAT)))
                self.shared.pooled.add(some, held, x, truth, self.series.size)
            self.shared.pooled.use()
        few = some_series(len(packed.codes))
        sample = [own[there] for own, there in zip(packed.rows[few], packed.there[few], strict=True)]
        self.shared.renew(packed.counts, [(x.rows(own), y[own]) for own in sample], self.generator)
        for some in packed.parts(self._near):
            held = self.series.take(some.codes, self._changing)
            entered = reservoir.offer(held, some.there, self._rate, self.generator)
            rows = StackedRows(x.rows(some.rows.flatten()), some.truths(y), some.there.to(FLOAT))
            steps |= self._begin(some.codes, held, rows, "epoch")
            self._enter(some, entered, x, y)
        return steps

    def _forget(self, codes: Tensor) -> None:
        self.series.reserve(codes)
        self.series.put(codes, self.series.fresh)
        self._seen = []

    def _size(self, code: int) -> int:
        return self.config.basis

    @property
    def _near(self) -> int:
        return max(NEAR // self.series.bytes, 1)

    def _generation(self, series: Tensor) -> Tensor:
        """(R,) of the series of each window; −1 where it has not begun."""
        if not len(series):
            return series.new_zeros(0)
        codes, place = series.clamp(min=0).unique(return_inverse=True)
        found = self.series.take(codes, ("generation",))["generation"].long()[place]
        return torch.where(series < 0, -1, found.to(series))

    def _parts(self, series: Tensor, names: Collection[str] | None = None) -> Iterator[tuple[Packed, State]]:
        """The windows of the series that have begun: a few series of one generation at a time, with their states, or
        what is named of them."""
        for one, packed in Packed.by_kind(series, self._generation(series)):
            for some in packed.parts(self._near) if one >= 0 else ():
                yield some, self.series.take(some.codes, names)

    def _generations(self) -> Tensor:
        """(S,) of all series."""
        every = torch.arange(self.series.size, device=self._device)
        return self.series.take(every, ("generation",))["generation"].long()

    def _number(self, held: State) -> int:
        """The generation of these series, which have one in common."""
        return int(held["generation"][0])

    def _recalled(self, packed: Packed, held: State, x: Inputs) -> FleetLook:
        """`_glance` at windows, as far as they were not seen just before."""
        for seen in self._seen:
            look = seen.recalled(packed, x, self.shape.horizon, lambda first: self._glance(held, first))
            if look is not None:
                return look
        return self._glance(held, x.rows(packed.rows.flatten()))

    def _glance(self, held: State, x: Inputs) -> FleetLook:
        """K · N windows, series by series, with a latent variance that is too small: what the basis does not reach."""
        number, z = self._number(held), self._units.standardised(held, x)
        phi, gap = self.shared.features(number, z)
        mean, unit = phi @ held["coefficients"], held["output.scale"][:, None]
        return FleetLook(z, phi, mean, gap[..., None], self._units.shift(held, x), held["residual"][:, None], unit)

    def _measured(self, held: State, look: FleetLook) -> FleetLook:
        """A glance with the latent variance."""
        half = torch.linalg.solve_triangular(held["root"], look.phi.mT, upper=False)
        return look._replace(latent=look.latent + half.square().sum(1)[..., None])

    def _reached(self, codes: Tensor, look: FleetLook, y: Tensor) -> FleetLook:
        """A glance with the latent variance of the series of which a truth is beyond the limit without it."""
        if self.config.limit is None:
            return look
        issued = look.issued()
        some = ((y - issued.mean).abs() > self.config.limit * issued.variance.sqrt()).flatten(1).any(1)
        if not bool(some.any()):
            return look
        latent = look.latent.clone()
        part = FleetLook(*(value[some] if value.dim() else value for value in look))
        latent[some] = self._measured(self.series.take(codes[some], ("root",)), part).latent
        return look._replace(latent=latent)

    def _learned(self, packed: Packed, held: State, x: Inputs, y: Tensor) -> tuple[dict[int, Step], Tensor]:
        """Learn windows of series of one generation; their steps, and which are due to be rebuilt."""
        config, codes = self.config, packed.codes
        look = self._recalled(packed, held, x)
        packed, beyond = self._admitted(packed, held, look)
        truth = packed.truths(y)
        issued = self._reached(codes, look, truth).issued()
        forecast, rows = (issued.mean, issued.variance, truth), held["weight"][:, None]
        truth, held["excess"] = self._limit.limited(packed.there, *forecast, rows, held["excess"])
        limits = {name: held[name] for name in ("excess", "far")}
        self.series.put(codes, limits)
        within = y.index_put((packed.rows[packed.there],), truth[packed.there])
        entered = reservoir.offer(held, packed.there, self._rate, self.generator)
        since, count = held["seen"] - held["tried"], packed.counts.to(FLOAT)
        least = (PATIENCE * held["tried"] + count).clamp(max=float(config.rebuild))
        due = (since >= least) if config.rebuild else torch.zeros_like(since, dtype=torch.bool)
        target = (truth - look.shift) / look.unit
        time = config.forgetting(self.shape)
        kept = torch.ones_like(count) if time is None else torch.exp(-count / time)
        phi = look.phi if not any(beyond) else torch.where(packed.there[..., None], look.phi, 0.0)
        number = self._number(held)
        loss, why = self._absorb(number, held, phi, target, packed.there.to(FLOAT), kept, look.mean)
        well = torch.tensor([not text for text in why], device=codes.device)
        self.series.put(*chosen(codes, held, well))
        self._enter(packed, Entered(*(part[well[entered.series]] for part in entered)), x, within)
        every = zip(codes.tolist(), loss.tolist(), why, beyond, strict=True)
        size = config.basis
        return {code: reporting(learned(value, size, text), far_off(out)) for code, value, text, out in every}, codes[
            due
        ]

    def _enter(self, packed: Packed, entered: Entered, x: Inputs, y: Tensor) -> None:
        """Write the windows that enter the reservoirs of these series."""
        series, places, rows = entered
        for name, part in zip(WINDOWS, (x.past, x.future, y), strict=True):
            self.series.write(name, (packed.codes[series], places), part[packed.rows[series, rows]])

    def _admitted(self, packed: Packed, held: State, look: FleetLook) -> tuple[Packed, list[int]]:
        """The windows that `Winsoriser.admits`, and how many of each series it does not."""
        there, held["far"] = self._limit.admitted(packed.there, look.z, held["weight"], held["far"])
        return packed._replace(there=there), (packed.there & ~there).sum(1).tolist()

    def _absorb(
        self,
        number: int,
        held: State,
        phi: Tensor,
        y: Tensor,
        weight: Tensor,
        kept: Tensor,
        before: Tensor | None = None,
    ) -> tuple[Tensor, list[str]]:
        """Learn rows, in place; (K,) the losses, and why a series is to stay as it was, as `StreamModel` has it.

        Args:
            number: of their generation.
            held: states of the series.
            phi, y, weight, kept: of `additive.absorb`.
            before: of `blown`.
        """
        noise, prior = self.shared.kernels[number].noise, self.shared.mean(number, held)
        additive.absorb(held, phi, y, weight, kept)
        held["root"], failed = additive.root(held["outer"], noise)
        additive.settle(held, noise, mean=prior)
        loss = additive.loss(held, noise, mean=prior)
        failed = (failed != 0) | ~additive.finite(held) | ~loss.isfinite()
        some = some_of(phi.shape[1])
        mean = torch.where(weight[:, some, None] > 0, phi[:, some] @ held["coefficients"], 0.0)
        off = blown(mean, y, before).tolist()
        return loss, [
            NOT_FINITE if bad else absurd(far) if far > 1.0 else ""
            for bad, far in zip(failed.tolist(), off, strict=True)
        ]

    def _rebuild(self, codes: Tensor) -> dict[int, Step]:
        """Rebuild series from their reservoirs; their steps."""
        found = dict[int, Step]()
        if not len(codes):
            return found
        sample = codes[some_series(len(codes))]
        held = reservoir.ordered(self.series.take(sample))
        filled = [held["key"][k].isfinite() for k in range(len(sample))]
        some = [
            (Inputs(held["past"][k][one], held["future"][k][one]), held["y"][k][one]) for k, one in enumerate(filled)
        ]
        self.shared.renew(self.series.take(codes, ("seen",))["seen"], some, self.generator)
        for start in range(0, len(codes), self._near):
            own = codes[start : start + self._near]
            held = reservoir.ordered(self.series.take(own, self.series.fresh.keys() - {"root", "outer"}))
            since, rows = (held["seen"] - held["tried"]).tolist(), self._filled(held)
            kept = {name: part for name, part in held.items() if name not in {*WINDOWS, "key", "arrival"}}
            steps = self._begin(own, kept, rows, "rebuild")
            for code, count in zip(own.tolist(), since, strict=True):
                done = steps[code].done.replace("rebuild", f"rebuild: {count:.0f} rows")
                found[code] = steps[code]._replace(done=done)
        self.shared.forget(self._generations().unique().tolist())
        return found

    def _filled(self, held: State) -> StackedRows:
        """What the reservoirs keep, with what is missing of a row as the model of now predicts it."""
        weight, x = reservoir.shares(held, self._rate), Inputs(held["past"].flatten(0, 1), held["future"].flatten(0, 1))
        rows = StackedRows(x, torch.where(weight[..., None] > 0, held["y"], torch.nan), weight)
        missing = ~torch.isfinite(rows.y) & (rows.weight > 0)[..., None]
        if not bool(missing.any()):
            return rows
        mean = torch.cat(
            [
                self._glance(one, Inputs(one["past"].flatten(0, 1), one["future"].flatten(0, 1))).issued().mean
                for one in ({name: part[k : k + 1] for name, part in held.items()} for k in range(len(held["seen"])))
            ]
        )
        return rows._replace(y=torch.where(missing, mean, rows.y))

    def _begin(self, codes: Tensor, held: State, rows: StackedRows, done: str) -> dict[int, Step]:
        """Start series over from these rows, on the newest kernel and basis; their steps."""
        newest = self.shared.newest
        kernel, new = self.shared.kernels[newest], dict(held)
        target = self._units.fit(new, rows)
        for name in ("outer", "moment", "square", "weight", "coefficients"):
            new[name] = self.series.fresh[name].repeat(len(codes), *[1] * self.series.fresh[name].dim())
        phi, _ = self.shared.features(newest, self._units.standardised(new, rows.x))
        loss, why = self._absorb(newest, new, phi, target, rows.weight, torch.ones_like(new["seen"]))
        failed = torch.tensor([bool(text) for text in why], device=codes.device)
        new["generation"] = torch.full_like(held["generation"], newest)
        new["tried"] = held["seen"].clone()
        self.series.put(*chosen(codes, new, ~failed))
        self.series.put(codes[failed], {"tried": held["seen"][failed]})
        every = zip(codes.tolist(), loss.tolist(), why, strict=True)
        return {code: learned(value, len(kernel.points), text, done) for code, value, text in every}

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        used, there = set(tensors["series.generation"].tolist()), cast("dict[str, Json]", rest["shared"])
        if not used <= {-1.0, *map(float, there)}:
            raise ValueError(f"series.generation has {sorted(used)}, and shared has {sorted(there)}")

    def restored(self) -> None:
        self._seen = []
        for one, kernel in self.shared.kernels.items():
            own = (self._generations() == one).nonzero()[:, 0]
            outer = self.series.take(own, ("outer",))["outer"]
            self.series.put(own, {"root": additive.root(outer, kernel.noise)[0]})
