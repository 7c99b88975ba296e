"""The summary of a training run, in table units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgp.forecasting import metrics
from streamgp.forecasting.metrics import Place
from streamgp_cli._log import say, structured
from streamgp_cli._output import print_pairs, print_table, shown

_NAMED = 8
"""Columns that are named in a line, at most."""
WORST = 10
"""Series whose errors are printed."""


def print_summary(found: dict[str, Any]) -> None:
    """The scores, the bands, the steps ahead, and where everything is."""
    _print_scores(found)
    print_pairs(_of_run(found) | _of_point(found) | _of_naive(found) | _of_model(found) | _of_columns(found))
    for warning in found.get("warnings") or []:
        if structured():
            say("warning", warning)
        else:
            print(f"note: {warning}")


def _print_scores(found: dict[str, Any]) -> None:
    """The scores, those of each band, target and step, and those of the simulation."""
    binary = "log_loss" in found
    scores, levels = metrics.shown(Place.SUMMARY, binary), _levels(found)
    print_table(["scored", *map(metrics.title, scores)], [[shown(found["scored"]), *(found[name] for name in scores)]])
    if found["scored"] and binary:
        keys = ("probability", "frequency", "forecasts")
        bins = [[shown(one[key]) for key in keys] for one in found["reliability"]]
        print_table(["probability of 1", "share of ones", "forecasts"], bins)
        _print_steps(found.get("steps") or [], metrics.shown(Place.STEPS, binary), [])
    elif found["scored"]:
        columns = ["band", "coverage", "uncalibrated", "width"]
        rows = [
            [f"{level} %", found["coverage"][level], found["raw_coverage"][level], found["width"][level]]
            for level in levels
        ]
        print_table(columns, rows)
        _print_targets(found.get("targets") or {}, levels[-1:])
        _print_series(found.get("by_series") or {})
        _print_steps(found.get("steps") or [], metrics.shown(Place.STEPS), levels[-1:])
    if simulated := found.get("simulation"):
        _print_steps(simulated["steps"], ("rmse", "raw_rmse", "persistence_rmse"), levels[-1:], "step simulated")


def _levels(found: dict[str, Any]) -> list[str]:
    """The levels of the bands, in percent; the last is that of the widest."""
    return list(found.get("coverage") or {})


def _of_run(found: dict[str, Any]) -> dict[str, Any]:
    """Rows and forecasts, time and memory, checkpoint and MLflow run."""
    seconds, forecasts = found.get("seconds") or {}, found["forecasts"]
    skipped = {name.replace("_", " "): count for name, count in forecasts["skipped"].items() if count}
    return {
        "rows": _rows(found),
        "forecasts": f"{shown(forecasts['all'])}: {shown({'scored': forecasts['scored'], **skipped})}",
        "seconds": {name: seconds.get(name) for name in ("total", "predict", "update")},
        "rows per second": found.get("rows_per_second"),
        **_latency(found),
        "peak memory": f"{found['peak_mb']:,.0f} MB",
        "checkpoint": found["checkpoint"],
        "MLflow run": found["run_id"] or "none: not tracked",
    }


def _of_point(found: dict[str, Any]) -> dict[str, str]:
    """What the other point forecast would have scored; {} of outcomes, and where nothing was scored."""
    other = "mean" if found["point"] == "median" else "median"
    if not found["mae"] or (error := found.get(f"{other}_mae")) is None:
        return {}
    return {f"{other} forecast": f"MAE {shown(error)}, {_beside(error, found['mae'])} (--point {other})"}


def _beside(error: float, other: float) -> str:
    """How much lower an error is than another one.

    Example:
        >>> _beside(0.75, 1.0)
        '25.0 % lower'
    """
    percent = 100.0 * (error / other - 1.0)
    return f"{abs(percent):.1f} % {'higher' if percent > 0 else 'lower'}"


def _of_naive(found: dict[str, Any]) -> dict[str, str]:
    """The naive forecast, and what MASE divides by; {} where there is none."""
    if "log_loss" in found or found["mase"] is None:
        return {}
    scale, known = found["mase_scale"], bool(found.get("naive_mae"))
    beside = {"naive forecast": _beside_naive(found["mae"], found["naive_mae"], scale["steps_back"])} if known else {}
    return {**beside, "MASE scale": _scale(scale, bool(found["warmup"]), known)}


def _of_model(found: dict[str, Any]) -> dict[str, Any]:
    """Weights of experts, alarms, coverage in parts, and the version in the registry; what there is of these."""
    pairs: dict[str, Any] = {}
    if weights := found.get("weights"):
        pairs["weights"] = weights
    if alarms := found.get("alarms"):
        counts = ", ".join(f"{name} {alarms[name]:,}" for name in ("anomaly", "change", "stuck", "silent"))
        pairs["alarms"] = f"{counts}, in {alarms['rows']:,} rows (nominal rate {alarms['rate']:g})"
    if spread := _spread(found, _levels(found)[-1:]):
        pairs["coverage in parts"] = spread
    if registered := found.get("registered"):
        alias = ", the champion" if registered["champion"] else ""
        pairs["MLflow model"] = f"{registered['name']}, version {registered['version']}{alias}"
    return pairs


def _of_columns(found: dict[str, Any]) -> dict[str, str]:
    """How windows use the columns of the table: seasons, transforms, known inputs, and those that are not used."""
    pairs = {}
    if found.get("seasons"):
        each = " and ".join(f"{season:,}" for season in found["seasons"])
        pairs["windows"] = f"{found['lags']} lags, and the references of seasons of {each} rows"
    if found.get("transforms"):
        pairs["learned as"] = ", ".join(_learned(name, kind) for name, kind in found["transforms"].items())
    if found.get("known"):
        pairs["known ahead"] = f"{', '.join(found['known'])} (from the table's own rows)"
    if left := found.get("unused"):
        more = f" and {len(left) - _NAMED:,} more" if len(left) > _NAMED else ""
        pairs["not used"] = f"{', '.join(left[:_NAMED])}{more}: --inputs takes their past, --known their future too"
    return pairs


def _rows(found: dict[str, Any]) -> str:
    """Rows of the run: those of warm-up, and those that are new where it went on from a checkpoint.

    Example:
        >>> _rows({"rows": 1_836, "warmup": 384, "new_rows": 336})
        '1,836, 384 of them warm-up, 336 new since the checkpoint that this run went on from'
    """
    new = found["new_rows"]
    more = "" if new == found["rows"] else f", {new:,} new since the checkpoint that this run went on from"
    return f"{found['rows']:,}, {found['warmup']:,} of them warm-up{more}"


def _learned(name: str, kind: str) -> str:
    """What a model learns in place of a target."""
    return f"{name} as it is" if kind == "none" else f"{kind}({name})"


def _latency(found: dict[str, Any]) -> dict[str, str]:
    """How long an update takes, in words; {} where there was none.

    Example:
        >>> _latency({"batch": 48, "update_ms": {"p50": 8.0, "p99": 24.0, "row": 0.25}})
        {'update': 'p50 8 ms, p99 24 ms of a micro-batch of up to 48 rows; 0.25 ms a row'}
    """
    times = found.get("update_ms") or {}
    if times.get("p50") is None:
        return {}
    p50, p99 = shown(times["p50"]), shown(times["p99"])
    what = f"a micro-batch of up to {found['batch']:,} rows" if found["batch"] else "an epoch"
    return {"update": f"p50 {p50} ms, p99 {p99} ms of {what}; {shown(times['row'])} ms a row"}


def _beside_naive(mae: float, naive: float, back: int) -> str:
    """How much nearer the forecasts are than the naive one, in words.

    Example:
        >>> _beside_naive(0.75, 1.0, 48)
        'MAE 1 of the value 48 rows before; that of this run is 25.0 % lower'
    """
    which = "the last value" if back == 1 else f"the value {back:,} rows before"
    return f"MAE {shown(naive)} of {which}; that of this run is {_beside(mae, naive)}"


def _spread(found: dict[str, Any], levels: list[str]) -> str:
    """Least and largest coverage of the widest band over steps, phases, tenths and series; "" without bands."""
    by = found.get("coverage_by") or {}
    parts = {
        "step": found.get("steps") or [],
        "phase": by.get("phases") or [],
        "tenth": by.get("tenths") or [],
        "series": list((by.get("series") or {}).values()),
    }
    words = []
    for name, pieces in parts.items():
        shares = [piece["coverage"][level] for piece in pieces for level in levels if by]
        shares = [share for share in shares if share is not None]
        if len(shares) > 1:
            words.append(f"by {name} {min(shares):.3f} to {max(shares):.3f}")
    return f"{levels[0]} % {', '.join(words)}" if words else ""


def _scale(scale: dict[str, Any], online: bool, beside: bool) -> str:
    """What MASE divides by, in words.

    Args:
        scale: as the summary has it.
        online: whether it is of the rows of the warm-up.
        beside: whether the error of the naive forecast is known, as where no step is further than the scale.
    """
    back = scale["steps_back"]
    naive = "one row" if back == 1 else f"one season ({back} rows)"
    each = scale.get("targets") or {"": scale}
    values = ", ".join(f"{name} {shown(one['value'])}".strip() for name, one in each.items())
    rows = max(one["rows"] for one in each.values())
    over = f"{shown(rows)} {'warm-up' if online else 'training'} rows"
    later = "; the MAE of the naive forecast is of the rows that are scored" if online else ""
    if online and not beside:
        later = "; further ahead the naive forecast errs by more: streamgp compare has persistence and seasonal_naive"
    return f"{values}, mean |change| in {naive} over the {over}{later}"


def _print_targets(targets: dict[str, dict[str, Any]], levels: list[str]) -> None:
    """Scores of each of several targets: those above mix their units."""
    if not targets:
        return
    scores = metrics.shown(Place.STEPS)
    bands = [f"{what} {level} %" for level in levels for what in ("coverage", "width")]
    rows = [
        [
            name,
            *(own[score] for score in scores),
            *(own[what][level] for level in levels for what in ("coverage", "width")),
        ]
        for name, own in targets.items()
    ]
    print_table(["target", *map(metrics.title, scores), *bands], rows)


def _print_series(by_series: dict[str, dict[str, Any]]) -> None:
    """Errors of the series that are worst beside the naive forecast or, where it is not known, have the largest."""
    heads, rows = metrics.series_table(by_series)
    if not rows:
        return
    first = "series" if len(rows) <= WORST else f"worst {WORST} of {len(rows):,} (all: --json)"
    print_table([first, *heads[1:]], [[row[0], shown(row[1]), *row[2:]] for row in rows[:WORST]])


def _print_steps(
    steps: list[dict[str, Any]], scores: Sequence[str], levels: list[str], first: str = "step ahead"
) -> None:
    """Scores at a few steps ahead: the first, the last, and some between."""
    if len(steps) < 2:
        return
    picked = sorted({0, len(steps) // 4 - 1, len(steps) // 2 - 1, 3 * len(steps) // 4 - 1, len(steps) - 1} - {-1})
    columns = [first, *map(metrics.title, scores), *(f"coverage {level} %" for level in levels)]
    rows = [
        [str(steps[at]["step"]), *(steps[at][name] for name in scores)]
        + [(steps[at].get("coverage") or {}).get(level) for level in levels]
        for at in picked
    ]
    print_table(columns, rows)
