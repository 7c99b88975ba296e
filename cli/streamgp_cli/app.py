"""The command `streamgp`: its sub-commands and their exit codes.

Only typer is imported here and at the top of the command files. A command imports what it needs when it runs, so that
`streamgp --help` is fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from streamgp_cli._log import begin
from streamgp_cli.check import check
from streamgp_cli.compact import compact
from streamgp_cli.compare import compare
from streamgp_cli.demo import demo
from streamgp_cli.describe import describe
from streamgp_cli.doctor import doctor
from streamgp_cli.forecast import forecast
from streamgp_cli.ingest import ingest
from streamgp_cli.models import models
from streamgp_cli.options import add
from streamgp_cli.report import report
from streamgp_cli.serve import serve
from streamgp_cli.signals import HUNG_UP, INTERRUPTED, TERMINATED, received
from streamgp_cli.train import train
from streamgp_cli.tune import tune
from streamgp_cli.ui import ui
from streamgp_cli.vacuum import vacuum


class Root(TyperGroup):
    """The command group that turns every exception into one message, one hint and one exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.rich_markup_mode = None  # the plain page of the root is drawn in half the time of the framed one

    def main(self, args: Sequence[str] | None = None, *_: Any, standalone_mode: bool = True, **extra: Any) -> NoReturn:
        """Run one command line, and exit.

        Args:
            args: the words after `streamgp`; those of the process when left out.
            standalone_mode: typer's switch, which this group does not need: it always exits.
            extra: passed on to typer.

        Raises:
            SystemExit: always; 0 done, 2 usage, 3 data, 4 state, 5 outside service, 130 interrupted, 141 the
                reader of its output has gone, 143 terminated, 1 a defect.
        """
        from streamgp_cli.errors import interrupted, report

        # Threads of torch that wait by spinning take the cores from each other and from everyone else.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        try:
            begin(words)
            code = super().main(words, standalone_mode=False, **extra) or 0
        except Exception as error:
            code = received()  # where a library has made another error of an interruption, it still is one
            if code is None:
                debug = "--debug" in words or bool(os.environ.get("STREAMGP_DEBUG"))
                code = report(error, as_json=as_json, debug=debug, command=words[0] if words else "")
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a library in Rust, no Exception
                raise
            code = report(error, as_json=as_json, debug="--debug" in words, command=words[0] if words else "")
        if code == INTERRUPTED:
            code = received() or code
        if code in (INTERRUPTED, TERMINATED, HUNG_UP):
            interrupted(words[0] if words else "", code, as_json=as_json)
        raise SystemExit(code)


app = typer.Typer(
    name="streamgp",
    cls=Root,
    epilog="Start with: streamgp demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands: tuple[Callable[..., None], ...] = (
    ingest,
    describe,
    models,
    tune,
    train,
    compare,
    forecast,
    serve,
    check,
    doctor,
    compact,
    vacuum,
    report,
    ui,
    demo,
)
for command in commands:
    add(app, command)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"streamgp {version('streamgp')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn a stream of sensor rows into probabilistic forecasts that stay calibrated while the stream runs."""


def main() -> NoReturn:
    """The entry point of scripts that were installed before `streamgp_cli.start` was."""
    from streamgp_cli import start

    start.main()
