"""A line now and then on how a command is that follows, and its metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from streamgp_cli._log import say
from streamgp_cli._systemd import notify

if TYPE_CHECKING:
    from streamgp_pipelines.health import Health

BEAT = 0.2
"""Seconds from one look whether the command is ready to the next."""


@contextmanager
def watched(follows: bool, metrics: str | None, quiet: bool) -> Iterator[Health]:
    """What the command keeps up to date.

    Args:
        follows: whether it waits for rows; else nothing is said.
        metrics: where Prometheus is answered.
        quiet: whether no line is said.

    Raises:
        UsageError: prometheus-client is not installed.
        ServiceError: `metrics` cannot be listened on.
    """
    from streamgp.errors import UsageError
    from streamgp_pipelines.health import Health, reported

    health = Health()
    with ExitStack() as stack:
        if metrics is not None:
            try:
                from streamgp_pipelines.adapters.web.exporter import exporting
            except ModuleNotFoundError as error:
                hint = "pip install 'streamgp[serve]'"
                raise UsageError(f"--metrics needs the package {error.name}", hint=hint) from None
            stack.enter_context(exporting(metrics, health))
        if follows:
            stack.callback(notify, STOPPING="1")
            stack.enter_context(reported(health, lambda _: notify(READY="1"), BEAT, lambda: health.ready))
            stack.enter_context(reported(health, lambda _: _say(health, quiet)))
        yield health


def _say(health: Health, quiet: bool) -> None:
    line = health.line()
    notify(STATUS=line)
    if line and not quiet:
        say("info", f"health: {line}", health=health.figures())
