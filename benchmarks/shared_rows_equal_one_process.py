"""Training in batch whose rows are shared among Ray workers has the numbers of one process, at a stated cost.

A smooth function of eight inputs with noise is learned by each family that workers make faster: svdgp, a net with
mini-batches of 4,096 rows in front of KISS, and qsgp. Each is trained in one process, by 2 workers, and by 2 workers
one of which is killed (SIGKILL) before its first sum. CPU-seconds are user and system time of training, without
imports and the start of Ray: of the process that trains, and of workers. What is shared is measured in one process:
CPU-seconds spent in sums over rows, or in gradients, which alone can be given away.

Claimed: the same bits in the checkpoint and in the scores of rows held out, for any number of workers and with kills (a
tolerance of 0).

    python benchmarks/shared_rows_equal_one_process.py [--rows 20000] [--models 'gp_lstm;qsgp']
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Claim, report
from ray_fleet_equals_one_process import cpu

MODELS: dict[str, dict[str, Any]] = {
    "svdgp": {"basis": 512, "mean_basis": 1024},
    "gp_lstm": {"training.batch": 4096},
    "qsgp": {"features.size": 4096},
}
EPOCHS, MANY = 2, {"gp_lstm": 10}
LAGS = {"gp_lstm": 12}
ROWS = {"svdgp": 100_000}
"""Rows where a model pays later than at those of the others."""
INPUTS = 8


def surface(path: Path, rows: int) -> None:
    """A table of the function."""
    import numpy as np
    import pyarrow as pa

    from streamgp_data.table import Table, TableMeta

    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(rows, INPUTS))
    y = (
        np.sin(3 * x[:, 0] + x[:, 1])
        + x[:, 2] * x[:, 3]
        + np.exp(-4 * x[:, 4] ** 2)
        + 0.1 * generator.normal(size=rows)
    )
    data = pa.table({f"x{at}": x[:, at] for at in range(INPUTS)} | {"y": y})
    table = Table.create(path, data.schema, TableMeta())
    table.append(data, "surface", 1)


def learn(table: Path, home: Path, model: str, workers: int, kills: bool = False) -> dict[str, Any]:
    """Train; costs, and what came of it."""
    import torch

    from streamgp.online import summing
    from streamgp.training import shared_gradients
    from streamgp_data import checkpoint
    from streamgp_pipelines.adapters.ray.sums import RaySums
    from streamgp_pipelines.api import NoTracker
    from streamgp_pipelines.config import TrainConfig
    from streamgp_pipelines.learning.checkpointing import state_digest
    from streamgp_pipelines.training.train import train

    spent = dict.fromkeys(("sums", "idle", "worker", "start"), 0.0)
    lost = 0

    class Here:
        lost = 0

        def __call__(self, *given: Any) -> None:
            began = time.process_time()
            summing.in_blocks(*given)
            spent["sums"] += time.process_time() - began

        def gradients(self, *given: Any) -> Any:
            began = time.process_time()
            found = shared_gradients.here(*given)
            spent["sums"] += time.process_time() - began
            return found

        def close(self) -> None:
            pass

    class There(RaySums):
        calls = 0

        def __call__(self, *given: Any) -> None:
            self.before()
            began = time.process_time()
            super().__call__(*given)
            spent["sums"] += time.process_time() - began

        def gradients(self, *given: Any) -> Any:
            self.before()
            began = time.process_time()
            found = super().gradients(*given)
            spent["sums"] += time.process_time() - began
            return found

        def before(self) -> None:
            if not self.actors:
                began = time.process_time()
                self.start()
                spent["idle"] = sum(cpu(self.pid(worker)) for worker in range(workers))
                spent["start"] = time.process_time() - began
            self.calls += 1
            if kills and self.calls == 1:
                os.kill(self.pid(1), signal.SIGKILL)

        def close(self) -> None:
            nonlocal lost
            if not kills and self.actors:
                spent["worker"] = sum(cpu(self.pid(worker)) for worker in range(workers)) - spent["idle"]
            lost = self.lost
            super().close()

    options = {
        "table": table, "target": "y", "known": "x*", "lags": LAGS.get(model, 0), "test_tail": 0.1, "checkpoint": home,
        "model": model, "set": MODELS[model], "device": "cpu", "engine": "ray", "max_memory": "6GB",
        "epochs": MANY.get(model, EPOCHS),
    }  # fmt: skip
    torch.set_num_threads(1)
    began = time.process_time()
    sharing = lambda config: There(workers) if workers else Here()  # noqa: E731
    found: Any = train(TrainConfig.read(options), NoTracker, sharing=sharing)
    whole = time.process_time() - began - spent["start"]
    result = state_digest(checkpoint.read(home)), found["rmse"], found["calibrated_crps"]
    return {"driver": whole, "sums": spent["sums"], "worker": spent["worker"], "lost": lost, "found": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help=f"of each model; default: 20,000, and {ROWS}")
    parser.add_argument("--models", default=";".join(MODELS), help="separated by semicolons")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    from streamgp_pipelines.adapters.ray.cluster import imported

    missed, rows, load = list[str](), list[list[str]](), os.getloadavg()[0]
    ways = (("one process", 0, False), ("2 workers", 2, False), ("2, one killed", 2, True))
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    imported().init(num_cpus=2, include_dashboard=False, object_store_memory=2 * 10**8, **quiet)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        surface(home / "warm", 1000)
        for model in asked.models.split(";"):
            count = asked.rows or ROWS.get(model, 20_000)
            if not (home / f"{count}").exists():
                surface(home / f"{count}", count)
            learn(home / "warm", home / f"warm-{model}", model, 0)  # imports
            found = [learn(home / f"{count}", home / f"{model}{at}", model, *way[1:]) for at, way in enumerate(ways)]
            one = found[0]
            for (title, workers, kills), each in zip(ways, found, strict=True):
                if each["found"] != one["found"]:
                    missed.append(f"{model}, {title}: other numbers")
                if each["lost"] != kills:
                    missed.append(f"{model}, {title}: {each['lost']} workers were replaced")
                whole = each["driver"] + each["worker"]
                rows.append(
                    [
                        model,
                        f"{count:,}",
                        title,
                        f"{each['driver']:.1f}",
                        f"{each['sums']:.1f}",
                        "" if kills else f"{each['worker']:.1f}",
                        "" if kills else f"{whole / one['driver']:.2f}",
                        "" if kills else f"{one['driver'] / (each['driver'] + each['worker'] / max(workers, 1)):.2f}",
                        f"{each['found'][1]:.6f}",
                    ]
                )
                print(rows[-1], flush=True)
    epochs = f"{EPOCHS} epochs ({', '.join(f'{model} {count}' for model, count in MANY.items())})"
    text = (
        f"Rows of a smooth function of {INPUTS} inputs, a tenth of them held out, {epochs}. "
        "Claimed: the same bits in checkpoint and scores with any number of workers, also with a SIGKILL. What cannot "
        "be shared is the search of hyper-parameters, the choice of functions, and the scores of the rows held out. "
        f"When it began, the load on the two cores was {load:.0f}."
    )
    columns = [
        "model",
        "rows",
        "way",
        "CPU-s of the trainer",
        "of these in sums or gradients",
        "CPU-s of workers",
        "over one process",
    ]
    columns += ["faster, with a core each", "RMSE"]
    report(__file__, Claim("Rows of a batch on Ray workers", text, columns, rows, missed))
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
