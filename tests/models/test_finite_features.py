"""Features against the kernels that they stand for; the perceptron whose outputs are features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp import choice
from streamgp.encoders import Layout, identity, mlp
from streamgp.errors import UsageError
from streamgp.features.fourier import standard_normals
from streamgp.models.finite_rkhs.features import FiniteFeatures, orthogonal
from streamgp.training.fit import training

LAYOUT = Layout(lags=0, past=0, future=3)


def rows(count: int, width: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def features(kernel: Any, size: int = 600, net: bool = False, **options: Any) -> FiniteFeatures:
    encoder = mlp.build(mlp.Config(hidden=6, width=2), LAYOUT) if net else identity.build(identity.Config(), LAYOUT)
    return FiniteFeatures(encoder, choice.read("kernels", kernel), size, seed=0, **{"linear": False} | options)


@pytest.mark.parametrize("net", [False, True])
def test_a_linear_kernel_is_met_exactly(net: bool) -> None:
    made, z = features({"name": "linear", "variance": 0.7, "bias": 0.3}, net=net), rows(5)
    phi, latent = made(z), made.encoder(z)
    assert phi.shape == (5, made.width) == (5, made.encoder.width + 1)
    torch.testing.assert_close(phi @ phi.T, made.kernel(latent, latent))


@pytest.mark.parametrize(
    "kernel",
    [
        {"name": "squared_exponential", "lengthscale": 2.0, "outputscale": 1.5},
        {"name": "matern", "nu": 1.5},
        {"name": "sum", "parts": ["squared_exponential", {"name": "matern", "lengthscale": 3.0}]},
        {"name": "spectral_mixture"},
    ],
    ids=lambda kernel: kernel["name"],
)
def test_other_kernels_are_met_up_to_the_number_of_frequencies(kernel: Any) -> None:
    """Within 5 standard errors of a mean over 3000 independent frequencies; orthogonal ones are not worse."""
    made, z = features(kernel, size=6000).requires_grad_(False), rows(6)
    phi = made(z)
    _, weight = made.kernel.frequencies(made.normals, made.place)
    assert phi.shape == (6, 6000)
    error = (phi @ phi.T - made.kernel(z, z)).abs().max()
    assert error < 5 * float((weight.square().mean() / 3000).sqrt())


def test_the_linear_part_stands_beside_the_kernel() -> None:
    made, z = features("squared_exponential", linear=True), rows(5)
    made.slope.fill_(0.2)
    phi = made(z)
    torch.testing.assert_close(phi[:, :4], 0.2 * torch.cat((z, torch.ones(5, 1).double()), 1))
    torch.testing.assert_close(phi[:, 4:], features("squared_exponential")(z))


def test_orthogonal_frequencies_keep_their_lengths_and_halve_the_error_nearby() -> None:
    normals = standard_normals(1, 0, 40, 16)
    found = orthogonal(normals)
    torch.testing.assert_close(found.norm(dim=1), normals.norm(dim=1))
    gram = found[:16] @ found[:16].T
    assert (gram - torch.diag(gram.diagonal())).abs().max() < 1e-12
    z, errors = 0.15 * rows(30, 16), []
    wanted = torch.exp(-0.5 * torch.cdist(z, z).square())
    for make in (lambda some: some, orthogonal):
        draws = [make(standard_normals(seed, 0, 32, 16)) for seed in range(20)]
        waves = [torch.cat(((z @ w.T).cos(), (z @ w.T).sin()), 1) / 32**0.5 for w in draws]
        errors.append(torch.stack([(phi @ phi.T - wanted).square().mean() for phi in waves]).mean())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("kernel", ["linear", "squared_exponential"])
def test_everything_that_is_learned_has_a_gradient(kernel: str) -> None:
    made, z = features(kernel, size=20, net=True, linear=True, learned=True), rows(4)
    names = {name for name, _ in made.named_parameters()}
    assert ("normals" in names) == (kernel != "linear")

    def value() -> Tensor:
        phi = made(z)
        return (phi.square() @ torch.linspace(-1, 1, phi.shape[1], dtype=torch.float64)).sum()

    gradients = torch.autograd.grad(value(), list(made.parameters()), allow_unused=True)
    for (name, parameter), gradient in zip(made.named_parameters(), gradients, strict=True):
        assert gradient is not None and torch.isfinite(gradient).all(), name
        at, flat = int(gradient.abs().argmax()), parameter.data.view(-1)
        sides = []
        for step in (1e-5, -1e-5):
            flat[at] += step
            sides.append(value().item())
            flat[at] -= step
        slope = (sides[0] - sides[1]) / 2e-5
        assert slope == pytest.approx(float(gradient.view(-1)[at]), rel=1e-5, abs=1e-8), name


def test_drawn_frequencies_are_no_state_and_learned_ones_are() -> None:
    assert "normals" not in features("matern", learned=False).state_dict()
    assert features("matern", learned=True).state_dict()["normals"].shape[0] == 300


@pytest.mark.parametrize("kernel", ["periodic", "rational_quadratic"])
def test_a_kernel_without_frequencies_is_refused(kernel: str) -> None:
    with pytest.raises(UsageError) as caught:
        features(kernel)
    assert "linear" in caught.value.hint


def test_a_perceptron_with_outer_activations_makes_features_of_order_1() -> None:
    layout, z = Layout(lags=0, past=0, future=20), rows(500, 20)
    outer = mlp.Config(hidden=128, layers=1, width=128, activation="relu", outer=True, precision="float32")
    sizes = torch.stack([mlp.build(outer.model_copy(update={"seed": s}), layout)(z).square().sum(1) for s in range(5)])
    assert 0.5 < float(sizes.detach().mean()) < 1.5 and bool((mlp.build(outer, layout)(z) >= 0).all())
    encoder = mlp.build(outer, layout)
    assert encoder.output is None and len(list(encoder.parameters())) == 4
    exact = encoder(z)
    with training(encoder):
        single = encoder(z)
        gradient = torch.autograd.grad(single.sum(), list(encoder.parameters()))
    assert single.dtype == torch.float32 and exact.dtype == encoder(z).dtype == torch.float64
    assert all(part.dtype == torch.float64 for part in gradient)
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)
