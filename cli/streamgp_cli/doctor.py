"""`streamgp doctor`: what is wrong with a table, a checkpoint or a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import DoctorConfig

FAULT = 4


def doctor(given: Given[DoctorConfig], json: AsJson = False) -> None:
    """Find faults of a table, checkpoint or source; mend what is safe.

    Reads every file once. Ends with exit code 4 if there is a fault: what
    keeps commands from working, or loses rows.

    \b
    Examples:
      streamgp doctor --table demand --checkpoint day-ahead
      streamgp doctor --table demand --mend
      streamgp doctor --checkpoint s3://bucket/day-ahead
      streamgp doctor --source meter.csv --table demand
      streamgp doctor --source 'redis://localhost/0?stream=meters&group=site'
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, print_table
    from streamgp_pipelines.doctor import doctor as run

    settings = given.read()
    with only_our_output():
        found = run(settings)
    if json:
        print_json({"faults": sum(one.state == "fault" for one in found), "findings": [one._asdict() for one in found]})
    else:
        rows = [[one.of, one.what, one.state, one.about + (f": {one.remedy}" if one.remedy else "")] for one in found]
        print_table(["", "what", "state", "about"], rows)
    if any(one.state == "fault" for one in found):
        raise typer.Exit(FAULT)
