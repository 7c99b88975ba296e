"""`streamgp compare`: several models on the same stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgp_cli.options import AsJson, Given

if TYPE_CHECKING:
    from streamgp_pipelines.comparing.compare import Comparison
    from streamgp_pipelines.config import CompareConfig


def compare(given: Given[CompareConfig], json: AsJson = False) -> None:
    """Train several models on one stream, and score them side by side.

    All have the same warm-up, and are scored on the forecasts that every
    one made. Intervals of the differences come from a block bootstrap.
    Run again, each model continues from its checkpoint; lightgbm, ridge,
    autoets, autoarima and mstl start at the first row. With --late use all of
    them see a late row from when it came. With --engine ray models are trained
    side by side, by processes of this machine or of a Ray cluster; the numbers
    are the same.

    \b
    Examples:
      streamgp compare --table demand --target demand_gw --horizon 48 \\
          --season 48,336 --models auto,linear,svdgp
      streamgp compare --table demand --target demand_gw --horizon 48 \\
          --season 48,336 --models small=svdgp,large=svdgp \\
          --set small.basis=64 --set large.basis=512
      streamgp compare --table demand --target demand_gw --horizon 48 \\
          --season 48,336 --models auto,lightgbm,mstl --set mstl.every=97
      streamgp compare --table kin40k --target y --inputs 'x*' --lags 0 \\
          --test-column split0 --models linear,svgp
      streamgp compare --table demand --target demand_gw --horizon 48 \\
          --season 48,336 --models linear,svdgp,lstm --engine ray --workers 3
    """
    from streamgp_cli._lean import leave_pandas_out
    from streamgp_cli._output import only_our_output, print_json
    from streamgp_cli._progress import Reporter
    from streamgp_pipelines.adapters.comparison_plot import draw_comparison
    from streamgp_pipelines.adapters.mlflow.store import tracked
    from streamgp_pipelines.adapters.mlflow.tracker import tracker_of
    from streamgp_pipelines.adapters.ray.tasks import ray_tasks
    from streamgp_pipelines.adapters.run_plots import draw_run
    from streamgp_pipelines.comparing.compare import compare as run
    from streamgp_pipelines.comparing.peers import PEERS

    settings = given.read()
    is_tracked = tracked(settings.tracking_uri)
    peers = any(name.rpartition("=")[2] in PEERS for name in settings.models)
    if not is_tracked and not peers:  # MLflow needs pandas, and so do they
        leave_pandas_out()
    with only_our_output(), Reporter(quiet=json) as progress:
        tracker = tracker_of(settings.tracking_uri, settings.experiment)
        made = run(settings, tracker, progress, draw_run if is_tracked else None, draw_comparison, ray_tasks)
    if json:
        about = {name: value for name, value in vars(made).items() if name not in ("scores", "differences")}
        print_json(about | {"scores": made.scores.to_dicts(), "differences": made.differences.to_dicts()})
    else:
        _print(made, [name.partition("=")[0] for name in settings.models])


def _print(made: Comparison, asked: list[str]) -> None:
    """The scores of each model, and how sure the differences are. `asked`: names of the models that were asked for."""
    from streamgp.forecasting import metrics
    from streamgp.forecasting.metrics import Place
    from streamgp.forecasting.metrics import shown as shown_at
    from streamgp_cli._output import print_pairs, print_table, shown

    whole = made.scores.filter(by="all")
    level = [name.removeprefix("coverage_") for name in whole.columns if name.startswith("coverage_")][-1:]
    names = [*shown_at(Place.COMPARISON), *shown_at(Place.COMPARISON, binary=True)]
    names += [f"{band}_{one}" for band in shown_at(Place.COMPARISON, bands=True) for one in level]
    names += ["cpu_seconds", "rows_per_second", "state_mb"]
    names = [name for name in names if name in whole.columns and whole[name].is_not_null().any()]
    heads = [metrics.title(name) + (" %" if name[-1:].isdigit() else "") for name in names]
    title = f"{made.cells:,} forecasts that every model made"
    if made.against not in asked:
        title += f"; {made.against} was added as the baseline, --against NAME takes another"
    print_table(["model", *heads], whole.select("model", *names).rows(), title)
    rows = [
        [found["model"], *(cell for loss in ("mae", "calibrated_crps") for cell in _less(made, found["model"], loss))]
        for found in whole.iter_rows(named=True)
        if found["model"] != made.against
    ]
    parts = (f"% of {made.against}", "95 % interval", "p")
    heads = [f"{loss}, {part}" for loss in ("MAE", "calibrated CRPS") for part in parts]
    print_table(["model", *heads], rows)
    pairs: dict[str, Any] = {name: path for name, path in made.files.items() if path.exists()}
    if made.left_out:
        pairs["left out"] = f"{shown(made.left_out)} forecasts that some models made and others did not"
    pairs |= {f"weights of {name}": weights for name, weights in made.weights.items()}
    pairs["MLflow run"] = made.run_id or "none: not tracked"
    print_pairs(pairs)
    if made.lost:
        print(f"note: workers were lost {made.lost} times; their models went on in others")
    for name, warnings in made.warnings.items():
        for warning in warnings:
            print(f"note: {name}: {warning}")


def _less(made: Comparison, model: str, loss: str) -> list[str]:
    """A loss in percent of that of the other model, its interval and the p-value, as text."""
    found = made.differences.filter(model=model, other=made.against, loss=loss)
    if not found.height or found["ratio"][0] is None:
        return ["-", "-", "-"]
    ratio, low, high, p = found.select("ratio", "low", "high", "p").row(0)
    interval = "-" if low is None else f"{100 * low:.1f} to {100 * high:.1f}"
    return [f"{100 * ratio:.1f}", interval, "-" if p is None else f"{p:.3f}" if p >= 0.001 else "<0.001"]
