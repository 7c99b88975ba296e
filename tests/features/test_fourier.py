"""Random Fourier features against the kernels that they stand for, and against their own definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features.fourier import Config, Fourier, build, standard_normals
from streamgp.registry import names
from tests.kernels.twins import made, points
from tests.needs import needs
from tests.properties import examples

MIXTURE = {"name": "spectral_mixture", "components": 2}
KERNELS: list[dict[str, Any]] = [
    {"name": "squared_exponential"},
    *({"name": "matern", "nu": nu, "separable": both} for nu in (0.5, 1.5, 2.5) for both in (False, True)),
    MIXTURE,
    {"name": "sum", "parts": [{"name": "matern", "nu": 0.5}, MIXTURE, "squared_exponential"]},
    {"name": "product", "parts": ["squared_exponential", {"name": "sum", "parts": [MIXTURE, "matern"]}, MIXTURE]},
]


def features(options: dict[str, Any], size: int, width: int, seed: int = 0) -> Fourier:
    return build(Config(size=size, width=width), made(**options), seed)


def basis(made_of: Fourier, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([made_of.block(x, block) for block in range(made_of.blocks)], 1)


@pytest.mark.sampled
@pytest.mark.parametrize("options", KERNELS, ids=str)
def test_blocks_are_independent_unbiased_estimates_of_the_kernel(options: dict[str, Any]) -> None:
    """B Φ_bΦ_bᵀ is an estimate of K for every block b; their mean is K to the error that their spread says, and that is
    the spread of independent ones: neighbours are uncorrelated."""
    blocks = 400
    drawn = features(options, 48 * blocks, 48)  # 24 pairs, which every number of components here divides
    x = 0.7 * points(5, 0)
    with torch.no_grad():
        truth = drawn.kernel(x, x)
        phi = [drawn.block(x, block) for block in range(blocks)]
        errors = torch.stack([blocks * one @ one.T - truth for one in phi])
    rows, columns = torch.tril_indices(5, 5, -1)
    off = errors[:, rows, columns]  # (B, 10)
    score = off.mean(0) / (off.std(0) / blocks**0.5)
    assert float(score.abs().max()) < 5.0
    neighbours = (off[1:] * off[:-1]).mean(0) / off.var(0) * blocks**0.5
    assert float(neighbours.abs().max()) < 5.0
    torch.testing.assert_close(errors.diagonal(dim1=1, dim2=2), torch.zeros(blocks, 5, dtype=FLOAT), rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", KERNELS[:3], ids=str)
def test_the_error_falls_as_the_root_of_the_size(options: dict[str, Any]) -> None:
    x = 0.7 * points(30, 1)
    error = []
    for size in (500, 8000):
        per_seed = []
        for seed in range(10):
            drawn = features(options, size, 500, seed)
            phi = basis(drawn, x)
            per_seed.append((phi @ phi.T - drawn.kernel(x, x).detach()).square().mean())
        error.append(torch.stack(per_seed).mean().sqrt().item())
    assert 0.8 * 4 < error[0] / error[1] < 1.25 * 4


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_frequencies_of_a_matern_kernel_are_student_t(nu: float) -> None:
    drawn = features({"name": "matern", "nu": nu}, 20_000, 20_000)
    scaled = (drawn.frequencies(0).rate * drawn.kernel.lengthscale).detach().numpy()
    for d in range(3):
        assert scipy.stats.kstest(scaled[:, d], "t", (2 * nu,)).pvalue > 1e-6
    radius = (scaled**2).sum(1) / 3  # of a multivariate t in 3 dimensions
    assert scipy.stats.kstest(radius, "f", (3, 2 * nu)).pvalue > 1e-6


def test_a_block_is_cosines_then_sines() -> None:
    drawn = features({"name": "squared_exponential"}, 40, 16, seed=5)
    x, omega = points(4, 2), drawn.frequencies(1).rate.detach()
    phase = x.numpy() @ omega.numpy().T
    scale = math.sqrt(2 * drawn.kernel.outputscale.item() / 40)
    expected = scale * np.concatenate((np.cos(phase), np.sin(phase)), 1)
    np.testing.assert_allclose(drawn.block(x, 1).detach(), expected, rtol=0, atol=1e-14)
    normals = standard_normals(5, 8, 8, 3) / drawn.kernel.lengthscale.detach()
    assert torch.equal(omega, normals)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 10**12),
    st.integers(1, 40),
    st.integers(1, 13),
    st.data(),
)
@examples(50)
def test_normals_are_rows_of_one_endless_matrix(seed: int, start: int, rows: int, columns: int, data: Any) -> None:
    whole = standard_normals(seed, start, rows, columns)
    assert whole.shape == (rows, columns) and whole.dtype == FLOAT and bool(torch.isfinite(whole).all())
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    assert torch.equal(standard_normals(seed, start + first, count, columns), whole[first : first + count])
    assert not torch.equal(standard_normals(seed ^ 1, start, rows, columns), whole)


def test_normals_are_standard_and_independent() -> None:
    drawn = standard_normals(1, 10**11, 40_000, 5)
    assert scipy.stats.kstest(drawn.flatten().numpy(), "norm").pvalue > 1e-6
    others = (standard_normals(2, 10**11, 40_000, 5), drawn.roll(1, 0), standard_normals(1, 0, 40_000, 5))
    for other in others:
        joint = torch.corrcoef(torch.cat((drawn, other), 1).T) - torch.eye(10)
        assert float(joint.abs().max()) * 200 < 5.0
        squares = torch.corrcoef(torch.cat((drawn.square(), other.square()), 1).T) - torch.eye(10)
        assert float(squares.abs().max()) * 200 < 5.0


def test_the_normals_never_change() -> None:
    """Weights that were learned for a seed have to find its frequencies again, in every later version."""
    found = standard_normals(7, 123_456_789, 1, 4)[0].tolist()
    assert found == pytest.approx(FROZEN, rel=1e-12)


FROZEN = [0.42961202953003247, -1.97719383193857, 0.25665792314467745, -0.994514275551566]


def test_frequencies_depend_neither_on_the_partition_nor_on_the_size() -> None:
    wide, narrow, longer = (
        features(KERNELS[-1], size, width, seed=3) for size, width in ((96, 96), (96, 32), (960, 48))
    )
    rate = wide.frequencies(0).rate
    assert torch.equal(torch.cat([narrow.frequencies(block).rate for block in range(3)]), rate)
    assert torch.equal(torch.cat([longer.frequencies(block).rate for block in range(2)]), rate)


def test_the_last_block_of_ten_million_is_there_at_once() -> None:
    """And nothing of that size is anywhere."""
    drawn = features({"name": "matern", "nu": 1.5}, 10_000_000, 1000)
    x = points(4, 0)
    phi = drawn.block(x, 9_999)
    assert phi.shape == (4, 1000) and drawn.blocks == 10_000
    assert sum(value.numel() for value in drawn.state_dict().values()) == 4
    beside = drawn.block(x, 9_998)
    estimate = (10_000 * phi @ phi.T).detach() - drawn.kernel(x, x).detach()
    assert float(estimate.abs().max()) < 5 * drawn.kernel.outputscale.item() / 500**0.5
    assert float((phi.detach() * beside.detach()).sum(1).abs().max()) * 10_000 < 1.5 * 4 * 500**0.5


def test_single_precision_is_double_precision_rounded() -> None:
    drawn = features({"name": "matern", "nu": 0.5}, 2000, 1000)
    x = points(50, 0)
    with torch.no_grad():
        single, double = drawn.block(x.float(), 1), drawn.block(x.float().double(), 1)
        phase = (x.float().double().abs() @ drawn.frequencies(1).rate.abs().T).repeat(1, 2)
    scale = math.sqrt(2 * drawn.kernel.outputscale.item() / 2000)
    assert single.dtype == torch.float32
    assert bool(((single - double).abs() <= scale * (2e-6 + 1e-6 * phase)).all())


@pytest.mark.parametrize("name", [name for name in names("kernels") if not made(name).normals])
def test_a_kernel_without_frequencies_is_refused_at_once(name: str) -> None:
    kernel = choice.build("kernels", choice.read("kernels", name), 2)
    with pytest.raises(UsageError) as caught:
        build(Config(), kernel)
    assert "matern" in caught.value.hint


@pytest.mark.parametrize("options", [{"size": 3}, {"width": 7}, {"size": 0}])
def test_odd_and_empty_sizes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Config(**options)


@needs("gpu")
def test_a_gpu_has_the_same_features() -> None:
    drawn = features({"name": "matern", "nu": 1.5}, 2000, 1000)
    x = points(20, 0)
    here = drawn.block(x, 1).detach()
    there = drawn.cuda().block(x.cuda(), 1).detach().cpu()
    torch.testing.assert_close(there, here, rtol=0, atol=1e-10)
