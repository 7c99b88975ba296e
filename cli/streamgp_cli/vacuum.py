"""`streamgp vacuum`: delete the files that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import VacuumConfig


def vacuum(given: Given[VacuumConfig], json: AsJson = False) -> None:
    """Delete files of a table and its quarantine that nobody needs.

    These are files that were merged, and what killed processes left. Every row
    stays, so that every checkpoint can be continued; others may read and write meanwhile.

    \b
    Examples:
      streamgp vacuum demand --dry-run
      streamgp vacuum demand --keep 7d
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, print_table
    from streamgp_pipelines.maintenance import vacuum as run

    settings = given.read()
    with only_our_output():
        found = run(settings)
    if json:
        print_json([one._asdict() for one in found])
        return
    done = ["would be deleted", "MB"] if settings.dry_run else ["deleted", "MB freed"]
    rows = [[one.table, one.files, one.bytes / 1e6, one.deleted, one.freed / 1e6, one.kept] for one in found]
    print_table(["table", "files needed", "MB needed", *done, "too young"], rows)
