"""Tuning on a table: known hyper-parameters are found in their own units, and training starts from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

from streamgp.errors import CheckpointError, DataError, NumericalError, UsageError
from streamgp_data.table import Table, TableMeta
from streamgp_pipelines import load
from streamgp_pipelines.api import NoTracker
from streamgp_pipelines.config import TuneConfig
from streamgp_pipelines.learning.collect import collect
from streamgp_pipelines.learning.initial import digest, read
from streamgp_pipelines.learning.session import open_session
from streamgp_pipelines.tuning import tune as module
from streamgp_pipelines.tuning.methods import METHODS, read_options
from streamgp_pipelines.tuning.report import train_line
from streamgp_pipelines.tuning.rows import spread
from streamgp_pipelines.tuning.tune import Tuning, tune
from tests.pipelines.worlds import Diary, append, config_of, frame_of, make_table, run, scores_of
from tests.words import names, naming

LENGTHSCALES = {"temperature": 4.0, "pressure": 30.0}
HEIGHT, NOISE = 2.5, 0.4
STREAM: dict[str, Any] = {"target": "y", "lags": 6, "horizon": 3, "season": 24}
REGRESSION: dict[str, Any] = {"online": False, "warmup": None, "checkpoint_every": None, "lags": 0, "horizon": 1}
REGRESSION |= {"season": 1, "known": "temperature,pressure"}


def surface(path: Path, rows: int = 400) -> Table:
    """A Gaussian process of two columns with units, and a flag."""
    generator = np.random.default_rng(3)
    x = {"temperature": generator.uniform(0, 40, rows), "pressure": generator.uniform(900, 1100, rows)}
    squares = sum(((x[name][:, None] - x[name]) / scale) ** 2 for name, scale in LENGTHSCALES.items())
    root = np.linalg.cholesky(HEIGHT**2 * np.exp(-0.5 * squares) + 1e-8 * np.eye(rows))
    y = 70 + root @ generator.normal(size=rows) + NOISE * generator.normal(size=rows)
    flag = (np.arange(rows) % 5 == 0).astype(np.float64)
    data = pl.DataFrame(x | {"y": y, "test": flag}).to_arrow()
    units = {"temperature": "degC", "pressure": "hPa", "y": "kW"}
    fields = [pa.field(one.name, one.type, metadata={"unit": units.get(one.name, "")}) for one in data.schema]
    table = Table.create(path, pa.schema(fields), TableMeta())
    append(table, data)
    return table


@pytest.fixture(scope="module")
def gp(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return surface(tmp_path_factory.mktemp("tune") / "t")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return make_table(tmp_path_factory.mktemp("tune") / "s", frame_of(900))


def found_on(table: Table, output: Path, **options: Any) -> dict[str, Any]:
    given = {"table": table.path, "output": output, **options}
    found: dict[str, Any] = tune(TuneConfig.read(given), NoTracker)
    return found


def surface_of(table: Table, output: Path, **options: Any) -> dict[str, Any]:
    return found_on(table, output, target="y", known="temperature,pressure", **options)


@pytest.mark.parametrize(
    ("method", "off", "options"),
    [
        ("ml", 0.15, {}),
        pytest.param("cv-implicit", 0.35, {}, marks=pytest.mark.slow),
        pytest.param("cv-admm", 0.35, {"admm.iterations": "150"}, marks=pytest.mark.slow),
    ],
)  # cross-validation looks at half the rows at a time
def test_known_hyper_parameters_are_found_in_their_units(
    gp: Table, tmp_path: Path, method: str, off: float, options: dict[str, str]
) -> None:
    found = surface_of(gp, tmp_path / "t.json", method=method, set=options)
    for told in found["channels"]:
        assert told["lengthscale"] == pytest.approx(LENGTHSCALES[told["channel"]], rel=off)
        assert (told["channel"], told["unit"]) in {("temperature", "degC"), ("pressure", "hPa")}
    (target,) = found["targets"]
    assert target["noise sd"] == pytest.approx(NOISE, rel=0.3) and target["unit"] == "kW"
    assert target["outputscale sd"] == pytest.approx(HEIGHT, rel=0.3 if method == "ml" else 0.6)
    assert found["loss"] < found["loss_before"] and found["rows"] == 400 and found["failures"] == []


def test_training_starts_from_the_file(gp: Table, tmp_path: Path) -> None:
    surface_of(gp, tmp_path / "t.json")
    config = config_of(gp, tmp_path / "c", model="svdgp", init=tmp_path / "t.json", set={"learn": "once"}, **REGRESSION)
    learner = open_session(config).learner
    x, y = collect(open_session(config).source, learner.windows.spec, torch.zeros(400, dtype=torch.bool)) or (
        None,
        None,
    )
    assert x is not None and y is not None
    list(learner.model.fit(x, y, 1))
    model: Any = learner.model
    raw = model.posterior.search.hyper.lengthscale.exp() * model.inputs.scale
    assert raw.tolist() == pytest.approx(list(LENGTHSCALES.values()), rel=0.15)
    assert float((0.5 * model.posterior.search.hyper.noise).exp() * model.outputs.scale) == pytest.approx(
        NOISE, rel=0.15
    )


def test_held_out_rows_are_never_looked_at(gp: Table, tmp_path: Path) -> None:
    """Nor are rows behind the end: their values are changed, and nothing else changes."""
    data = pl.DataFrame(_rows(gp))
    behind = pl.int_range(pl.len()) >= 300
    hidden = behind | (pl.col("test") != 0)
    other = data.with_columns(y=pl.when(hidden).then(1e4).otherwise(pl.col("y")))
    table = make_table(tmp_path / "other", other)
    one, two = (
        surface_of(where, tmp_path / f"{name}.json", test_column="test", end="300", rows=200)
        for name, where in (("a", gp), ("b", table))
    )
    assert one["channels"] == [{**told, "unit": one["channels"][i]["unit"]} for i, told in enumerate(two["channels"])]
    assert one["last_row"] == 300 and one["rows"] == 200


def _rows(table: Table) -> dict[str, Any]:
    (chunk,) = table.read()
    return {name: chunk.rows.column(name).to_pylist() for name in chunk.rows.schema.names if name != "_seq"}


def test_windows_are_spread_and_come_from_between_start_and_end(stream: Table, tmp_path: Path) -> None:
    config = TuneConfig.read({"table": stream.path, **STREAM, "start": "400", "end": "700", "rows": 50})
    tuning = Tuning(config)
    assert tuning.rows.tolist() == list(range(400, 700)) and tuning.plan()["windows"] == 50
    lesson = tuning.lesson(lambda _: None)
    assert lesson.x.shape == (50, 6 * 2 + 3) and lesson.y.shape == (50, 3)
    by_time = TuneConfig.read({"table": stream.path, **STREAM, "start": "2023-12-01T16:00", "rows": 50})
    first = int(Tuning(by_time).rows[0])
    assert first == 16 * 24 + 16  # the first row is midnight of 15 November
    places = spread(1000, 100, np.random.default_rng(0))
    assert (np.diff(places) > 0).all() and len(set(places % 10)) > 5  # no hour of the day is favoured


def test_what_is_standardised_is_what_the_models_standardise(stream: Table, tmp_path: Path) -> None:
    """Three methods' rows are the kernel inputs and targets of svdgp, fitted to the same windows."""
    tuning = Tuning(TuneConfig.read({"table": stream.path, **STREAM, "rows": 10_000}))
    lesson = tuning.lesson(lambda _: None)
    session = open_session(config_of(stream, tmp_path / "c", model="svdgp"))
    found = collect(session.source, session.learner.windows.spec, torch.zeros(900, dtype=torch.bool))
    assert found is not None
    model: Any = session.learner.model
    x, y = found
    model.reference.fit(x, y, torch.ones(len(y)).double())
    model.inputs.scaling.fit(x)
    model.outputs.fit(y - model.reference(x), y)
    assert torch.allclose(model.inputs(x), lesson.x) and torch.allclose(model.targets(x, y), lesson.y)
    assert torch.allclose(model.inputs.scale, lesson.scale) and torch.allclose(model.outputs.scale, lesson.target_scale)


