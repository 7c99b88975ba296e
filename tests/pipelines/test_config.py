"""Settings: precedence, lists, units, unknown keys, what fits together; options of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models import linear, svdgp
from streamgp_pipelines.assembly import build_model, flatten, model_settings, option_names
from streamgp_pipelines.config import ForecastConfig, TrainConfig


def read(file: Path | None = None, **flags: Any) -> TrainConfig:
    config: TrainConfig = TrainConfig.read({"table": "t"} | flags, file)
    return config


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(
        'table = "from_file"\nlags = 3\nhorizon = 4\nknown = ["a", "b"]\nlevel = [50, 90]\nonline = true\n'
        "[set]\nbasis = 64\nencoder.hidden = 8\n"
    )
    return path


def test_flag_over_environment_over_file_over_default(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGP_LAGS", "5")
    monkeypatch.setenv("STREAMGP_HORIZON", "6")
    config = TrainConfig.read({"horizon": 7, "lags": None, "season": None}, toml)
    assert (config.horizon, config.lags, config.season, config.batch) == (7, 5, 1, 256)
    assert config.table == "from_file" and config.known == ("a", "b") and config.level == (50.0, 90.0)
    assert flatten(config.set) == {"basis": 64, "encoder.hidden": 8}


def test_a_flag_that_was_not_given_does_not_hide_the_file(toml: Path) -> None:
    config = TrainConfig.read({"online": None, "known": [], "level": None}, toml)
    assert config.online and config.known == ("a", "b") and config.level == (50.0, 90.0)
    assert not TrainConfig.read({"online": False}, toml).online


def test_lists_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGP_TARGET", "a, b")
    monkeypatch.setenv("STREAMGP_LEVEL", "95,80")
    monkeypatch.setenv("STREAMGP_SET", '{"basis": 32}')
    config = read()
    assert config.target == ("a", "b") and config.level == (80.0, 95.0) and config.set == {"basis": 32}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("a,b", ("a", "b")),
        (["a,b", "c"], ("a", "b", "c")),
        (("a",), ("a",)),
        ("a , b,", ("a", "b")),
        ("temp*", ("temp*",)),
        ("", ()),
    ],
)
def test_names(given: Any, names: tuple[str, ...]) -> None:
    assert read(inputs=given).inputs == names


@pytest.mark.parametrize(("given", "levels"), [("80", (80.0,)), (["95", "80,95"], (80.0, 95.0)), (99.5, (99.5,))])
def test_levels(given: Any, levels: tuple[float, ...]) -> None:
    assert read(level=given).level == levels
    assert ForecastConfig.read({"checkpoint": "c", "level": given}).level == levels


@pytest.mark.parametrize(("given", "seconds"), [("60s", 60.0), ("5m", 300.0), ("1.5h", 5400.0), ("2", 2.0), (3, 3.0)])
def test_time_budget(given: Any, seconds: float) -> None:
    assert read(time_budget=given).time_budget == seconds


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"lagz": 3}, "there is no option 'lagz'; did you mean 'lags'?"),
        ({"table": None}, "--table: Field required"),
        ({"lags": -1}, "--lags: Input should be greater than or equal to 0"),
        ({"lags": "many"}, "--lags: Input should be a valid integer"),
        ({"horizon": 0}, "--horizon"),
        ({"season": 0}, "--season"),
        ({"batch": 0}, "--batch"),
        ({"max_rows": 0}, "--max-rows"),
        ({"level": "0"}, "--level: levels are percentages between 0 and 100"),
        ({"level": "100"}, "percentages"),
        ({"level": "nan"}, "percentages"),
        ({"level": "wide"}, "--level"),
        ({"gaps": "fill"}, "--gaps: Input should be 'reset' or 'mask'"),
        ({"device": "tpu"}, "--device"),
        ({"time_budget": "soon"}, "--time-budget"),
        ({"time_budget": "s"}, "--time-budget"),
        ({"time_budget": "0s"}, "--time-budget"),
        ({"test_tail": 1.0}, "--test-tail"),
        ({"test_tail": 0.2, "test_column": "c"}, "--test-column or --test-tail, not both"),
        ({"online": True, "test_tail": 0.2}, "--test-tail belongs to batch training"),
        ({"online": True, "epochs": 2}, "--epochs belongs to batch training"),
        ({"online": True, "time_budget": "1s"}, "--time-budget belongs to batch training"),
        ({"follow": True}, "--follow belongs to --online"),
        ({"score_from": "3"}, "--score-from belongs to --online"),
        ({"warmup": 100}, "--warmup belongs to --online"),
        ({"checkpoint_every": 100}, "--checkpoint-every belongs to --online"),
        ({"lags": 0, "horizon": 2}, "--lags 0 is regression"),
        ({"lags": 0, "season": 2}, "--lags 0 is regression"),
        ({"lags": -1, "horizon": 0}, "--lags.*; --horizon"),
    ],
)
def test_what_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(**flags)
    assert "streamgp train --help" in caught.value.hint and caught.value.exit_code == 2


def test_files_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no configuration file"):
        read(tmp_path / "none.toml")
    path = tmp_path / "run.toml"
    path.write_text("lags = \n")
    with pytest.raises(UsageError, match=r"run\.toml") as caught:
        read(path)
    assert "TOML" in caught.value.hint
    path.write_text("lag = 3\n")
    with pytest.raises(UsageError, match="there is no option 'lag'"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"run\.toml"):
        read(path)


def test_settings_of_one_command_do_not_leak_into_another(toml: Path) -> None:
    read(toml)
    assert read().lags is None and read().known == ()


# options of a model


SHAPE = Shape(targets=("y",), horizon=2, lags=3, past=("y",), future=())


def test_options_are_text_json_or_tables() -> None:
    assert model_settings("linear", {"ridge": "2.5"}) == linear.Config(ridge=2.5)
    assert model_settings("linear", {"memory": "null", "target": "change"}) == linear.Config(target="change")
    nested = model_settings("svdgp", {"encoder": {"hidden": 8}, "gradient.rate": "0.01"})
    assert nested == svdgp.Config.model_validate({"encoder": {"hidden": 8}, "gradient": {"rate": 0.01}})


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("linaer", {}, "model 'linaer' is unknown", "did you mean 'linear'"),
        ("zzz", {}, "model 'zzz' is unknown", "there are: "),
        ("linear", {"rigde": "1"}, "--set rigde: ", "did you mean 'ridge'"),
        ("linear", {"ridge": "many"}, "--set ridge: ", "streamgp models linear"),
        ("linear", {"ridge": "-1"}, "--set ridge: ", "streamgp models linear"),
        ("linear", {"ridge.a": "1"}, "--set ridge", "streamgp models linear"),
        ("svdgp", {"encoder.hiden": "8"}, "--set encoder.hiden: ", "did you mean 'encoder.hidden'"),
        ("svdgp", {"encoder": "mlp", "encoder.hidden": "8"}, "'encoder' is already set", "one or the other"),
    ],
)
def test_options_that_will_not_do(name: str, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build_model(name, options, SHAPE, torch.device("cpu"))
    assert hint in caught.value.hint


def test_every_option_of_a_model_is_named() -> None:
    names = option_names(svdgp.Config)
    assert {"basis", "likelihood", "seed"} <= set(names) and len(names) == len(set(names))
    assert "encoder.hidden" in names
    assert any(name.startswith("gradient.") for name in names) and "gradient" not in names
