"""The settings of `streamgp serve`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from streamgp_data.presence import check_checkpoint, check_table
from streamgp_pipelines.config.ingest import FromBroker
from streamgp_pipelines.config.settings import AHEAD, Ahead, Bytes, Checkpoint, File, Flag, HelpPanel, OnAlarm


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


class ServeConfig(FromBroker):
    """`streamgp serve`."""

    checkpoint: Annotated[
        tuple[Checkpoint, ...], NoDecode, BeforeValidator(_listed), Flag(HelpPanel.FORECAST, "DIR", first=True)
    ] = Field(
        (),
        description="Checkpoint of train --online, repeatable; it is called by the name of its directory. With "
        "--model-uri: where that model continues to learn; default: the model's name",
    )
    model_uri: Annotated[str | None, Flag(HelpPanel.FORECAST, "URI", first=True)] = Field(
        None,
        description="Begin with a model of MLflow's registry, such as models:/demand-demand_gw-h48@champion; once "
        "there is a checkpoint, continue from that",
    )
    tracking_uri: Annotated[str | None, Flag(HelpPanel.FORECAST, "URI")] = Field(
        None, description="MLflow store of --model-uri; default: MLFLOW_TRACKING_URI, else ./mlflow.db"
    )
    table: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_listed), Flag(HelpPanel.FORECAST, "DIR", first=True)
    ] = Field((), description="Table of a checkpoint, where it has moved, repeatable; default: where it was trained")
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag(HelpPanel.FORECAST)] = Field(
        "auto", description="Device to compute on"
    )
    checkpoint_every: Annotated[int, Flag(HelpPanel.FORECAST, "ROWS")] = Field(
        10_000, ge=1, description="Rows between checkpoints under load; without load, soon after the newest row"
    )
    host: Annotated[str, Flag(HelpPanel.RUN, "ADDRESS", first=True)] = Field(
        "127.0.0.1", description="Address to listen on"
    )
    port: Annotated[int, Flag(HelpPanel.RUN, "PORT", first=True)] = Field(
        8000, ge=0, le=65535, description="Port to listen on; 0: any"
    )
    auth: Annotated[Literal["auto", "always", "never"], Flag(HelpPanel.LIMITS, first=True)] = Field(
        "auto", description="Whether clients need the token: auto where others than this machine can connect"
    )
    token_file: Annotated[File | None, Flag(HelpPanel.LIMITS, first=True)] = Field(
        None,
        description="File of the token, made when missing; default: STREAMGP_TOKEN in the environment, "
        "else .token in the first checkpoint",
    )
    max_body: Annotated[Bytes, Flag(HelpPanel.LIMITS)] = Field(
        8_000_000, ge=1024, description="Largest body of a request, also unpacked"
    )
    request_rows: Annotated[int, Flag(HelpPanel.LIMITS, "ROWS")] = Field(
        10_000, ge=1, description="Most rows of a request"
    )
    max_ahead: Annotated[Ahead, Flag(HelpPanel.LIMITS)] = Field(
        AHEAD,
        description="How far the time of a row may be ahead of now and of the table, such as 1d, or none: any; with "
        "--known, beyond the horizon. Rows further ahead go to the quarantine",
    )
    rate: Annotated[int, Flag(HelpPanel.LIMITS, "COUNT")] = Field(
        1000, ge=0, description="Most requests a second of one address; 0: any"
    )
    on_alarm: Annotated[OnAlarm, Flag(HelpPanel.ALARMS, first=True)] = None

    def check_there(self) -> None:
        """The checkpoints, unless a model of the registry makes one, and the tables that were named."""
        for directory in self.checkpoint if self.model_uri is None else ():
            check_checkpoint(directory)
        for table in self.table:
            check_table(table)

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.model_uri is None and not self.checkpoint:
            raise ValueError("give --checkpoint or --model-uri")
        if self.model_uri is not None and len(self.checkpoint) > 1:
            raise ValueError("--model-uri goes with one --checkpoint: where the model learns on")
        return self
