"""The context of windows against a plain look-up, in chunks of any size, and blind to the future."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
import torch

from streamgp.base import FLOAT
from streamgp.windows.windows import Windows, WindowSpec

HOUR = 3600 * 10**9
SPEC = WindowSpec(
    targets=("y",),
    inputs=("u",),
    known=("k",),
    lags=3,
    horizon=4,
    season=42,
    seasons=(6, 42),
    time="ds",
    every_ns=4 * HOUR,
    gaps="fill",
)


def rows(count: int = 200, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> pa.RecordBatch:
    generator = np.random.default_rng(0)
    ds = [start + timedelta(hours=4 * at) for at in range(count)]
    values = {name: generator.standard_normal(count) for name in ("y", "u", "k")}
    return pa.record_batch({"ds": pa.array(ds, pa.timestamp("ns", "UTC")), **values})


def contexts(batch: pa.RecordBatch, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    windows = Windows(SPEC)
    found = [windows.push(batch.slice(at, chunk))[0] for at in range(0, batch.num_rows, chunk)]
    parts = [asks.x.context for asks in found if asks.x.context is not None]
    return torch.cat([asks.position for asks in found]), torch.cat(parts)


@pytest.fixture(scope="module")
def whole() -> tuple[torch.Tensor, torch.Tensor]:
    return contexts(rows(), 200)


def test_every_number_is_the_mean_of_the_rows_that_the_layout_names(whole: tuple[torch.Tensor, torch.Tensor]) -> None:
    position, context = whole
    layout = SPEC.context
    assert layout is not None
    table = rows()
    values = np.stack([table.column(name).to_numpy() for name in ("y", "u", "k")], 1)
    for row, found in list(zip(position.tolist(), context.numpy(), strict=True))[::17]:

        def mean(channel: int, offsets: tuple[int, ...], row: int = row) -> float:
            taken = [values[row + off, channel] for off in offsets if row + off >= 0]
            return float(np.mean(taken)) if 2 * len(taken) >= len(offsets) else float("nan")

        wanted = [mean(entry.channel, entry.offsets[0]) for entry in layout.window]
        for h in range(layout.horizon):
            wanted += [mean(entry.channel, entry.offsets[h]) for entry in layout.steps]
            at = row + h + 1  # the table begins on a Monday, at midnight; six rows are a day
            wanted += [at % 6 / 6, at % 42 / 42, found[len(wanted) + 2]]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_the_time_of_year_goes_once_round() -> None:
    layout = SPEC.context
    assert layout is not None
    summer = contexts(rows(60, datetime(2024, 7, 1, tzinfo=UTC)), 60)[1][0, len(layout.window) + layout.per_step - 1]
    winter = contexts(rows(60, datetime(2024, 1, 1, tzinfo=UTC)), 60)[1][0, len(layout.window) + layout.per_step - 1]
    assert (summer - winter) % 1.0 == pytest.approx(182 / 365.2425, abs=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_do_not_matter(chunk: int, whole: tuple[torch.Tensor, torch.Tensor]) -> None:
    position, context = contexts(rows(), chunk)
    assert torch.equal(position, whole[0])
    assert torch.equal(torch.nan_to_num(context), torch.nan_to_num(whole[1]))


def test_targets_and_past_inputs_behind_a_row_change_nothing(whole: tuple[torch.Tensor, torch.Tensor]) -> None:
    table = rows()
    later = {name: table.column(name).to_numpy().copy() for name in ("y", "u", "k")}
    later["y"][120:] += 100
    later["u"][120:] += 100
    position, context = contexts(pa.record_batch({"ds": table.column("ds"), **later}), 200)
    before = position < 120
    assert torch.equal(torch.nan_to_num(context[before]), torch.nan_to_num(whole[1][before]))
    assert not torch.equal(torch.nan_to_num(context), torch.nan_to_num(whole[1]))


def test_a_missing_row_is_missing_and_nothing_else() -> None:
    table = rows()
    gap = pa.concat_tables([pa.Table.from_batches([part]) for part in (table.slice(0, 100), table.slice(101))])
    position, context = contexts(gap.combine_chunks().to_batches()[0], 200)
    layout = SPEC.context
    assert layout is not None
    names = [entry.name for entry in layout.window]
    at = position.tolist().index(130)  # the row numbered 131 before one was lost
    assert torch.isfinite(context[at, names.index("day(y)")])
    short = [entry.name for entry in layout.steps].index("short1(y)")
    lost = position.tolist().index(100)  # one row behind the gap: its step 5 ahead would be 6 rows behind the lost one
    steps = context[lost, len(layout.window) :].view(layout.horizon, layout.per_step)
    assert torch.isfinite(steps[:, short]).all() == torch.tensor(True)
    y = table.column("y").to_numpy()
    departs = y[42:] - y[:-42]  # from a season before
    bridge = (departs[99 - 42] + departs[101 - 42]) / (2 * np.cosh(np.log(2) / (0.25 * 6)))
    assert abs(context[lost, names.index("now-1(y)")] - (y[100 - 42] + bridge)) < 1e-12, "as its neighbours depart"


def test_the_future_of_known_inputs_can_be_given_with_the_question() -> None:
    table = rows()
    windows = Windows(SPEC)
    asks, _ = windows.push(table)
    other = Windows(SPEC)
    last = int(asks.position[-1])
    other.push(table.slice(0, last + 1))
    future = pa.Table.from_batches([table.slice(last + 1, 4).select(["ds", "k"])])
    asked = other.ask_last(future)
    assert asked.x.context is not None and asks.x.context is not None
    torch.testing.assert_close(asked.x.context[0], asks.x.context[-1], equal_nan=True, rtol=0, atol=0)


def test_without_seasons_there_is_no_context() -> None:
    spec = WindowSpec(targets=("y",), lags=2, season=6)
    asks, _ = Windows(spec).push(pa.record_batch({"y": torch.arange(20, dtype=FLOAT).numpy()}))
    assert spec.shape.context is None and asks.x.context is None


def test_a_model_that_looks_at_no_context_gets_the_same_windows_without_one() -> None:
    batch = rows()
    batch = batch.set_column(1, batch.schema.names[1], pa.array([None, *batch.column(1).to_pylist()[1:]]))
    with_them, without = (Windows(replace(SPEC, contexts=held)) for held in (True, False))
    asked, bare = with_them.push(batch)[0], without.push(batch)[0]
    assert bare.x.context is None and asked.x.context is not None and without.shape.context is None
    assert len(bare.origin) == len(asked.origin) > 0
    assert torch.equal(bare.x.past, asked.x.past) and torch.equal(bare.x.future, asked.x.future)
    assert without.reach <= with_them.reach


@pytest.mark.parametrize("lags", [2, 8])
@pytest.mark.parametrize("lost", ["rows", "y", "both"])
def test_what_stands_in_for_a_target_and_a_known_input_is_of_the_same_rows(lost: str, lags: int) -> None:
    """With y = 3 + 2k at every row, it is so in every window and at every reference, whatever stands in."""
    generator = np.random.default_rng(1)
    k = generator.standard_normal(300)
    silent = np.zeros(300, bool)
    for start, length in ((120, 1), (150, 9), (170, 3), (200, 50), (270, 2)):
        silent[start : start + length] = True
    ds = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=4 * at) for at in range(300)]
    y, seen = np.where(silent, np.nan, 3 + 2 * k), np.where(silent & (lost == "both"), np.nan, k)
    table = pa.table({"ds": pa.array(ds, pa.timestamp("ns", "UTC")), "y": y, "u": k, "k": seen})
    spec, kept = replace(SPEC, lags=lags), ~silent if lost == "rows" else np.ones(300, bool)
    asks, _ = Windows(spec).push(table.filter(pa.array(kept)).combine_chunks().to_batches()[0])
    layout, context = spec.context, asks.x.context
    assert layout is not None and context is not None and (asks.age > 0).any() == (lost != "rows")
    torch.testing.assert_close(asks.x.past[..., 0], 3 + 2 * asks.x.past[..., 2], rtol=0, atol=1e-9)
    window, steps = ([entry.name for entry in part] for part in (layout.window, layout.steps))
    for target, known in (("now-0", "now"), ("now-short", "now-short"), ("now-long", "now-long")):
        own, beside = (context[:, window.index(f"{name}({of})")] for name, of in ((target, "y"), (known, "k")))
        torch.testing.assert_close(own, 3 + 2 * beside, rtol=0, atol=1e-9)
    ahead = context[:, len(window) :].view(len(context), layout.horizon, layout.per_step)
    for target, known in (("short1", "at-short"), ("short2", "at-2short"), ("long1", "at-long"), ("long2", "at-2long")):
        own, beside = (ahead[..., steps.index(f"{name}({of})")] for name, of in ((target, "y"), (known, "k")))
        torch.testing.assert_close(own, 3 + 2 * beside, rtol=0, atol=1e-9, equal_nan=True)
        before = torch.tensor([entry.offsets for entry in layout.steps if entry.name == f"{target}(y)"])[0, :, 0]
        for at, origin in list(enumerate(asks.origin.tolist()))[::5]:
            for h, off in enumerate(before.tolist()):
                if off <= -lags and origin + off >= 0:  # of the last known row at this phase of the season
                    rows = [row for row in range((origin + off) % 42, origin + 1, 42) if not silent[row]]
                    row = origin + off if not silent[origin + off] else rows[-1]
                    assert float(own[at, h]) == pytest.approx(3 + 2 * k[row])
