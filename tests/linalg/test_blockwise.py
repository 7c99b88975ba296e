"""Products and gradients by row blocks against the dense matrix, whatever is kept of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.kernels import Kernel
from streamgp.linalg.blockwise import Blockwise, storage
from tests.needs import needs

N, M, D = 23, 17, 2
KERNELS = (
    "squared_exponential",
    "matern",
    "linear",
    "spectral_mixture",
    "sum",
    {"name": "product", "parts": ["linear", "periodic"]},
    {"name": "locally_periodic", "tied": True},
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT)


def built(options: object) -> Kernel:
    kernel: Kernel = choice.build("kernels", choice.read("kernels", options), D)
    return kernel


X, Z = normal(N, D), normal(M, D, seed=1)
LIMITS = {"nothing": 0, "some rows": 8 * M * 9, "everything": 2**20}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("block", [8 * M * 4, 2**20], ids=["blocks of 4 rows", "one block"])
def test_products_are_those_of_the_dense_matrix(limit: int, block: int) -> None:
    kernel = built("sum")
    k, dense = Blockwise(kernel, X, Z, limit=limit, block=block), kernel(X, Z).detach()
    assert k.kept == min(N, limit // (8 * M)) and k.shape == (N, M)
    torch.testing.assert_close(k.product(normal(M, 3)), dense @ normal(M, 3))
    torch.testing.assert_close(k.transposed(normal(N, 3)), dense.T @ normal(N, 3))
    for index in (0, 8, 9, N - 1):
        torch.testing.assert_close(k.row(index), dense[index])


@pytest.mark.sampled
@pytest.mark.parametrize("options", KERNELS, ids=str)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("block", [8 * M * 4, 2**20], ids=["blocks of 4 rows", "one block"])
def test_gradients_of_bilinear_forms_are_those_of_autograd(options: object, limit: int, block: int) -> None:
    kernel, u, v = built(options), normal(N, 2, seed=2), normal(M, 2, seed=3)
    expected = torch.autograd.grad((u * (kernel(X, Z) @ v)).sum(), list(kernel.parameters()))
    k = Blockwise(kernel, X, Z, limit=limit, block=block)
    for _ in range(2):  # the graph that was kept serves once
        for got, want in zip(k.gradient(u, v), expected, strict=True):
            torch.testing.assert_close(got, want)


def test_what_is_kept_follows_the_hyper_parameters_at_a_refresh() -> None:
    kernel = built("squared_exponential")
    k, eye = Blockwise(kernel, X, Z, limit=2**20), torch.eye(M, dtype=FLOAT)
    before = k.product(eye)
    with torch.no_grad():
        next(iter(kernel.parameters())).add_(0.5)
    assert torch.equal(k.product(eye), before)
    k.refresh()
    torch.testing.assert_close(k.product(eye), kernel(X, Z).detach())


def test_parameters_that_ask_for_no_gradient_are_left_out() -> None:
    kernel = built("squared_exponential")
    dict(kernel.named_parameters())["log_outputscale"].requires_grad_(False)
    found = Blockwise(kernel, X, Z, limit=0).gradient(normal(N, 1), normal(M, 1))
    assert [list(part.shape) for part in found] == [[D]]


def test_float32_is_as_exact_as_it_can_be() -> None:
    kernel = built("locally_periodic")
    k = Blockwise(kernel, X, Z, limit=2**20, dtype=torch.float32)
    got, want = k.product(normal(M, 3)), kernel(X, Z).detach() @ normal(M, 3)
    assert got.dtype == FLOAT and 0 < (got - want).abs().max() < 1e-5


def test_storage_is_float64_where_it_fits() -> None:
    assert (storage(100, 800), storage(101, 800)) == (torch.float64, torch.float32)


CHILD = """
import resource, sys, torch
torch.set_num_threads(1)
from streamgp.base import FLOAT
from streamgp.kernels import squared_exponential
from streamgp.linalg.blockwise import Blockwise
kernel = squared_exponential.build(squared_exponential.Config(), 1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
few = torch.linspace(0, 1, 50, dtype=FLOAT)[:, None]
Blockwise(kernel, few, few, limit=0, block=2**20).gradient(few, few)  # what a first backward loads
before = peak()
x = torch.linspace(0, 1, 3500, dtype=FLOAT)[:, None]  # dense: 98 MB
k = Blockwise(kernel, x, x, limit=int(sys.argv[1]), block=2**20)
v = k.product(x)
k.transposed(v), k.gradient(v, x)
print(peak() - before)
"""


@needs("linux")  # ru_maxrss is in KiB there
@pytest.mark.slow
def test_memory_is_what_is_kept_and_a_few_blocks() -> None:
    kept = 20 * 2**20
    asked = [sys.executable, "-c", CHILD, str(kept)]
    grown = 1024 * int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    assert grown < kept + 25 * 2**20
