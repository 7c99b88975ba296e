# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # A panel of wind farms, and a fair comparison
#
# Three wind farms share the weather. One model learns all of them. We compare it with two others on the same
# forecasts, and ask whether the difference could be luck.
#
# The farms are simulated, so that you can change them: a wind speed, a forecast of it with errors that last some
# hours, and a power curve.

# %%
from datetime import datetime, timedelta

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import streamgp

draw = np.random.default_rng(1)
hours = 24 * 50


def wandering(memory: float) -> np.ndarray:
    """Noise of variance 1 that forgets in `memory` hours."""
    kept, out = np.exp(-1 / memory), np.zeros(hours)
    for hour, step in enumerate(draw.standard_normal(hours)):
        out[hour] = kept * out[hour - 1] + np.sqrt(1 - kept**2) * step
    return out


weather = wandering(30)
times = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(hours)]
farms = []
for name in ("north", "east", "south"):
    speed = 8 * np.exp(0.45 * (0.8 * weather + 0.6 * wandering(12)))
    power = 1 / (1 + np.exp(9 - speed)) + 0.02 * draw.standard_normal(hours)
    forecast = speed * np.exp(0.15 * wandering(12))
    farms.append({"unique_id": name, "ds": times, "power": power.clip(0, 1), "wind_forecast": forecast})
rows = pl.concat(pl.DataFrame(farm) for farm in farms).sort("ds", "unique_id")
rows.head(4)

# %% alt="Power against forecast wind speed: an S-shaped curve with a wide scatter"
plt.figure(figsize=(6, 3), layout="constrained")
plt.scatter(rows["wind_forecast"], rows["power"], s=4, alpha=0.4)
plt.xlabel("forecast wind speed, m/s")
plt.ylabel("power, share of capacity")
plt.show()

# %% [markdown]
# This is the long format: one row a series and time. The names `unique_id` and `ds` are recognised. Rows must be in
# the order of time, not series after series.
#
# ## Compare
#
# A comparison reads a table, so that it can go on later with new rows. The last day stays out.

# %%
rows.head(-24 * 3).write_parquet("wind.parquet")

# %%
# !streamgp ingest wind.parquet --table wind --every 1h

# %% [markdown]
# `lower` and `upper` keep forecasts and bands inside what a farm can do.

# %%
found = streamgp.compare(
    "wind", "power", ("persistence", "linear", "svdgp"), comparison="compared",
    known="wind_forecast", horizon=12, season="none", lags=4, lower=0, upper=1,
)  # fmt: skip
whole = found.scores.filter(by="all")
whole.select("model", "cells", "rmse", "mae", "calibrated_crps", "coverage_95", "width_95", "skill").with_columns(
    pl.selectors.float().round(3)
)

# %% tags=["scores"]
import json

print(json.dumps({row["model"]: row | {"coverage": row["coverage_95"]} for row in whole.iter_rows(named=True)}))

# %% [markdown]
# All scores are of the same `cells`: a series, an origin and a step ahead that every model has forecast. `skill` is
# one minus the MAE over that of persistence, which repeats the newest value.
#
# The power curve bends, so the Gaussian process (`svdgp`) beats the linear model. Is that luck? Errors of
# neighbouring hours are alike, so the interval comes from a bootstrap of whole blocks of time:

# %%
found.differences.filter(loss="calibrated_crps", model="svdgp").select(
    "other", pl.col("ratio", "low", "high").round(3), "p"
)

# %% [markdown]
# A ratio below 1 means a lower CRPS; an interval that leaves out 1 means that the difference is no accident of these
# days. It says nothing about another winter.
#
# How does the error grow with the step ahead?

# %% alt="CRPS by hours ahead: persistence grows fast, linear and svdgp stay low and almost level"
steps = found.scores.filter(by="step").with_columns(pl.col("part").cast(pl.Int64)).sort("part")
plt.figure(figsize=(7, 3), layout="constrained")
for (name,), part in steps.group_by("model", maintain_order=True):
    plt.plot(part["part"], part["calibrated_crps"], marker=".", label=name)
plt.xlabel("hours ahead")
plt.ylabel("CRPS")
plt.ylim(bottom=0)
plt.legend()
plt.show()

# %% [markdown]
# ## Forecast
#
# Each model has its checkpoint in the directory. `streamgp.load` reads it and learns on.

# %%
day = rows.tail(24 * 3)
forecaster = streamgp.load("compared/svdgp")
ahead = forecaster.forecast(future=day.select("unique_id", "ds", "wind_forecast"), levels=[95])
ahead.select("unique_id", "ds", pl.col("svdgp", "svdgp-lo-95", "svdgp-hi-95").round(2)).head(3)

# %% alt="The next twelve hours of the three farms with their 95 percent bands and the truth"
figure, places = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
for place, (name,) in zip(places, ahead.select("unique_id").unique(maintain_order=True).iter_rows(), strict=True):
    part, truth = ahead.filter(unique_id=name), day.filter(unique_id=name).head(12)
    hour = range(1, 13)
    place.fill_between(hour, part["svdgp-lo-95"], part["svdgp-hi-95"], alpha=0.25)
    place.plot(hour, part["svdgp"])
    place.plot(hour, truth["power"], "k:")
    place.set_title(name)
    place.set_xlabel("hours ahead")
plt.show()

# %% [markdown]
# ## Next
#
# - The same comparison from a shell: `streamgp compare --table wind --target power --models linear,svdgp`.
# - [Panels](../guides/panels.md): a farm that joins later, and series of different size.
# - [The day ahead](energy.md) explains how scores come about; [vehicle speed](vehicle.md) has no clock of the day at
#   all.
