"""Shares against prequential losses by brute force."""

from __future__ import annotations

import pytest
import torch

from streamgp.regression.precision_mixture import INDEPENDENT, MEMORY, TIMES, PrecisionMixture
from streamgp.regression.recursive import Form, RecursiveRegression
from streamgp.testing.stateful import check_stateful, same_bits


def data(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Column 0 has large weights and little noise, column 1 next to no signal."""
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    w = torch.tensor([[3.0, -2.0, 2.0, 1.0, -3.0], [0.05, 0.0, 0.0, -0.05, 0.0]], dtype=torch.float64).T
    return phi, phi @ w + noise * torch.tensor([0.1, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("form", ["gram", "root"])
def test_losses_are_those_of_forecasts_made_before_learning(form: Form) -> None:
    phi, y = data(120)
    y[7, 0] = torch.nan
    regression, mixture = RecursiveRegression(5, 2, form), PrecisionMixture(2)
    regression.begin(kappa=20.0)
    wanted, seen = torch.zeros(len(TIMES), 2, dtype=torch.float64), 0.0
    for start in range(0, 120, 10):
        rows = slice(start, start + 10)
        mixture.score(regression, phi[rows], y[rows])
        kept = torch.exp(torch.tensor(-10 / MEMORY, dtype=torch.float64))
        for place, times in enumerate(TIMES):
            known, truth = phi[:start], torch.nan_to_num(y[:start])
            ridge = times * 20.0 * torch.eye(5, dtype=torch.float64)
            w = torch.linalg.solve(known.T @ known + ridge, known.T @ truth) if start else torch.zeros(5, 2).double()
            wanted[place] = kept * wanted[place] + 10 * (y[rows] - phi[rows] @ w).square().nanmean(0)
        seen = float(kept) * seen + 10
        regression.add(phi[rows], torch.nan_to_num(y[rows]))  # the missing as 0: here as in the solve above
    torch.testing.assert_close(mixture.loss, wanted, rtol=1e-9, atol=1e-9)
    worse = wanted / wanted.amin(0) - 1
    shares = torch.softmax(-0.5 * INDEPENDENT * seen / MEMORY * worse, 0)
    torch.testing.assert_close(mixture.shares, shares)
    served = sum(share * regression.under(m).weights for m, share in zip(TIMES, shares, strict=True))
    torch.testing.assert_close(mixture.weights(regression), served)


def test_each_column_comes_to_its_own_prior() -> None:
    phi, y = data(3000)
    regression, mixture = RecursiveRegression(5, 2), PrecisionMixture(2)
    for start in range(0, 3000, 20):
        if start % 40 == 0:
            regression.begin(kappa=30.0)  # few rows are known at any time: the prior matters
        mixture.score(regression, phi[start : start + 20], y[start : start + 20])
        regression.add(phi[start : start + 20], y[start : start + 20])
    assert mixture.shares[:, 0].argmax() == 0 and mixture.shares[:, 1].argmax() == len(TIMES) - 1
    assert mixture.shares[0, 0] > 0.99 and mixture.shares[-1, 1] > mixture.shares[0, 1]


def test_without_a_mixture_the_posterior_serves() -> None:
    phi, y = data(50)
    regression, mixture = RecursiveRegression(5, 2), PrecisionMixture(2, mixed=False)
    regression.add(phi, y)
    mixture.score(regression, phi, y)
    assert mixture.shares.tolist() == [[1.0, 1.0]]
    assert torch.equal(mixture.weights(regression), regression.posterior.weights)


@pytest.mark.parametrize("value", [1e160, float("inf")])
def test_a_value_beyond_all_squares_leaves_shares_that_are_numbers(value: float) -> None:
    phi, y = data(40)
    regression, mixture = RecursiveRegression(5, 2), PrecisionMixture(2)
    regression.add(phi, y)
    y[7, 0] = value
    for _ in range(3):
        mixture.score(regression, phi, y)
    assert torch.allclose(mixture.shares.sum(0), torch.ones(2, dtype=torch.float64))
    assert bool(torch.isfinite(mixture.weights(regression)).all())


def test_it_goes_on_from_its_state() -> None:
    phi, y = data(40)
    regression = RecursiveRegression(5, 2)
    regression.add(phi, y)

    class Part(PrecisionMixture):
        def state(self) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
            return dict(self.named_buffers()), {}

        def restore(self, tensors: dict[str, torch.Tensor], rest: object) -> None:
            self.load_state_dict(tensors)

    def advance(part: Part, step: int) -> torch.Tensor:
        part.score(regression, phi[step : step + 9], y[step : step + 9])
        return part.weights(regression)

    check_stateful(lambda: Part(2), advance, 4, same_bits)  # type: ignore[arg-type]
