"""A toy weight-space model, dense twins of its bound in NumPy and SciPy, and the test that an estimator is unbiased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import multivariate_normal
from torch import Generator, Tensor

Array = npt.NDArray[np.float64]
Parameters = Mapping[str, Tensor]

DRAWS, CHUNK = 200_000, 20_000
LIMIT = 4.0  # |z|


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Toy:
    """n rows, m features, T columns, k dense columns of C; S general or diagonal.

    Attributes:
        phi: (n, m)
        y: (n, T)
        noise: (T,) σ_t².
        prior: (m, m) S.
        mu: (m, T)
        root: (m, m) C, a chevron.
        dense: k.
    """

    phi: Tensor
    y: Tensor
    noise: Tensor
    prior: Tensor
    mu: Tensor
    root: Tensor
    dense: int


def toy(*, diagonal: bool, missing: bool = False, rows: int = 10, features: int = 12, dense: int = 2) -> Toy:
    """A toy whose μ and C are drawn, not fitted."""
    factor = normal(features, features, seed=1)
    prior = torch.diag(0.5 + factor[0].square()) if diagonal else torch.eye(features).double() + factor @ factor.T / 4
    root = 0.5 * normal(features, features, seed=2).tril()
    root[:, dense:] = 0.0
    root.diagonal().copy_(0.3 + normal(features, seed=3).abs())
    y = normal(rows, 2, seed=4)
    if missing:
        y[1, 0], y[4, 1] = torch.nan, torch.nan
    phi, mu = normal(rows, features, seed=5) / 2, normal(features, 2, seed=6)
    return Toy(phi, y, torch.tensor([0.3, 0.7], dtype=torch.float64), prior, mu, root, dense)


def mean_part(t: Toy) -> float:
    """L_μ of eq. (2), summed over columns, with observed entries only."""
    phi, y, prior, mu = (v.numpy() for v in (t.phi, t.y, t.prior, t.mu))
    total = 0.0
    for c, noise in enumerate(t.noise.tolist()):
        seen = ~np.isnan(y[:, c])
        image = phi[seen] @ mu[:, c]
        total += (-2 * y[seen, c] @ image + image @ image) / noise + mu[:, c] @ prior @ mu[:, c]
    return float(total)


def covariance_part(t: Toy) -> float:
    """L_Σ of eq. (2), summed over columns."""
    phi, y, prior, root = (v.numpy() for v in (t.phi, t.y, t.prior, t.root))
    cov = root @ root.T
    total = 0.0
    for c, noise in enumerate(t.noise.tolist()):
        seen = ~np.isnan(y[:, c])
        total += np.trace(phi[seen] @ cov @ phi[seen].T) / noise + np.trace(prior @ cov) - np.linalg.slogdet(cov)[1]
    return float(total)


def constant_part(t: Toy) -> float:
    """L_const of eq. (2), summed over columns."""
    y, prior = t.y.numpy(), t.prior.numpy()
    total = 0.0
    for c, noise in enumerate(t.noise.tolist()):
        seen = y[~np.isnan(y[:, c]), c]
        total += -np.linalg.slogdet(prior)[1] - len(prior) + len(seen) * np.log(2 * np.pi * noise) + seen @ seen / noise
    return float(total)


def bound(t: Toy) -> float:
    """The ELBO by its definition: E_q log p(y | w) − KL[q ‖ p], from SciPy's densities and entropies (y complete)."""
    phi, y, prior, mu, root = (v.numpy() for v in (t.phi, t.y, t.prior, t.mu, t.root))
    cov, before = root @ root.T, np.linalg.inv(prior)
    total = 0.0
    for c, noise in enumerate(t.noise.tolist()):
        at_mean = multivariate_normal(phi @ mu[:, c], noise * np.eye(len(y))).logpdf(y[:, c])
        fit = at_mean - 0.5 * np.trace(phi @ cov @ phi.T) / noise
        cross = -multivariate_normal(np.zeros(len(mu)), before).logpdf(mu[:, c]) + 0.5 * np.trace(prior @ cov)
        total += fit - cross + multivariate_normal(mu[:, c], cov).entropy()
    return float(total)


def evidence(t: Toy) -> float:
    """log p(y), y complete."""
    phi, y = t.phi.numpy(), t.y.numpy()
    signal = phi @ np.linalg.inv(t.prior.numpy()) @ phi.T
    eye = np.eye(len(y))
    return float(
        sum(
            multivariate_normal(np.zeros(len(y)), signal + s * eye).logpdf(y[:, c])
            for c, s in enumerate(t.noise.tolist())
        )
    )


def pick(tensor: Tensor, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Rows, and columns, of each of a batch of matrices. tensor: (B, a, b); rows: (B, r); columns: (B, c)."""
    batch = torch.arange(len(tensor))
    if columns is None:
        return tensor[batch[:, None], rows]
    return tensor[batch[:, None, None], rows[:, :, None], columns[:, None, :]]


@dataclass(frozen=True)
class Sampled:
    """What draws of an estimator gave.

    Attributes:
        z: the largest |z|, over the value and every entry of every gradient.
        value_z: |z| of the value.
        sd: of the value.
        gradient_variance: of each parameter's gradient, summed over its entries.
    """

    z: float
    value_z: float
    sd: float
    gradient_variance: dict[str, float]


def sample(
    estimator: Callable[[Parameters, int, Generator], Tensor],
    exact: Callable[[Parameters], Tensor],
    parameters: Parameters,
    draws: int = DRAWS,
) -> Sampled:
    """Compare draws of an estimator, and of its gradients, with the dense value and its gradients.

    Args:
        estimator: takes a batch of copies of the parameters, (B, ...) each, B and a generator; returns (B,).
        exact: the dense value.
        parameters: name -> tensor.
        draws: multiple of CHUNK.
    """
    leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
    truth = exact(leaves)
    slopes = torch.autograd.grad(truth, list(leaves.values()), allow_unused=True)
    targets = [truth.detach()] + [
        torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), slopes, strict=True)
    ]
    first, second = [torch.zeros_like(v) for v in targets], [torch.zeros_like(v) for v in targets]
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws // CHUNK):
        copies = {name: p.expand(CHUNK, *p.shape).clone().requires_grad_() for name, p in parameters.items()}
        values = estimator(copies, CHUNK, generator)
        got = torch.autograd.grad(values.sum(), list(copies.values()), allow_unused=True)
        each = [values.detach()] + [
            torch.zeros_like(p) if g is None else g for p, g in zip(copies.values(), got, strict=True)
        ]
        for i, (value, target) in enumerate(zip(each, targets, strict=True)):
            first[i] += (value - target).sum(0)
            second[i] += (value - target).square().sum(0)
    z, variances = [], []
    for total, squares in zip(first, second, strict=True):
        mean = total / draws
        variance = (squares / draws - mean.square()).clamp(min=0.0)
        # entries without variance must be exact: their floor is rounding
        z.append(float((mean.abs() / ((variance / draws).sqrt() + 1e-11)).max()))
        variances.append(float(variance.sum()))
    return Sampled(max(z), z[0], variances[0] ** 0.5, dict(zip(parameters, variances[1:], strict=True)))
