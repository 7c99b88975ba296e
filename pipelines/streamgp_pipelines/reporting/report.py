"""`streamgp report`: the page of a run or of a comparison, written to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamgp_pipelines.config import ReportConfig
from streamgp_pipelines.files import check_writable
from streamgp_pipelines.reporting.comparison import comparison_page
from streamgp_pipelines.reporting.page import SUFFIX, write
from streamgp_pipelines.reporting.run import open_run, run_page


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: of the page.
        bytes: its size.
        sections: headings of what it shows.
        missing: what it does not show, and what would record that.
    """

    path: Path
    bytes: int
    sections: list[str]
    missing: list[str]


def report(config: ReportConfig) -> Report:
    """Write the page. Nothing is learned.

    Raises:
        UsageError: the file has another suffix than .html.
        CheckpointError, TableError, DataError: there is no run or comparison, or it is damaged.
        ServiceError: the file cannot be written.
    """
    check_writable(config.output, "--output", (SUFFIX,), make=True)
    if config.checkpoint is not None:
        page = run_page(open_run(config.checkpoint, config.table, config.strict))
    else:
        assert config.comparison is not None
        page = comparison_page(config.comparison)
    shown = [section.title for section in page.sections if section.parts or section.note]
    return Report(config.output, write(page, config.output), shown, list(page.missing))
