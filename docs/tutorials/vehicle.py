# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # The speed of a vehicle, second by second
#
# How fast will the car be in five seconds? It has no season, it stops at lights, and the answer is needed before the
# next row comes.
#
# The drive is simulated: a driver who wants another speed every now and then, pushes the pedals, and gets there with
# some noise.

# %%
from datetime import datetime, timedelta

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import streamgp

draw = np.random.default_rng(3)
speed, wanted, left, drive = 0.0, 0.0, 0, []
for second in range(5000):
    if left == 0:  # a light, a limit, a free road
        wanted, left = draw.choice([0.0, 30.0, 50.0, 70.0]), int(draw.integers(15, 60))
    left -= 1
    push = float(np.clip(0.25 * (wanted - speed), -8, 5))
    time = datetime(2024, 5, 1, 8) + timedelta(seconds=second)
    drive.append({"time": time, "speed_km_h": speed, "pedal": max(push, 0.0), "brake": max(-push, 0.0)})
    moving = wanted > 0 or speed > 1
    speed = max(0.0, speed + 0.6 * push + draw.normal(0, 0.4)) if moving else 0.0
rows = pl.DataFrame(drive)

# %% alt="Ten minutes of the drive: the speed changes between standstill and 70 km/h"
plt.figure(figsize=(9, 2.6), layout="constrained")
plt.plot(rows["speed_km_h"][600:1200], linewidth=1)
plt.xlabel("seconds")
plt.ylabel("speed, km/h")
plt.show()

# %% [markdown]
# ## Learn
#
# `inputs` are columns of which only the past is known: nobody knows the pedal in five seconds. A window holds the
# last eight values (`lags`) of each. The speed cannot be negative: `lower=0`.


# %%
def learned(model: str, inputs: list[str]) -> streamgp.Forecaster:
    """A forecaster that has driven all but the last minute."""
    forecaster = streamgp.Forecaster(
        "speed_km_h", horizon=5, inputs=inputs, lags=8, lower=0, time="time", every="1s", model=model
    )
    return forecaster.learn(rows.head(-60))


models = {
    "as now": learned("persistence", []),
    "speed alone": learned("linear", []),
    "and pedals": learned("linear", ["pedal", "brake"]),
}
scores = pl.DataFrame(
    {
        "model": name,
        "RMSE": model.scores["rmse"],
        "MAE": model.scores["mae"],
        "CRPS": model.scores["calibrated_crps"],
        "coverage": model.scores["coverage"]["95"],
        "width": model.scores["width"]["95"],
    }
    for name, model in models.items()
)
scores.with_columns(pl.selectors.float().round(3))

# %% tags=["scores"]
import json

print(json.dumps({row["model"]: row for row in scores.iter_rows(named=True)}))

# %% [markdown]
# The pedals say where the driver is going: they are worth more than anything in the past of the speed. All figures
# are means over the five steps, in km/h. By step:

# %%
best = models["and pedals"]
pl.DataFrame(
    {"seconds ahead": step["step"], "RMSE": round(step["rmse"], 2), "coverage": round(step["coverage"]["95"], 3)}
    for step in best.scores["steps"]
)

# %% [markdown]
# ## Live
#
# In the car a row comes every second. `predict_one` forecasts the next step, `learn_one` takes the row. Rows are
# learned in micro-batches, but a forecast always starts from the newest row.

# %%
steps = []
for row in rows.tail(60).iter_rows(named=True):
    steps.append(best.predict_one() | {"truth": row["speed_km_h"]})
    best.learn_one(row)
live = pl.DataFrame(steps)
inside = live.filter(pl.col("truth").is_between("linear-lo-95", "linear-hi-95"))
f"{len(inside)} of {len(live)} truths were inside the 95 % band"

# %% alt="The last minute, one second ahead: the truth runs inside a narrow band"
plt.figure(figsize=(9, 2.8), layout="constrained")
plt.fill_between(range(60), live["linear-lo-95"], live["linear-hi-95"], alpha=0.25, label="95 %")
plt.plot(live["linear"], label="one second before")
plt.plot(live["truth"], "k:", label="speed")
plt.xlabel("seconds")
plt.ylabel("km/h")
plt.legend()
plt.show()

# %% [markdown]
# ## Next
#
# - `quantiles=[0.1, 0.5, 0.9]` for the distribution, `point="median"` for a point forecast that is right at a
#   standstill.
# - [Vehicles and bench rigs](../guides/driving.md): logs with several drives, gaps, irregular clocks, and simulation
#   of a whole drive from the pedals alone.
# - [A robot joint](joint.md) does this: it runs a model on its own output.
