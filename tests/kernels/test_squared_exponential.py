"""SE-ARD against its definition, GPyTorch and finite differences."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from streamgp.kernels.squared_exponential import Config, SquaredExponential, build

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch


def points(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def kernel() -> SquaredExponential:
    built = build(Config(outputscale=2.5), dims=3)
    with torch.no_grad():
        built.log_lengthscale.copy_(torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64).log())
    return built


def test_it_is_its_definition() -> None:
    x, z = points(5, 0), points(4, 1)
    scaled = ((x.numpy()[:, None] - z.numpy()[None]) / np.array([0.5, 1.0, 3.0])) ** 2
    np.testing.assert_allclose(kernel()(x, z).detach(), 2.5 * np.exp(-0.5 * scaled.sum(-1)), rtol=1e-12)
    np.testing.assert_allclose(kernel().diagonal(x).detach(), np.diag(kernel()(x, x).detach()), rtol=1e-12)


def test_it_is_gpytorchs() -> None:
    twin = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3)).double()
    twin.outputscale, twin.base_kernel.lengthscale = 2.5, torch.tensor([[0.5, 1.0, 3.0]])
    x, z = points(5, 0), points(4, 1)
    torch.testing.assert_close(kernel()(x, z), twin(x, z).to_dense(), rtol=1e-7, atol=1e-9)


def test_gradients_are_finite_differences() -> None:
    x, z = points(3, 0).requires_grad_(), points(2, 1).requires_grad_()
    scale = torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64, requires_grad=True)

    def value(x: Tensor, z: Tensor, scale: Tensor) -> Tensor:
        return torch.func.functional_call(kernel(), {"log_lengthscale": scale}, (x, z))

    assert torch.autograd.gradcheck(value, (x, z, scale))


def test_far_inputs_keep_their_digits() -> None:
    x = points(4, 2) + 1e3
    torch.testing.assert_close(kernel()(x, x), kernel()(x - 1e3, x - 1e3), rtol=0, atol=1e-8)
