"""Targets that have one value alone, or none: a run says so, also where they are beside others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from streamgp import Forecaster
from streamgp.errors import DataError
from streamgp_pipelines.learning import survey
from tests.pipelines.worlds import frame_of, make_table, run

SAME = frame_of(300).with_columns(z=pl.lit(5.0), w=pl.lit(None, pl.Float64))


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, {"online": None, "test_tail": 0.2, "epochs": 1, "model": "svdgp"}])
def test_a_target_of_one_value_is_said(options: dict[str, object], tmp_path: Path) -> None:
    make_table(tmp_path / "t", SAME)
    batch = {"warmup": None, "batch": None, "checkpoint_every": None} if options else {}

    def notes(target: str, word: str) -> list[str]:
        found = run(tmp_path / "t", tmp_path / target, target=target, **batch, **options)["warnings"]
        return [note for note in found if word in note]

    assert notes("y,z", "'z'") == [
        "all 300 values of the target 'z' are 5: there is nothing to forecast, and the scores of all targets count it "
        "too: leave it out"
    ]
    (note,) = notes("z", "'z'")
    assert note.endswith("use another column") and not notes("y", "values of the target")


def test_of_a_long_table_the_first_rows_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ROWS", 250)
    late = frame_of(3000).with_columns(z=pl.when(pl.int_range(pl.len()) < 2900).then(5.0).otherwise(6.0))
    make_table(tmp_path / "t", late, [2500])
    notes = run(tmp_path / "t", tmp_path / "c", target="y,z", max_rows=300)["warnings"]
    (note,) = [note for note in notes if "'z'" in note]
    assert note.startswith("the first 2,500 values of the target 'z' are 5")


def test_a_few_values_or_other_ones_say_nothing(tmp_path: Path) -> None:
    row = pl.int_range(pl.len())
    few, last = pl.when(row % 20 == 0).then(5.0), pl.when(row == 299).then(1.0).otherwise(0.0)
    make_table(tmp_path / "t", SAME.with_columns(z=few, v=last))
    notes = run(tmp_path / "t", tmp_path / "c", target="y,z,v")["warnings"]
    assert not any("values of the target" in note for note in notes)


@pytest.mark.parametrize("options", [{}, {"warmup": 500}, {"max_rows": 100}])
def test_a_target_without_a_value_is_said_before_any_advice(options: dict[str, int], tmp_path: Path) -> None:
    make_table(tmp_path / "t", SAME)
    notes = run(tmp_path / "t", tmp_path / "c", target="y,w", **options)["warnings"]
    assert any("no row has a value of 'w': use another column" in note for note in notes), notes
    assert not any("--warmup" in note or "--max-rows" in note for note in notes)


def test_batch_training_refuses_it(tmp_path: Path) -> None:
    make_table(tmp_path / "t", SAME)
    batch = {"online": None, "warmup": None, "batch": None, "checkpoint_every": None, "test_tail": 0.2}
    with pytest.raises(DataError) as refused:
        run(tmp_path / "t", tmp_path / "c", target="y,w", **batch)
    assert "'w'" in refused.value.hint


@pytest.mark.filterwarnings("ignore::streamgp.errors.StreamgpWarning")
def test_a_forecaster_warns_too() -> None:
    made = Forecaster(["y", "z"], every="1h", model="linear", batch=100).fit(SAME)
    assert any("all 300 values of the target 'z' are 5" in note for note in made.warnings)
