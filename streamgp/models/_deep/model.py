"""What every model behind an encoder has in common: the frame, training in epochs, and learning from a stream.

Training holds out some rows of the training span, and presents, after every epoch, the weights that had
the best validation NLPD so far. On a stream the newest windows are kept; every few hundred rows, and at once when the
scores say that the model has gone stale, the encoder takes some steps on them. Memory and time a row stay what they
are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape, Step
from streamgp.errors import NumericalError
from streamgp.models._deep.config import DeepConfig
from streamgp.models._deep.frame import Frame
from streamgp.models._deep.head import DeepHead
from streamgp.models._deep.staleness import Staleness
from streamgp.online.inputs import plausible, reporting, usable
from streamgp.online.recent import RecentWindows
from streamgp.online.state import Parts, gather, holding, scatter
from streamgp.online.training import Moments, attempt, in_chunks, load, weights
from streamgp.online.variance import random_walk_variance
from streamgp.optim.early_stopping import EarlyStopping
from streamgp.predictives.gaussian import Gaussian

CHUNK = 4096
"""Rows that `predict` holds the encoder's activations of."""
FEWEST = 20
"""Validation rows under which none are held out: so few say little, and the training rows miss them."""


class DeepModel(DeepHead, Model):
    """A frame, an encoder and a head. Subclasses say how the head learns and predicts."""

    family = Gaussian

    def __init__(self, config: DeepConfig, shape: Shape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        mean = config.mean
        if mean == "auto":
            mean = "linear" if config.mode == "autoregression" and shape.lags else "zero"
        self.frame = Frame(shape, config.mode, config.target, mean, config.decay)
        self.recent = RecentWindows(config.online.window, shape)
        self.staleness = Staleness(config.online.stale)
        self.early = EarlyStopping(config.patience)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.register_buffer("factor", torch.ones(shape.columns, dtype=FLOAT))
        self.factor: Tensor  # (T,) on the variance, from the validation rows
        self.iterate: dict[str, Tensor] = {}
        """Where training stands, between epochs; the modules hold the best weights found so far."""
        self.trained = 0  # epochs of the fit that is going on
        self.fitted_on = 0  # rows that the frame and the weights were fitted on
        self.renewed = 0  # rows seen at the last refresh

    def predict(self, x: Inputs) -> Gaussian:
        """N(b(x) + s m(z), s² (v(z) + σ²)); before any data a random walk around the reference."""
        if not self.frame.fitted:
            mean = self.frame.reference(x)
            seen = x if self.config.mode == "autoregression" else Inputs(x.past[:, :0], x.future)
            return Gaussian(mean, torch.zeros_like(mean), random_walk_variance(seen, self.shape))
        if len(x.future) > CHUNK:  # whatever the number of rows, the work takes the memory of one chunk
            parts = [self.predict(x.rows(slice(at, at + CHUNK))) for at in range(0, len(x.future), CHUNK)]
            return Gaussian.from_parameters(torch.cat([part.parameters() for part in parts], 1))
        z = self.frame.inputs(x)
        mean, latent, noise = self._standardised(z)
        scale = self.frame.scale
        variance = scale.square() * self.factor
        return Gaussian(mean * scale + self.frame.baseline(x, z), latent * variance, noise * variance)

    def fit(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Train; goes on where an earlier call stopped, and after `update` begins again from the weights at hand.

        Rows with a missing truth are left out. An epoch that fails numerically is undone and reported; the first
        raises.
        """
        x, y, left_out = usable(x, y)
        x, y, glitches = plausible(x, y)
        left_out = "; ".join(part for part in (left_out, glitches) if part)
        whole = torch.isfinite(y).all(1)
        x, y = x.rows(whole), y[whole]
        if epochs < 1 or not len(y):
            return
        if not self.trained:
            self.recent.push(x, y)
        for step in self._epochs(x, y, epochs):
            yield reporting(step, left_out)

    def _epochs(self, x: Inputs, y: Tensor, epochs: int) -> Iterator[Step]:
        """Up to `epochs` more; what is served after each are the best weights, with the head of all rows."""
        first = not self.trained
        held = self.config.held_out(len(y)).to(y.device)
        held &= int(held.sum()) >= FEWEST
        if first:
            self.frame.fit(x.rows(~held), y[~held])  # a mean function fitted to them would flatter the held rows
            self.early = EarlyStopping(self.config.patience)
            self.factor.fill_(1.0)
        z = self.frame.inputs(x)
        r = self.frame.residual(x, z, y)
        taught = z[~held], r[~held]
        if first:
            self._start(*taught)
        self._span(self.trained + epochs)
        self.fitted_on = self.renewed = int(self.recent.seen)
        for _ in range(epochs):
            if self.early.finished:
                return
            load(self._learners(), self.iterate)
            put_back = self._served()
            try:
                loss = self._train(*taught)
                better = self._judge(z, r, held)
            except NumericalError as error:
                if not self.trained:
                    raise
                put_back()
                load(self._learners(), self.iterate)
                self.early.since += 1
                self.early.rewind(self._learners())
                self.iterate = weights(self._learners())
                yield self._step(float("nan"), f"epoch: {error.message}")._replace(healthy=False)
                continue
            self.trained += 1
            self.iterate = weights(self._learners())
            if not better:
                self.early.rewind(self._learners())
            yield self._step(loss, "epoch")

    def update(self, x: Inputs, y: Tensor, issued: Predictive | None = None) -> Step:
        x, y, left_out = usable(x, y)
        if not len(y):
            return reporting(self._step(float("nan"), "nothing observed"), left_out)
        return reporting(self._update(x, y), left_out)

    def _update(self, x: Inputs, y: Tensor) -> Step:
        """Learn windows that are usable."""
        self.recent.push(x, y)
        self.failed = ""
        if not self.frame.fitted:
            return self._refit("first windows")
        self._end()
        z = self.frame.inputs(x)
        r = self.frame.residual(x, z, y)
        mean, latent, noise = self._standardised(z)
        variance = (latent + noise) * self.factor
        squares = (r - mean).square() / variance
        loss = 0.5 * torch.nanmean(squares + torch.log(2 * torch.pi * variance.expand_as(r))).item()
        self.staleness.add(squares)
        self._scored(r - mean, squares)
        if self._growing:
            return self._refit(f"{int(self.recent.seen)} rows")._replace(loss=loss)
        since = int(self.recent.seen) - self.renewed
        online = self.config.online
        stale = self.staleness.stale and since >= min(online.refresh or online.window, online.patience)
        if stale or (online.refresh and since >= online.refresh):
            self._renew(*self._newest(), online.stale_steps if stale else online.steps, since)
            self.renewed = int(self.recent.seen)
            if stale:
                self.staleness.calm()
            return self._step(loss, "refresh: stale" if stale else f"refresh: {since} rows")
        self._absorb(z, torch.where(torch.isfinite(r), r, mean))
        return self._step(loss, "update")

    @property
    def _growing(self) -> bool:
        """Whether a stream that began with few rows has doubled since the fit.

        A fit on more than half of a full window is the last: there is no twice as many rows to learn from again.
        """
        seen = int(self.recent.seen)
        return seen >= 2 * self.fitted_on and 2 * self.fitted_on <= self.recent.capacity

    def _refit(self, why: str) -> Step:
        """New units and new training on the newest rows, from the weights at hand."""
        x, y = self.recent.rows()
        whole = torch.isfinite(y).all(1)
        self._end()
        self.fitted_on = self.renewed = int(self.recent.seen)
        if not bool(whole.any()):
            return self._step(float("nan"), "no whole window yet")
        head, parts = self._served(), holding({"frame": self.frame, "factor": self.factor, **self._learners()})
        steps: list[Step] = []
        epochs = self._epochs(x.rows(whole), y[whole], self.config.online.epochs)
        self.failed = attempt(lambda: steps.extend(epochs), lambda: (head(), parts()))
        self._end()
        last = self._step(float("nan"), "") if self.failed or not steps else steps[-1]
        return last._replace(done=self._told(f"fit: {why}"))

    def _end(self) -> None:
        """Training is over: what only another epoch would need is let go."""
        self.trained, self.iterate = 0, {}
        self.early = EarlyStopping(self.config.patience)

    def _newest(self) -> tuple[Tensor, Tensor]:
        """(R, W), (R, T): the kept windows; a missing truth as predicted, so that it teaches nothing."""
        x, y = self.recent.rows()
        z = self.frame.inputs(x)
        r = self.frame.residual(x, z, y)
        if not bool(torch.isfinite(r).all()):
            r = torch.where(torch.isfinite(r), r, self._standardised(z).mean)
        return z, r

    def _standardised(self, z: Tensor) -> Moments:
        """`_moments`, with the activations of one chunk of rows at a time."""
        return in_chunks(self._moments, z, CHUNK)

    def _judge(self, z: Tensor, r: Tensor, held: Tensor) -> bool:
        """Whether these weights are the best so far, by NLPD on the held-out rows; then all rows are served."""
        if not bool(held.any()):
            self._serve(z, r)
            return True
        put_back = self._served()
        self._serve(z[~held], r[~held])
        mean, latent, noise = self._standardised(z[held])
        squares = (r[held] - mean).square() / (latent + noise)
        spread = self._rescaled(squares.mean(0))
        variance = (latent + noise) * spread
        nlpd = 0.5 * (squares / spread + torch.log(2 * torch.pi * variance)).mean().item()
        if not self.early.add(nlpd, self._learners()):
            put_back() if self.early.best else self._serve(z, r)
            return False
        self.factor.copy_(spread)
        self._complete(z, r, held)
        return True

    def _step(self, loss: float, done: str) -> Step:
        """What failed, a gradient that was not finite, and parameters that are not, are unhealthy."""
        finite = (torch.isfinite(p).all() for module in self._learners().values() for p in module.parameters())
        healthy = not self.failed and self._steady and all(map(bool, finite))
        return Step(loss, self.basis, healthy, self._told(done))

    def _told(self, done: str) -> str:
        return f"{done}; undone: {self.failed}" if self.failed else done

    def _parts(self) -> Parts:
        names = ("frame", "recent", "staleness", "early", "factor")
        return {**{name: getattr(self, name) for name in names}, **self._learners(), **self._head()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors, rest = gather(self._parts())
        tensors |= {f"iterate.{key}": value for key, value in self.iterate.items()}
        tensors["generator"] = self.generator.get_state()
        rest |= {"trained": self.trained, "fitted_on": self.fitted_on, "renewed": self.renewed}
        return tensors, rest

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        scatter(self._parts(), tensors, rest)
        self.iterate = {key[8:]: value.clone() for key, value in tensors.items() if key.startswith("iterate.")}
        self.generator.set_state(tensors["generator"].cpu())
        for name in ("trained", "fitted_on", "renewed"):
            setattr(self, name, int(str(rest[name])))