def test_the_same_line_finds_the_same(stream: Table, tmp_path: Path) -> None:
    one, two, other = (
        found_on(stream, tmp_path / f"{n}.json", **STREAM, rows=80, seed=seed) for n, seed in enumerate((0, 0, 1))
    )
    assert digest(read(tmp_path / "0.json")) == digest(read(tmp_path / "1.json")) != digest(read(tmp_path / "2.json"))
    assert one["channels"] == two["channels"] != other["channels"]


def test_a_search_goes_on_from_a_file(stream: Table, tmp_path: Path) -> None:
    first = found_on(stream, tmp_path / "a.json", **STREAM, rows=80, set={"kernel": "matern", "kernel.nu": "0.5"})
    again = found_on(stream, tmp_path / "b.json", **STREAM, rows=80, init=tmp_path / "a.json", set={"ml.restarts": "0"})
    assert again["kernel"] == first["kernel"] == {"name": "matern", "nu": 0.5, "separable": False}
    assert again["loss_before"] == pytest.approx(first["loss"], abs=0.01)  # a noise at its floor is lifted a little
    assert again["loss"] <= again["loss_before"]
    names = [told["lengthscale"] for told in first["channels"]]
    assert [told["lengthscale"] for told in again["channels"]] == pytest.approx(names, rel=0.2)
    with pytest.raises(UsageError, match=naming("kernel=matern(nu=0.5) kernel=squared_exponential")):
        found_on(stream, tmp_path / "c.json", **STREAM, init=tmp_path / "a.json", set={"kernel": "squared_exponential"})
    with pytest.raises(UsageError):
        told = {"kernel": "matern", "kernel.nu": "0.5", "kernel.lengthscale": "3"}
        found_on(stream, tmp_path / "c.json", **STREAM, init=tmp_path / "a.json", set=told)
    with pytest.raises(UsageError, match=naming("lags 6 5 horizon 3")):
        found_on(stream, tmp_path / "c.json", **{**STREAM, "lags": 5, "horizon": 2}, init=tmp_path / "a.json")
    assert not (tmp_path / "c.json").exists()


