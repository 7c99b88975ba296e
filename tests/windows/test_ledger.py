"""The ledger against a dictionary; what is issued comes back as issued, once, when its truth arrives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgp.base import Due
from streamgp.predictives.gaussian import Gaussian
from streamgp.windows.ledger import Ledger
from streamgp.windows.windows import Answers, Asks, Windows, WindowSpec
from tests.properties import examples


class OracleLedger:
    """One dictionary entry a question."""

    def __init__(self, horizon: int, outputs: int) -> None:
        self.horizon, self.outputs = horizon, outputs
        self.open: dict[tuple[int, int], dict[str, Any]] = {}
        self.newest: dict[int, int] = {}

    def add(self, asks: Asks, parameters: torch.Tensor, quantiles: torch.Tensor) -> None:
        for n in range(len(asks.origin)):
            key = (int(asks.series[n]), int(asks.origin[n]))
            self.open[key] = {
                "position": int(asks.position[n]),
                "cutoff": int(asks.cutoff[n]),
                "parameters": parameters[:, n].clone(),
                "issued": parameters[:, n].clone(),
                "quantiles": quantiles[:, n].clone(),
                "past": asks.x.past[n].clone(),
                "target": [float("nan")] * self.outputs * self.horizon,
            }

    def pop(self, answers: Answers) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        pairs, newest = [], self.newest
        for r in range(len(answers.step)):
            series, step = int(answers.series[r]), int(answers.step[r])
            for h in range(1, self.horizon + 1):
                over = step - h + self.horizon <= newest.get(series, -1)  # before this row: it is late
                question = None if over else self.open.get((series, step - h))
                for o in range(self.outputs):
                    y = float(answers.y[r, o])
                    if question is None or y != y:
                        continue
                    column = o * self.horizon + h - 1
                    question["target"][column] = y
                    pairs.append(
                        {
                            "series": series,
                            "position": question["position"],
                            "cutoff": question["cutoff"],
                            "ds": int(answers.ds[r]),
                            "column": column,
                            "y": y,
                            "parameters": question["parameters"][:, column].tolist(),
                            "quantiles": question["quantiles"][:, column].tolist(),
                        }
                    )
            newest[series] = max(step, newest.get(series, -1))
        done = [key for key in self.open if key[1] + self.horizon <= newest.get(key[0], -(10**9))]
        closed = [self.open.pop(key) for key in done]
        return pairs, [q for q in closed if any(y == y for y in q["target"])]


def compare(due: Due, pairs: list[dict[str, Any]], closed: list[dict[str, Any]]) -> None:
    for name in ("series", "position", "cutoff", "ds", "column", "y"):
        assert getattr(due, name).tolist() == [pair[name] for pair in pairs], name
    assert due.parameters.T.tolist() == [pair["parameters"] for pair in pairs]
    assert due.quantiles.T.tolist() == [pair["quantiles"] for pair in pairs]
    assert len(due.target) == len(closed)
    if closed:
        np.testing.assert_array_equal(due.target.numpy(), np.array([q["target"] for q in closed]))
        assert torch.equal(due.x.past, torch.stack([q["past"] for q in closed]))
        assert torch.equal(due.issued, torch.stack([q["issued"] for q in closed], 1))


@given(st.data())
@examples(30)
def test_the_ledger_is_a_dictionary(data: st.DataObject) -> None:
    outputs, horizon = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 4))
    targets = ("y", "z")[:outputs]
    spec = WindowSpec(
        targets=targets, lags=1, horizon=horizon, series="s", time="t", every_ns=1, gaps="reset", late="use"
    )
    windows, oracle = Windows(spec), OracleLedger(horizon, outputs)
    ledger = Ledger(windows.shape, 2, 1, Gaussian)
    generator = torch.Generator().manual_seed(0)
    clock = {"a": 0, "b": 5}
    for _ in range(data.draw(st.integers(1, 6))):
        rows: dict[str, list[Any]] = {"s": [], "t": [], "y": [], "z": []}
        for _ in range(data.draw(st.integers(0, 9))):
            name = data.draw(st.sampled_from(["a", "b"]))
            clock[name] += data.draw(st.sampled_from([1, 1, 1, 2, 5, -1, -2]))
            rows["s"].append(name)
            rows["t"].append(clock[name])
            rows["y"].append(data.draw(st.sampled_from([1.0, 2.0, float("nan")])))
            rows["z"].append(data.draw(st.sampled_from([3.0, float("nan")])))
        asks, answers = windows.push(pa.record_batch({k: pa.array(v, _type(k)) for k, v in rows.items()}))
        issued = torch.rand(3, len(asks.origin), windows.shape.columns, generator=generator, dtype=torch.float64)
        quantiles = torch.rand(2, *issued.shape[1:], generator=generator, dtype=torch.float64)
        ledger.add(asks, Gaussian.from_parameters(issued))
        seen = ledger.seen(answers)
        ledger.calibrate(quantiles, quantiles[:1])
        oracle.add(asks, issued, quantiles)
        due = ledger.pop(answers)
        assert torch.equal(seen.error, due.y - due.parameters[0]) and torch.equal(seen.position, due.position)
        assert torch.equal(due.features[0], due.quantiles[0]) and torch.equal(seen.column, due.column)
        compare(due, *oracle.pop(answers))
        assert ledger.open == len(oracle.open)
        again = Ledger(windows.shape, 2, 1, Gaussian)
        again.restore(*ledger.state())
        ledger = again


def _type(column: str) -> pa.DataType:
    return {"s": pa.string(), "t": pa.int64()}.get(column, pa.float64())


def test_state_goes_on_as_if_nothing_had_happened() -> None:
    """Slots are handed out anew after restore; what comes out must not depend on them."""
    spec = WindowSpec(targets=("y",), lags=2, horizon=3)
    windows = Windows(spec)
    one, other = (Ledger(windows.shape, 2, 1, Gaussian) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    for step in range(8):
        asks, answers = windows.push(pa.record_batch({"y": [float(step), step + 0.5, step + 0.7]}))
        issued = Gaussian.from_parameters(torch.rand(3, len(asks.origin), 3, generator=generator, dtype=torch.float64))
        for ledger in (one, other):
            ledger.add(asks, issued)
        due, same = one.pop(answers), other.pop(answers)
        assert torch.equal(due.parameters, same.parameters) and torch.equal(
            due.target.nan_to_num(), same.target.nan_to_num()
        )
        fresh = Ledger(windows.shape, 2, 1, Gaussian)
        fresh.restore(*other.state())
        other = fresh


def test_memory_is_bounded_by_what_is_open() -> None:
    spec = WindowSpec(targets=("y",), lags=1, horizon=5)
    windows = Windows(spec)
    ledger = Ledger(windows.shape, 2, 1, Gaussian)
    for _ in range(200):
        asks, answers = windows.push(pa.record_batch({"y": [1.0] * 10}))
        one = torch.ones(len(asks.origin), 5, dtype=torch.float64)
        ledger.add(asks, Gaussian(one, one, one))
        ledger.pop(answers)
        assert ledger.open == 5
    assert len(ledger.target) <= 32


def test_a_jump_closes_questions_with_what_they_have() -> None:
    spec = WindowSpec(targets=("y",), lags=1, horizon=3, time="t", every_ns=1)
    windows = Windows(spec)
    ledger = Ledger(windows.shape, 2, 1, Gaussian)
    asks, answers = windows.push(pa.record_batch({"t": pa.array([0, 1, 90]), "y": [1.0, 2.0, 3.0]}))
    one = torch.ones(3, 3, dtype=torch.float64)
    ledger.add(asks, Gaussian(one, one, one))
    due = ledger.pop(answers)
    np.testing.assert_array_equal(due.target.numpy(), [[2.0, np.nan, np.nan]])  # the second had no truth at all
    assert ledger.open == 1


@pytest.mark.parametrize("rows", [0, 3])
def test_truths_without_questions_give_nothing(rows: int) -> None:
    windows = Windows(WindowSpec(targets=("y",), lags=1))
    ledger = Ledger(windows.shape, 2, 1, Gaussian)
    _, answers = windows.push(pa.record_batch({"y": pa.array([1.0] * rows, pa.float64())}))
    due = ledger.pop(answers)
    assert (len(due.y), len(due.target), due.parameters.shape[1]) == (0, 0, 0)


def test_more_numbers_may_be_kept_of_later_forecasts() -> None:
    """Those of forecasts before, and of forecasts that have fewer, are NaN, also in a slot that was used."""
    windows = Windows(WindowSpec(targets=("y",), lags=1, horizon=1))
    ledger, given = Ledger(windows.shape, 1, 1, Gaussian), []
    for size in (1, 3, 2, 1):
        asks, answers = windows.push(pa.record_batch({"y": [1.0]}))
        ledger.add(asks, Gaussian(*torch.ones(3, 1, 1).double()))
        ledger.calibrate(torch.ones(1, 1, 1), torch.full((size, 1, 1), float(size)))
        given.append(ledger.pop(answers).features.T.tolist())
    nan = float("nan")
    assert str(given) == str([[], [[1.0, nan, nan]], [[3.0, 3.0, 3.0]], [[2.0, 2.0, nan]]])
