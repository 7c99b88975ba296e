"""The six laws of the stream, each with every kind of window that bears on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from streamgp import registry
from streamgp.base import Chunk, Offset
from streamgp.testing import CRASH_SCRIPTS, Crash, CrashingSource
from streamgp.windows.windows import WindowSpec
from tests.contracts.stream import Stream, same

PLAIN = WindowSpec(targets=("y",), lags=4, horizon=3)
KNOWN = WindowSpec(
    targets=("y", "z"), inputs=("u",), known=("k",), lags=3, horizon=5, season=7, series="s", gaps="fill"
)
REGRESSION = WindowSpec(targets=("y",), inputs=("u", "k"), lags=0)
SPECS = [PLAIN, KNOWN, REGRESSION]
NET: dict[str, Any] = {"encoder": {"hidden": 8}, "epochs": 2}
GP = NET | {"rebuild": 128, "online": {"window": 128}, "solver": {"name": "kiss", "grid": 10}}
NETS = {"gp_gru", "gp_lstm", "gp_narx", "gp_rnn", "gru", "lstm", "narx", "rnn"}
HEAVY = NETS | {"ensemble", "exact", "finite_rkhs", "qsgp", "rvm", "svgp", "wiski"}
"""`make test` has the laws of the other models: the naive ones, the regressions and `svdgp`."""
SMALL = {
    **dict.fromkeys(("gru", "lstm", "narx", "rnn"), NET),
    **dict.fromkeys(("gp_gru", "gp_lstm", "gp_narx", "gp_rnn"), GP),
    "exact": {"rows": 200, "evidence_rows": 50, "training": {"evaluations": 8}},
    "finite_rkhs": {"fourier": {"size": 64}, "evidence_rows": 50},
    "qsgp": {"features": {"size": 192, "width": 64}, "reservoir": 200, "rebuild": 200},
    "svdgp": {"basis": 32, "reservoir": 256, "rebuild": 200, "evidence_rows": 64},
    "svgp": {"points": 24, "reservoir": 300, "rebuild": 500},
}


class Made:
    """Rows of two series with gaps, in chunks of given sizes."""

    def __init__(self, count: int, chunks: tuple[int, ...] = (100,), change: int | None = None) -> None:
        rng = np.random.default_rng(0)
        columns = {name: rng.normal(size=count) for name in ("y", "z", "u", "k")}
        columns["y"] += 10 + np.sin(np.arange(count) / 3)
        columns["z"][rng.random(count) < 0.1] = np.nan
        if change is not None:
            columns["y"][change:] += 5
        self.rows = pa.record_batch(columns | {"s": np.where(rng.random(count) < 0.5, "a", "b").tolist()})
        self.chunks = chunks

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def read(self, after: Offset) -> Iterator[Chunk]:
        at, turn = int(after.get("row", 0)), 0
        while at < self.rows.num_rows:
            part = self.rows.slice(at, self.chunks[turn % len(self.chunks)])
            at, turn = at + part.num_rows, turn + 1
            yield Chunk(part, {"row": at})


def names(*served: WindowSpec, heavy: WindowSpec = KNOWN) -> list[Any]:
    """Every model with every kind of window; the heavy ones, but for the default, with one: what is in a window is
    asked of the others, and of `check_model`. Slow: the heavy ones, and the plain window where another is served."""
    both = ("linear", "svdgp")
    return [
        pytest.param(n, s, marks=[pytest.mark.slow] if n in HEAVY or (s is PLAIN and n not in both) else [])
        for n in registry.names("models")
        for s in served
        if (s.lags or n in both) and (s is heavy or n not in HEAVY - {"ensemble"})
    ]


def stream(name: str, spec: WindowSpec, home: Path | None = None) -> Stream:
    return Stream(spec, name, SMALL.get(name, {}), home=home)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "spec"), names(PLAIN, KNOWN, heavy=PLAIN), ids=lambda v: v if isinstance(v, str) else ""
)
def test_1_what_is_asked_is_not_changed_by_what_comes_later(name: str, spec: WindowSpec) -> None:
    """Truths that are moved from a row on leave every forecast issued before it, and at its micro-batch, alone."""
    change = 300
    found = []
    for source in (Made(500), Made(500, change=change)):
        run = stream(name, spec)
        run.run(source)
        issued = [due.parameters[:, due.position < change] for due in run.dues]
        columns = [due.column[due.position < change] for due in run.dues]
        found.append((torch.cat(issued, 1), torch.cat(columns)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "spec"), names(*SPECS), ids=lambda v: v if isinstance(v, str) else "")
def test_2_chunks_do_not_matter(name: str, spec: WindowSpec) -> None:
    sights = []
    for chunks in ((500,), (1, 7, 90), (64,)):
        run = stream(name, spec)
        run.run(Made(500, chunks))
        sights.append(run.sight())
    assert same(sights[0], sights[1]) and same(sights[0], sights[2])


@pytest.mark.sampled
@pytest.mark.parametrize("script", CRASH_SCRIPTS, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=["plain", "known", "regression"])
def test_3_interrupted_is_uninterrupted(spec: WindowSpec, script: tuple[int, ...], tmp_path: Path) -> None:
    whole = stream("linear", spec)
    whole.run(Made(500, (10, 3)))
    source, finished = CrashingSource(Made(500, (10, 3)), script), False
    while not finished:
        run = stream("linear", spec, home=tmp_path)
        try:
            run.run(source)
            finished = True
        except Crash:
            continue
    assert same(run.sight(), whole.sight())
    assert run.windows.rows == 500  # every row counted once


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in HEAVY else []) for n in registry.names("models")]
)
def test_3_holds_for_every_model(name: str, tmp_path: Path) -> None:
    whole = stream(name, KNOWN)
    whole.run(Made(500))
    source = CrashingSource(Made(500), (150, 0, 64, 300))
    for _ in range(5):
        run = stream(name, KNOWN, home=tmp_path)
        try:
            run.run(source)
        except Crash:
            continue
    assert same(run.sight(), whole.sight())


@pytest.mark.parametrize("spec", SPECS, ids=["plain", "known", "regression"])
def test_4_memory_is_bounded(spec: WindowSpec) -> None:
    run, sizes = stream("linear", spec), []
    source = Made(4000)
    for start in range(0, 4000, 500):

        class Part:
            schema = source.schema

            def read(self, after: Offset, start: int = start) -> Iterator[Chunk]:
                yield Chunk(source.rows.slice(start, 500), {})

        run.run(Part())
        state = run.sight()["tensors"]
        sizes.append(sum(value.numel() for name, value in state.items() if "ledger" not in name))
        assert run.ledger.open <= 2 * spec.horizon
    assert sizes[1] == sizes[-1]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "spec"), names(*SPECS), ids=lambda v: v if isinstance(v, str) else "")
def test_5_and_6_a_checkpoint_predicts_alone(name: str, spec: WindowSpec, tmp_path: Path) -> None:
    """What is read from the disk, with no row of training data, asks and predicts as the run would have."""
    run = stream(name, spec, home=tmp_path)
    run.run(Made(512))
    other = stream(name, spec, home=tmp_path)
    future = pa.table({"s": ["a"] * 5 + ["b"] * 5, "k": np.arange(10.0), "u": np.arange(10.0)})
    for windows in (run.windows, other.windows):
        windows.flush()
    asks, again = run.windows.ask_last(future), other.windows.ask_last(future)
    assert len(asks.origin) or spec.gaps == "fill"
    issued = run.model.predict(asks.x).parameters()
    assert torch.equal(issued, other.model.predict(again.x).parameters())
    assert torch.equal(issued, run.model.predict(asks.x).parameters())  # predict changed nothing
