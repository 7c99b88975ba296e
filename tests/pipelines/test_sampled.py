"""Batch training with a sample of the windows in memory: every window is learned once, wherever it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs
from streamgp.errors import UsageError
from streamgp.online.summing import added, block_sums, sums_of
from streamgp_data.table import Table
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning import sampled
from streamgp_pipelines.learning import session as sessions
from streamgp_pipelines.learning.collect import collect
from streamgp_pipelines.learning.heldout import held_out
from streamgp_pipelines.learning.session import Session, open_session
from tests.pipelines.test_sharing import OPTIONS, digest, surface, trained
from tests.pipelines.worlds import make_table, same_bits
from tests.words import naming

FAMILIES = ("svdgp", "svgp", "rvm", "finite_rkhs")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "ROWS", 128)


def panel(path: Path, rows: int = 700) -> Table:
    """Three series in turn, with gaps, a glitch and a long silence."""
    generator = np.random.default_rng(3)
    y = np.sin(np.arange(rows) / 9) + 0.1 * generator.normal(size=rows)
    y[generator.integers(0, rows, 20)] = np.nan
    y[200] = 1e12
    names = np.array(["a", "b", "c"])[np.arange(rows) % 3]
    names[300:500] = "b"
    return make_table(path, pl.DataFrame({"y": y, "u": generator.uniform(size=rows), "unit": names}), every_ns=None)


def session_of(table: Table, home: Path, **options: Any) -> tuple[Session, Tensor]:
    given = {"table": table.path, "checkpoint": home, "target": "y", "test_tail": 0.2, "model": "svdgp"}
    config = TrainConfig.read(given | options)
    session = open_session(config)
    assert session.survey is not None
    return session, held_out(session.config, session.survey, session.table.readable)


def rows_of(x: Inputs, y: Tensor) -> Tensor:
    return torch.cat([x.past.flatten(1), x.future.flatten(1), y], 1)


@pytest.mark.parametrize("options", [{"lags": 3, "horizon": 2, "known": "u"}, {"lags": 0, "known": "u"}])
def test_sample_and_rest_are_all_windows_each_once(tmp_path: Path, options: dict[str, Any]) -> None:
    session, hidden = session_of(panel(tmp_path / "t"), tmp_path / "c", **options)
    spec = session.learner.windows.spec
    whole = collect(session.source, spec, hidden)
    assert whole is not None
    every = rows_of(*sampled.whole(*whole)[:2])
    some = sampled.sample(session.source, spec, hidden, 100, seed=0)
    assert some is not None and some.rest is not None
    assert len(some.rest.blocks) > 3 and len(every) == some.windows > 300 and 90 < len(some.y) <= 100
    parts = [rows_of(some.x, some.y)]
    for block in reversed(some.rest.blocks):  # in any order
        parts += [rows_of(*part) for part in sampled.windows_of(session.source, some.rest, block)]
    found = torch.cat(parts)
    usual = [row.tolist() for row in every if row.nan_to_num().abs().max() < 1e9]
    assert sorted(usual, key=repr) == sorted((row.tolist() for row in found), key=repr)
    assert len(usual) < len(every)
    again = sampled.sample(session.source, spec, hidden, 100, seed=0)
    assert again is not None and same_bits(again.y, some.y)


def test_a_sample_of_all_windows_has_the_bits_of_none(tmp_path: Path) -> None:
    table = surface(tmp_path / "t", 300)
    one = trained(table, tmp_path / "one", "svdgp")
    other = trained(table, tmp_path / "other", "svdgp", sample=10**6)
    assert digest(tmp_path / "one") == digest(tmp_path / "other") and one["rmse"] == other["rmse"]


@pytest.mark.parametrize("options", [{"sample": 100}, {"time_budget": "50s"}, {}], ids=str)
def test_rows_are_left_out_of_whole_tables_whose_time_is_not_limited(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = list[int]()

    def widening(posterior: Any, rows: Any, *given: Any) -> Tensor:
        counts.append(len(rows.y))
        return torch.full((1,), 4.0, dtype=FLOAT)

    monkeypatch.setattr("streamgp.online.model.widening", widening)
    trained(surface(tmp_path / "t", 150), tmp_path / "one", "svdgp", **options)
    assert len(counts) == (0 if options else 1)


def in_memory(
    source: Any, rest: sampled.UnsampledWindows, block: sampled.TableBlock, way: sampled.BlockLearning
) -> Any:
    """The sums of all windows of a block as tensors."""
    parts = list(sampled.windows_of(source, rest, block))
    if not parts:  # rows that are held out
        return sums_of(way.learner, way.absorb, ())
    x, y = Inputs.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    z, target = way.standardised(x, y)
    return block_sums(way.learner, way.absorb, (z, target, way.weight.expand(len(y))), way.chunk)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["svdgp", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])])
def test_what_is_read_again_is_learned_as_what_is_held(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same sample: sums over tensors differ from those over stretches of rows by rounding."""
    table = surface(tmp_path / "t", 900)
    found = trained(table, tmp_path / "one", model, sample=200)
    assert any("of 810 windows are the sample" in warning for warning in found["warnings"])
    monkeypatch.setattr(sampled, "block_totals", in_memory)
    expected = trained(table, tmp_path / "two", model, sample=200)
    assert found["rmse"] == pytest.approx(expected["rmse"], rel=1e-9)
    assert found["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-9)
    held = trained(table, tmp_path / "three", model)
    assert 0.9 < found["rmse"] / held["rmse"] < 1.1


def test_sums_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is added to what is held, block by block."""

    class Sum:
        def zero(self) -> None:
            self.total = torch.zeros(())

        def sums(self) -> tuple[Tensor, ...]:
            return (self.total,)

        def put(self, sums: tuple[Tensor, ...]) -> None:
            (self.total,) = sums

    def totals(source: Any, rest: Any, block: float, way: Any) -> Any:
        assert way.weight.tolist() == [0.5] and not way.learner.total
        return (torch.tensor(block),)

    def absorb(learner: Sum, z: Tensor, y: Tensor, weight: Tensor) -> None:
        learner.total = learner.total + (y[:, 0] * weight).sum()

    own, half = Sum(), torch.full((2,), 0.5)
    monkeypatch.setattr(sampled, "block_totals", totals)
    rest: Any = sampled.UnsampledWindows(None, None, (3.0, 4.0))  # type: ignore[arg-type]
    sampled.WithRest(None, rest, lambda: None)(own, absorb, (torch.zeros(2, 1), torch.ones(2, 1), half), 1)  # type: ignore[arg-type, return-value]
    assert own.total.item() == 8.0
    assert added((torch.ones(()),), own.sums())[0].item() == 9.0


def test_a_run_goes_on_with_the_same_sample(tmp_path: Path) -> None:
    table = surface(tmp_path / "t", 900)
    trained(table, tmp_path / "one", "svdgp", sample=200)
    trained(table, tmp_path / "two", "svdgp", sample=200, epochs=1)
    trained(table, tmp_path / "two", "svdgp", sample=200)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_later_rows_of_the_table_are_not_read(tmp_path: Path) -> None:
    """What was appended after training began."""
    table = surface(tmp_path / "t", 400)
    session, hidden = session_of(table, tmp_path / "c", lags=0, known="a,b")
    some = sampled.sample(session.source, session.learner.windows.spec, hidden, 100, 0)
    assert some is not None and some.rest is not None
    table.append(next(iter(table.read())).rows.select(["a", "b", "y"]), "more", 1)
    read = sum(len(y) for block in some.rest.blocks for _, y in sampled.windows_of(session.source, some.rest, block))
    assert read + len(some.y) == some.windows == 320 and Table.open(table.path).rows == 800


def test_a_batch_that_is_too_large_names_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FEW", 100)
    table = surface(tmp_path / "t", 400)
    with pytest.raises(UsageError) as caught:
        trained(table, tmp_path / "c", "svdgp", max_memory="50kB")
    assert "--sample 100 " in (caught.value.hint or "")


@pytest.mark.parametrize(("model", "more"), [("lstm", {"lags": 4}), ("qsgp", {}), ("svgp", {"likelihood": "laplace"})])
def test_what_needs_all_rows_is_refused(tmp_path: Path, model: str, more: dict[str, Any]) -> None:
    table = surface(tmp_path / "t", 300)
    likelihood = {"set": {"likelihood": more.pop("likelihood")}} if "likelihood" in more else {"set": {}}
    with pytest.raises(UsageError, match=naming("--sample")):
        trained(table, tmp_path / "c", model, sample=100, **more, **likelihood)
    assert set(FAMILIES) <= set(OPTIONS)
