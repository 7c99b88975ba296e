"""Linear state-space models of one input and one output, simulated: N4SID (nfoursid), and the same by output error.

    x_{t+1} = A x_t + B u_t,  y_t = C x_t + D u_t,  all centred and in units of their standard deviation.

The state at an origin is that of least squares over the lags before it. The output-error model (Ljung 1999, section
4.2) starts at N4SID's and minimises the squared errors of simulations of the rows to learn, as long as those that are
asked for and two in that length (`scipy.optimize.least_squares`); its poles are kept within the unit circle. The order
is the one whose simulations of the last fifth of these rows are best.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from nfoursid.nfoursid import NFourSID
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
ORDERS = (1, 2, 4)
BLOCKS = 10
"""Block rows of the Hankel matrices."""
LARGEST = 0.9995
"""Modulus of a pole."""
TRIALS = 40
"""Jacobians of the output error, at most."""


class Linear(NamedTuple):
    """A, B, C and D: (n, n), (n, 1), (1, n), (1, 1)."""

    a: Floats
    b: Floats
    c: Floats
    d: Floats

    def stable(self) -> Linear:
        """With A shrunk until its poles are within the circle."""
        radius = float(np.abs(np.linalg.eigvals(self.a)).max())
        return self if radius <= LARGEST else self._replace(a=self.a * LARGEST / radius)

    def simulated(self, past: Floats, given: Floats) -> Floats:
        """(S, K) outputs behind (S, L) past ones; given: (S, L + K) inputs."""
        lags, order = past.shape[1], len(self.a)
        x, powers, free = np.zeros((len(past), order)), [np.eye(order)], []
        for step in range(lags):  # from x = 0, and what a first state would add
            free.append(x @ self.c[0] + given[:, step] * self.d[0, 0])
            x = x @ self.a.T + given[:, step : step + 1] * self.b.T
            powers.append(self.a @ powers[-1])
        seen = np.stack([self.c[0] @ power for power in powers[:-1]])  # (L, n)
        first = np.linalg.lstsq(seen, (past - np.stack(free, 1)).T, rcond=1e-9)[0].T
        x, found = x + first @ powers[-1].T, []
        for step in range(lags, given.shape[1]):
            found.append(x @ self.c[0] + given[:, step] * self.d[0, 0])
            x = x @ self.a.T + given[:, step : step + 1] * self.b.T
        return np.stack(found, 1)


def simulate(y: Floats, u: Floats, rows: int, lags: int, origins: list[int], steps: int, refined: bool) -> Floats:
    """(origins, steps) behind each origin.

    Args:
        y: (N,) all outputs; only those at an origin and before it are used.
        u: (N,) all inputs.
        rows: from the first on, to learn.
        lags: rows that a state is estimated from.
        origins: rows, the last whose output is known.
        steps: to simulate.
        refined: by output error.
    """
    level, size = float(y[:rows].mean()), float(y[:rows].std())
    y, u = (y - level) / size, (u - u[:rows].mean()) / u[:rows].std()
    back, ahead = np.arange(1 - lags, 1), np.arange(1 - lags, steps + 1)

    def run(model: Linear, starts: Ints) -> Floats:
        return model.simulated(y[starts[:, None] + back], u[starts[:, None] + ahead])

    def fitted(order: int, rows: int) -> Linear:
        frame = pd.DataFrame({"y": y[:rows], "u": u[:rows]})
        found = NFourSID(frame, output_columns=["y"], input_columns=["u"], num_block_rows=BLOCKS)
        found.subspace_identification()
        space = found.system_identification(rank=order)[0]
        model = Linear(space.a, space.b, space.c, space.d).stable()
        if not refined:
            return model
        starts = np.arange(lags - 1, rows - steps - 1, max(steps // 2, 1))
        truth, shapes = y[starts[:, None] + np.arange(1, steps + 1)], [part.shape for part in model]
        ends = np.cumsum([part.size for part in model])[:-1]

        def of(weights: Floats) -> Linear:
            parts = np.split(weights, ends)
            return Linear(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))).stable()

        def missed(weights: Floats) -> Floats:
            return np.asarray(np.nan_to_num(run(of(weights), starts) - truth, nan=1e3).clip(-1e3, 1e3)).ravel()

        weights = np.concatenate([part.ravel() for part in model])
        return of(least_squares(missed, weights, max_nfev=TRIALS).x)

    first = int(0.8 * rows)
    held = np.linspace(first, rows - steps - 1, 8).astype(int)
    truth = y[held[:, None] + np.arange(1, steps + 1)]
    errors = [float(((run(fitted(order, first), held) - truth) ** 2).mean()) for order in ORDERS]
    best = fitted(ORDERS[int(np.argmin(errors))], rows)
    return np.asarray(level + size * run(best, np.array(origins)))
