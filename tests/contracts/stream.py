"""The flow of one row, written out: what the laws are about, without the pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from streamgp import registry
from streamgp.base import Due, Offset, Source
from streamgp.forecasting.bands import Bands, Questions
from streamgp.forecasting.calibration import Calibration
from streamgp.forecasting.issued import feature_count
from streamgp.forecasting.scores import Scores
from streamgp.forecasting.volatility import Errors
from streamgp.windows.ledger import Ledger
from streamgp.windows.windows import Windows, WindowSpec
from streamgp_data import checkpoint
from streamgp_data.batches import micro_batches

CALIBRATION = Calibration((80.0, 95.0))


@dataclass
class Stream:
    """A model on a stream. `run` goes on from where it is, and may be cut short by a Crash."""

    spec: WindowSpec
    model_name: str
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 64
    period: int = 7
    home: Path | None = None

    def __post_init__(self) -> None:
        module = registry.load("models", self.model_name)
        self.windows = Windows(self.spec)
        self.model = module.build(module.Config(**self.options), self.windows.shape)
        shape = self.windows.shape
        self.ledger = Ledger(shape, len(CALIBRATION.probabilities), feature_count(CALIBRATION), self.model.family)
        self.bands, self.scores = Bands(shape, CALIBRATION, self.period), Scores(shape, CALIBRATION, period=self.period)
        self.after: Offset = {}
        self.asked: list[torch.Tensor] = []
        self.dues: list[Due] = []
        if self.home is not None and checkpoint.exists(self.home):
            saved = checkpoint.read(self.home)
            saved.restore(self.parts())
            self.after = saved.manifest["after"]  # type: ignore[assignment]

    def parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("windows", "model", "ledger", "bands", "scores")}

    def run(self, source: Source) -> None:
        for rows, after in micro_batches(source, self.after, self.batch):
            asks, answers = self.windows.push(rows)
            if len(asks.origin):
                issued = self.model.predict(asks.x)
                self.ledger.add(asks, issued)
                seen = self.ledger.seen(answers)
                order = answers.position.argsort()
                at = order[torch.searchsorted(answers.position[order], asks.position)]
                phase = (asks.origin[:, None] + torch.arange(1, self.spec.horizon + 1)) % self.period
                questions = Questions(asks.series, at, phase, issued, torch.zeros_like(issued.mean))
                errors = Errors(answers.series, seen.row, seen.column, seen.error)
                self.ledger.calibrate(*self.bands.issue(questions, errors))
            due = self.ledger.pop(answers)
            self.scores.add(due)
            self.bands.update(due)
            self.asked.append(asks.position)
            self.dues.append(due)
            if rows.num_rows < self.batch:
                break  # a partial batch is learned from only when it is full
            if len(due.target):
                self.model.update(due.x, due.target)
            self.after = after
            if self.home is not None:
                checkpoint.write(self.home, self.windows.rows, self.parts(), {"after": dict(after)})

    def sight(self) -> dict[str, Any]:
        """Everything that two runs can be compared by."""
        tensors = {
            f"{name}.{key}": value for name, part in self.parts().items() for key, value in part.state()[0].items()
        }
        return {"scores": self.scores.summary(), "tensors": tensors}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The same numbers, bit for bit; NaN equals NaN."""
    left, right = one["tensors"], other["tensors"]
    if one["scores"] != other["scores"] or left.keys() != right.keys():
        return False
    return all(torch.equal(left[k].nan_to_num(nan=1e300), right[k].nan_to_num(nan=1e300)) for k in left)
