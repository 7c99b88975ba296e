# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Your own kernel
#
# You know something about your system that no kernel of ours knows. Write it as a kernel: a module of yours, no change
# to streamgp. We check it with the laws that our own kernels obey, and compare it on a stream.
#
# The stream is a building that is heated below 15 °C and cooled above 23 °C, with a sensor's noise of 2 kW. It starts
# in summer, and the winter is colder than anything before.

# %%
from datetime import datetime

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import streamgp

draw = np.random.default_rng(0)
hours = np.arange(24 * 120)
weather = np.repeat(draw.normal(0, 3, 120), 24) + 5 * np.sin(2 * np.pi * (hours - 9) / 24)
outside = 24 - hours / 144 + weather
power = 20 + 2 * np.maximum(15 - outside, 0) + 3 * np.maximum(outside - 23, 0) + 2 * draw.standard_normal(len(hours))
times = pl.datetime_range(datetime(2024, 9, 1), datetime(2024, 12, 30), "1h", closed="left", eager=True)
rows = pl.DataFrame({"ds": times, "outside_c": outside, "power_kw": power})
rows.write_parquet("building.parquet")

# %% alt="Power over the temperature outside: a flat middle between two straight lines, with noise"
plt.figure(figsize=(9, 2.8), layout="constrained")
plt.plot(outside, power, ".", markersize=2)
plt.xlabel("outside, °C")
plt.ylabel("power, kW")
plt.show()

# %% [markdown]
# ## The kernel
#
# Straight lines with kinks: that is what a wide layer of hinges draws. Its limit is a Gaussian process whose kernel is
# known (Cho & Saul 2009, the arc-cosine kernel of degree 1):
#
# k(x, z) = v |x'| |z'| (sin a + (π − a) cos a)/π, a the angle between x' = (1, w x) and z' = (1, w z).
#
# A part is a module with a `Config` of options and a `build`. Hyper-parameters are logarithms and parameters of
# PyTorch, so that the marginal likelihood can find them.

# %%
from pathlib import Path

Path("mine").mkdir(exist_ok=True)
Path("mine/hinges.py").write_text('''
"""Hinges: piecewise linear functions, which go straight on where there are no data."""

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from streamgp.kernels import Kernel


class Config(BaseModel):
    """The options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slope: float = Field(1.0, gt=0, description="initial weight w of every input")
    scale: float = Field(1.0, gt=0, description="initial prior variance v")


class Hinges(Kernel):
    """The arc-cosine kernel of degree 1."""

    def __init__(self, config: Config, dims: int) -> None:
        super().__init__()
        self.dims = dims
        self.log_slope = torch.nn.Parameter(torch.full((dims,), config.slope, dtype=torch.float64).log())
        self.log_scale = torch.nn.Parameter(torch.tensor(config.scale, dtype=torch.float64).log())

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(N, dims), (M, dims) -> (N, M)"""
        x, z = x * self.log_slope.exp(), z * self.log_slope.exp()
        sizes = (1 + x.square().sum(1)).sqrt()[:, None] * (1 + z.square().sum(1)).sqrt()
        angle = ((1 + x @ z.T) / sizes).arccos()
        return self.log_scale.exp() * sizes * (angle.sin() + (torch.pi - angle) * angle.cos()) / torch.pi

    def diagonal(self, x: Tensor) -> Tensor:
        """(N, dims) -> (N,)"""
        return self.log_scale.exp() * (1 + (x * self.log_slope.exp()).square().sum(1))


def build(config: Config, dims: int) -> Hinges:
    """The kernel for inputs of `dims` columns."""
    return Hinges(config, dims)
''')  # fmt: skip

# %% [markdown]
# ## Check it
#
# `streamgp.testing` has the laws of each kind of part. They need neither pytest nor data: symmetric, positive
# semi-definite, right diagonal, right gradients, also where two rows coincide.

# %%
import importlib
import sys

from streamgp.testing import check_kernel

sys.path.insert(0, "")  # where `mine` is
hinges = importlib.import_module("mine.hinges")
try:
    check_kernel(lambda dims: hinges.build(hinges.Config(), dims))
except AssertionError as broken:
    print("broken law:", broken)

