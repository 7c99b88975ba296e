"""Torques of robots and a rig from their motion, held out in blocks of time: svdgp beside a line, trees and exact GPs.

A table of a recording is no cloud: rows next to each other are nearly the same, so test rows are the last fifth of each
of ten equal parts (`train --test-tail 0.2 --test-blocks 10`). Inputs are positions, velocities and accelerations of all
seven joints, those of panda_exciting by central differences; each joint's torque is learned apart. Panda comes again
with a friction column a joint, tanh(velocity / 0.03 rad/s), as a regressor of the mechanics. The quarter drone is an
arm with a propeller: its control from angle and its two differences, each fifth row. `svdgp jumps` knows which columns
are velocities (`jumps`), and takes up to 600 rows for its hyper-parameters, which is all of panda.

Opponents: ridge regression, LightGBM (300 trees of 31 leaves), GPyTorch's exact GP with ARD on 2,000 rows, evenly
spread, with as many steps of Adam as fit into svdgp's CPU time, and `exact` on 2,000 rows in its own time.

Printed: MSE over the variance of the joint's test rows for each joint, its mean over joints, coverage of 95 % bands
and CPU seconds of all joints.

    python benchmarks/svdgp_learns_inverse_dynamics.py [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import gpytorch
import numpy as np
import polars as pl
import torch
from _report import Claim, report
from _uci import FOLDER, Split, windows
from lightgbm import LGBMRegressor
from numpy.typing import NDArray

from streamgp.base import Model, Shape
from streamgp.models import exact, svdgp

Floats: TypeAlias = NDArray[np.float64]
JOINTS, BLOCKS, TAIL, ROWS = 7, 10, 0.2, 2000
Z95 = 1.959964
COLUMNS = ("data", "method", *(f"joint {joint}" for joint in range(1, JOINTS + 1)), "mean", "coverage", "CPU s")


class Issued(NamedTuple):
    """Mean and standard deviation (N,) of test rows; NaN where there are no bands."""

    mean: Floats
    deviation: Floats


Method: TypeAlias = Callable[[Split, float], Issued]
"""Of rows, and the CPU seconds that svdgp took."""


def sarcos(folder: Path) -> tuple[Floats, Floats]:
    """Motion (N, 21) and torques (N, 7); the rows are in order, a tenth of a second apart or so."""
    values = pl.read_parquet(folder / "sarcos_test.parquet").to_numpy()
    return values[:, : 3 * JOINTS], values[:, 3 * JOINTS :]


def panda(folder: Path) -> tuple[Floats, Floats]:
    """The same, 30 Hz, 24 seconds."""
    frame = pl.read_parquet(folder / "panda_exciting.parquet")
    q, speed, torque = (
        frame.select(name.format(j) for j in range(1, JOINTS + 1)).to_numpy()
        for name in ("q{}_rad", "qd{}_rad_s", "effort{}_nm")
    )
    acceleration = np.gradient(speed, frame["elapsed_s"].to_numpy(), axis=0)
    return np.concatenate([q, speed, acceleration], 1), torque


def drone(folder: Path) -> tuple[Floats, Floats]:
    """Angle, velocity, acceleration (N, 3) and control (N, 1); 50 ms."""
    frame = pl.read_parquet(folder / "quarter_drone.parquet").gather_every(5)
    angle, seconds = frame["angle_deg"].to_numpy(), frame["elapsed_s"].to_numpy()
    speed = np.gradient(angle, seconds)
    return np.stack([angle, speed, np.gradient(speed, seconds)], 1), frame["control_pct"].to_numpy()[:, None]


def tables(folder: Path) -> Iterator[tuple[str, tuple[Floats, Floats]]]:
    """Each set as it is, and panda with friction columns."""
    yield "drone", drone(folder)
    x, y = panda(folder)
    yield "panda", (x, y)
    yield "panda+friction", (np.concatenate([x, np.tanh(x[:, JOINTS : 2 * JOINTS] / 0.03)], 1), y)
    yield "SARCOS", sarcos(folder)


def divided(x: Floats, y: Floats, joint: int) -> Split:
    """Rows to learn, and the tails of blocks."""
    parts = np.array_split(np.zeros(len(x), bool), BLOCKS)
    for part in parts:
        part[len(part) - int(TAIL * len(part)) :] = True
    held = torch.from_numpy(np.concatenate(parts))
    inputs, targets = torch.from_numpy(x.copy()), torch.from_numpy(y[:, joint : joint + 1].copy())
    return Split(inputs[~held], targets[~held], inputs[held], targets[held])


def ridge(rows: Split, seconds: float) -> Issued:
    """Least squares with a ridge of a thousandth of a row."""
    mean, scale = rows.x.mean(0), rows.x.std(0)
    one, held = ((part - mean) / scale for part in (rows.x, rows.held))
    level = rows.y.mean()
    weights = torch.linalg.solve(one.T @ one + 1e-3 * torch.eye(one.shape[1]), one.T @ (rows.y - level))
    spread = float((rows.y - level - one @ weights).std())
    found = (level + held @ weights)[:, 0].numpy()
    return Issued(found, np.full(len(found), spread))


def trees(rows: Split, seconds: float) -> Issued:
    """LightGBM, point forecasts."""
    model = LGBMRegressor(
        n_estimators=300, learning_rate=0.05, num_leaves=31, min_child_samples=10, n_jobs=1, verbose=-1
    )
    model.fit(rows.x.numpy(), rows.y[:, 0].numpy())
    found = np.asarray(model.predict(rows.held.numpy()), np.float64)
    return Issued(found, np.full(len(found), np.nan))


def thinned(rows: Split) -> Split:
    """`ROWS` of the training rows at most, evenly spread."""
    some = torch.linspace(0, len(rows.x) - 1, min(ROWS, len(rows.x))).round().long()
    return rows._replace(x=rows.x[some], y=rows.y[some])


class _Gp(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def gpytorch_exact(rows: Split, seconds: float) -> Issued:
    """Adam at 0.1 until the time is over, at least one step."""
    began, rows = time.process_time(), thinned(rows)
    mean, scale, level, size = rows.x.mean(0), rows.x.std(0), rows.y.mean(), rows.y.std()
    x, y = (rows.x - mean) / scale, (rows.y[:, 0] - level) / size
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = _Gp(x, y, likelihood).double()
    loss, adam = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), torch.optim.Adam(model.parameters(), 0.1)
    model.train()
    with gpytorch.settings.fast_computations(False, False, False), gpytorch.settings.max_cholesky_size(10_000):
        while True:
            adam.zero_grad()
            (-loss(model(x), y)).backward()
            adam.step()
            if time.process_time() - began > seconds:
                break
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            issued = likelihood(model((rows.held - mean) / scale))
    return Issued((level + size * issued.mean).numpy(), (size * issued.variance.sqrt()).numpy())


def ours(build: Callable[[Shape], Model], thin: bool) -> Method:
    """A model of streamgp."""

    def issue(rows: Split, seconds: float) -> Issued:
        rows = thinned(rows) if thin else rows
        model = build(rows.shape)
        for _ in model.fit(windows(rows.x), rows.y, model.epochs_for(len(rows.y))):
            pass
        issued = model.predict(windows(rows.held))
        return Issued(issued.mean[:, 0].numpy(), issued.variance[:, 0].sqrt().numpy())

    return issue


def jumping(shape: Shape) -> Model:
    """svdgp with the middle third of the columns, the velocities, as `jumps`."""
    joints = len(shape.future) // 3
    names = ",".join(shape.future[joints : 2 * joints])
    return svdgp.build(svdgp.Config(jumps=names, evidence_rows=600), shape)


METHODS: dict[str, Method] = {
    "svdgp": ours(lambda shape: svdgp.build(svdgp.Config(), shape), thin=False),
    "svdgp jumps": ours(jumping, thin=False),
    "ridge": ridge,
    "LightGBM": trees,
    "GPyTorch": gpytorch_exact,
    "exact": ours(lambda shape: exact.build(exact.Config(), shape), thin=True),
}


def main() -> int:
    """Print every method's table, and whether svdgp is ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder with the Parquet files")
    folder = parser.parse_args().data
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # loads PyTorch's compiler, 2 seconds
    table, missed = list[tuple[str, ...]](), list[str]()
    for name, (x, y) in tables(folder):
        joints = y.shape[1]
        spent, scores, least = [0.0] * joints, dict[str, float](), "svdgp" if "+" in name else "svdgp jumps"
        for label, method in METHODS.items():
            if label == "svdgp jumps" and label != least:
                continue
            errors, inside, seconds = list[float](), list[float](), list[float]()
            for joint in range(joints):
                rows = divided(x, y, joint)
                began = time.process_time()
                issued = method(rows, spent[joint])
                seconds.append(time.process_time() - began)
                error = rows.truth[:, 0].numpy() - issued.mean
                errors.append(float((error**2).mean() / rows.truth.var()))
                inside.append(float((np.abs(error) < Z95 * issued.deviation).mean()))
            if label == least:
                spent = seconds
            scores[label] = float(np.mean(errors))
            coverage = "" if np.isnan(issued.deviation[0]) else f"{np.mean(inside):.2f}"
            cells = [f"{error:.3f}" for error in errors] + [""] * (JOINTS - joints) + [f"{scores[label]:.3f}"]
            table.append((name, label, *cells, coverage, f"{sum(seconds):.1f}"))
            print("  ".join(table[-1]), flush=True)
            if label == least and not 0.93 <= np.mean(inside) <= 0.97:
                missed.append(f"{name}: coverage {np.mean(inside):.3f}")
        missed += [f"{name}: behind {label}" for label, score in scores.items() if score < scores[least]]
    print("missed:", missed or "nothing")
    report(
        __file__,
        Claim(
            "Torques of robot arms from their motion",
            "MSE over variance by joint, test rows the last fifth of each tenth. Claimed: `svdgp` with `jumps` (with "
            "friction columns: with no option set) has the least mean error, raw 95 % bands cover 0.93 to 0.97. Exact "
            "GPs have 2,000 rows, GPyTorch svdgp's time. `jumps` was chosen on panda, and seen on joints 1, 4 and 6 of "
            "SARCOS; the drone played no part. The blocks that widen variances were chosen with all sets in sight.",
            COLUMNS,
            table,
            missed,
        ),
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
