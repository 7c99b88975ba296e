"""Dense NumPy twins of the solvers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgp.linalg.interpolate import Grid

Array = NDArray[np.float64]


class Twin(NamedTuple):
    """NLML of one column, and the mean (M,) and latent variance (M,) at M places."""

    nlml: float
    mean: Array
    variance: Array


def gaussian_process(prior: Array, cross: Array, there: Array, y: Array, weight: Array, noise: float) -> Twin:
    """One column; row i has noise σ²/w_i, and the likelihood N(y; f, σ²)^w's constant.

    Args:
        prior: (N, N) noise-free, cross: (N, M), there: (M,) prior variances.
        y: (N,), weight: (N,) > 0.
    """
    gram = prior + np.diag(noise / weight)
    alpha = np.linalg.solve(gram, y)
    spare = (weight * np.log(2 * np.pi * noise)).sum() - np.log(noise / weight).sum()
    nlml = 0.5 * (y @ alpha + np.linalg.slogdet(gram)[1] + spare)
    return Twin(nlml, cross.T @ alpha, there - (cross * np.linalg.solve(gram, cross)).sum(0))


def keys_matrix(grid: Grid, h: Array) -> Array:
    """(N, m) dense W: Keys' kernel (1981, eq. 15) of every distance to every grid point, in steps."""
    out = np.ones((len(h), grid.count))
    for column, place, step in zip(h.T, grid.points().numpy().T, grid.steps, strict=True):
        s = np.abs(column[:, None] - place) / step
        near, far = 1.5 * s**3 - 2.5 * s**2 + 1, -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2
        out *= np.where(s <= 1, near, np.where(s <= 2, far, 0.0))
    return out