def test_a_period_is_found_in_the_unit_of_its_channel(tmp_path: Path) -> None:
    """Seconds, whose standard deviation is far from 1; from a start that is 3 per cent off."""
    generator = np.random.default_rng(0)
    seconds = np.sort(generator.uniform(0, 900, 150))
    y = 5 * np.sin(2 * np.pi * seconds / 180.0) + 0.1 * generator.normal(size=150)
    table = make_table(tmp_path / "t", pl.DataFrame({"seconds": seconds, "y": y}))
    kernel = {"kernel": "locally_periodic", "period": "185", "ml.restarts": "0"}
    found = found_on(table, tmp_path / "t.json", target="y", known="seconds", set=kernel)
    (told,) = found["channels"]
    assert told["period"] == pytest.approx(180.0, rel=0.01) and told["lengthscale"] > 100
    assert "pattern lengthscale" in told
    both = found_on(table, tmp_path / "b.json", target="y", known="seconds", set={"kernel": "sum", "period": "185"})
    assert {"squared_exponential lengthscale", "locally_periodic period"} <= set(both["channels"][0])
    assert {"squared_exponential outputscale sd", "locally_periodic outputscale sd"} <= set(both["targets"][0])


def test_it_is_tracked(stream: Table, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "d")
    config = TuneConfig.read({"table": stream.path, "output": tmp_path / "t.json", **STREAM, "rows": 60})
    found: dict[str, Any] = tune(config, lambda *_: diary)
    assert diary.told["method"] == "ml" and diary.told["command"] == "tune" and diary.status == "FINISHED"
    losses = [values["loss"] for _, values in diary.points if "loss" in values]
    assert losses[0] == found["loss_before"] and len(losses) == found["iterations"] + 1


# training from a file


