"""How much too narrow the forecasts of a small or wide table are, by rows that a fit has not seen.

Where rows are few for its hyper-parameters a fit follows them more closely than it knows the function: lengthscales,
noise and chosen functions fit the noise too, and no posterior given them says so. So four copies of the posterior learn
all rows but a quarter each, hyper-parameters and all, and forecast that quarter. With z_ti the errors over the standard
deviations of these forecasts, variances are off as a whole by

    a_t = max(1, (Σ_i z_ti² + 4)/(N_t + 4))

from N_t rows and four that say they are right. Forecasts have their variance times a_t.
"""

from __future__ import annotations

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import NumericalError
from streamgp.fork import fork
from streamgp.online.posterior import Posterior, Rows, Units
from streamgp.online.summing import in_blocks
from streamgp.training.shared_gradients import here

FOLDS = 4
"""Parts that are left out in turn."""
FEW, ENOUGH, MOST = 200, 20, 2000
"""Rows below which a fit is checked; rows for each hyper-parameter below which larger ones are; rows from which none
is."""
PRIOR_ROWS = 4.0


def doubtful(rows: int, groups: int) -> bool:
    """Whether a fit may follow its rows more closely than it knows the function.

    Args:
        rows: N.
        groups: G, of columns that share a lengthscale.

    Example:
        >>> doubtful(150, 1), doubtful(300, 1), doubtful(1000, 50), doubtful(3000, 200), doubtful(7, 1)
        (True, False, True, False, False)
    """
    return 2 * FOLDS <= rows < min(max(FEW, ENOUGH * (groups + 2)), MOST)


def widening(posterior: Posterior, rows: Rows, units: Units, epochs: int, seed: int) -> Tensor:
    """(T,) a_t; a fold whose fit fails numerically says nothing.

    Args:
        posterior: before the fit; it does not change.
        rows: of the fit.
        units: theirs.
        epochs: of the fit, at most.
        seed: of the folds, and of what a fit draws.
    """
    total = rows.y.new_full((rows.y.shape[1],), PRIOR_ROWS)
    count = total.clone()
    places = torch.randperm(len(rows.y), generator=torch.Generator().manual_seed(seed)).to(rows.y.device)
    for fold in range(FOLDS):
        held = places % FOLDS == fold
        seen, own = ~held, _afresh(posterior)
        z, y, weight, filled = (part[seen] for part in (rows.z, rows.y, rows.weight, rows.filled))
        some = Rows(z, y, weight, filled, rows.places, rows.x.rows(seen))
        generator = torch.Generator().manual_seed(seed)
        try:
            for left in range(epochs, 0, -1):
                if not own.epoch(some, units, left == epochs, generator, left):
                    break
            issued = own.predictive(own.look(rows.z[held]))
        except NumericalError:
            continue
        squares = (rows.y[held] - issued.mean).square() / issued.variance
        known = torch.isfinite(squares)
        total += torch.where(known, squares, 0.0).sum(0)
        count += known.to(FLOAT).sum(0)
    return (total / count).clamp(min=1.0)


def _afresh(posterior: Posterior) -> Posterior:
    """A copy that knows nothing of the rows left out, and learns in this process."""
    ways = posterior.summing, posterior.sharing
    posterior.summing, posterior.sharing = in_blocks, here
    try:
        own = fork(posterior)
    finally:
        posterior.summing, posterior.sharing = ways
    own.begin_afresh()
    return own
