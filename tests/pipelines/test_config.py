"""Settings: precedence, lists, units, unknown keys, what fits together; options of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from streamgp import choice
from streamgp.base import Shape
from streamgp.encoders import gru, lstm, mlp
from streamgp.errors import UsageError
from streamgp.kernels import matern, squared_exponential
from streamgp.kernels import sum as kernel_sum
from streamgp.models import linear, svdgp
from streamgp.models.deep.config import preset
from streamgp_pipelines.assembly import build_model, flatten, model_settings, seeded
from streamgp_pipelines.config import ForecastConfig, TrainConfig
from tests.words import names, naming


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
    assert (config.horizon, config.lags, config.season, config.batch) == (7, 5, "clock", 256)
    assert config.table == "from_file" and config.known == ("a", "b") and config.level == (50.0, 90.0)
    assert flatten(config.set) == {"basis": 64, "encoder.hidden": 8}


def test_a_file_of_brackets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(f"lags = {'[' * 5000}{']' * 5000}\n")
    with pytest.raises(UsageError, match=naming("deep.toml")):
        TrainConfig.read({}, tmp_path / "deep.toml")


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


@pytest.mark.parametrize("word", ["basis", "=3", " =3"])
def test_an_option_needs_a_key_and_a_value(word: str) -> None:
    with pytest.raises(UsageError, match=naming("key=value")):
        read(set=[word])
    assert read(set=["a=b=c", "a=d", "c = e"]).set == {"a": "d", "c": "e"}


@pytest.mark.parametrize(("given", "seconds"), [("60s", 60.0), ("5m", 300.0), ("1.5h", 5400.0), ("2", 2.0), (3, 3.0)])
def test_time_budget(given: Any, seconds: float) -> None:
    assert read(time_budget=given).time_budget == seconds


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"lagz": 3}, "lagz lags"),
        ({"table": None}, "--table"),
        ({"lags": -1}, "--lags"),
        ({"lags": "many"}, "--lags"),
        ({"horizon": 0}, "--horizon"),
        ({"season": 0}, "--season"),
        ({"batch": 0}, "--batch"),
        ({"max_rows": 0}, "--max-rows"),
        ({"level": "0"}, "--level"),
        ({"level": "100"}, ""),
        ({"level": "nan"}, ""),
        ({"level": "wide"}, "--level"),
        ({"gaps": "mask"}, "--gaps fill reset"),
        ({"device": "tpu"}, "--device"),
        ({"time_budget": "soon"}, "--time-budget"),
        ({"time_budget": "s"}, "--time-budget"),
        ({"time_budget": "0s"}, "--time-budget"),
        ({"test_tail": 1.0}, "--test-tail"),
        ({"test_tail": 0.2, "test_column": "c"}, "--test-column --test-tail"),
        ({"test_blocks": 5}, "--test-blocks --test-tail"),
        ({"online": True, "test_tail": 0.2}, "--test-tail"),
        ({"online": True, "epochs": 2}, "--epochs"),
        ({"online": True, "time_budget": "1s"}, "--time-budget"),
        ({"follow": True}, "--follow --online"),
        ({"score_from": "3"}, "--score-from --online"),
        ({"warmup": 100}, "--warmup --online"),
        ({"checkpoint_every": 100}, "--checkpoint-every --online"),
        ({"lags": 0, "horizon": 2}, "--lags 0"),
        ({"lags": 0, "season": 2}, "--lags 0"),
        ({"lags": -1, "horizon": 0}, "--lags --horizon"),
    ],
)
def test_what_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=naming(message)) as caught:
        read(**flags)
    assert "--help" in caught.value.hint and caught.value.exit_code == 2


def test_files_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path / "none.toml")
    path = tmp_path / "run.toml"
    path.write_text("lags = \n")
    with pytest.raises(UsageError, match=naming("run.toml")) as caught:
        read(path)
    assert "TOML" in caught.value.hint
    path.write_text("lag = 3\n")
    with pytest.raises(UsageError, match=naming("lag")):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=naming("run.toml")):
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
    ("options", "encoder"),
    [
        ({"encoder": "lstm"}, lstm.Config()),
        ({"encoder.name": "lstm", "encoder.hidden": "16"}, lstm.Config(hidden=16)),
        ({"encoder.hidden": "8"}, mlp.Config(hidden=8)),
        ({"encoder": "lstm", "encoder.hidden": "8"}, lstm.Config(hidden=8)),
        ({"encoder.hidden": "8", "encoder": "lstm"}, lstm.Config(hidden=8)),
        ({"encoder": "lstm", "encoder.name": "lstm"}, lstm.Config()),
        ({"encoder": '{"name": "lstm", "hidden": 8}', "encoder.width": "3"}, lstm.Config(hidden=8, width=3)),
        ({"encoder.width": "3", "encoder": {"name": "lstm", "hidden": 8}}, lstm.Config(hidden=8, width=3)),
        ({"encoder.width": "3", "encoder": '{"name": "lstm", "hidden": 8}'}, lstm.Config(hidden=8, width=3)),
    ],
)
def test_a_part_is_chosen_by_name_by_options_or_both(options: dict[str, Any], encoder: Any) -> None:
    assert model_settings("svdgp", options) == svdgp.Config(encoder=encoder)


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({}, squared_exponential.Config(lengthscale=0.5)),
        ({"kernel.outputscale": "2"}, squared_exponential.Config(lengthscale=0.5, outputscale=2.0)),
        ({"kernel": "squared_exponential"}, squared_exponential.Config(lengthscale=0.5)),
        ({"kernel": "squared_exponential", "kernel.lengthscale": "2"}, squared_exponential.Config(lengthscale=2.0)),
        ({"kernel": "matern", "kernel.nu": "0.5"}, matern.Config(nu=0.5)),
        (
            {"kernel": "sum", "kernel.parts": '["linear", {"name": "matern", "nu": 0.5}]'},
            kernel_sum.Config.model_validate({"parts": ["linear", matern.Config(nu=0.5)]}),
        ),
    ],
)
def test_options_without_a_name_are_beside_the_default_s_own(options: dict[str, Any], kernel: Any) -> None:
    assert model_settings("gp_narx", options) == preset("gp_narx")(kernel=kernel)


@pytest.mark.parametrize(("name", "width"), [("gp_lstm", 2), ("lstm", 8)])
def test_a_net_takes_any_encoder(name: str, width: int) -> None:
    options = {"encoder": "gru", "encoder.hidden": "8"}
    settings: Any = model_settings(name, options)
    assert settings.encoder == gru.Config(hidden=8)
    found: Any = build_model(name, options, SHAPE, torch.device("cpu"))
    assert found.net.posterior.encoder.width == width


@pytest.mark.parametrize("options", [{"solver": "kiss"}, {"solver.name": "kiss"}])
def test_the_name_of_a_part_that_always_stands_there_may_be_repeated(options: dict[str, Any]) -> None:
    assert model_settings("wiski", options) == model_settings("wiski", {})
    assert model_settings("wiski", {**options, "solver.rank": "8"}) == model_settings("wiski", {"solver.rank": "8"})


@pytest.mark.parametrize("options", [{"encoder": "gru"}, {"encoder.name": "gru"}, {"encoder": {"name": "gru"}}])
@pytest.mark.parametrize("name", ["gp_gru", "gru"])
def test_the_name_of_the_usual_encoder_may_be_repeated(name: str, options: dict[str, Any]) -> None:
    alone = model_settings(name, {"encoder.hidden": "8"})
    assert model_settings(name, options) == model_settings(name, {})
    assert model_settings(name, {**flatten(options), "encoder.hidden": "8"}) == alone
    assert model_settings(name, {"encoder.hidden": "8", **flatten(options)}) == alone


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("linaer", {}, "linaer", "linear"),
        ("zzz", {}, "zzz", ""),
        ("linear", {"rigde": "1"}, "--set rigde", "ridge"),
        ("linear", {"ridge": "many"}, "--set ridge", "linear"),
        ("linear", {"ridge": "-1"}, "--set ridge", "linear"),
        ("linear", {"ridge.a": "1"}, "--set ridge", "linear"),
        ("svdgp", {"encoder.hiden": "8"}, "--set encoder.hiden", "encoder.hidden"),
        ("svdgp", {"encoder": "mpl"}, "--set encoder mpl mlp", "svdgp"),
        ("svdgp", {"encoder": "7"}, "--set encoder 7 gru", "svdgp"),
        ("svdgp", {"encoder": "mlp", "encoder.hidden": "-8"}, "--set encoder.hidden", "svdgp"),
        ("svdgp", {"encoder": "mlp", "encoder.hiden": "8"}, "--set encoder.hiden", "encoder.hidden"),
        ("svdgp", {"encoder": "gru", "encoder.activation": "relu"}, "--set encoder.activation", "mlp"),
        ("svdgp", {"encoder": "mlp", "encoder.name": "gru"}, "name mlp", ""),
        ("svdgp", {"encoder.name": "gru", "encoder": "mlp"}, "encoder gru", ""),
        ("svdgp", {"gradient": "5", "gradient.rate": "1"}, "gradient", ""),
        ("svdgp", {"gradient.rate": "1", "gradient": "5"}, "gradient", ""),
        ("wiski", {"solver": "exact"}, "--set solver wiski kiss", "wiski"),
        ("narx", {"encoder": "identity"}, "identity mlp", "narx"),
        ("narx", {"encoder": "grue"}, "grue gru", "narx"),
        ("svdgp", {"memory": "0"}, "--set memory", "svdgp"),
        ("svdgp", {"likelihood": "student_t", "inference": "conjugate"}, "inference=conjugate", "svdgp"),
        ("svdgp", {"kernel": "matern", "kernel.nu": "0.5"}, "--set kernel svdgp", "exact svgp"),
        ("svdgp", {"kernel.nu": "0.5", "kernel": "matern"}, "--set kernel svdgp", "exact svgp"),
        ("gp_narx", {"kernel.nu": "1.5"}, "--set kernel.nu", "kernel.nu matern"),
        ("gp_narx", {"kernel": "matern", "kernel.nu": "7"}, "--set kernel.nu 0.5", "gp_narx"),
        (
            "gp_narx",
            {"kernel": "sum", "kernel.parts": '["linear", {"name": "matern", "nu": 7}]'},
            "--set kernel.parts.1.nu 0.5",
            "gp_narx",
        ),
    ],
)
def test_options_that_will_not_do(name: str, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=naming(message)) as caught:
        build_model(name, options, SHAPE, torch.device("cpu"))
    assert names(caught.value.hint, hint)


def test_none_is_nothing_where_there_may_be_nothing() -> None:
    assert model_settings("rvm", {"limit": "none"}).limit is None  # type: ignore[attr-defined]
    settings = model_settings("qsgp", {"kernel": "none", "covariance": "none"})
    assert settings.kernel is None and settings.covariance == "none"  # type: ignore[attr-defined]


def test_a_part_that_need_not_be_there_is_chosen_as_any() -> None:
    settings = model_settings("qsgp", {"kernel": "matern", "kernel.nu": "0.5"})
    assert settings.kernel == matern.Config(nu=0.5)  # type: ignore[attr-defined]
    assert type(settings).model_validate(settings.model_dump()) == settings


def test_every_option_of_a_model_is_named() -> None:
    names, more = ({one.name for one in choice.options(config)} for config in (svdgp.Config, preset("gp_narx")))
    assert {"basis", "likelihood", "seed"} <= names
    assert {"encoder", "encoder.hidden", "encoder.activation", "encoder.recurrent_dropout"} <= names
    assert any(name.startswith("gradient.") for name in names) and "gradient" not in names
    assert {"kernel", "kernel.nu", "kernel.parts", "solver", "solver.rank"} <= more


def test_the_seed_of_a_run_reaches_every_part_that_has_none_of_its_own() -> None:
    config = seeded(model_settings("svdgp", {"encoder": "lstm"}), 7)
    assert config == svdgp.Config(seed=7, encoder=lstm.Config(seed=7))
    config = seeded(model_settings("svdgp", {"encoder": "lstm", "encoder.seed": "3", "seed": "0"}), 7)
    assert config == svdgp.Config(encoder=lstm.Config(seed=3))
    parts = kernel_sum.Config.model_validate({"parts": ["linear", "spectral_mixture"]})
    assert seeded(preset("gp_narx")(kernel=parts), 7).model_dump()["kernel"]["parts"][1]["seed"] == 7


def test_another_seed_is_another_network() -> None:
    weights = []
    for seed in (0, 0, 1):
        model = build_model("svdgp", {"encoder": "rnn"}, SHAPE, torch.device("cpu"), seed)
        weights.append(model.posterior.encoder.projection.weight)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_settings_that_say_the_same_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"table": "t", "target": "y", "checkpoint": "c"}
    assert TrainConfig.read(given) == TrainConfig.read(given)
    monkeypatch.setenv("streamgp_horizon", "7")  # in letters of any size
    assert TrainConfig.read(given).horizon == 7
