"""The exact head against the batch posterior of the same rows in extended precision, SciPy's t, and a dense GP."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamgp.errors import UsageError
from streamgp.regression.recursive import Form, RecursiveRegression
from streamgp.testing.stateful import check_stateful, reborn, same_bits
from tests.models.oracles_recursive import batch
from tests.needs import needs
from tests.properties import examples

FORMS: list[Form] = ["gram", "root", "factor"]
FORGETFUL: list[Form] = ["gram", "root"]


def data(rows: int, width: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated features of unequal size, and targets linear in them with noise 0.3."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5
    size = torch.logspace(-1, 1, width, dtype=torch.float64)
    phi = (torch.randn(rows, width, generator=generator, dtype=torch.float64) @ mixing + 0.5) * size
    w = torch.randn(width, columns, generator=generator, dtype=torch.float64)
    return phi, phi @ w + 0.3 * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def learned(
    form: Form, phi: torch.Tensor, y: torch.Tensor, cuts: list[int] | int, kappa: float = 0.1, **options: Any
) -> RecursiveRegression:
    regression = RecursiveRegression(phi.shape[1], y.shape[1], form, **options)
    regression.begin(kappa)
    for some, part in zip(phi.split(cuts), y.split(cuts), strict=True):
        regression.add(some, part)
    return regression


def agrees(found: RecursiveRegression, at: torch.Tensor, oracle: Any, tolerance: float) -> bool:
    """Whether mean, leverage and residual are the oracle's, relative to the size of each."""
    mean, leverage = found.mean(at).numpy(), found.leverage(at).numpy()
    return bool(
        np.abs(mean - oracle.mean).max() <= tolerance * np.abs(oracle.mean).mean()
        and (np.abs(leverage - oracle.leverage) <= tolerance * oracle.leverage).all()
        and np.allclose(found.posterior.residual, oracle.residual, rtol=tolerance, atol=0)
    )


@pytest.fixture(scope="module")
def many() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    """10⁵ rows, rows to ask about (some far out), and what the batch posterior says of them."""
    phi, y = data(100_000, 12, 3)
    at = torch.cat((phi[:50], 30 * phi[50:60]))
    return phi, y, at, batch(phi, y, 0.1, at)


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1000, "ragged"])
def test_after_100000_rows_it_is_the_batch_posterior(form: Form, cut: Any, many: Any) -> None:
    phi, y, at, oracle = many
    sizes = np.random.default_rng(1).integers(1, 700, 1000).tolist()
    ragged = [size for place, size in enumerate(sizes) if sum(sizes[: place + 1]) <= len(phi)]
    cuts = cut if cut != "ragged" else [*ragged, len(phi) - sum(ragged)]
    found = learned(form, phi, y, cuts)
    assert agrees(found, at, oracle, 1e-8)
    assert found.count.tolist() == [1e5] * 3
    lower = found.posterior.lower
    assert 2 * lower.diagonal().abs().log().sum().item() == pytest.approx(oracle.log_determinant, rel=1e-10)


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
def test_row_by_row_is_the_batch_posterior(form: Form) -> None:
    phi, y = data(3000, 5, 2)
    assert agrees(learned(form, phi, y, 1), phi[:40], batch(phi, y, 0.1, phi[:40]), 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize(("cond", "root", "gram"), [(1e5, 1e-8, 1e-6), (1e8, 2e-6, 1e-2)])
@pytest.mark.parametrize("form", FORMS)
def test_a_root_keeps_the_digits_that_the_products_lose(form: Form, cond: float, root: float, gram: float) -> None:
    """After 10⁵ rows of features with such a condition number a root is off by some 10 cond eps, a product by cond²."""
    generator = torch.Generator().manual_seed(3)
    left = torch.randn(100_000, 6, generator=generator, dtype=torch.float64)
    right = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))[0]
    phi = left * torch.logspace(0, -math.log10(cond), 6, dtype=torch.float64) @ right
    y = left[:, :1] + 2.0 * left[:, 5:] + 0.1 * torch.randn(100_000, 1, generator=generator, dtype=torch.float64)
    at, kappa = phi[:50], 1e-18
    found, oracle = learned(form, phi, y, 64, kappa), batch(phi, y, kappa, phi[:50])
    assert agrees(found, at, oracle, root) if form != "gram" else not agrees(found, at, oracle, gram)


