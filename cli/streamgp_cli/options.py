"""Commands from settings: the options of a command are the fields of its settings class, declared there and only there.

`streamgp --help` imports no settings: a command builds its options when they are first needed. `--help` of a command
shows those that most users need, `--help-all` every one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand

from streamgp_cli import _memory

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from streamgp_pipelines.config.settings import Flag, Settings

COMMON = "Common"
HELP_ALL = "help_all"
_ALL = "Show every option and exit."

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with any of these options; STREAMGP_NAME in the environment sets one too.",
        metavar="FILE",
        rich_help_panel=COMMON,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on standard output.", metavar="", rich_help_panel=COMMON),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", metavar="", rich_help_panel=COMMON)
]
Log = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        "--log",
        help="Form of progress, warnings and errors on standard error; default: STREAMGP_LOG, else text.",
        metavar="text|json",
        rich_help_panel=COMMON,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and stop.", metavar="", rich_help_panel="Run")
]

S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class Given(Generic[S]):
    """What was given on a command line, and the settings that it is read into.

    Attributes:
        settings: class of the settings.
        flags: the options that were given, by the names of their fields; the others are None or empty.
        file: of --config.
    """

    settings: type[S]
    flags: Mapping[str, Any]
    file: Path | None

    def read(self) -> S:
        """The settings: flags over environment over file over defaults.

        Raises:
            UsageError: a value is wrong or a key is unknown.
        """
        return self.settings.read(self.flags, self.file)


def add(app: typer.Typer, work: Callable[..., None]) -> None:
    """Add a command to an app.

    Args:
        app: the app.
        work: the command. A parameter `given: Given[SomeConfig]`, with a class of `streamgp_pipelines.config`, stands
            for the options of these settings, --config and --debug; the others are options of their own, such as
            `json: AsJson`.
    """
    if "given" not in inspect.signature(work).parameters:

        @wraps(work)
        def checked(**given: Any) -> None:
            _memory.check(work.__name__, tracked=False)
            work(**given)

        app.command(context_settings={"help_option_names": ["-h", "--help", "--help-all"]})(checked)
        return

    class Command(TyperCommand):
        """Builds its options when they are first needed."""

        first: set[str] | None = None  # options of the short help page; None: not built yet

        def get_params(self, ctx: Any) -> list[Any]:
            """Every option and argument."""
            if self.first is None:
                whole = typer.Typer(add_completion=False)
                function, self.first = _function(work)
                whole.command()(function)
                made = typer.main.get_command(whole)
                self.params, self.callback = [*made.params, *self.params], made.callback
            return super().get_params(ctx)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """The short page or, after --help-all, the whole one."""
            with _page(self, self.get_params(ctx), self.first or set(), whole=ctx.meta.get(HELP_ALL, False)):
                super().format_help(ctx, formatter)

    def page() -> None: ...

    page.__doc__, page.__name__ = work.__doc__, work.__name__
    app.command(cls=Command)(page)


@contextmanager
def _page(command: TyperCommand, params: list[Any], first: set[str], whole: bool) -> Iterator[None]:
    """Change what the help page of a command shows, for a while: of many options those that come first, in one list."""
    if whole or not first:
        yield
        return
    more = [one for one in params if not isinstance(one, TyperArgument) and one.name not in first | {"help", HELP_ALL}]
    before = [(one, one.hidden, one.rich_help_panel) for one in params]
    for one in params:
        one.hidden, one.rich_help_panel = one in more, None
    command.epilog = f"{len(more)} more options, --json and --config among them: streamgp {command.name} --help-all"
    try:
        yield
    finally:
        command.epilog = None
        for one, hidden, panel in before:
            one.hidden, one.rich_help_panel = hidden, panel


def _show_all(ctx: typer.Context, asked: bool) -> None:
    """Print the whole help page, and stop."""
    if asked:
        ctx.meta[HELP_ALL] = True
        typer.echo(ctx.get_help(), nl=False)
        raise typer.Exit


def _function(work: Callable[..., None]) -> tuple[Callable[..., None], set[str]]:
    """A function with a parameter for every option, which calls `work`; and the options of the short help page."""
    from streamgp_pipelines import config

    hints = get_type_hints(work, localns=vars(config), include_extras=True)
    (settings,) = get_args(hints["given"])
    own = {name: one for name, one in inspect.signature(work).parameters.items() if name != "given"}

    def run(**given: Any) -> None:
        extra = {name: given.pop(name) for name in own}
        file, flags = given["config"], {name: given[name] for name in settings.model_fields}
        read = Given(settings, {name: value for name, value in flags.items() if value not in (None, [])}, file)
        if _memory.limit() is not None:
            store = getattr(read.read(), "tracking_uri", "none")
            _memory.check(work.__name__, store != "none" and (store is not None or work.__name__ != "forecast"))
        if not extra.get("options"):  # a list that needs no table
            read.read().check_there()
        work(read, **extra)

    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = sorted(settings.model_fields.items(), key=lambda one: _flag(one[1]).place(one[0]))
    parameters = {
        name: inspect.Parameter(name, keyword, default=None, annotation=_option(name, field)) for name, field in fields
    }
    parameters |= {name: one.replace(kind=keyword, annotation=hints[name]) for name, one in own.items()}
    parameters["config"] = inspect.Parameter("config", keyword, default=None, annotation=ConfigFile)
    parameters["log"] = inspect.Parameter("log", keyword, default=None, annotation=Log)
    parameters["debug"] = inspect.Parameter("debug", keyword, default=False, annotation=Debug)
    first = {name for name, field in fields if _flag(field).first}
    help_all = typer.Option("--help-all", help=_ALL, metavar="", is_eager=True, hidden=not first, callback=_show_all)
    parameters[HELP_ALL] = inspect.Parameter(HELP_ALL, keyword, default=False, annotation=Annotated[bool, help_all])
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return run, first


def _option(name: str, field: FieldInfo) -> Any:
    """The annotation of an option: what typer parses, and how its line of the help page reads."""
    flag, kind = _flag(field), _kind(field)
    metavar = flag.metavar
    if metavar is None and get_origin(_bare(field.annotation)) is Literal:
        metavar = "|".join(get_args(_bare(field.annotation)))
    line = f"{(field.description or '').removesuffix('.')}."
    default = _shown(field.default, flag)
    if default:
        line = f"{line.removesuffix('.')}; default: {default}."
    line = re.sub(r"(\[[a-z#/@][^\[]*?\])", r"\\\1", line)  # what is in brackets is no markup
    if flag.argument:
        return Annotated[kind, typer.Argument(help=line, metavar=metavar, show_default=False)]
    switch = flag.name or f"--{name.replace('_', '-')}"
    if kind == bool | None:
        bare = switch.removeprefix("--")
        switch = f"{switch}/--{bare.removeprefix('no-') if bare.startswith('no-') else f'no-{bare}'}"
        metavar = ""
    return Annotated[kind, typer.Option(switch, help=line, metavar=metavar, rich_help_panel=flag.panel)]


def _flag(field: FieldInfo) -> Flag:
    """What the field's type and class say of its flag; the last that says something counts."""
    from streamgp_pipelines.config.settings import Flag

    said: dict[str, Any] = {}
    for flag in (*_inside(field.annotation), *field.metadata):
        if isinstance(flag, Flag):
            said |= {key: value for key, value in vars(flag).items() if value}
    return Flag(**said)


