"""What a user of the Python API writes; type checkers read it: mypy with the packages, pyright in test_typed.py."""

from __future__ import annotations

import polars as pl

import streamgp

rows = pl.read_csv("demand.csv", try_parse_dates=True)
future = pl.read_csv("workdays.csv", try_parse_dates=True)
forecaster = streamgp.Forecaster(
    "demand_gw", horizon=48, season=[48, 336], known=["workday"], every="30m", options={"experts": "linear"}
)
forecaster.learn(rows).learn(rows.to_pandas()).learn(rows.to_arrow())
found: pl.DataFrame = forecaster.forecast(future=future, levels=[80, 95], quantiles=[0.1])
draws: pl.DataFrame = forecaster.posterior(future, samples=10)
axes = forecaster.plot(future, levels=[95])
axes.set_title("demand")
print(found["ensemble"].mean(), draws.height, forecaster.scores["rmse"], forecaster.rows + 1, forecaster.warnings[:1])
windows: pl.DataFrame = forecaster.cross_validation(rows, h=48, n_windows=3, step_size=48, levels=95)
print(windows["step"].max(), forecaster.fit(rows).update(rows).predict(h=24, future=future).height)
again = streamgp.load(forecaster.save("saved"))
print(again.predict_one())
summary = streamgp.fit_stream("table", "demand_gw", horizon=48, season=(48, 336), model="linear", set={"ridge": 0.5})
print(summary["rmse"])
made = streamgp.compare("table", "demand_gw", ("auto", "linear"), horizon=48, comparison="comparison")
print(made.scores.filter(by="all"), made.differences.height, made.left_out + 1)
