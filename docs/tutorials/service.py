# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # From a laptop to a service
#
# A model is trained on a file, registered, and served: other programs then post rows and ask for forecasts, and the
# service learns from every row. We forecast electricity demand a day ahead, and watch for values that cannot be right.
#
# The data comes with streamgp. We take ten weeks of it, and keep the last day as what will arrive.

# %%
import json
import subprocess
import time
from importlib.resources import files
from typing import Any
from urllib.request import Request, urlopen

import matplotlib.pyplot as plt
import polars as pl

data = pl.read_csv(str(files("streamgp_pipelines") / "recipes" / "elecdemand.csv")).head(48 * 70)
past, day = data.head(-48), data.tail(48)
past.select("timestamp", "demand_gw").write_csv("demand.csv")

# %% [markdown]
# ## On the laptop
#
# `ingest` makes a table of the file, `train` a model. `--alarm-rate` judges each value as it arrives. At its end the
# run registers its model in MLflow, here in a file.

# %% language="bash"
# streamgp ingest demand.csv --table demand --every 30m
# streamgp train --online --table demand --target demand_gw --horizon 48 --season 48,336 --model linear \
#     --alarm-rate 0.001 --checkpoint laptop --tracking-uri sqlite:///mlflow.db

# %% [markdown]
# The registered name is made of table, target and horizon. `@champion` is the best model under it, whoever trained it.
#
# ## The service
#
# `serve` begins as that model, and learns on in a directory of its own, `service`. `--port 0` takes any free port, and
# `--json` tells us which.

# %%
service = subprocess.Popen(
    ["streamgp", "serve", "--model-uri", "models:/demand-demand_gw-h48@champion", "--checkpoint", "service",
     "--tracking-uri", "sqlite:///mlflow.db", "--port", "0", "--json"],
    stdout=subprocess.PIPE, text=True,
)  # fmt: skip
assert service.stdout is not None
url = json.loads(service.stdout.readline())["url"]


def ask(path: str, rows: list[dict[str, Any]] | None = None) -> Any:
    """GET, or POST rows as JSON."""
    body = None if rows is None else json.dumps({"rows": rows}).encode()
    with urlopen(Request(url + path, body, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)


def learned() -> int:
    """Rows that the answers know of."""
    return int(ask("/models")[0]["learned_rows"])


while learned() < past.height:
    time.sleep(0.1)
ask("/health")

# %% [markdown]
# Any program can ask for the next 48 half hours, as JSON, CSV or Arrow. The address itself, in a browser, is a page
# that shows the newest forecast as rows come.

# %%
with urlopen(Request(f"{url}/forecast?level=95", headers={"Accept": "text/csv"})) as answer:
    forecast = pl.read_csv(answer.read())
forecast.select("ds", "linear", "linear-lo-95", "linear-hi-95").head(3)

# %% alt="The forecast of the day that was kept, with its 95 percent band, and what happened"
plt.figure(figsize=(9, 3.2), layout="constrained")
hours = [step / 2 for step in range(1, 49)]
plt.fill_between(hours, forecast["linear-lo-95"], forecast["linear-hi-95"], alpha=0.3, linewidth=0, label="95 %")
plt.plot(hours, forecast["linear"], label="forecast")
plt.plot(hours, day["demand_gw"], "k:", label="what happened")
plt.xlabel("hours ahead")
plt.ylabel("demand, GW")
plt.legend()
plt.show()

# %% [markdown]
# ## Rows arrive
#
# The day comes, a row at a time. At noon a meter fails, and reports 12 GW.

# %%
arriving = day.select("timestamp", "demand_gw").to_dicts()
arriving[24]["demand_gw"] = 12.0
before = len(ask("/alarms")["alarms"])  # those of the training
answers = [ask("/rows", [row]) for row in arriving]
answers[-1]

# %% [markdown]
# A row that is answered is in the table, and is learned once, whatever is killed. So a client that got no answer sends
# it again:

# %%
again = ask("/rows", arriving[-2:])
again

# %%
while learned() < past.height + 48:
    time.sleep(0.1)
alarms = ask("/alarms")["alarms"][before:]
pl.DataFrame(alarms).select("ds", "y", "forecast", "p", "alarm")

# %% [markdown]
# The value behind it is flagged too: it was forecast from the wrong one. `--on-alarm COMMAND|URL` passes alarms on. The
# forecast has moved on by a day, and every forecast so far was scored when its truth came:

# %%
scores = ask("/scores")
moved = ask("/forecast?horizon=1")["forecast"][0]["cutoff"]
moved, round(scores["rmse"], 3), scores["coverage"]["95"]

# %% [markdown]
# ## The end, and after
#
# SIGTERM ends the service with a checkpoint. The same command continues from `service`, not from the registry: what was
# learned stays. When the registry has a better model, `/health` says so; to serve that, start with another directory.

# %%
service.terminate()
ended = service.wait()
ended

# %% tags=["scores"]
kept = {"posted": sum(one["accepted"] for one in answers), "again": again["duplicates"], "ended": ended}
print(json.dumps(kept | {"alarms": [one["y"] for one in alarms], "coverage": scores["coverage"]["95"]}))

# %% [markdown]
# ## Next
#
# - Beyond this machine, `--host 0.0.0.0` asks clients for a token; [recipes](../guides/recipes.md) have containers.
# - [Serve](../guides/serve.md) has all requests and limits, [alarms](../guides/alarms.md) what is raised when.
# - [Operations](../guides/operations.md): cron, killed runs, the registry.
