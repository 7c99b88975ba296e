# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # The day ahead, with the temperature
#
# Every half hour we forecast the electricity demand of the next 24 hours, with bands. We start with the calendar
# alone, then add the temperature, and see what it is worth.
#
# The data comes with streamgp: demand in Victoria, Australia, from 1 January 2014.

# %%
from importlib.resources import files

import matplotlib.pyplot as plt
import polars as pl

import streamgp

data = pl.read_csv(str(files("streamgp_pipelines") / "recipes" / "elecdemand.csv"), try_parse_dates=True)
rows = data.head(48 * 100).with_columns(pl.col("timestamp").dt.convert_time_zone("Australia/Brisbane"))
rows.head(3)

# %% [markdown]
# Three weeks of summer show what drives demand: the hour, working days, and heat.

# %% alt="Demand over three weeks in January, and the temperature below it; demand peaks on hot working days"
weeks = rows[48 * 7 : 48 * 28]
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(9, 4), layout="constrained")
above.plot(weeks["timestamp"], weeks["demand_gw"], linewidth=1)
above.set_ylabel("demand, GW")
below.plot(weeks["timestamp"], weeks["temperature_c"], linewidth=1, color="tab:red")
below.set_ylabel("temperature, °C")
plt.show()

# %% [markdown]
# ## Learn
#
# A `Forecaster` takes a frame and goes through it once. At each row it forecasts the next 48 half hours, and only
# when their truth arrives does it score them and learn. So the scores are those of real forecasts: there is no test
# set to hold out.
#
# `season` has two periods, the day and the week. `known` names inputs whose future we know when we forecast.


# %%
def learned(model: str, known: list[str]) -> streamgp.Forecaster:
    """A forecaster that has seen all but the last day."""
    forecaster = streamgp.Forecaster(
        "demand_gw", horizon=48, season=[48, 336], known=known, time="timestamp", every="30m", model=model
    )
    return forecaster.learn(rows.head(-48))


models = {
    "a week ago": learned("seasonal_naive", []),
    "calendar": learned("linear", ["workday"]),
    "and temperature": learned("linear", ["workday", "temperature_c"]),
}

# %% [markdown]
# ## Compare
#
# RMSE and MAE are in GW. CRPS scores the whole distribution, in GW too: lower is better. Coverage is the share of
# truths inside the 95 % band; a band is good if it holds its share and is narrow.

# %%
scores = pl.DataFrame(
    {
        "model": name,
        "RMSE": scored["rmse"],
        "MAE": scored["mae"],
        "CRPS": scored["calibrated_crps"],
        "coverage": scored["coverage"]["95"],
        "width": scored["width"]["95"],
    }
    for name, scored in ((name, model.scores) for name, model in models.items())
)
scores.with_columns(pl.selectors.float().round(3))

# %% tags=["scores"]
import json

print(json.dumps({row["model"]: row for row in scores.iter_rows(named=True)}))

# %% [markdown]
# The temperature halves the error, and the bands become half as wide at about the same coverage.
#
# One thing flatters this number: the replay knows the *measured* temperature of the next day. A weather forecast has
# errors of its own. To be exact, store the forecast that you had at the time in the table, and name that column.
#
# Does the band hold half an hour ahead as well as a day ahead?

# %%
pl.DataFrame(
    {"hours ahead": step["step"] / 2, "RMSE": round(step["rmse"], 3), "coverage": round(step["coverage"]["95"], 3)}
    for step in models["and temperature"].scores["steps"]
    if step["step"] in (1, 12, 24, 48)
)

# %% [markdown]
# ## Forecast
#
# The last day was never learned. `future` has the known inputs of the steps ahead; the answer is a frame of the kind
# that was learned, one row a step.

# %%
day = rows.tail(48)
forecast = models["and temperature"].forecast(
    future=day.select("timestamp", "workday", "temperature_c"), levels=[80, 95]
)
forecast.select("ds", "linear", "linear-lo-95", "linear-hi-95").head(3)

# %% alt="The forecast of the held-out day with its 80 and 95 percent bands; the truth stays inside"
plt.figure(figsize=(9, 3.2), layout="constrained")
for level, shade in ((95, 0.2), (80, 0.4)):
    plt.fill_between(
        day["timestamp"], forecast[f"linear-lo-{level}"], forecast[f"linear-hi-{level}"],
        color="tab:blue", alpha=shade, linewidth=0, label=f"{level} %",
    )  # fmt: skip
plt.plot(day["timestamp"], forecast["linear"], color="tab:blue", label="forecast")
plt.plot(day["timestamp"], day["demand_gw"], "k:", label="what happened")
plt.ylabel("demand, GW")
plt.legend()
plt.show()

# %% [markdown]
# ## Go on
#
# The forecaster learns on when the day's rows come, and `save` keeps it for tomorrow.

# %%
models["and temperature"].learn(day).save("day-ahead")
again = streamgp.load("day-ahead")
again.rows

# %% [markdown]
# ## Next
#
# - Leave out `model=`: the default `ensemble` mixes `linear` with a Gaussian process and is better by some percent,
#   for three times the time.
# - [Wind farms](wind.md): several series in one model, and how to compare models properly.
# - [Metrics](../guides/metrics.md) explains every score, [online learning](../guides/online.md) what happens to a
#   row.
