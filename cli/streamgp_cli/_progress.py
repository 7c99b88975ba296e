"""How far a command has come, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from streamgp_cli._log import say, structured
from streamgp_data.numbers import lasting, number

if TYPE_CHECKING:
    from streamgp.base import Progress

_SECONDS_BETWEEN_LINES = 5.0


class Reporter:
    """Draws progress on standard error: a bar on a terminal, elsewhere a plain line every few seconds.

    Use it as a context manager, and call it with each Progress.
    """

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._quiet = quiet
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._told: dict[str, float] = {}  # when a stage was last shown; stages of several workers alternate
        self._began: dict[str, tuple[float, int]] = {}  # when a stage was first heard of, and how far it was then

    def __enter__(self) -> Reporter:
        if self._console.is_terminal and not self._quiet and not structured():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[speed]}"),
                TextColumn("{task.fields[note]}"),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far the work has come."""
        if self._quiet:
            return
        if self._bars is not None:
            self._draw(progress)
        else:
            self._tell(progress)

    def _draw(self, progress: Progress) -> None:
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._bars.add_task(progress.stage, total=progress.total, note="", speed="")
        task = self._tasks[progress.stage]
        rate = self._rate(progress, time.monotonic())
        speed = f"{number(rate)} {progress.unit}/s" if rate else ""
        self._bars.update(task, completed=progress.done, total=progress.total, note=progress.note, speed=speed)

    def _tell(self, progress: Progress) -> None:
        now = time.monotonic()
        rate = self._rate(progress, now)
        ended = progress.total is not None and progress.done >= progress.total
        if not ended and now - self._told.get(progress.stage, -_SECONDS_BETWEEN_LINES) < _SECONDS_BETWEEN_LINES:
            return
        self._told[progress.stage] = now
        of = f" of {progress.total:,}" if progress.total is not None else ""
        count = f"{progress.done:,}{of}" if progress.total != 1 else "done" if ended else "..."
        times = _times(progress, now - self._began[progress.stage][0], rate)
        say(
            "info",
            f"{progress.stage}: {count}  {times}{progress.note}".rstrip(),
            stage=progress.stage,
            done=progress.done,
            total=progress.total,
            per_second=rate,
            note=progress.note,
        )

    def _rate(self, progress: Progress, now: float) -> float | None:
        """Units a second since the stage was first heard of, which a run that is continued did not begin at 0."""
        began, done = self._began.setdefault(progress.stage, (now, progress.done))
        return (progress.done - done) / (now - began) if now > began and progress.done > done else None


def _times(progress: Progress, elapsed: float, rate: float | None) -> str:
    """Elapsed, remaining and speed; nothing of a stage that is one step.

    Example:
        >>> from streamgp.base import Progress
        >>> _times(Progress("train", 6144, 17472), 12.0, 512.0)
        '0:12, 0:22 left, 512 rows/s  '
        >>> _times(Progress("train", 6144), 12.0, 512.0)
        '0:12, 512 rows/s  '
    """
    if rate is None or progress.total == 1:
        return ""
    parts = [lasting(elapsed)]
    if progress.total is not None and progress.total > progress.done:
        parts.append(f"{lasting((progress.total - progress.done) / rate)} left")
    return ", ".join([*parts, f"{number(rate)} {progress.unit}/s"]) + "  "
