# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # A robot joint: regression, and simulation
#
# Which torque does a motion need? First as a regression, where every row stands alone. Then as a simulation: the
# model runs along a planned motion on its own output.
#
# The joint is simulated: inertia, gravity, friction that changes its sign with the velocity, and an elastic part
# that no textbook formula has.

# %%
from datetime import datetime, timedelta

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import streamgp

draw = np.random.default_rng(2)
t = np.arange(4000) / 50
q = 0.9 * np.sin(1.1 * t) + 0.5 * np.sin(2.7 * t + 1) + 0.25 * np.sin(5.3 * t)
v = np.gradient(q, t)
a = np.gradient(v, t)
torque = 0.4 * a + 6 * np.sin(q) + 1.5 * np.tanh(v / 0.05) + 0.8 * v + 0.5 * np.sin(6 * q)
times = [datetime(2024, 5, 1) + timedelta(milliseconds=20 * row) for row in range(len(t))]
rows = pl.DataFrame({"ds": times, "q": q, "v": v, "a": a, "torque": torque + 0.15 * draw.standard_normal(len(t))})
rows = rows.with_columns(gravity=pl.col("q").sin(), friction=(pl.col("v") / 0.05).tanh())
rows.write_parquet("joint.parquet")

# %% [markdown]
# What we know of mechanics becomes a column: the sine of the angle for gravity, a steep tanh of the velocity for
# friction. A model then only has to learn the rest.
#
# ## Regression
#
# `--lags 0` means: no past, only inputs of the same row. Neighbouring rows of a motion are nearly equal, so a random
# test set would flatter every model: `--test-blocks 10` holds out the end of each tenth of the motion.

# %% language="bash"
# streamgp ingest joint.parquet --table joint --every 20ms --json > ingested.json
# line="--table joint --target torque --lags 0 --test-tail 0.2 --test-blocks 10 --json"
# streamgp train $line --model linear --known q,v,a --checkpoint plain > plain.json
# streamgp train $line --model linear --known q,v,a,gravity,friction --checkpoint mechanics > mechanics.json
# streamgp train $line --model svdgp --known q,v,a,gravity,friction --checkpoint gp > gp.json

# %%
import json
from pathlib import Path

runs = {"linear": "plain", "linear, with mechanics": "mechanics", "Gaussian process": "gp"}
found = {name: json.loads(Path(f"{file}.json").read_text()) for name, file in runs.items()}
scores = pl.DataFrame(
    {
        "model": name,
        "RMSE": one["rmse"],
        "CRPS": one["calibrated_crps"],
        "coverage": one["coverage"]["95"],
        "width": one["width"]["95"],
    }
    for name, one in found.items()
)
scores.with_columns(pl.selectors.float().round(3))

# %% tags=["scores"]
print(json.dumps({row["model"]: row for row in scores.iter_rows(named=True)}))

# %% [markdown]
# The noise of the sensor alone is 0.15 N m: no model can have a lower RMSE. The two columns of mechanics take most
# of the error away, the Gaussian process most of what is left: the elastic part.
#
# ## Simulation
#
# Given torque up to now and a planned motion, what is the torque of the next two seconds? A model of one step runs
# on its own output. `simulate=100` tells it so in training: it simulates the past now and then, and learns how wide
# bands must be so far ahead.

# %%
known = ["q", "v", "a", "gravity", "friction"]
planned = streamgp.Forecaster(
    "torque", known=known, lags=4, model="linear", simulate=100, every="20ms", levels=[80, 95]
)
planned.learn(rows[:3500])
motion = rows[3500:3600]
ahead = planned.simulate(100, paths=100, future=motion.select("ds", *known))
inside = motion["torque"].is_between(ahead["linear-lo-95"], ahead["linear-hi-95"]).sum()
f"{inside} of the 100 steps are inside the 95 % band"

# %% alt="Two seconds of torque simulated along the planned motion, with its bands, and the truth"
seconds = np.arange(100) / 50
plt.figure(figsize=(9, 3), layout="constrained")
for level, shade in ((95, 0.2), (80, 0.4)):
    low, high = ahead[f"linear-lo-{level}"], ahead[f"linear-hi-{level}"]
    plt.fill_between(seconds, low, high, color="tab:blue", alpha=shade, linewidth=0, label=f"{level} %")
plt.plot(seconds, ahead["linear"], color="tab:blue", label="simulated")
plt.plot(seconds, motion["torque"], "k:", label="what happened")
plt.xlabel("seconds")
plt.ylabel("torque, N m")
plt.legend()
plt.show()

# %% [markdown]
# One picture is one draw. A band of 95 % holds that share over many simulations; neighbouring steps of one
# simulation are right or wrong together.
#
# ## Next
#
# - [A robot joint](../guides/joint.md), the guide: real arms, and where raw bands are too narrow.
# - [svdgp](../guides/svdgp.md), [svgp and exact](../guides/svgp.md): other Gaussian processes for `--model`.
# - [Vehicle speed](vehicle.md) forecasts row by row, from the past alone.