# %% [markdown]
# Rounding makes the cosine of a row with itself 1 and a little more, where the arc cosine is no number and has no
# derivative. On a stream this would have been a model that fails now and then. The mend is a clamp:

# %%
source = Path("mine/hinges.py").read_text()
Path("mine/hinges.py").write_text(source.replace("sizes).arccos()", "sizes).clamp(-1 + 1e-15, 1 - 1e-15).arccos()"))
importlib.reload(hinges)
check_kernel(lambda dims: hinges.build(hinges.Config(), dims))

# %% [markdown]
# A model of your own is checked by `check_model`, a source of rows by `check_source`.
#
# ## Compare it
#
# Wherever a kernel is named, the dotted path of a module will do. `exact` is the Gaussian process without
# approximation; on a stream it keeps the newest rows. There is no past in the windows (`lags=0`): the power follows
# from the temperature of the same hour.

# %%
exact = {"rows": 600, "evidence_rows": 300}
kernels = {"built_in": "squared_exponential", "hinges": "mine.hinges"}
settings: dict[str, str | int] = {f"{name}.kernel": kernel for name, kernel in kernels.items()}
settings |= {f"{name}.{option}": value for name in kernels for option, value in exact.items()}
found = streamgp.compare(
    rows,
    "power_kw",
    ("linear", "built_in=exact", "hinges=exact"),
    known="outside_c",
    lags=0,
    every="1h",
    set=settings,
    comparison="compared",
)
scores = found.scores.filter(by="all").sort("rmse", descending=True)
scores.select("model", "rmse", "calibrated_crps", "coverage_95", "width_95").with_columns(pl.selectors.float().round(3))

# %% tags=["scores"]
import json

print(json.dumps({row["model"]: row | {"coverage": row["coverage_95"]} for row in scores.iter_rows(named=True)}))

# %%
found.differences.filter(model="hinges", other="built_in", loss="calibrated_crps").select(pl.selectors.float().round(3))

# %% [markdown]
# The noise alone has an RMSE of 2 kW. Our kernel takes nearly all of the rest away, and the interval of the ratio says
# that this is not chance. The reason shows where it is colder than ever: hinges go straight on.

# %% alt="Forecasts over temperature after the first 60 days; below what was seen only the hinges follow the truth"
plt.figure(figsize=(9, 3.2), layout="constrained")
grid = np.linspace(-8, 30, 77)
for name, kernel in kernels.items():
    forecaster = streamgp.Forecaster(
        "power_kw", known="outside_c", lags=0, every="1h", model="exact", options=exact | {"kernel": kernel}
    )
    forecaster.learn(rows.head(24 * 60))
    asked = pl.DataFrame({"ds": times[24 * 60 : 24 * 60 + len(grid)], "outside_c": grid})
    plt.plot(grid, forecaster.posterior(asked)["mean"], label=name)
plt.plot(grid, 20 + 2 * np.maximum(15 - grid, 0) + 3 * np.maximum(grid - 23, 0), "k:", label="truth")
plt.axvline(outside[: 24 * 60].min(), color="grey", linewidth=1)
plt.xlabel("outside, °C; left of the line nothing was seen")
plt.ylabel("power, kW")
plt.legend()
plt.show()

# %% [markdown]
# ## On the command line
#
# The same path, with the folder of your module on `PYTHONPATH`. Options of the kernel follow its name.

# %% language="bash"
# streamgp ingest building.parquet --table building --every 1h > ingested.txt
# export PYTHONPATH=.
# streamgp train --online --table building --target power_kw --known outside_c --lags 0 --model exact \
#     --set rows=600 --set evidence_rows=300 --set kernel=mine.hinges --set kernel.slope=2 \
#     --checkpoint own --json > own.json
# STREAMGP_PARTS=mine.hinges streamgp describe --checkpoint own

# %% [markdown]
# A checkpoint alone imports no code that you have not named: `STREAMGP_PARTS` names it where the command line does not,
# and a program imports it.
#
# ## Next
#
# - A package offers its parts by name as entry points of `streamgp.kernels`, `streamgp.models` and so on:
#   [contributing](../contributing.md) has a whole kernel and a whole model.
# - [svgp and exact](../guides/svgp.md): the models that take any kernel, and the kernels that there are.
