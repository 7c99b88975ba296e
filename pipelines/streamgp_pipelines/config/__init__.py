"""The settings of every command. Each flag is declared here, once; the command line is generated from it.

A description says what a flag does. Its default follows on the help page; where the default is None, the description
says what happens then. `settings` has what all commands share, `ingest` those that fill and read a table, `runs` those
that train and forecast, `report` and `serve` theirs.
"""

from __future__ import annotations

from streamgp_pipelines.config.ingest import CompactConfig, DescribeConfig, IngestConfig, VacuumConfig
from streamgp_pipelines.config.report import ReportConfig
from streamgp_pipelines.config.runs import (
    AUTO,
    CheckConfig,
    CompareConfig,
    DataConfig,
    DemoConfig,
    DoctorConfig,
    ForecastConfig,
    RunConfig,
    TrainConfig,
    TuneConfig,
    UiConfig,
    micro_batch,
)
from streamgp_pipelines.config.serve import ServeConfig

__all__ = [
    "AUTO",
    "CheckConfig",
    "CompactConfig",
    "CompareConfig",
    "DataConfig",
    "DemoConfig",
    "DescribeConfig",
    "DoctorConfig",
    "ForecastConfig",
    "IngestConfig",
    "ReportConfig",
    "RunConfig",
    "ServeConfig",
    "TrainConfig",
    "TuneConfig",
    "UiConfig",
    "VacuumConfig",
    "micro_batch",
]