def test_another_file_is_another_run(stream: Table, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        found_on(stream, tmp_path / f"{name}.json", **STREAM, rows=80, seed=seed)
    given = {"model": "svdgp", "set": {"basis": "64"}, "max_rows": 500}
    first = run(stream, tmp_path / "c", init=tmp_path / "a.json", **given)
    (tmp_path / "copy.json").write_bytes((tmp_path / "a.json").read_bytes())
    again = run(stream, tmp_path / "c", init=tmp_path / "copy.json", **given)
    assert scores_of(again) == scores_of(first)
    for other in ({"init": tmp_path / "b.json"}, {}):
        with pytest.raises(CheckpointError, match=naming("init ml")) as caught:
            run(stream, tmp_path / "c", **given, **other)
        assert caught.value.exit_code == 4 and "--fresh" in caught.value.hint
    assert load(tmp_path / "c").forecast().frame.height == 3


def test_a_run_that_scores_rows_it_was_tuned_on_says_so(stream: Table, tmp_path: Path) -> None:
    found_on(stream, tmp_path / "t.json", **STREAM, rows=80, end="350")
    given: dict[str, Any] = {"model": "svdgp", "set": {"basis": "32"}, "max_rows": 420, "init": tmp_path / "t.json"}
    given["batch"] = 110
    (note,) = run(stream, tmp_path / "a", **given)["warnings"]
    assert names(note, "350 200 --score-from")
    assert run(stream, tmp_path / "b", **given, score_from="350")["warnings"] == []
    assert run(stream, tmp_path / "e", **given, score_from="2023-11-30")["warnings"] == []  # row 360
    elsewhere = make_table(tmp_path / "u", frame_of(420))
    assert run(elsewhere, tmp_path / "d", **given)["warnings"] == []


def test_held_out_rows_that_were_tuned_on_are_told(gp: Table, tmp_path: Path) -> None:
    surface_of(gp, tmp_path / "t.json", test_column="test", rows=100)
    given = REGRESSION | {"model": "svdgp", "set": {"basis": "32"}, "init": tmp_path / "t.json"}
    assert run(gp, tmp_path / "a", **given, test_column="test")["warnings"] == []
    assert len(run(gp, tmp_path / "b", **given, test_tail=0.1)["warnings"]) == 1
    rows = gp.rows
    surface_of(gp, tmp_path / "s.json", rows=100, end=str(rows // 2))
    given["init"] = tmp_path / "s.json"
    assert run(gp, tmp_path / "d", **given, test_tail=0.1)["warnings"] == []  # tuned on rows before those
    assert len(run(gp, tmp_path / "e", **given, test_tail=0.1, max_rows=rows // 2)["warnings"]) == 1


def test_files_that_will_not_do(stream: Table, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(UsageError):
        read(path)
    for text in (b"{", b"\xff\xfe\x00", b'{"hyperparameters": 1}', b"[]", b"y,x\n1,2\n"):
        path.write_bytes(text)
        with pytest.raises(DataError, match=naming("x.json")) as caught:
            run(stream, tmp_path / "c", model="svdgp", init=path)
        assert "streamgp tune" in caught.value.hint
    found_on(stream, path, **STREAM, rows=80)
    with pytest.raises(UsageError, match=naming("linear")):
        run(stream, tmp_path / "c", init=path)
    with pytest.raises(UsageError, match=naming("horizon 3 2")):
        run(stream, tmp_path / "c", model="svdgp", init=path, horizon=2)
    with pytest.raises(UsageError, match=naming("narx")):
        run(stream, tmp_path / "c", model="narx", init=path)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"start": "800", "end": "300"}, UsageError, "--start 800 --end 300"),
        ({"start": "soon"}, UsageError, "--start soon"),
        ({"start": "901"}, UsageError, "--start 901"),
        ({"start": "2033-01-01"}, UsageError, "--start 2033-01-01"),
        ({"end": "0"}, UsageError, "--end 0"),
        ({"end": "5"}, DataError, "0 5"),
        ({"lags": 200, "rows": 10, "end": "205"}, DataError, "40"),
        ({"start": "200", "test_tail": 0.9}, UsageError, "--start --end"),
        ({"set": {"period": "12"}}, UsageError, "kernel=squared_exponential"),
        ({"set": {"admm.rho": "5"}}, UsageError, "--set admm --method ml"),
        ({"set": {"kernel": '{"name": "matern"'}}, UsageError, "--set kernel JSON"),
        ({"output": "."}, UsageError, "--output"),
        ({"output": "/nowhere/t.json"}, UsageError, "/nowhere"),
        ({"set": {"kernel": "squared"}}, UsageError, "kernel"),
        ({"set": {"target": "season"}, "season": 1}, UsageError, ""),
        ({"method": "em"}, UsageError, "--method ml cv-admm cv-implicit"),
        ({"rows": 9}, UsageError, "--rows 10"),
    ],
)
def test_what_is_refused(stream: Table, tmp_path: Path, options: dict[str, Any], error: Any, said: str) -> None:
    with pytest.raises(error, match=naming(said)) as caught:
        found_on(stream, **{"output": tmp_path / "t.json", **STREAM, **options})
    assert caught.value.hint and not (tmp_path / "t.json").exists()


def test_an_option_of_another_method_names_it() -> None:
    for method, option, other in (("ml", "admm", "cv-admm"), ("cv-admm", "implicit", "cv-implicit")):
        with pytest.raises(UsageError) as caught:
            read_options(method, {option: {"folds": 2}}, 0)
        assert f"--method {other}" in caught.value.hint


def test_a_start_that_cannot_be_evaluated_has_no_loss(
    stream: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = METHODS["ml"]._replace(before=lambda *_: 1e10)
    monkeypatch.setitem(METHODS, "ml", way)
    diary = Diary(tmp_path / "d")
    config = TuneConfig.read({"table": stream.path, "output": tmp_path / "t.json", **STREAM, "rows": 60})
    assert tune(config, lambda *_: diary)["loss_before"] is None
    assert json.loads((tmp_path / "t.json").read_text())["found"]["loss_before"] is None
    assert max(values["loss"] for _, values in diary.points if "loss" in values) < 1e9


def test_the_next_line_names_a_model_that_takes_the_rows(gp: Table, tmp_path: Path) -> None:
    surface_of(gp, tmp_path / "t.json", rows=40, set={"kernel": "periodic"})
    found = read(tmp_path / "t.json")
    config = TuneConfig.read({"table": gp.path, "output": tmp_path / "t.json", "target": "y"})
    assert "--model exact" in train_line(config, found, 3000) and "--model svgp" in train_line(config, found, 3001)


def test_the_next_line_names_a_model_that_has_the_kernel(gp: Table, tmp_path: Path) -> None:
    """qsgp chooses from squared exponential and Matérn, whatever else is a function of one distance."""
    surface_of(gp, tmp_path / "t.json", rows=40, set={"kernel": "rational_quadratic"})
    config = TuneConfig.read({"table": gp.path, "output": tmp_path / "t.json", "target": "y"})
    assert "--model exact" in train_line(config, read(tmp_path / "t.json"), 3000)


@pytest.mark.parametrize("name", ["exact", "svgp", "qsgp"])
def test_a_kernel_that_starts_elsewhere_than_the_file_is_refused(gp: Table, tmp_path: Path, name: str) -> None:
    surface_of(gp, tmp_path / "t.json", rows=40)
    given = REGRESSION | {"model": name, "init": tmp_path / "t.json"}
    with pytest.raises(UsageError) as caught:
        open_session(
            config_of(gp, tmp_path / "c", set={"kernel": "squared_exponential", "kernel.lengthscale": "3"}, **given)
        )
    assert caught.value.hint
    open_session(config_of(gp, tmp_path / "c", set={"kernel": "squared_exponential"}, **given))


def test_a_search_that_fails_leaves_the_old_file(
    stream: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_on(stream, tmp_path / "t.json", **STREAM, rows=60)
    before = (tmp_path / "t.json").read_bytes()
    json.loads(before)
    diary = Diary(tmp_path / "d")

    def failing(*_: Any) -> Any:
        raise NumericalError("no start", hint="none")

    monkeypatch.setattr(module, "find", failing)
    with pytest.raises(NumericalError):
        tune(TuneConfig.read({"table": stream.path, "output": tmp_path / "t.json", **STREAM}), lambda *_: diary)
    assert (tmp_path / "t.json").read_bytes() == before and diary.status == "FAILED"


def test_a_file_of_a_kernel_with_a_shape_of_its_own_chooses_the_kernel(stream: Table, tmp_path: Path) -> None:
    found_on(stream, tmp_path / "t.json", **STREAM, rows=60, set={"kernel": "matern", "kernel.nu": "0.5"})
    small = {"features.size": "192", "features.width": "64"}
    session = open_session(config_of(stream, tmp_path / "c", model="qsgp", set=small, init=tmp_path / "t.json"))
    model: Any = session.learner.model
    assert model.posterior.engine.kernel.own.nu == 0.5
    given = {"model": "qsgp", "set": small, "max_rows": 300, "init": tmp_path / "t.json"}
    found = run(stream, tmp_path / "c", **given)
    assert scores_of(run(stream, tmp_path / "c", **given)) == scores_of(found)
    alone: Any = load(tmp_path / "c").learner.model
    assert alone.posterior.engine.kernel.own.nu == 0.5
    with pytest.raises(UsageError, match=naming("svdgp kernel=matern(nu=0.5)")):
        open_session(config_of(stream, tmp_path / "d", model="svdgp", init=tmp_path / "t.json"))
