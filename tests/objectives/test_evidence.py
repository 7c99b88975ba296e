"""Row gradients against autograd; mini-batch estimates by enumerating every mini-batch there is."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from streamgp.objectives import evidence
from tests.objectives.oracles_deep_kernel import Problem, dense_row_gradients, problem

N, SIZE = 7, 3


def every_batch(estimate: str, at: Problem) -> Tensor:
    """(batches, N, d): the estimate of the row gradients from each of the C(N, SIZE) mini-batches."""
    rows = at.solver.row_gradients(at.h, at.y)
    pairs = at.solver.pair_gradient(at.data())
    found = []
    for batch in combinations(range(N), SIZE):
        index = torch.tensor(batch)
        leaf = at.h.clone().requires_grad_()
        some = leaf[index]
        if estimate == "rows":
            loss = evidence.row_surrogate(rows[index], some, N)
        else:
            loss = evidence.pair_surrogate(pairs[index][:, index], at.solver.kernel(some, some), N)
        found.append(torch.autograd.grad(loss, leaf)[0])
    return torch.stack(found)


@pytest.mark.parametrize("kernel", ["squared_exponential", "matern", "linear"])
@pytest.mark.parametrize("columns", [1, 3])
def test_row_gradients_are_autograds(kernel: str, columns: int) -> None:
    at = problem(50, columns, kernel)
    expected = dense_row_gradients(at)
    found = evidence.row_gradients(at.solver.condition(at.data()), at.h, at.y)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(at.solver.row_gradients(at.h, at.y), expected, rtol=1e-9, atol=1e-9)
    assert not found.requires_grad


def test_row_gradients_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    at = problem(30, 2)
    posterior = at.solver.condition(at.data())
    whole = evidence.row_gradients(posterior, at.h, at.y)
    monkeypatch.setattr(evidence, "CHUNK", 7)
    torch.testing.assert_close(evidence.row_gradients(posterior, at.h, at.y), whole, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kernel", ["squared_exponential", "linear"])  # without and with a diagonal part
@pytest.mark.parametrize("estimate", ["rows", "submatrix"])
def test_the_mean_over_all_mini_batches_is_the_gradient(estimate: str, kernel: str) -> None:
    at = problem(N, 2, kernel)
    torch.testing.assert_close(every_batch(estimate, at).mean(0), dense_row_gradients(at), rtol=1e-9, atol=1e-9)


def test_the_printed_factor_is_biased() -> None:
    """N/|b| on every pair, C.15's factor, gives (|b| − 1)/(N − 1) of a stationary kernel's gradient."""
    at = problem(N, 1)
    printed = every_batch("submatrix", at).mean(0) * (N / SIZE) / (N * (N - 1) / (SIZE * (SIZE - 1)))
    share = (SIZE - 1) / (N - 1)
    torch.testing.assert_close(printed, share * dense_row_gradients(at), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_sub_matrix_varies_more_in_a_weight(seed: int) -> None:
    """For h = W z, over the same mini-batches: the reason for the row form."""
    at = problem(N, 1, seed=seed)
    z = torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rows, pairs = (
        torch.einsum("bnd,nw->bdw", every_batch(estimate, at), z).var(0).sum() for estimate in ("rows", "submatrix")
    )
    assert pairs > rows, f"variance ratio {float(pairs / rows):.2f}"


def test_whole_batches_are_exact() -> None:
    at = problem(N, 1)
    leaf = at.h.clone().requires_grad_()
    loss = evidence.pair_surrogate(at.solver.pair_gradient(at.data()), at.solver.kernel(leaf, leaf), N)
    torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], dense_row_gradients(at), rtol=1e-9, atol=1e-9)
