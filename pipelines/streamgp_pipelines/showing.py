"""What a Forecaster shows of itself, in a terminal and in a notebook, and what it says of names that it has not."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from streamgp_data.intervals import written
from streamgp_data.numbers import number
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.frame_stream import FrameStream

_ELSEWHERE = dict.fromkeys(
    ("partial_fit", "train", "learn_many", "observe", "append"),
    "fit(df) learns a frame from the beginning, update(df) more rows, learn_one(row) one",
)
_ELSEWHERE |= dict.fromkeys(
    ("predict_interval", "predict_quantiles", "forecast_one", "transform", "predict_many", "predict_proba"),
    "predict(h) has the steps after the newest row with their bands, predict_one() the next one",
)
_ELSEWHERE |= dict.fromkeys(("fit_predict", "fit_forecast", "fit_transform"), "they are two calls: fit(df).predict(h)")
_ELSEWHERE |= dict.fromkeys(
    ("backtest", "historical_forecasts", "evaluate", "score", "gridsearch", "residuals", "cross_validate"),
    "cross_validation(df, h, n_windows) has forecasts beside their truths; scores has those of every row learned so "
    "far, each forecast before it was learned; streamgp.compare scores models",
)
_ELSEWHERE |= dict.fromkeys(("sample", "sample_paths"), "simulate(horizon, paths) draws; posterior(samples=) too")
_ELSEWHERE |= {"summary": "scores has the scores, warnings what should be known"}
"""Methods of other libraries: what has their part here."""


class Shown:
    """How a Forecaster shows itself."""

    _config: TrainConfig | None
    _columns: dict[str, str | None]
    _stream: FrameStream

    def __repr__(self) -> str:
        return f"Forecaster({', '.join(self._asked().values())}): {self._far()}"

    def _repr_html_(self) -> str:
        return as_html(self._asked(), self._far())

    def __getattr__(self, name: str) -> Any:
        message = f"a Forecaster has no attribute {name!r}"
        raise AttributeError(f"{message}: {_ELSEWHERE[name]}" if name in _ELSEWHERE else message, name=name, obj=self)

    def _asked(self) -> dict[str, str]:
        """The arguments that say what it is, as they would be typed, by name."""
        options: dict[str, Any]
        if (config := self._config) is not None:
            targets, every = config.target or ("y",), self._columns["every"]
            options = {
                "horizon": config.horizon,
                "season": config.season or "none",
                "every": every,
                "model": config.model,
            }
        else:  # it was loaded
            assert self._stream.learner is not None
            recipe = self._stream.learner.recipe
            spec = recipe.spec
            targets, every = spec.targets, None if spec.every_ns is None else written(spec.every_ns)
            options = {
                "horizon": spec.horizon,
                "season": spec.seasons or "none",
                "every": every,
                "model": recipe.model,
            }
        found = {"target": repr(_one(targets))}
        return found | {name: f"{name}={_one(value)!r}" for name, value in options.items() if value not in (None, ())}

    def _far(self) -> str:
        """How far it is."""
        if self._stream.learner is None:
            return "no rows yet"
        series, warming = len(self._stream.learner.windows.names), self._stream.learner.warmup.done_at is None
        found = f"{self.rows:,} rows" + (f" of {series} series" if series > 1 else "")
        return f"{found}, in the warm-up" if warming else found


class Overview(dict[str, Any]):
    """A dict that prints its numbers, and of long parts how many entries they have; pickled it is a plain one.

    Example:
        >>> import pickle
        >>> found = Overview({"scored": 2400, "rmse": 0.123456, "coverage": {"80": 0.8125}})
        >>> found["steps"] = [{"step": 1, "mae": 2}]
        >>> found["warnings"] = ["no clock"]
        >>> found
        scored    2,400
        rmse      0.1235
        coverage  80: 0.8125
        steps     1 entry of step, mae
        warnings  no clock
        >>> found["steps"][0]["mae"], type(pickle.loads(pickle.dumps(found)))
        (2, <class 'dict'>)
    """

    def __repr__(self) -> str:
        width = max(map(len, self), default=0) + 2
        return "\n".join(f"{name:{width}}{_short(value)}" for name, value in self.items()) or "{}"

    def _repr_html_(self) -> str:
        return _table({name: _short(value) for name, value in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _short(value: Any) -> str:
    """A value in a line: a number, a text, some of these by name, or how many entries there are of what."""
    if isinstance(value, bool) or not isinstance(value, int | float | dict | list):
        return "-" if value is None else str(value)
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else number(value)
    parts = list(value.values()) if isinstance(value, dict) else value
    if isinstance(value, dict) and len(parts) <= _FEW and not any(isinstance(part, dict | list) for part in parts):
        return ", ".join(f"{name}: {_short(part)}" for name, part in value.items()) or "none"
    if parts and len(parts) <= _FEW and all(isinstance(part, str) for part in parts):
        return "; ".join(parts)
    of = value if isinstance(value, dict) else parts[0] if parts and isinstance(parts[0], dict) else ()
    names = f" of {', '.join(list(of)[:_FEW])}{', ...' if len(of) > _FEW else ''}" if of else ""
    return f"{len(parts)} entr{'y' if len(parts) == 1 else 'ies'}{names}"


_FEW = 8


def as_html(given: Mapping[str, str], now: str) -> str:
    """Both as a table for a notebook.

    Example:
        >>> as_html({"target": "'a<b'"}, "no rows yet")
        '<table><tr><td>target</td><td>&#x27;a&lt;b&#x27;</td></tr><tr><td>rows</td><td>no rows yet</td></tr></table>'
    """
    lines = {name: text.removeprefix(f"{name}=") for name, text in given.items()} | {"rows": now}
    return _table(lines)


def _table(lines: Mapping[str, str]) -> str:
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in lines.items())
    return f"<table>{cells}</table>"


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value
