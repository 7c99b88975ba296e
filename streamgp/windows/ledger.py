"""The ledger: forecasts as they were issued, kept until the truth of each step has arrived.

A question stays open from its origin until its last step is due; at any time there are at most series · horizon of
them and those of one micro-batch. Memory is open questions · (parameters + quantiles + features) · T. Learning from a
window waits for its last step too, so that its inputs are kept here as well.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from streamgp.base import Due, Inputs, Json, Predictive, Shape
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.calendar import Bools, Floats, Ints
from streamgp.windows.windows import Answers, Asks

_KEYS = ("series", "origin", "position", "cutoff", "serial")
_ABSURD = 1e150  # no value of a window is as large
_FAR = np.iinfo(np.int64).max // 2
_FORECAST = ("parameters", "quantiles", "features")


class RevealedErrors(NamedTuple):
    """Errors of open questions that truths reveal, P of them: of those whose target was known at their row.

    Attributes:
        row: (P,) index of the answer.
        position: (P,) place in the stream of the row that was asked at.
        column: (P,) output column.
        error: (P,) truth − mean, target units.
    """

    row: Tensor
    position: Tensor
    column: Tensor
    error: Tensor


class Ledger:
    """Open questions, found by (series, origin); Stateful.

    Args:
        shape: what the model is built for.
        quantiles: Q, how many a forecast has beside its parameters.
        features: F, how many numbers more the calibration keeps of it.
        family: the class of the distributions.

    Example:
        >>> from streamgp.predictives.gaussian import Gaussian
        >>> import pyarrow as pa
        >>> from streamgp.windows.windows import Windows, WindowSpec
        >>> windows = Windows(WindowSpec(targets=("y",), lags=1, horizon=2))
        >>> ledger = Ledger(windows.shape, 1, 0, Gaussian)
        >>> asks, answers = windows.push(pa.record_batch({"y": [1.0, 2.0, 4.0]}))
        >>> one = torch.ones(3, 2, dtype=torch.float64)
        >>> ledger.add(asks, Gaussian(asks.x.past[:, 0].expand(3, 2), one, one))
        >>> ledger.seen(answers).error.tolist()
        [1.0, 2.0, 3.0]
        >>> ledger.calibrate(torch.ones(1, 3, 2), torch.ones(0, 3, 2))
        >>> due = ledger.pop(answers)
        >>> due.y.tolist(), due.column.tolist(), due.predictive.mean[:, 0].tolist()
        ([2.0, 4.0, 4.0], [0, 0, 1], [1.0, 2.0, 1.0])
        >>> due.target.tolist(), ledger.open
        ([[2.0, 4.0]], 2)
        >>> due.issued[0].tolist()  # the means
        [[1.0, 1.0]]
    """

    def __init__(self, shape: Shape, quantiles: int, features: int, family: type[Predictive]) -> None:
        self.shape, self.family = shape, family
        self._serial = 0  # questions so far
        self._found: tuple[Answers, tuple[Ints, Ints, Ints, Floats]] | None = None  # the pairs of these answers
        self._newest = np.zeros(0, np.int64)  # (S,) last answered step
        self._keys = np.zeros((len(_KEYS), 0), np.int64)  # (5, G) of the G open questions, oldest first
        self._slot = np.zeros(0, np.int64)  # (G,) where their numbers are
        self._free = np.zeros(0, np.int64)  # slots without a question
        self._parameters = np.zeros((0, 0, shape.columns))  # (P, slots, T)
        self._quantiles = np.zeros((quantiles, 0, shape.columns))  # (Q, slots, T)
        self._features = np.zeros((features, 0, shape.columns))  # (F, slots, T)
        self.target = np.zeros((0, shape.columns))  # (slots, T) truths so far
        self._aged = np.zeros((0, shape.outputs), bool)  # (slots, O) which targets were not known at its row
        self._stale = np.zeros(
            (0, shape.horizon), bool
        )  # (slots, H) at which steps what stands in for inputs says little
        self._past = np.zeros((0, shape.lags, len(shape.past)))  # (slots, L, D)
        self._future = np.zeros((0, shape.horizon, len(shape.future)))  # (slots, H, F)
        self._context = np.zeros((0, shape.context.width if shape.context else 0))  # (slots, C)

    @property
    def open(self) -> int:
        """Questions whose last step is not due yet."""
        return len(self._slot)

    def add(self, asks: Asks, predictive: Predictive) -> None:
        """Store what is issued now, (N, T); `calibrate` follows."""
        count = len(asks.origin)
        if not count:
            return
        self._found = None
        issued = predictive.parameters().detach().to("cpu", torch.float64)  # (P, N, T)
        self._reserve(count, len(issued))
        slot, self._free = self._free[:count], self._free[count:]
        serial = self._serial + np.arange(count)
        self._serial += count
        keys = [part.numpy() for part in (asks.series, asks.origin, asks.position, asks.cutoff)]
        self._keys = np.concatenate([self._keys, np.stack([*keys, serial])], 1)
        self._slot = np.concatenate([self._slot, slot])
        self._parameters[:, slot] = issued.numpy()
        self.target[slot] = np.nan
        self._aged[slot] = asks.age.numpy() > 0
        self._stale[slot] = asks.stale.numpy()
        self._past[slot], self._future[slot] = asks.x.past.cpu().numpy(), asks.x.future.cpu().numpy()
        if asks.x.context is not None:
            self._context[slot] = asks.x.context.cpu().numpy()

    def seen(self, answers: Answers) -> RevealedErrors:
        """The errors that these truths reveal, in the order of the answers; nothing changes."""
        self._found = answers, self._pairs(answers)
        row, at, column, truth = self._found[1]
        usual = ~self._unusual(self._slot[at], column)
        row, at, column, truth = row[usual], at[usual], column[usual], truth[usual]
        issued = self._issued(_at(self._parameters, self._slot[at], column)[..., None])
        position = torch.from_numpy(self._keys[2, at])
        error = torch.from_numpy(truth) - issued.mean[:, 0]
        return RevealedErrors(torch.from_numpy(row), position, torch.from_numpy(column), error)

    def calibrate(self, quantiles: Tensor, features: Tensor) -> None:
        """What goes with the questions that were added last: (Q, N, T) and (F, N, T); F may grow."""
        slot = self._slot[len(self._slot) - quantiles.shape[1] :]
        self._quantiles[:, slot] = quantiles.numpy()
        more = max(len(features) - len(self._features), 0)
        if more:
            self._features = np.pad(self._features, ((0, more), (0, 0), (0, 0)), constant_values=np.nan)
        self._features[len(features) :, slot] = np.nan
        self._features[: len(features), slot] = features.numpy()

    def pop(self, answers: Answers) -> Due:
        """Match truths to the open questions, and let go of the questions whose last step is due.

        A question whose last step was jumped over by a gap leaves with NaN in its place, as do the truths of targets
        that were not known at its row, and of steps whose inputs were lost long before: nothing is learned from it. A
        question without any truth leaves without a trace. A late truth answers only
        questions whose last step is not due yet.
        """
        series, step = answers.series.numpy(), answers.step.numpy()
        found, self._found = self._found, None
        row, at, column, truth = found[1] if found is not None and found[0] is answers else self._pairs(answers)
        slot = self._slot[at]
        aged = self._unusual(slot, column)
        self.target[slot[~aged], column[~aged]] = truth[~aged]
        kept = (self._parameters, self._quantiles, self._features)
        parameters, quantiles, features = (_at(part, slot, column) for part in kept)  # (P, R), (Q, R), (F, R)
        _, _, position, cutoff, _ = self._keys[:, at]
        done, whole = self._close(series, step)
        return Due(
            series=torch.from_numpy(series[row]),
            position=torch.from_numpy(position),
            cutoff=torch.from_numpy(cutoff),
            ds=torch.from_numpy(answers.ds.numpy()[row]),
            column=torch.from_numpy(column),
            y=torch.from_numpy(truth),
            predictive=self._issued(parameters[..., None]),
            quantiles=quantiles,
            features=features,
            x=self._windows(done),
            target=torch.from_numpy(self.target[done]),
            issued=torch.from_numpy(self._parameters[:, done]),
            whole=torch.from_numpy(whole),
            aged=torch.from_numpy(aged),
        )

    def to_come(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the open questions: (G,) series, position, cutoff, and how many of the T columns have no truth due yet."""
        held, origin, position, cutoff, _ = self._keys
        newest = np.append(self._newest, -1)[np.minimum(held, len(self._newest))]
        left = (origin + self.shape.horizon - np.maximum(newest, origin)).clip(0) * self.shape.outputs
        keys = (torch.from_numpy(part.copy()) for part in (held, position, cutoff))
        series, at, when = keys
        return series, at, when, torch.from_numpy(left)

    def _unusual(self, slot: Ints, column: Ints) -> Bools:
        """(R,) whether forecasts were made without their target or with an input that was lost long before."""
        horizon = self.shape.horizon
        return np.asarray(self._aged[slot, column // horizon] | self._stale[slot, column % horizon])

    def _windows(self, slot: Ints) -> Inputs:
        context = torch.from_numpy(self._context[slot]) if self.shape.context else None
        return Inputs(torch.from_numpy(self._past[slot]), torch.from_numpy(self._future[slot]), context)

    def _issued(self, parameters: Tensor) -> Predictive:
        """(P, R, 1) -> distributions. Before the first question P is unknown, and any family's none will do."""
        if not len(parameters):
            return Gaussian.from_parameters(parameters.new_zeros(3, 0, 1))
        return self.family.from_parameters(parameters)

    def _pairs(self, answers: Answers) -> tuple[Ints, Ints, Ints, Floats]:
        """Truths of open questions, (R,) each: index of the answer and of the question, output column, value."""
        series, step = answers.series.numpy(), answers.step.numpy()
        row, ahead, at = self._match(series, step)
        if (before := self._answered(series, step)) is not None:  # late rows: what was done before them is left alone
            still = self._keys[1, at] + self.shape.horizon > before[row]
            row, ahead, at = row[still], ahead[still], at[still]
        outputs, horizon = self.shape.outputs, self.shape.horizon
        column = (np.arange(outputs) * horizon + ahead[:, None]).reshape(-1)  # (pairs · O,)
        truth = answers.y.numpy()[row].reshape(-1)
        row, at = np.repeat(row, outputs), np.repeat(at, outputs)
        known = ~np.isnan(truth)
        return row[known], at[known], column[known], truth[known]

    def _answered(self, series: Ints, step: Ints) -> Ints | None:
        """(R,) the newest step of the series of each truth that was answered before it; None where no truth is late."""
        order = np.argsort(series, kind="stable")
        held, now = series[order], step[order]
        first = np.append(True, held[1:] != held[:-1])[: len(held)]
        newest = np.append(self._newest, -1)[np.minimum(held, len(self._newest))]
        before = np.where(first, newest, np.append(-1, now)[: len(now)])
        if not (now < before).any():
            return None
        span = max(int(step.max()), int(newest.max())) + 2  # steps are small: see `_match`
        group = np.cumsum(first) * span
        found = np.empty_like(step)
        found[order] = np.maximum.accumulate(before + group) - group
        return found

    def _match(self, series: Ints, step: Ints) -> tuple[Ints, Ints, Ints]:
        """Pairs (answer, steps ahead − 1, index of the open question), by answer and then by step ahead."""
        if not self.open or not len(step):
            none = np.zeros(0, np.int64)
            return none, none, none
        held, origin = self._keys[0], self._keys[1]
        low = origin.min() - 1  # steps are small beside it: keys cannot overflow for 2^31 series of 2^31 steps
        span = max(int(origin.max()), int(step.max())) - int(low) + 1
        keys = held * span + origin - low
        by = np.argsort(keys, kind="stable")
        keys = keys[by]
        wanted = (series * span + step - low)[:, None] - np.arange(1, self.shape.horizon + 1)
        wanted[(step[:, None] - np.arange(1, self.shape.horizon + 1)) < low] = -1
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        row, ahead = np.nonzero(keys[place] == wanted)
        return row, ahead, by[place[row, ahead]]

    def _close(self, series: Ints, step: Ints) -> tuple[Ints, Ints]:
        """Let go of the questions whose last step is due; slots and series of those with a truth, oldest first."""
        grown = int(series.max()) + 1 - len(self._newest) if len(series) else 0
        if grown > 0:
            self._newest = np.concatenate([self._newest, np.full(max(grown, len(self._newest)), -1)])
        np.maximum.at(self._newest, series, step)
        if not self.open:
            return self._slot, self._keys[0]
        held, origin = self._keys[0], self._keys[1]
        newest = self._newest[np.minimum(held, len(self._newest) - 1)] if len(self._newest) else origin
        over = (origin + self.shape.horizon <= newest) & (held < len(self._newest))
        slot = self._slot[over]
        self._free = np.concatenate([self._free, slot])
        self._keys, self._slot = self._keys[:, ~over], self._slot[~over]
        learned = ~np.isnan(self.target[slot]).all(1)
        return slot[learned], held[over][learned]

    def _reserve(self, count: int, parameters: int) -> None:
        """At least `count` free slots; the room doubles."""
        if count <= len(self._free):
            return
        used = len(self.target)
        more = max(count - len(self._free), used)
        self._free = np.concatenate([self._free, used + np.arange(more)])
        if not used:
            self._parameters = np.zeros((parameters, 0, self.shape.columns))
        kept = (self._parameters, self._quantiles, self._features)
        self._parameters, self._quantiles, self._features = (_longer(part, more, 1) for part in kept)
        self.target = _longer(self.target, more)
        self._past, self._future = _longer(self._past, more), _longer(self._future, more)
        self._context = _longer(self._context, more)
        self._aged = np.concatenate([self._aged, np.zeros((more, self.shape.outputs), bool)])
        self._stale = np.concatenate([self._stale, np.zeros((more, self.shape.horizon), bool)])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        slot = self._slot
        arrays = {"keys": self._keys, "newest": self._newest, "target": self.target[slot]}
        for name in _FORECAST:
            arrays[name] = getattr(self, f"_{name}")[:, slot].transpose(1, 0, 2)
        arrays |= {"past": self._past[slot], "future": self._future[slot], "context": self._context[slot]}
        arrays["aged"] = self._aged[slot]
        if self._stale[slot].any():
            arrays["stale"] = self._stale[slot]
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, {"serial": self._serial}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        arrays = {name: tensor.numpy().copy() for name, tensor in tensors.items()}
        arrays.setdefault("stale", np.zeros((len(arrays["aged"]), self.shape.horizon), bool))
        if len(arrays["keys"]) != len(self._keys):
            raise ValueError(f"a question has {len(arrays['keys'])} keys, not {len(self._keys)}")
        slots, series = arrays["keys"].shape[1], arrays["keys"][0]
        for name in ("target", *_FORECAST, "past", "future", "context", "aged", "stale"):
            if len(arrays[name]) != slots:
                raise ValueError(f"{name} is of {len(arrays[name])} questions, and {slots} are open")
        for name in _FORECAST:
            if arrays[name].ndim != 3 or arrays[name].shape[2] != self.target.shape[1]:
                raise ValueError(f"{name} is {arrays[name].shape[1:]} a question, not (any, {self.target.shape[1]})")
        if arrays["quantiles"].shape[1] != len(self._quantiles):
            raise ValueError(f"a question has {arrays['quantiles'].shape[1]} quantiles, not {len(self._quantiles)}")
        kept = {"past": self._past.shape, "future": self._future.shape, "context": self._context.shape}
        kept |= {"target": self.target.shape, "aged": self._aged.shape, "stale": self._stale.shape}
        for name, own in kept.items():
            if arrays[name].shape[1:] != own[1:]:
                raise ValueError(f"{name} is {arrays[name].shape[1:]} a question, not {own[1:]}")
        if slots and not (series.min() >= 0 and series.max() < len(arrays["newest"])):
            raise ValueError(f"questions are of series that are none of {len(arrays['newest'])}")
        if (arrays["newest"] >= _FAR).any() or (arrays["keys"] >= _FAR).any():
            raise ValueError("steps or times beyond all that there are")
        if "features" in arrays and (np.abs(arrays["features"]) >= _ABSURD).any():
            raise ValueError("features of questions beyond all that there are")
        self._serial = cast(int, rest["serial"])
        self._keys, self._newest = arrays["keys"], arrays["newest"]
        self._slot, self._free = np.arange(self._keys.shape[1]), np.zeros(0, np.int64)
        self.target = arrays["target"]
        for name in _FORECAST:
            setattr(self, f"_{name}", np.ascontiguousarray(arrays[name].transpose(1, 0, 2)))
        self._past, self._future, self._context = arrays["past"], arrays["future"], arrays["context"]
        self._aged, self._stale = (arrays[name].astype(bool) for name in ("aged", "stale"))


def _longer(array: Floats, more: int, axis: int = 0) -> Floats:
    room = list(array.shape)
    room[axis] = more
    return np.concatenate([array, np.zeros(room)], axis)


def _at(array: Floats, slot: Ints, column: Ints) -> Tensor:
    """(K, slots, T) -> (K, R) at these slots and columns, (R,) each."""
    count, slots, columns = array.shape
    return torch.from_numpy(array.reshape(count, slots * columns).take(slot * columns + column, 1))
