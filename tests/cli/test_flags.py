"""Flags, environment, file and defaults: one setting each, in that order of precedence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner, Result

from streamgp_cli.app import app
from streamgp_cli.options import AsJson, Given, add
from streamgp_pipelines.config import DataConfig, TrainConfig
from streamgp_pipelines.config.settings import Assignments, Bytes, Directory, Flag, HelpPanel, Levels, Names, Settings

COMMANDS = ("ingest", "describe", "tune", "train", "forecast", "serve", "ui", "demo")


class Toy(Settings):
    """Every kind of field."""

    place: Directory = Field(Path("here"), description="Where")
    count: Annotated[int | None, Flag(HelpPanel.DATA, "ROWS")] = Field(None, ge=1, description="How many; default: all")
    names: Annotated[Names, Flag(metavar="NAME")] = Field((), description="Which")
    level: Levels = (80.0, 95.0)
    size: Bytes = Field(16_000_000, description="How large")
    fast: bool = Field(False, description="Be fast")
    way: Literal["up", "down"] = Field("up", description="Direction")
    as_name: Annotated[str | None, Flag(name="--as")] = Field(None, description="A name")
    set: Assignments = Field({}, description="Options")


def toy(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Result, list[tuple[Toy, bool]]]:
    """A command line of a command with these settings, and what the command was called with."""
    from streamgp_pipelines import config

    seen: list[tuple[Toy, bool]] = []

    def work(given: Given[Toy], json: AsJson = False) -> None:
        """Work."""
        seen.append((given.read(), json))

    monkeypatch.setattr(config, "Toy", Toy, raising=False)
    application = typer.Typer(rich_markup_mode=None, add_completion=False)
    add(application, work)
    return CliRunner().invoke(application, list(words)), seen


def parameters(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    asked = group.commands[command]
    return {parameter.name: parameter for parameter in asked.get_params(typer.Context(asked))}


def test_a_field_is_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "--place p --count 3 --names a,b --names c --level 50,90 --size 1KiB --fast --way down --as n --set k=1 --json"
    )
    result, seen = toy(monkeypatch, *line.split())
    assert result.exit_code == 0, result.output
    wanted = {"place": Path("p"), "count": 3, "names": ("a", "b", "c"), "level": (50.0, 90.0), "size": 1024}
    wanted |= {"fast": True, "way": "down", "as_name": "n", "set": {"k": "1"}}
    assert [(config.model_dump(), json) for config, json in seen] == [(wanted, True)]


def test_what_is_left_out_is_the_environment_s_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGP_COUNT", "5")
    monkeypatch.setenv("STREAMGP_FAST", "true")
    _, seen = toy(monkeypatch, "--no-fast")
    ((config, json),) = seen
    assert (config.count, config.fast, config.size, json) == (5, False, 16_000_000, False)


def test_the_page_shows_type_meaning_and_default(monkeypatch: pytest.MonkeyPatch) -> None:
    page = " ".join(toy(monkeypatch, "--help")[0].output.split())
    for part in ("--place DIR Where; default: here.", "--count ROWS How many; default: all.", "--names NAME Which.",
                 "default: 80,95.", "--size SIZE How large; default: 16MB.", "--fast / --no-fast Be fast; default: no.",
                 "--way up|down Direction; default: up.", "--as", "--set KEY=VALUE", "--config FILE"):  # fmt: skip
        assert part in page
    assert "--as-name" not in page


@pytest.mark.parametrize(
    "words", [("--count", "0"), ("--count", "x"), ("--way", "left"), ("--set", "k"), ("--no", "1")]
)
def test_a_wrong_value_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    result, seen = toy(monkeypatch, *words)
    assert result.exit_code != 0 and not seen


@pytest.mark.parametrize(
    ("line", "says"),
    {
        "demo mine.csv": "streamgp ingest FILE --table NAME",
        "train demand": "--table DIR",
        "forecast run": "--checkpoint DIR",
        "compact --table demand": "streamgp compact TABLE",
    }.items(),
)
def test_a_path_that_is_not_named_as_this_command_names_it_says_how(line: str, says: str) -> None:
    found = CliRunner().invoke(app, [*line.split(), "--json"])
    assert found.exit_code == 2 and says in json.loads(found.stderr)["hint"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_says_what_it_does(command: str) -> None:
    for name, parameter in parameters(command).items():
        assert len(parameter.help or "") > 10, name


def test_shared_settings_are_the_same_flags() -> None:
    train, tune = parameters("train"), parameters("tune")
    for name in DataConfig.model_fields:
        assert train[name].help == tune[name].help and train[name].opts == tune[name].opts


def planned(words: list[str], monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """The settings with which `train` is called."""
    seen: list[TrainConfig] = []

    def plan(config: TrainConfig) -> dict[str, Any]:
        seen.append(config)
        return {}

    monkeypatch.setattr("streamgp_pipelines.training.dry_run.plan", plan)
    monkeypatch.setattr(TrainConfig, "check_there", lambda self: None)  # there is no such table
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
    assert (config.horizon, config.season, config.lags, config.seed) == (1, (2,), 3, 0)
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
