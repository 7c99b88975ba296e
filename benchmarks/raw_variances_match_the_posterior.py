"""Latent means and variances of QSGP beside the posterior on the same features, hyper-parameters, rows and weights.

Claimed: with no covariance named, raw variances are within 10 % of the posterior's and means within 0.02 of its
standard deviations, inside the data and outside of them, in batch, on a stream with and without lags, and for outcomes
(there the posterior's Laplace approximation). What every `covariance` gives is printed beside it, so that the guide
can say so.

The oracle is a dense NumPy solve in float64: A = ΦᵀWΦ/σ² + S, mean A⁻¹ΦᵀWy/σ², variance φᵀA⁻¹φ, with W what the rows
that are kept stand for; for outcomes Newton's method with W = p(1 − p) until nothing moves. σ² is the system's, which
means are learned with. Inside: rows like those learned. Outside: every input moved by 1.5 times its range.

    python benchmarks/raw_variances_match_the_posterior.py [--size 1024] [--large 8192]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from _report import Claim, report
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.models import qsgp
from streamgp.models.qsgp.blocks import BlockEngine
from streamgp.models.qsgp.posterior import QsgpPosterior
from streamgp.online.model import StreamModel

RATIO, FAR = (0.9, 1.1), 0.02
KNOWN = ("a", "b", "c")
BATCH = Shape(targets=("y",), horizon=1, lags=0, past=("y", *KNOWN), future=KNOWN)
STREAM = Shape(targets=("y",), horizon=4, lags=6, past=("y", "a"), future=("a",))
FAMILIES: dict[str, dict[str, Any]] = {
    "auto": {},
    "head": {"covariance": "head"},
    "none": {"covariance": "none"},
}


class Oracle(NamedTuple):
    mean: np.ndarray  # (N,)
    variance: np.ndarray  # (N,)


def dense(engine: BlockEngine, z: Tensor) -> np.ndarray:
    return torch.cat([engine.basis.block(z.to(FLOAT), b) for b in range(engine.basis.blocks)], 1).numpy()


def oracle(engine: BlockEngine, x: Tensor, y: Tensor, share: Tensor, z: Tensor) -> Oracle:
    """The posterior of the first column, S = I. x: (R, W), y: (R, T), share: (R,), z: (N, W) of the test rows."""
    seen = ((share > 0) & torch.isfinite(y[:, 0])).numpy()
    phi, test = dense(engine, x[torch.from_numpy(seen)]), dense(engine, z)
    target, weight = y[:, 0].numpy()[seen], share.numpy()[seen] / engine.temper
    own = np.eye(phi.shape[1])
    if not engine.sites.newton:
        precision = own + (phi.T * (weight / float(engine.solver.noise[0]))) @ phi
        mu = np.linalg.solve(precision, phi.T @ (weight * target) / float(engine.solver.noise[0]))
    else:
        mu, offset = np.zeros(phi.shape[1]), float(engine.sites.offset[0])
        for _ in range(200):
            p = 1.0 / (1.0 + np.exp(-(phi @ mu + offset)))
            precision = own + (phi.T * (weight * p * (1.0 - p))) @ phi
            step = np.linalg.solve(precision, phi.T @ (weight * (target - p)) - mu)
            mu = mu + step * min(1.0, 5.0 / np.abs(phi @ step).max())
            if np.abs(phi @ step).max() < 1e-10:
                break
    return Oracle(test @ mu, (test * np.linalg.solve(precision, test.T).T).sum(1))


def batch(rows: int, outcomes: bool) -> tuple[Inputs, Tensor]:
    """Three inputs, a smooth function of them."""
    draws = torch.Generator().manual_seed(0)
    u = 4.0 * torch.rand(rows, 3, generator=draws, dtype=FLOAT) - 2.0
    f = torch.sin(2.0 * u[:, 0]) * torch.cos(1.5 * u[:, 1]) + 0.5 * u[:, 2]
    y = f + 0.3 * torch.randn(rows, generator=draws, dtype=FLOAT)
    if outcomes:
        y = (torch.rand(rows, generator=draws, dtype=FLOAT) < torch.sigmoid(3.0 * f)).to(FLOAT)
    return Inputs(torch.zeros(rows, 0, 4, dtype=FLOAT), u[:, None]), y[:, None]


def lagged(rows: int, outcomes: bool) -> tuple[Inputs, Tensor]:
    """Windows of a second-order process that follows an input."""
    draws = torch.Generator().manual_seed(1)
    a = torch.sin(torch.arange(rows + 20) / 9.0).to(FLOAT) + 0.3 * torch.randn(rows + 20, generator=draws, dtype=FLOAT)
    y = torch.zeros(rows + 20, dtype=FLOAT)
    noise = 0.2 * torch.randn(rows + 20, generator=draws, dtype=FLOAT)
    for t in range(2, rows + 20):
        y[t] = 1.2 * torch.tanh(y[t - 1]) - 0.5 * y[t - 2] + 0.6 * a[t] + noise[t]
    both = torch.stack((y, a), 1)
    past = torch.stack([both[t - 6 : t] for t in range(6, rows + 6)])
    future = torch.stack([a[t : t + 4, None] for t in range(6, rows + 6)])
    truth = torch.stack([y[t : t + 4] for t in range(6, rows + 6)])
    return Inputs(past, future), (truth > 0.3).to(FLOAT) if outcomes else truth


class Case(NamedTuple):
    name: str
    shape: Shape
    rows: int
    options: dict[str, Any]
    online: bool


def cases(size: int) -> Iterator[Case]:
    features = {"features": {"size": size, "width": size // 8}}
    yield Case("batch", BATCH, 3000, features, False)
    yield Case("stream without lags", BATCH, 3000, features, True)
    yield Case("stream with lags, 4 steps ahead", STREAM, 3000, features, True)
    yield Case("outcomes, batch", BATCH, 600, features | {"likelihood": "logistic"}, False)
    yield Case("outcomes, stream", BATCH, 1500, features | {"likelihood": "logistic"}, True)


def learned(case: Case, options: dict[str, Any]) -> tuple[BlockEngine, Tensor, Tensor, Tensor, Tensor]:
    """The engine; inputs, targets and shares of the rows it knows; inputs of test rows, half of them far away."""
    model = qsgp.build(qsgp.Config.model_validate({**case.options, **options}), case.shape)
    assert isinstance(model, StreamModel) and isinstance(model.posterior, QsgpPosterior)
    outcomes = "likelihood" in case.options
    x, y = (lagged if case.shape.lags else batch)(case.rows + 200, outcomes)
    rows, test = slice(0, case.rows), x.rows(slice(case.rows, None))
    if case.online:
        for start in range(0, case.rows, 256):
            part = slice(start, min(start + 256, case.rows))
            assert model.update(x.rows(part), y[part]).healthy
    else:
        for _ in model.fit(x.rows(rows), y[rows], model.epochs_for(case.rows)):
            pass
    engine = model.posterior.engine
    assert isinstance(engine, BlockEngine)
    z = model.inputs(test)
    away = 1.5 * float(x.past.amax() - x.past.amin()) if case.shape.lags else 0.0
    far = Inputs(test.past[:100] + away, test.future[:100] + 6.0)
    z = torch.cat((z[:100], model.inputs(far)))
    if case.online:
        training = engine.current
        return engine, training.x, training.y, training.share, z
    known = model.inputs(x.rows(rows))
    share = torch.ones(case.rows, dtype=FLOAT)
    return engine, known, model.targets(x.rows(rows), y[rows]), share, z


def measured(case: Case, options: dict[str, Any]) -> tuple[str, list[str], bool]:
    """A line, cells of the results page, and whether the claim holds of it."""
    engine, x, y, share, z = learned(case, options)
    found = oracle(engine, x, y, share, z)
    ratio = engine.variance(z)[:, 0].numpy() / found.variance
    off = np.abs(engine.mean(z)[:, 0].numpy() - found.mean) / np.sqrt(found.variance)
    inside, outside = ratio[:100], ratio[100:]
    line = f"inside {np.median(inside):6.3f} ({inside.min():.3f} – {inside.max():.3f})  "
    line += f"outside {np.median(outside):6.3f} ({outside.min():.3f} – {outside.max():.3f})  "
    line += f"means off by at most {off[:100].max():.4f} and {off[100:].max():.4f} sd"
    cells = [f"{part.min():.3f} – {part.max():.3f}" for part in (inside, outside)]
    return line, [*cells, f"{off.max():.4f}"], RATIO[0] <= ratio.min() and ratio.max() <= RATIO[1] and off.max() <= FAR


def main(size: int, large: int) -> int:
    torch.set_num_threads(1)
    missed, page = [], []
    for case in cases(size):
        print(f"{case.name}: {case.rows} rows, {size} functions; variance over the posterior's, median (range)")
        for name, options in FAMILIES.items():
            line, cells, holds = measured(case, options)
            print(f"  {name:<22} {line}", flush=True)
            missed += [case.name] * (name == "auto" and not holds)
            page += [[case.name, *cells]] * (name == "auto")
    for case in cases(large) if large else ():
        line, *_ = measured(case, {})
        print(f"{case.name}, {large} functions, auto: {line}", flush=True)
    print("holds" if not missed else "does not hold: " + "; ".join(missed))
    text = (
        f"Latent variances over the dense posterior's, with {size:,} functions and no covariance named: within 10 %, "
        f"inside the data and outside of them, and means within {FAR} of its standard deviations."
    )
    columns = ["case", "variances inside", "outside", "means off by at most, sd"]
    report(__file__, Claim("Raw variances", text, columns, page, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="functions, in 8 blocks")
    parser.add_argument("--large", type=int, default=8192, help="functions, beyond what auto solves exactly; 0: none")
    asked = parser.parse_args()
    sys.exit(main(asked.size, asked.large))
