"""Experts side by side: each learns every window, and a mixer learns how much each of their forecasts is worth.

The experts' errors are those of the forecasts that were issued, each as soon as its truth is known (`assess`); every
expert learns windows that are complete. Where `assess` is not called, and in a panel, whose errors are in units of
their windows, the mixer learns with complete windows too. What fails in one expert is undone and reported there, and
the others learn. With known inputs a stage of its own learns what the mix leaves (`interactions`).

Before any error is known the experts that learn have equal weights; `linear_short`, `iterated` and the naive ones have
none but what their errors earn. Nor has a net, which stands on the linear expert where there is one: where it adds
nothing, it has none. The first errors are those of the experts before they learn a batch that is fitted: then each
forecasts its reference. A GP that says that it knows less than its reference is taken nearer to that
(`StreamModel.cautious`). When a batch of windows is fitted, experts that learn what the linear one leaves see its
forecast of each third after a fit on the others, so that errors are as they will be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch
from torch import Tensor, nn

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Model, Predictive, Shape, Step
from streamgp.errors import UsageError
from streamgp.mixing.mixer import Mixer, forgetting
from streamgp.models.ensemble.config import Mix
from streamgp.models.ensemble.interactions import Interactions, applies
from streamgp.models.ensemble.members import Few, Member, OnTop
from streamgp.models.linear.columns import REFERENCE
from streamgp.models.linear.direct import DirectLinear
from streamgp.online.inputs import LARGEST, reporting, usable_rows
from streamgp.online.panel import panel_of
from streamgp.online.variance import random_walk_variance
from streamgp.predictives.mixed import Mixed
from streamgp.state import Declared, Nested, Parts, Value, fingerprint

INTERACTIONS = "interactions"
"""Name of the part of a mean that known inputs add together."""
MATTERS = 0.25
"""Least weight of an expert whose warnings are passed on."""
PARTS = 3
"""Parts of a batch that are forecast from the others."""
UNLEARNED = 5.0
"""Independent windows, N/H, up to which experts are as good as their references, when weights begin."""
FEWEST = 60
"""Windows in a batch from which on parts of it are forecast from the others."""


class Ensemble(Declared, Model):
    """See the module.

    Args:
        config: which experts.
        shape: of the windows.

    Raises:
        UsageError: an expert cannot be built for this shape, or forecasts outcomes of 0 and 1.
    """

    STATE = (Nested(of="_parts", under="parts"), Value("fitted", str), Value("told", bool))

    family = Mixed

    def __init__(self, config: Mix, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.names = tuple(name for name in config.experts if not config.of(name).idle(shape, config.experts))
        self.members = nn.ModuleList([self._member(name) for name in self.names])
        self.labels = [label for member in self.experts for label in member.labels]
        """Of the K forecasts that are mixed."""
        self.panel = panel_of(shape)
        self.assesses = self.panel is None
        first = torch.cat([member.first for member in self.experts])
        first = (first | ~first.any()).to(FLOAT)
        self.mixer = Mixer(len(self.labels), shape, config.memory or forgetting(shape), first / first.sum())
        self.interactions = Interactions(shape, self.mixer.memory) if config.interactions and applies(shape) else None
        self.fitted = ""  # fingerprint of the batch that was fitted last
        self.told = False  # whether `assess` is called

    @property
    def experts(self) -> list[Member]:
        """In the order of the weights."""
        return list(self.members)  # type: ignore[arg-type]

    def predict(self, x: Inputs) -> Mixed:
        """The mix, with the variance of its own past errors."""
        if self.panel is None:
            return self._predict(x)
        sizes = self.panel.sizes(x)
        scale = self.panel.columns(sizes)
        return self._predict(self.panel.divide(x, sizes)).affine(scale, torch.zeros_like(scale))

    def _predict(self, x: Inputs) -> Mixed:
        means = self._means(self.experts, x)
        mean, latent, noise = self.mixer.issue(means, random_walk_variance(x, self.shape))
        if self.interactions is None:
            return Mixed(mean, latent, noise, means)
        both, share = self.interactions.both(x, mean, self.mixer.scale), self.interactions.share
        rows = self.mixer.count / share.count  # it may have begun later
        less = torch.where(share.square > 0, share.square / self.mixer.square * rows, 1.0).clamp(max=1.0)
        return Mixed(share.mean(both), less * latent, less * noise, torch.cat([both, means]))

    def parts(self, x: Inputs) -> dict[str, Tensor]:
        """Those of the linear experts, weighted, and what each other adds to the reference of the first of them; the
        weighted forecast of each where there is no linear one with parts."""
        if self.panel is None:
            return self._terms(x)
        sizes = self.panel.sizes(x)
        scale = self.panel.columns(sizes)
        return {label: scale * value for label, value in self._terms(self.panel.divide(x, sizes)).items()}

    def _terms(self, x: Inputs) -> dict[str, Tensor]:
        means, found, start = self._means(self.experts, x), dict[str, Tensor](), 0
        outvoted = self.mixer.outvoted(means)
        models = [member.model for member in self.experts if isinstance(member.model, DirectLinear)]
        looks = {model: model.regression.look(x) for model in models}
        base = looks[models[0]].base[0] if models else None
        for member in self.experts:
            own = slice(start, start + member.count)
            start += member.count
            weights, none = self.mixer.weights[:, own], outvoted[own]  # (T, count), (count, N, T)
            if isinstance(member.model, DirectLinear):
                terms = member.model.regression.parts(looks[member.model], weights, none)
            else:
                added = torch.where(none, 0.0, means[own] - (0.0 if base is None else base))
                terms = {} if base is None else {REFERENCE: base * weights.sum(1)}
                terms[member.name] = torch.einsum("knt,tk->nt", added, weights)
            for label, value in terms.items():
                found[label] = found[label] + value if label in found else value
        found = self.mixer.with_outvoted(found, means)
        if self.interactions is not None and not self.interactions.idle:
            mean = self.mixer.mean(means)
            both = self.interactions.both(x, mean, self.mixer.scale)
            found[INTERACTIONS] = self.interactions.share.mean(both) - mean
        return found

    def assess(self, issued: Predictive, y: Tensor) -> None:
        """Learn the weights from N truths; see `base.Assesses`."""
        self.told, given = True, Mixed.from_parameters(issued.parameters())
        sound = (y.abs() <= LARGEST) & (given.experts.abs() <= LARGEST).all(0)
        self._weigh(given.experts, torch.where(sound, y, torch.nan))

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        """Learn N windows: the mixer from what was issued, where `assess` is not called, then every expert."""
        y, taken, (left_out,) = usable_rows(x, y)
        x, y = x.rows(taken), y[taken]
        if not len(y):
            return reporting(Step(float("nan"), 0, True, "nothing observed"), left_out)
        self.fitted = ""
        given = None if issued is None else Mixed.from_parameters(issued.parameters()[:, taken])
        if self.panel is not None:
            sizes = self.panel.sizes(x)
            x, scale = self.panel.divide(x, sizes), self.panel.columns(sizes)
            y, given = y / scale, None if given is None else given.affine(1.0 / scale, torch.zeros_like(scale))
        given = self._predict(x) if given is None else given
        if self.interactions is not None and not self.interactions.begun:
            self.interactions.begin(x, y)
        if not self.told:
            self._weigh(given.experts, y)
        issued_by = given.experts
        if self.interactions is not None:
            mix, issued_by = issued_by[0], issued_by[2:]
            self.interactions.learn(x, mix, y, self.mixer.scale)
        parts = issued_by.split([member.count for member in self.experts])
        base, steps = self._base(parts), dict[str, Step]()
        for member, part in zip(self.experts, parts, strict=True):
            steps[member.name] = member.update(x, y, part, base)
        loss = -torch.nanmean(given.log_prob(y)).item()
        return reporting(self._step(steps, "update", loss), left_out)

    def _weigh(self, issued_by: Tensor, y: Tensor) -> None:
        """Learn weights from what was issued (K, N, T), with that of the interactions first, and truths (N, T)."""
        if self.interactions is not None:
            self.interactions.weigh(issued_by[:2], y)
            issued_by = issued_by[2:]
        self.mixer.learn(issued_by, y)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Learn all windows, an epoch at a time; see the module."""
        y, taken, (left_out,) = usable_rows(x, y)
        x, y = x.rows(taken), y[taken]
        if epochs < 1 or not len(y):
            return
        if self.panel is not None:
            sizes = self.panel.sizes(x)
            x, y = self.panel.divide(x, sizes), y / self.panel.columns(sizes)
        batch = fingerprint(x, y)
        if self.interactions is not None:
            self.interactions.begin(x, y)
        if not bool(self.mixer.count.any()):
            self._compare_references(x, y)
        base = self._across(x, y) if any(isinstance(member, OnTop) for member in self.experts) else None
        fits = [member.fit(x, y, base, epochs) for member in self.experts]
        for done in zip_longest(*fits):
            self.fitted = batch
            steps = {name: step for name, step in zip(self.names, done, strict=True) if step is not None}
            loss = -torch.nanmean(self._predict(x).log_prob(y)).item()
            yield reporting(self._step(steps, "epoch", loss), left_out)

    def _compare_references(self, x: Inputs, y: Tensor) -> None:
        """First weights, and the scale of errors, from what experts forecast that have learned nothing.

        That is the reference of each: the season, the last value. It says little of what they forecast once they have
        learned many windows, and all that is known of them after a few; nothing where one that has weight at first has
        no reference.
        """
        means = self._means(self.experts, x)
        if bool(((means == 0).flatten(1).all(1) & (self.mixer.first > 0)).any()):
            return
        mixers = {self.mixer: means}
        if self.interactions is not None and not self.interactions.idle:
            mixers[self.interactions.share] = self.mixer.mean(means).expand(2, -1, -1)
        for mixer, issued in mixers.items():
            mixer.learn(issued, y)
            mixer.weaken(min(1.0, (UNLEARNED * self.shape.horizon / len(y)) ** 2))

    def epochs_for(self, rows: int) -> int:
        return max(member.model.epochs_for(rows) for member in self.experts)

    def warmup_epochs(self, rows: int) -> int:
        return max(member.model.warmup_epochs(rows) for member in self.experts)

    def inner_models(self) -> dict[str, Model]:
        """The experts. In a panel, what they learn is divided by the size of its series."""
        return {member.name: member.model for member in self.experts}

    def warnings(self) -> list[str]:
        """Those of the experts that make up a good part of the mix."""
        figures = self.figures()
        return [
            f"{member.name}, {share:.0%} of the mix: {one}"
            for member in self.experts
            for one in member.model.warnings()
            if (share := figures[f"weight_{member.name}"]) >= MATTERS
        ]

    def figures(self) -> dict[str, float]:
        """The weight of each expert, the mean over the output columns: weight_linear, ...; interactions: the part of f
        that is added."""
        found = {f"weight_{name}": float(share.mean()) for name, share in self.shares().items()}
        own = {} if self.interactions is None else {"interactions": float(self.interactions.weight.mean())}
        return found | own

    def shares(self) -> dict[str, Tensor]:
        """Of each expert in the mix, all that it contributes."""
        weights = self.mixer.weights.unflatten(0, (-1, self.shape.horizon)).mean(0)  # (H, K)
        parts = weights.split([member.count for member in self.experts], 1)
        return {name: part.sum(1) for name, part in zip(self.names, parts, strict=True)}

    def _member(self, name: str) -> Member:
        below, options = "linear" in self.names, self.config.of(name)
        few = Few(self.shape) if self.config.on_top and options.process and below else None
        shape = self.shape if few is None else few.inner
        model: Model = registry.load("models", name).build(options, shape)
        if model.family.binary:
            raise UsageError(f"{name} forecasts outcomes here, and an ensemble does not", hint=f"use --model {name}")
        if few is not None:
            return OnTop(name, model, few)
        if below and (rest := model.above_linear) is not None:  # what it stands on is an expert of its own
            return OnTop(name, rest, lambda x, _: Inputs(x.past, x.future), later=True)
        return Member(name, model, later=options.baseline)

    def _means(self, experts: list[Member], x: Inputs) -> Tensor:
        """(K, N, T) what each forecasts."""
        parts, base = dict[str, Tensor](), None
        for member in sorted(experts, key=lambda member: isinstance(member, OnTop)):  # these need the linear one's
            parts[member.name] = member.means(x, base)
            if member.name == "linear":
                base = parts["linear"].mean(0)
        return torch.cat([parts[name] for name in self.names])

    def _base(self, parts: Sequence[Tensor]) -> Tensor | None:
        """Forecasts by expert, (count, N, T) each -> (N, T) the linear one's."""
        return parts[self.names.index("linear")].mean(0) if "linear" in self.names else None

    def _across(self, x: Inputs, y: Tensor) -> Tensor:
        """(N, T) what the linear expert forecasts of each part of the windows after a fit on the others.

        Windows near the part are left out of that fit, as they share truths with it.
        """
        rows = len(y)
        if rows < FEWEST:
            return self._fitted("linear", x, y).means(x, None).mean(0)
        place, found = torch.arange(rows, device=y.device), torch.empty_like(y)
        for part in place.chunk(PARTS):
            near = (place >= part[0] - self._gap(rows)) & (place <= part[-1] + self._gap(rows))
            member = self._fitted("linear", x.rows(~near), y[~near])
            found[part] = member.means(x.rows(part), None).mean(0)
        return found

    def _gap(self, rows: int) -> int:
        """Windows between two parts of a batch."""
        return min(self.shape.horizon, rows // (4 * PARTS))

    def _fitted(self, name: str, x: Inputs, y: Tensor) -> Member:
        """A new expert, fitted on these windows."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            member = self._member(name).to(y.device)
        for _ in member.fit(x, y, None, member.model.epochs_for(len(y))):
            pass
        return member

    def _step(self, steps: dict[str, Step], usual: str, loss: float) -> Step:
        """One step for all experts; `done` also reports, by expert, what differs from a plain update or epoch."""
        notes = [f"{name}: {step.done}" for name, step in steps.items() if step.done not in (usual, "update", "epoch")]
        basis = sum(step.basis for step in steps.values())
        return Step(loss, basis, all(step.healthy for step in steps.values()), "; ".join([usual, *notes]))

    def _parts(self) -> Parts:
        own = {} if self.interactions is None else {"interactions": self.interactions}
        return {"mixer": self.mixer, **own, **{f"expert {member.name}": member for member in self.experts}}