@pytest.mark.parametrize("form", FORGETFUL)
@examples(15)
@given(cuts=st.lists(st.integers(1, 60), min_size=1, max_size=8), memory=st.floats(3.0, 1e4))
def test_forgetting_is_the_posterior_of_weighted_rows(form: Form, cuts: list[int], memory: float) -> None:
    """λ^age, however the rows are cut into batches; n is the sum of the weights."""
    phi, y = data(sum(cuts), 4, 2)
    factor = math.exp(-1.0 / memory)
    weight = factor ** np.arange(len(phi) - 1, -1, -1)
    found = learned(form, phi, y, cuts, forgetting=factor)
    assert agrees(found, phi, batch(phi, y, 0.1, phi, weight), 1e-7)
    assert found.count.tolist() == pytest.approx([weight.sum()] * 2) and found.rows.item() == pytest.approx(
        weight.sum()
    )


@pytest.mark.parametrize("form", FORGETFUL)
def test_the_prior_is_not_forgotten(form: Form) -> None:
    """A direction that no row has shown for 2000 rows has the variance of the prior again.

    Where F itself is scaled, it has exp(2000/100) = 5e8 times as much.
    """
    phi = torch.zeros(2000, 2, dtype=torch.float64)
    phi[:, 0] = 1.0
    found = learned(form, phi, phi[:, :1], 50, kappa=1.0, forgetting=math.exp(-1 / 100))
    one = torch.eye(2, dtype=torch.float64)
    assert found.leverage(one)[1].item() == pytest.approx(1.0, rel=1e-12)
    assert found.leverage(one)[0].item() == pytest.approx(1 / 101.5, rel=1e-3)
    decayed = torch.eye(2, dtype=torch.float64)  # F, forgotten as it stands
    for part in phi.split(50):
        decayed = math.exp(-50 / 100) * decayed + part.T @ part
    assert torch.linalg.inv(decayed)[1, 1] > 4e8


def test_only_data_that_stands_apart_can_be_forgotten() -> None:
    with pytest.raises(UsageError):
        RecursiveRegression(2, 1, "factor", 0.99)
    with pytest.raises(UsageError):
        RecursiveRegression(2, 1, "factor").forget(0.99)
    with pytest.raises(UsageError):
        RecursiveRegression(2, 1, "gram", 1.5)


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_is_so_many_rows(form: Form) -> None:
    phi, y = data(30, 4, 2)
    times = torch.arange(30) % 4
    found = RecursiveRegression(4, 2, form)
    found.add(phi, y, times)
    repeated = learned(form, phi.repeat_interleave(times, 0), y.repeat_interleave(times, 0), 7, kappa=1.0)
    torch.testing.assert_close(found.mean(phi), repeated.mean(phi))
    torch.testing.assert_close(found.noise, repeated.noise)
    assert found.nlml() == pytest.approx(repeated.nlml())


