"""`streamgp compact`: fewer and larger files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import CompactConfig


def compact(given: Given[CompactConfig], json: AsJson = False) -> None:
    """Merge the small files of a table and of its quarantine.

    Rows and their numbers stay: checkpoints continue, and others may read and
    write meanwhile. The merged files stay on the disk until streamgp vacuum.

    \b
    Examples:
      streamgp compact demand --dry-run
      streamgp compact demand
    """
    from streamgp_cli._lean import leave_pandas_out

    leave_pandas_out()
    from streamgp_cli._output import only_our_output, print_json, print_table
    from streamgp_pipelines.maintenance import compact as run

    settings = given.read()
    with only_our_output():
        found = run(settings)
    if json:
        print_json([one._asdict() for one in found])
        return
    after = ["files would be", ""] if settings.dry_run else ["files now", "MB now"]
    rows = [
        [one.table, one.rows, one.files, one.bytes / 1e6, one.files_after]
        + ([] if one.bytes_after is None else [one.bytes_after / 1e6])
        for one in found
    ]
    print_table(["table", "rows", "files", "MB", *filter(None, after)], rows)
