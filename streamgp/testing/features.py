"""The laws of a feature map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from streamgp.base import FLOAT
from streamgp.features import Features
from streamgp.kernels import Kernel, squared_exponential

_WIDTH = 3


def check_features(build: Callable[[Kernel], Features]) -> None:
    """The laws of `features.Features`: partition, blocks that stand alone, precision, prior, gradients, state.

    Args:
        build: features of a kernel over 3 columns; 5 to 60 of them once 40 rows were added, in at least 2 blocks.

    Raises:
        AssertionError: a law is broken; the message names it.

    Example:
        >>> from streamgp.features import fourier
        >>> check_features(lambda kernel: fourier.build(fourier.Config(size=22, width=8), kernel))
    """
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, _WIDTH, generator=generator, dtype=FLOAT)
    x = torch.randn(6, _WIDTH, generator=generator, dtype=FLOAT)

    def made() -> Features:
        config = squared_exponential.Config(lengthscale=1.3, outputscale=1.7)
        features = build(squared_exponential.build(config, _WIDTH))
        start = features.size
        taken = features.add(rows)
        assert (taken.start, taken.stop) == (start, features.size), "add: not the places of the features that it made"
        return features

    features = made()
    _check_partition(features)
    with torch.no_grad():
        _check_blocks(features, made(), x)
        _check_precision(features)
        _check_prior(features, x)
    _check_gradients(features, x)
    _check_state(features, build(features.kernel), x)


def _check_partition(features: Features) -> None:
    assert 5 <= features.size <= min(60, features.capacity) and features.blocks >= 2, "the suite wants 5 to 60 features"
    places = [place for span in features.spans() for place in range(features.size)[span]]
    assert places == list(range(features.size)), "law 1: the blocks are no partition, in order"
    lengths = [span.stop - span.start for span in features.spans()]
    assert set(lengths[:-1]) == {features.width} and 0 < lengths[-1] <= features.width, "law 1: width"
    for block in (-1, features.blocks):
        try:
            features.span(block)
        except IndexError:
            continue
        raise AssertionError("law 1: a block that is not there has a span")


def _check_blocks(features: Features, other: Features, x: Tensor) -> None:
    order = range(features.blocks)
    first = [features.block(x, block) for block in order]
    again = [other.block(x, block) for block in reversed(order)][::-1]
    for block, (one, two) in enumerate(zip(first, again, strict=True)):
        span = features.span(block)
        assert one.shape == (len(x), span.stop - span.start), "law 2: a block gives (N, |b|)"
        assert one.dtype == FLOAT and bool(torch.isfinite(one).all()), "law 2: not finite, or not in the dtype of x"
        assert torch.equal(one, two), "law 2: a block depends on what was asked before"
        assert torch.allclose(features.block(x[2:3], block), one[2:3], rtol=0, atol=1e-12), "law 2: on other rows"
        single = features.block(x.float(), block)
        assert single.dtype == torch.float32, "law 2: not in the dtype of x"
        assert torch.allclose(single.double(), one, rtol=0, atol=1e-5 * float(one.abs().max())), "law 2: float32"
    for i in order:
        for j in order[:i]:
            assert not torch.equal(*(first[block][:, : first[-1].shape[1]] for block in (i, j))), "law 2: blocks repeat"


def _precision(features: Features) -> Tensor:
    order = range(features.blocks)
    return torch.cat([torch.cat([features.precision(i, j) for j in order], 1) for i in order])


def _basis(features: Features, x: Tensor) -> Tensor:
    return torch.cat([features.block(x, block) for block in range(features.blocks)], 1)


def _check_precision(features: Features) -> None:
    whole = _precision(features)
    assert whole.shape == (features.size,) * 2 and whole.dtype == FLOAT, "law 3: precision is float64 (|i|, |j|)"
    assert torch.allclose(whole, whole.T, rtol=0, atol=1e-12), "law 3: S is not symmetric"
    assert float(torch.linalg.eigvalsh(whole)[0]) > -1e-10, "law 3: S is not positive definite"
    diagonal = bool((whole == torch.diag(whole.diagonal())).all())
    assert diagonal == features.diagonal_precision, "law 3: diagonal_precision is not what S is"


def _check_prior(features: Features, x: Tensor) -> None:
    phi, precision, prior = _basis(features, x), _precision(features), features.prior_variance(x)
    jitter = 1e-10 * torch.eye(features.size, dtype=FLOAT)
    covariance = phi @ torch.linalg.solve(precision + jitter, phi.T)
    assert prior.shape == (len(x),) and features.prior_variance(x.float()).dtype == torch.float32, "law 4: (N,)"
    assert bool((covariance.diagonal() <= prior * (1 + 1e-6)).all()), "law 4: more than the prior variance"


class _Look(nn.Module):
    """What features say as a module's forward, so that it can be called with other hyper-parameters."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        last = self.features.blocks - 1  # not every block: finite differences go through every number that comes out
        phi = torch.cat([self.features.block(x, block) for block in (0, last)], 1)
        precision = self.features.precision(0, last)
        return phi, self.features.prior_variance(x), *([precision] * precision.requires_grad)


def _check_gradients(features: Features, x: Tensor) -> None:
    look = _Look(features)
    named = {name: value.detach().clone().requires_grad_() for name, value in look.named_parameters()}

    def call(x: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(look, dict(zip(named, values, strict=True)), (x,))

    free = (x[:2].clone().requires_grad_(), *named.values())
    assert torch.autograd.gradcheck(call, free, raise_exception=False), (
        "law 5: gradients differ from finite differences"
    )
    with torch.no_grad():
        silent = _basis(features, x)
    assert torch.allclose(silent, _basis(features, x), rtol=0, atol=1e-12), "law 5: without a graph it is another map"


def _check_state(features: Features, fresh: Features, x: Tensor) -> None:
    with torch.no_grad():
        for value in features.kernel.parameters():
            value.add_(0.1)
        before = _seen(features, x)
        fresh.load_state_dict(features.state_dict())
        assert all(torch.equal(one, two) for one, two in zip(before, _seen(fresh, x), strict=True)), (
            "law 6: not the same bits from its state"
        )


def _seen(features: Features, x: Tensor) -> Iterable[Tensor]:
    return _basis(features, x), _precision(features), features.prior_variance(x)