@pytest.mark.parametrize("form", FORMS)
def test_nlml_is_that_of_the_gaussian_process(form: Form) -> None:
    phi, y = data(40, 4, 2)
    noise = torch.tensor([0.2, 0.5], dtype=torch.float64)
    found = learned(form, phi, y, 9, kappa=0.3)
    wanted = 0.0
    for column in range(2):
        covariance = noise[column] * (phi @ phi.T / 0.3 + torch.eye(40, dtype=torch.float64))
        wanted -= stats.multivariate_normal(np.zeros(40), covariance.numpy()).logpdf(y[:, column].numpy())
    assert found.nlml(noise) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_nlml_with_unknown_noise_is_that_of_a_multivariate_t(form: Form) -> None:
    phi, y = data(40, 4, 2)
    found = RecursiveRegression(4, 2, form)
    found.begin(0.3, shape=1.5, noise=0.7)
    found.add(phi, y)
    wanted = 0.0
    for column in range(2):  # b0 = 0.35
        size = 0.35 / 1.5 * (phi @ phi.T / 0.3 + torch.eye(40, dtype=torch.float64))
        wanted -= stats.multivariate_t(np.zeros(40), size.numpy(), df=3.0).logpdf(y[:, column].numpy())
    assert found.nlml() == pytest.approx(wanted, rel=1e-10)
    added = RecursiveRegression(4, 2, form)
    added.begin(0.3, shape=1.5, noise=0.7)
    chain = 0.0  # one row after another by the predictive t
    for row in range(40):
        one, at = phi[row : row + 1], y[row].numpy()
        spread = (added.noise * (1 + added.leverage(one)) * (1 - 2 / added.freedom)).sqrt()
        chain -= stats.t(added.freedom.numpy(), added.mean(one)[0].numpy(), spread.numpy()).logpdf(at).sum()
        added.add(one, y[row : row + 1])
    assert chain == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_target_teaches_nothing(form: Form) -> None:
    phi, y = data(60, 4, 3)
    found, other = (learned(form, phi[:50], y[:50], 10) for _ in range(2))
    found.add(phi[50:], torch.full_like(y[50:], torch.nan))
    assert all(same_bits(one, another) for one, another in zip(found.buffers(), other.buffers(), strict=True))
    part = y[50:51].clone()
    part[0, 1] = torch.nan
    found.add(phi[50:51], part)
    one, before = found.posterior, other.posterior
    torch.testing.assert_close(one.weights[:, 1], before.weights[:, 1])
    torch.testing.assert_close(one.residual[1], before.residual[1])
    assert found.count.tolist() == [51.0, 50.0, 51.0] and found.rows == 51.0
    whole = learned(form, phi[:51], y[:51], 10)
    torch.testing.assert_close(one.weights[:, [0, 2]], whole.posterior.weights[:, [0, 2]])


@pytest.mark.parametrize("form", FORMS)
def test_draws_have_the_moments_of_the_posterior(form: Form) -> None:
    phi, y = data(20, 3, 2)
    found = learned(form, phi, y, 20)
    paths = 20_000
    weights, noise = found.draw(paths, torch.Generator().manual_seed(0))
    at = phi[:5]
    value = torch.einsum("nd,pdt->pnt", at, weights)  # variance: b/(a − 1) times the leverage
    variance = found.leverage(at)[:, None] * found.noise
    off = (value.mean(0) - found.mean(at)) / (variance / paths).sqrt()
    assert off.abs().max() < 5
    ratio = value.var(0) / variance
    kurtosis = ((value - value.mean(0)) ** 4).mean(0) / value.var(0) ** 2
    assert ((ratio - 1) / ((kurtosis - 1) / paths).sqrt()).abs().max() < 5
    assert ((noise.mean(0) - found.noise) / (noise.std(0) / paths**0.5)).abs().max() < 5
    known = torch.tensor([4.0, 9.0], dtype=torch.float64)
    weights, noise = found.draw(paths, torch.Generator().manual_seed(0), noise=known)
    assert torch.equal(noise, known.expand(paths, 2))
    ratio = torch.einsum("nd,pdt->pnt", at, weights).var(0) / (found.leverage(at)[:, None] * known)
    assert ((ratio - 1) / (2 / paths) ** 0.5).abs().max() < 5


@pytest.mark.parametrize(("form", "forgetting"), [("gram", 1.0), ("gram", 0.99), ("root", 0.99), ("factor", 1.0)])
def test_it_goes_on_from_its_state_bit_for_bit(form: Form, forgetting: float) -> None:
    phi, y = data(50, 6, 2)

    def advance(regression: RecursiveRegression, step: int) -> torch.Tensor:
        rows = slice(10 * step, 10 * step + 10)
        regression.add(phi[rows], y[rows])
        return torch.cat((regression.mean(phi).flatten(), regression.leverage(phi), regression.noise))

    check_stateful(lambda: RecursiveRegression(6, 2, form, forgetting), advance, 4, same_bits)


@needs("gpu")
@pytest.mark.parametrize("form", FORMS)
def test_a_gpu_agrees(form: Form) -> None:
    phi, y = data(2000, 8, 2)
    found = learned(form, phi, y, 100)
    moved = reborn(found, RecursiveRegression(8, 2, form)).cuda()
    moved.add(phi.cuda(), y.cuda())
    found.add(phi, y)
    torch.testing.assert_close(moved.mean(phi.cuda()).cpu(), found.mean(phi), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(moved.leverage(phi.cuda()).cpu(), found.leverage(phi), rtol=1e-8, atol=1e-12)
