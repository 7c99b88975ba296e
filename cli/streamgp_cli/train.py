"""`streamgp train`: train a model on a table, online or in batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgp_cli.options import AsJson, DryRun, Given

if TYPE_CHECKING:
    from streamgp_pipelines.config import TrainConfig


def train(given: Given[TrainConfig], dry_run: DryRun = False, json: AsJson = False) -> None:
    """Train a model on a table, online or in batch.

    Online, the model predicts each row before it learns from it.
    The same command, run again, continues from its checkpoint. With
    --engine ray, processes share the series of a --fleet, or the rows of
    training in batch; the numbers are the same.

    \b
    Examples:
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336
      streamgp train --online --table demand --target demand_gw \\
          --horizon 48 --season 336 --known workday --level 80,95 \\
          --predictions scored.parquet
      streamgp train --online --source 'mqtt://localhost/meters/#' --follow \\
          --table meters --target kw --checkpoint meters
      streamgp train --table kin40k --target y --inputs 'x*' \\
          --test-column split0 --time-budget 60s
    """
    from streamgp_cli._health import watched
    from streamgp_cli._lean import leave_pandas_out
    from streamgp_cli._output import only_our_output, print_json, print_pairs, warn
    from streamgp_cli._progress import Reporter
    from streamgp_cli._summary import print_summary
    from streamgp_pipelines.adapters.mlflow.store import tracked
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.adapters.ray.sums import ray_sums
    from streamgp_pipelines.adapters.ray.workers import ray_workers
    from streamgp_pipelines.adapters.run_plots import draw_run
    from streamgp_pipelines.live.garbage import collect_seldom
    from streamgp_pipelines.training.dry_run import plan
    from streamgp_pipelines.training.train import train as run

    settings = given.read()
    if dry_run or not tracked(settings.tracking_uri):  # MLflow needs pandas
        leave_pandas_out()
    if dry_run:
        planned = plan(settings)
        print_json(planned) if json else print_pairs(planned, "would train (nothing was written):")
        return
    if settings.source is not None:
        collect_seldom()
    with (
        only_our_output(),
        watched(settings.follow, settings.metrics, json) as health,
        Reporter(quiet=json) as progress,
    ):
        tracker = tracker_of(settings.tracking_uri, settings.experiment)
        draw = draw_run if tracked(settings.tracking_uri) else None
        found = run(settings, tracker, progress, draw, ray_workers, lambda news: warn([news]), health, ray_sums)
    if json:
        print_json(found)
    else:
        print_summary(found)
