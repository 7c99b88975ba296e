"""Help pages lose nothing: what stands in brackets is no markup, each command has its line on a terminal of 80, and the
whole page of a command has what the short one leaves out."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from streamgp_cli.app import app
from streamgp_pipelines import config

COMMANDS = sorted(one.name or one.callback.__name__ for one in app.registered_commands if one.callback)
BRACKETS = r"\[[^\]]+\]"


def settings_of(command: str) -> list[str]:
    """The descriptions of a command's options."""
    kind = getattr(config, f"{command.capitalize()}Config", None)
    return [] if kind is None else [field.description or "" for field in kind.model_fields.values()]


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_in_brackets_is_lost(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = CliRunner().invoke(app, [command, "--help-all"])
    assert shown.exit_code == 0
    (page,) = (one.callback.__doc__ or "" for one in app.registered_commands if one.callback.__name__ == command)
    whole = " ".join(re.sub("[│\n]", " ", shown.output).split())
    said = {mark for text in (page, *settings_of(command)) for mark in re.findall(BRACKETS, text)}
    assert {mark for mark in said if " ".join(mark.split()) not in whole} == set()
    assert "\\[" not in shown.output
    assert re.findall(r"^│ \*? *--.*<(?:str|int|float|path)>", shown.output, re.MULTILINE) == []  # values have names


def test_each_command_has_a_whole_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = CliRunner().invoke(app, ["--help"]).output.partition("Commands:")[2]
    assert all(f"\n  {command} " in listed for command in COMMANDS)
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


LONG = ("ingest", "tune", "train", "compare", "forecast", "serve")
"""Commands with many options."""


def options_on(page: str) -> list[str]:
    """The options that a help page lists, in its order."""
    return re.findall(r"^│ (--[a-z-]+)", page, re.MULTILINE)


@pytest.mark.sampled
@pytest.mark.parametrize("command", LONG)
def test_the_short_page_has_about_ten_options_and_the_whole_one_all(command: str) -> None:
    short, whole = (CliRunner().invoke(app, [command, word]).output for word in ("--help", "--help-all"))
    few, every = options_on(short), options_on(whole)
    assert 7 <= len(few) - 2 <= 10 and few[-2:] == ["--help-all", "--help"]
    assert len(every) == len(set(every)) and set(few) < set(every)
    assert f"{len(set(every) - set(few))} more options" in short and f"streamgp {command} --help-all" in short
    assert CliRunner().invoke(app, [command, "--help"]).output == short  # nothing of the whole page stays


def test_brokers_and_clusters_come_last() -> None:
    shown = CliRunner().invoke(app, ["train", "--help-all"]).output
    panels = re.findall(r"^╭─ ([A-Z][a-z ]+) ─", shown, re.MULTILINE)
    assert panels[:3] == ["Options", "Data", "Model"]
    assert panels[-3:] == ["Messages of a broker", "Cluster", "Common"]


def test_no_switch_is_denied_twice() -> None:
    shown = CliRunner().invoke(app, ["ingest", "--help-all"]).output
    assert "--header " in shown and "--no-no" not in shown
