"""Sparse AdaGrad against torch's own, and that a step does no work on rows that it is not given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from streamgp.papers.qsgp.adagrad import SparseAdaGrad, decay
from streamgp.state import Declared, Nested, Whole
from streamgp.testing.stateful import check_stateful


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
def test_a_vector_whose_rows_are_all_given_is_torchs_adagrad() -> None:
    start = draw(7, seed=0)
    ours, theirs = start.clone(), start.clone().requires_grad_()
    optimiser, twin = SparseAdaGrad({"w": ours}, {"w": 0.5}), torch.optim.Adagrad([theirs], lr=0.05, eps=1e-10)
    for step in range(20):
        gradient = draw(7, seed=step + 1)
        optimiser.step({"w": (slice(0, 7), gradient)}, rate=0.1)
        theirs.grad = gradient
        twin.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-7)  # sums are float32


@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_a_row_is_what_it_would_be_alone(shape: tuple[int, ...]) -> None:
    """Its steps depend on the gradients that it was given only, whatever happened elsewhere, by slice or by number."""
    whole = torch.zeros(*shape, dtype=torch.float64)
    optimiser = SparseAdaGrad({"w": whole}, {})
    expected, sums = torch.zeros_like(whole), torch.zeros(12, dtype=torch.float64)
    for step in range(30):
        rows = torch.randperm(12, generator=torch.Generator().manual_seed(step))[:4]
        where: slice | Tensor = slice(4, 8) if step % 3 == 0 else rows
        rows = torch.arange(4, 8) if step % 3 == 0 else rows
        gradient = draw(4, *shape[1:], seed=100 + step)
        optimiser.step({"w": (where, gradient)}, rate=0.3)
        for row, g in zip(rows.tolist(), gradient, strict=True):
            sums[row] += g.square().mean()
            expected[row] -= 0.3 * g / sums[row].sqrt()
    torch.testing.assert_close(whole, expected, rtol=1e-6, atol=1e-7)


def test_the_gradients_of_a_repeated_row_are_added_up() -> None:
    once, twice = torch.zeros(4, 2), torch.zeros(4, 2)
    g = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
    SparseAdaGrad({"w": twice}, {}).step({"w": (torch.tensor([2, 0, 2]), g)}, rate=0.1)
    SparseAdaGrad({"w": once}, {}).step({"w": (torch.tensor([0, 2]), torch.stack((g[1], g[0] + g[2])))}, rate=0.1)
    assert torch.equal(once, twice)


def test_a_view_of_one_column_has_a_rate_of_its_own() -> None:
    mu = torch.zeros(5, 2)
    optimiser = SparseAdaGrad({"0": mu[:, 0], "1": mu[:, 1]}, {})
    g = torch.tensor([[1e-3, 1e3]])
    optimiser.step({str(t): (slice(2, 3), g[:, t]) for t in range(2)}, rate=0.1)
    torch.testing.assert_close(mu[2], torch.tensor([-0.1, -0.1]), rtol=1e-5, atol=0)
    joint = torch.zeros(5, 2)
    SparseAdaGrad({"w": joint}, {}).step({"w": (slice(2, 3), g)}, rate=0.1)
    assert joint[2, 0].abs() < 1e-6  # one number a row: the column in large units sets the rate


def test_zero_gradients_and_forgotten_rows() -> None:
    w = torch.zeros(3, dtype=torch.float32)
    optimiser = SparseAdaGrad({"w": w}, {})
    optimiser.step({"w": (slice(0, 3), torch.tensor([1.0, 0.0, -2.0]))}, rate=0.1)
    assert w.dtype == torch.float32 and w[1] == 0.0
    for _ in range(99):
        optimiser.step({"w": (slice(0, 1), torch.tensor([1.0]))}, rate=0.1)
    before = w[0].item()
    optimiser.forget("w", slice(0, 1))
    optimiser.step({"w": (slice(0, 1), torch.tensor([1.0]))}, rate=0.1)
    assert w[0].item() - before == pytest.approx(-0.1, rel=1e-4)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation made, views and in-place results of the named storages aside."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.known, self.size = known, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple) else (out,):
            if isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in self.known:
                self.size = max(self.size, value.numel())
        return out


@pytest.mark.parametrize(
    "where", [slice(1000, 1050), torch.arange(0, 100_000, 2000), torch.zeros(50, dtype=torch.long)]
)
def test_a_step_makes_nothing_larger_than_its_slice(where: slice | Tensor) -> None:
    w = torch.zeros(100_000, 3)
    optimiser = SparseAdaGrad({"w": w}, {})
    gradient = torch.ones(50, 3)
    known = {t.untyped_storage().data_ptr() for t in (w, optimiser.sums["w"])}
    with Largest(known) as seen:
        optimiser.step({"w": (where, gradient)}, rate=0.1)
    assert 0 < seen.size <= gradient.numel()


def test_it_is_stateful() -> None:
    class Owner(Declared):
        """Parameters and optimiser, as a model holds them."""

        STATE = (Nested("w"), Whole("optimiser"))

        def __init__(self) -> None:
            self.w = torch.zeros(6, 2)
            self.optimiser = SparseAdaGrad({"w": self.w}, {})

    def advance(owner: Owner, step: int) -> Tensor:
        owner.optimiser.step({"w": (slice(step, step + 2), draw(2, 2, seed=step).float())}, rate=0.1)
        return owner.w.clone()

    check_stateful(Owner, advance, 5, torch.equal)


def test_it_finds_the_minimum_of_a_quadratic_from_sparse_gradients() -> None:
    factor = draw(8, 8, seed=0)
    a, b, w = factor @ factor.T / 8 + torch.eye(8).double(), draw(8, seed=1), torch.zeros(8, dtype=torch.float64)
    optimiser = SparseAdaGrad({"w": w}, {})
    generator = torch.Generator().manual_seed(0)
    for step in range(3000):
        where = slice(0, 4) if torch.rand((), generator=generator) < 0.5 else slice(4, 8)
        optimiser.step({"w": (where, (a @ w - b)[where])}, rate=decay(0.5, step, 1000.0))
    torch.testing.assert_close(w, torch.linalg.solve(a, b), rtol=1e-4, atol=1e-5)
