"""Claim: cv-implicit tunes the hyper-parameters of 20,000 rows in less than 2 GB beyond imports.

Hold-out of half the rows, so that K_TT and K_VT have 10⁸ entries each: 1.6 GB in float64, 0.8 GB in the float32 that
`memory=1.0` (GiB) leaves them. SE process in [0, 20], drawn by Fourier features, as a draw through a factor would take
3.2 GB itself. The best test error there is, of the true function, is the noise, 0.1. One thread, CPU-seconds.

    python benchmarks/cross_validation_tunes_twenty_thousand_rows.py
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import torch
from _report import Claim, report
from _tuning import NOISE, PROCESSES, implicit, tied, tuned_kernel
from _tuning import Rows as Data

from streamgp.base import FLOAT
from streamgp.objectives.cross_validation import Partition
from streamgp.objectives.fold import Fold

LIMIT = 2e9


def peak() -> float:
    """Bytes, of the whole life of the process."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def drawn(n: int, held: int) -> Data:
    """A function of 2,000 random Fourier features of the SE kernel with lengthscale ½."""
    generator = torch.Generator().manual_seed(0)
    x = 20.0 * torch.rand(n + held, 1, generator=generator, dtype=FLOAT)
    rate = torch.randn(1, 1000, generator=generator, dtype=FLOAT) / 0.5
    weight = torch.randn(2, 1000, generator=generator, dtype=FLOAT) / 1000**0.5
    f = torch.cat([(some @ rate).cos() @ weight[0] + (some @ rate).sin() @ weight[1] for some in x.split(1000)])
    y = f[:, None] + NOISE**0.5 * torch.randn(n + held, 1, generator=generator, dtype=FLOAT)
    return Data(x[:n], y[:n], x[n:], y[n:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--iterations", type=int, default=10)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    process = PROCESSES["SE"]
    implicit(process, drawn(200, 10), iterations=2)  # whatever is loaded at first use
    rows, imports = drawn(asked.rows, 1000), peak()
    found = implicit(process, rows, folds=1, iterations=asked.iterations, memory=1.0)
    used = peak() - imports
    values = [float(found.kernel[name].exp()) for name in ("log_lengthscale", "log_outputscale")]
    print(f"{asked.rows:,} rows, {found.evaluations} evaluations: {found.seconds:.0f} CPU-s, {1e-9 * used:.2f} GB")
    print(f"lengthscale {values[0]:.3f} (0.5), outputscale {values[1]:.3f} (1), noise {float(found.noise):.4f} (0.1)")
    begun = time.process_time()
    whole = Data(torch.cat((rows.x, rows.held)), torch.cat((rows.y, rows.truth)), rows.held, rows.truth)
    split = Partition(torch.arange(asked.rows), torch.arange(asked.rows, len(whole.x)))
    fold = Fold(tuned_kernel(tied(process.start), found), found.noise, whole.x, whole.y, split, memory=2**29)
    z = fold.solve(fold.y_fitted, tolerance=1e-4, iterations=50)
    mse = float(fold.error(z.value).square().mean())
    print(f"test MSE of 1,000 rows by conjugate gradients on all: {mse:.4f}, {time.process_time() - begun:.0f} CPU-s")
    print(f"held out: {found.loss:.4f}; peak in all {1e-9 * peak():.2f} GB, imports and data {1e-9 * imports:.2f} GB")
    text = (
        f"SE, hold-out, `memory=1.0`: less than 2 GB beyond imports and data. Found: lengthscale {values[0]:.3f} "
        f"(true 0.5), noise {float(found.noise):.4f} (0.1), outputscale {values[1]:.3f} (1)."
    )
    row = [str(found.evaluations), f"{found.seconds:.0f}", f"{1e-9 * used:.2f}", f"{mse:.4f}"]
    columns = ["evaluations", "CPU-s", "GB", "test MSE (noise 0.1)"]
    missed = [f"{1e-9 * used:.2f} GB"] if used > LIMIT else []
    report(__file__, Claim("Twenty thousand rows", text, columns, [row], missed))
    if used > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
