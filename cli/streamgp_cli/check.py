"""`streamgp check`: whether a run is stale, or forecasts worse than it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from streamgp_cli.options import AsJson, Given
from streamgp_data.remote import shown

if TYPE_CHECKING:
    from streamgp_pipelines.check import CheckResult
    from streamgp_pipelines.config import CheckConfig

ALARM = 6


def check(given: Given[CheckConfig], json: AsJson = False) -> None:
    """See whether a run is stale, or forecasts worse than it did.

    Ends with exit code 6 if a value is beyond its limit, so that cron or a
    monitor can raise the alarm. Nothing is learned or written.

    \b
    Examples:
      streamgp check --checkpoint checkpoint --max-age 2h
      streamgp check --checkpoint checkpoint --max-crps-ratio 1.2 \\
          --min-coverage 0.9 || mail -s "check the forecast" me@example.org
      streamgp check --checkpoint checkpoint --max-age 2h \\
          --on-alarm https://example.org/hook
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, print_table, warn
    from streamgp_pipelines.check import check as run

    settings = given.read()
    with only_our_output():
        found = run(settings)
    alarms = [one.name for one in found if one.alarm]
    if json:
        print_json({"alarms": alarms, "findings": [one._asdict() for one in found]})
    else:
        rows = [[one.name.replace("_", " "), *_shown(one), _state(one), one.about] for one in found]
        print_table(["", "value", "limit", "state", "about"], rows)
    if alarms and settings.on_alarm is not None:
        from streamgp_pipelines.notify import notify

        event = {"source": "check", "checkpoint": shown(settings.checkpoint), "alarms": alarms}
        failed = notify(settings.on_alarm, event | {"findings": [one._asdict() for one in found]})
        warn([f"--on-alarm: {failed}"] if failed else [])
    if alarms:
        raise typer.Exit(ALARM)


def _state(one: CheckResult) -> str:
    if one.alarm:
        return "ALARM"
    if one.limit is None:
        return "no limit"
    return "not known" if one.value is None else "ok"


def _shown(one: CheckResult) -> list[Any]:
    """The value and its limit; ages in days, hours or minutes."""
    from streamgp_data.numbers import spoken

    if one.name != "age" or one.value is None:
        return [one.value, one.limit]
    size = abs(one.value)
    unit = next((unit for unit in (86400, 3600, 60) if size >= 2 * unit), 1)
    age = ("-" if one.value < 0 else "") + spoken(float(unit * round(size / unit)))
    return [age, None if one.limit is None else spoken(one.limit)]
