"""`streamgp report`: a run or a comparison as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import ReportConfig


def report(given: Given[ReportConfig], json: AsJson = False) -> None:
    """Write a run or a comparison as one HTML page.

    The page opens offline in any browser: forecasts beside what happened,
    scores, calibration, residuals, the model and its table. It is also
    logged as an artifact of the run in MLflow.

    \b
    Examples:
      streamgp report --checkpoint day-ahead --output day-ahead.html
      streamgp report --comparison comparison --output comparison.html
      streamgp report --checkpoint day-ahead --tracking-uri none --json
    """
    from streamgp_cli._output import only_our_output, print_json, print_pairs, warn
    from streamgp_pipelines.adapters.mlflow.artifact import log_artifact, logs
    from streamgp_pipelines.reporting.report import report as run

    settings = given.read()
    home = settings.checkpoint or settings.comparison
    assert home is not None
    tracked = logs(home, settings.tracking_uri)
    if not tracked:  # MLflow needs pandas
        from streamgp_cli._lean import leave_pandas_out

        leave_pandas_out()
    with only_our_output():
        found = run(settings)
        run_id, warnings = log_artifact(home, found.path, settings.tracking_uri) if tracked else (None, [])
    if json:
        print_json({**vars(found), "run_id": run_id, "warnings": warnings})
        return
    warn(warnings)
    for line in found.missing:
        print(f"not shown: {line}")
    print_pairs({"report": found.path, "MB": found.bytes / 1e6, "MLflow run": run_id or "none: not logged"})
