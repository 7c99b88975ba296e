"""Flags, environment, file and defaults: one setting each, in that order of precedence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from streamgp.errors import UsageError
from streamgp_cli._options import assignments
from streamgp_cli.app import app
from streamgp_pipelines.adapters.mlflow.server import UiConfig
from streamgp_pipelines.config import ForecastConfig, Settings, TrainConfig
from streamgp_pipelines.demo import DemoConfig
from streamgp_pipelines.ingestion.ingest import IngestConfig
from streamgp_pipelines.state import DescribeConfig

SETTINGS: dict[str, type[Settings]] = {
    "ingest": IngestConfig,
    "describe": DescribeConfig,
    "train": TrainConfig,
    "forecast": ForecastConfig,
    "ui": UiConfig,
    "demo": DemoConfig,
}
ONLY_FLAGS = {"config", "json", "debug", "help", "dry_run"}


def parameters(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {parameter.name.rstrip("_"): parameter for parameter in group.commands[command].params}


@pytest.mark.parametrize("command", SETTINGS)
def test_every_setting_has_a_flag_and_every_flag_a_setting(command: str) -> None:
    assert set(parameters(command)) - ONLY_FLAGS == set(SETTINGS[command].model_fields) - ONLY_FLAGS


@pytest.mark.parametrize("command", SETTINGS)
def test_the_default_on_the_page_is_the_setting_s(command: str) -> None:
    for name, parameter in parameters(command).items():
        field = SETTINGS[command].model_fields.get(name)
        said = re.search(r"default: (.*?)(?: \(.*\))?\.?$", parameter.help or "")
        if field is None or field.is_required() or field.default in (None, "", (), {}):
            continue
        assert said is not None, f"--{name} does not say its default"
        assert said[1] == shown(field.default) or read(field, said[1]) == field.default, name


def read(field: FieldInfo, text: str) -> Any:
    """What the setting makes of a default as it is written on the page, such as 16MB."""
    return TypeAdapter(Annotated[field.annotation, field, *field.metadata]).validate_python(text)


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(f"{item:g}" for item in default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def planned(words: list[str], monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """The settings with which `train` is called."""
    seen: list[TrainConfig] = []

    def plan(config: TrainConfig) -> dict[str, Any]:
        seen.append(config)
        return {}

    monkeypatch.setattr("streamgp_pipelines.training.dry_run.plan", plan)
    result = CliRunner().invoke(app, ["train", "--dry-run", *words])
    assert result.exit_code == 0, result.stderr
    return seen[0]


def test_lists_are_separated_by_commas_or_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "--table t --target a,b --target c --inputs x*,y --level 80 --level 95,99 --set basis=8 --set encoder.hidden=4"
    )
    config = planned([*words.split(), "--time-budget", "5m"], monkeypatch)
    assert config.target == ("a", "b", "c") and config.inputs == ("x*", "y") and config.level == (80.0, 95.0, 99.0)
    assert config.set == {"basis": "8", "encoder.hidden": "4"} and config.time_budget == 300.0


def test_flag_before_environment_before_file_before_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    text = 'table = "of-file"\nhorizon = 3\nseason = 3\nlags = 3\ntarget = "a,b"\ncalendar = true\n[set]\nbasis = 7\n'
    file.write_text(text)
    monkeypatch.setenv("STREAMGP_HORIZON", "2")
    monkeypatch.setenv("STREAMGP_SEASON", "2")
    monkeypatch.setenv("STREAMGP_KNOWN", "w,h")
    config = planned(["--config", str(file), "--horizon", "1", "--no-calendar"], monkeypatch)
    assert (config.horizon, config.season, config.lags, config.seed) == (1, 2, 3, 0)
    assert config.target == ("a", "b") and config.known == ("w", "h") and config.calendar is False
    assert str(config.table) == "of-file" and config.set == {"basis": 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("horizn = 3", "horizn"),
        ("horizon = = 3", "run.toml"),
        ("horizon = 'many'", "--horizon"),
        ("[train]\nhorizon = 3", "train"),
    ],
)
def test_a_file_that_is_wrong_is_a_usage_error(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["train", "--table", "t", "--config", str(file), "--json"])
    assert result.exit_code == 2
    assert says in json.loads(result.stderr)["message"]


@pytest.mark.parametrize("word", ["basis", "=3", " =3"])
def test_a_setting_needs_a_key_and_a_value(word: str) -> None:
    with pytest.raises(UsageError, match="is not key=value"):
        assignments([word], "--set")
    assert assignments(["a=b=c", "a=d"], "--set") == {"a": "d"}