def _inside(annotation: Any) -> tuple[Any, ...]:
    """Metadata of a type inside 'or None'."""
    return tuple(one for kind in get_args(annotation) for one in getattr(kind, "__metadata__", ()))


def _bare(annotation: Any) -> Any:
    """The type without 'or None' and without metadata."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    kinds = [one for one in get_args(annotation) if one is not type(None)]
    return _bare(kinds[0]) if len(kinds) == 1 and type(None) in get_args(annotation) else annotation


def _kind(field: FieldInfo) -> Any:
    """What typer parses: numbers, paths and switches; a type with its own reader takes the text."""
    from pydantic import BeforeValidator

    kind = _bare(field.annotation)
    if kind is dict or get_origin(kind) in (tuple, dict):
        return list[str] | None
    if any(isinstance(one, BeforeValidator) for one in (*_inside(field.annotation), *field.metadata)):
        return str | None
    return (kind if kind in (bool, int, float, Path) else str) | None


def _shown(default: Any, flag: Flag) -> str:
    """A default as one would type it; "" where the field has none of its own."""
    from pydantic_core import PydanticUndefined

    if default in (None, (), {}) or default is PydanticUndefined:
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(item if isinstance(item, str) else f"{item:g}" for item in default)
    if flag.metavar == "SIZE":
        return f"{default / 1e6:g}MB"
    return f"{default:g}" if isinstance(default, float) else str(default)
