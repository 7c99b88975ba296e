"""QSGP by stochastic steps whose cost is independent of n and m (Evans & Nair 2020).

q(w_t) = N(μ_t, CCᵀ) on m features in B blocks. A step draws one block or two, regenerates their features on some rows,
and moves those blocks' weights; draws, optimiser and caches touch nothing else. Two optimisers:

- `momentum` (default): the residual of all rows given is cached, gradients have no noise but the choice of the block,
  and momentum moves all blocks through closed forms. O(R m̃) a step with R rows, for instance 8192 that stand for more.
- `adagrad`: the paper's: mini-batches, pairs of blocks, the control variate on support rows, AdaGrad.

C is mean-field, or has k dense columns (`DescentConfig.dense_columns`). Mean-field variances grow with m towards the
prior's: a block does not know what the others have learned.
"""

from __future__ import annotations

from typing import Any

from streamgp.features import Features
from streamgp.optim._descent import Descent, DescentConfig, decay
from streamgp.optim._momentum_descent import MomentumDescent, SupportRows
from streamgp.optim._sampled_descent import SampledDescent, SampledRows

__all__ = [
    "Descent",
    "DescentConfig",
    "MomentumDescent",
    "SampledDescent",
    "SampledRows",
    "SupportRows",
    "decay",
    "descent",
]


def descent(features: Features, columns: int, config: DescentConfig | None = None) -> Descent[Any]:
    """Stochastic steps on the means of T columns.

    Raises:
        UsageError: the optimiser cannot take these features.

    Example:
        >>> import torch
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=10_000_000, width=100), kernel)
        >>> x = torch.linspace(-2, 2, 50).double()[:, None]
        >>> engine = descent(features, columns=1).begin(0.01)
        >>> rows = engine.rows(x, x.sin())
        >>> for step in range(300):
        ...     engine.step(rows, decay(step, 300))
        >>> bool((engine.mean(x) - x.sin()).abs().max() < 0.05)
        True
        >>> variance = engine.covariance(rows).variance(features, x)  # nearly the prior's 1: 50 rows, 10⁷ features
        >>> bool(((variance > 0.9) & (variance < 1.0)).all())
        True
    """
    config = config or DescentConfig()
    if config.optimiser == "momentum":
        return MomentumDescent(features, columns, config)
    return SampledDescent(features, columns, config)
