"""The settings of `streamgp report`; `config` has them with those of the other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from streamgp_data.presence import check_checkpoint, check_table
from streamgp_pipelines.config.settings import Checkpoint, Directory, Flag, HelpPanel, Settings, TableUri


class ReportConfig(Settings):
    """`streamgp report`: of a run or of a comparison."""

    checkpoint: Annotated[Checkpoint | None, Flag(HelpPanel.REPORT)] = Field(
        None, description="Checkpoint of a training run"
    )
    comparison: Annotated[Directory | None, Flag(HelpPanel.REPORT)] = Field(
        None, description="In its place the --comparison of streamgp compare"
    )
    table: Annotated[TableUri | None, Flag(HelpPanel.REPORT)] = Field(
        None, description="Table of the training; default: where the training has read it"
    )
    strict: Annotated[bool, Flag(HelpPanel.REPORT)] = Field(
        False, description="Fail if the newest checkpoint is damaged, instead of using the one before"
    )
    output: Annotated[Path, Flag(HelpPanel.OUTPUT, "FILE.html")] = Field(
        Path("report.html"), description="Page to write"
    )
    tracking_uri: Annotated[str | None, Flag(HelpPanel.OUTPUT, "URI|none")] = Field(
        None, description="MLflow store whose run gets the page as an artifact, or none; default: that of the run"
    )

    def check_there(self) -> None:
        """The checkpoint, and the table that was named."""
        if self.checkpoint is not None:
            check_checkpoint(self.checkpoint)
        if self.table is not None:
            check_table(self.table)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.checkpoint is None) == (self.comparison is None):
            raise ValueError("give --checkpoint or --comparison, one of them")
        if self.comparison is not None and (self.table is not None or self.strict):
            raise ValueError("--table and --strict belong to --checkpoint")
        return self
