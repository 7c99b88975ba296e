"""The kernel in the units of the columns is the covariance that the model forecasts with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.models import exact, qsgp, rvm, svdgp, svgp
from streamgp.online.inputs import KernelInputs

SHAPE = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u", "v"), future=("u", "v"))
FAMILIES: dict[str, tuple[Any, dict[str, Any], float]] = {
    "exact": (exact, {}, 1e-8),
    "exact without its linear part": (exact, {"linear": False}, 1e-8),
    "matern": (exact, {"kernel": {"name": "matern", "nu": 1.5}, "ard": "column"}, 1e-8),
    "svdgp": (svdgp, {"basis": 200}, 1e-3),
    "rvm": (rvm, {}, 1e-3),
    "qsgp": (qsgp, {"features": {"size": 4000}}, 2e-2),
}


def rows(count: int = 120) -> tuple[Inputs, torch.Tensor]:
    """7 sin(u) + 30, and a column v of another size."""
    generator = np.random.default_rng(0)
    u = torch.from_numpy(generator.uniform(-3, 3, (count, 2)) * [1, 50])
    y = 30 + 7 * u[:, :1].sin() + 0.1 * torch.from_numpy(generator.normal(size=(count, 1)))
    return Inputs(torch.zeros(count, 0, 3, dtype=FLOAT), u[:, None]), y


def fitted(family: str) -> tuple[Any, Inputs, torch.Tensor]:
    module, options, _ = FAMILIES[family]
    model = module.build(module.Config.model_validate(options), SHAPE)
    x, y = rows()
    for _ in model.fit(x, y, model.epochs_for(len(y))):
        pass
    return model, x, y


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_a_regression_with_this_kernel_is_the_model(family: str) -> None:
    """m + k(x, X)(k(X, X) + σ² I)⁻¹(y − m), Rasmussen & Williams 2006, equation 2.25."""
    model, x, y = fitted(family)
    kernel, flat = model.kernel, x.future[:, 0].numpy()
    gram = kernel(flat)
    np.testing.assert_allclose(np.diag(gram), kernel.diag(flat), rtol=1e-9)
    np.testing.assert_allclose(gram, gram.T)
    mean = float(model.outputs.location)
    noise = kernel.noise_of_fit**2 * np.eye(len(y))
    found = mean + kernel(flat[:20], flat) @ np.linalg.solve(gram + noise, y.numpy() - mean)
    np.testing.assert_allclose(found, model.predict(x.rows(slice(0, 20))).mean, atol=7 * FAMILIES[family][2])
    lengths = kernel.hyperparameters["lengthscale"]
    assert lengths.shape == (2,) and 0.5 < lengths[0] < 10 < lengths[1]


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_the_noise_is_that_of_forecasts(family: str) -> None:
    model, x, _ = fitted(family)
    issued = model.predict(x.rows(slice(0, 1)))
    noise = (issued.variance - issued.latent_variance).sqrt()[0]
    np.testing.assert_allclose(model.kernel.noise, noise, rtol=1e-6)
    np.testing.assert_allclose(model.hyperparameters()["noise"], noise, rtol=1e-6)


def test_the_linear_part_is_centred_at_the_means_of_the_columns() -> None:
    model, x, _ = fitted("exact")
    kernel, flat = model.kernel, x.future[:, 0].numpy()
    own, far = kernel.hyperparameters, flat - flat.mean(0)
    apart = (flat[:, None] - flat[None]) / own["lengthscale"]
    linear = own["linear.bias"] + (far * own["linear.variance"]) @ far.T
    np.testing.assert_allclose(kernel(flat), own["outputscale"] * np.exp(-0.5 * (apart**2).sum(2)) + linear, rtol=1e-6)


def test_it_prints_and_is_evaluated_in_the_same_units() -> None:
    model, x, _ = fitted("exact without its linear part")
    kernel, flat = model.kernel, x.future[:, 0].numpy()
    own = kernel.hyperparameters
    apart = (flat[:3, None] - flat[None, :5]) / own["lengthscale"]
    np.testing.assert_allclose(kernel(flat[:3], flat[:5]), own["outputscale"] * np.exp(-0.5 * (apart**2).sum(2)))
    first = ", ".join(f"{one:.3g}" for one in own["lengthscale"])
    assert repr(kernel) == f"SquaredExponential(lengthscale=[{first}], outputscale={own['outputscale']:.3g})"
    for wrong in ([[1.0]], [1.0, 2.0], np.zeros((2, 3))):
        with pytest.raises(UsageError, match="shape"):
            kernel(wrong)


def test_inducing_points_are_rows_that_were_learned() -> None:
    for module, options in ((svdgp, {"basis": 30}), (svgp, {"points": 30}), (rvm, {})):
        model = module.build(module.Config.model_validate(options), SHAPE)
        x, y = rows()
        next(iter(model.fit(x, y, 1)))
        points = model.inducing_points()
        assert 0 < len(points) <= 120 and points.shape[1] == 2
        if module is not svgp:  # whose points are trained
            near = (points[:, None] - x.future[:, 0]).abs().amax(2).amin(1)
            assert bool((near < 1e-9).all())


@pytest.mark.parametrize("hidden", [(), ("y",)])
def test_flat_windows_are_seen_as_windows(hidden: tuple[str, ...]) -> None:
    shape = Shape(targets=("y",), horizon=2, lags=3, past=("y", "u"), future=("u",))
    inputs = KernelInputs(shape, hidden, jumps=["u"])
    generator = torch.Generator().manual_seed(0)
    past, future = (torch.randn(50, *size, generator=generator, dtype=FLOAT) * 3 + 5 for size in ((3, 2), (2, 1)))
    x = Inputs(past, future)
    inputs.scaling.fit(x)
    flat = torch.cat((past.flatten(1), future.flatten(1)), 1)
    seen = flat if inputs.columns is None else flat[:, inputs.columns]
    assert seen.shape[1] == inputs.width
    torch.testing.assert_close(inputs.of_flat(seen), inputs(x))
    torch.testing.assert_close(inputs.in_units(inputs(x)), seen)
    names = inputs.names(shape)
    assert len(names) == inputs.width and names[-2:] == ("u[t+1]", "u[t+2]")
    assert ("y[t-2]" in names) == (not hidden) and "u[t]" in names


def test_a_channel_has_one_value_for_all_of_its_lags() -> None:
    shape = Shape(targets=("y",), horizon=1, lags=3, past=("y", "u"), future=("u",))
    generator = torch.Generator().manual_seed(0)
    past = torch.randn(80, 3, 2, generator=generator, dtype=FLOAT) * torch.tensor([1.0, 100.0])
    x, y = Inputs(past, past[:, -1:, 1:]), past[:, -1, :1] + past[:, 0, 1:] / 100
    model = svdgp.build(svdgp.Config(target="level"), shape)
    next(iter(model.fit(x, y, 1)))
    kernel, length = model.kernel, model.kernel.hyperparameters["lengthscale"]
    assert length.shape == (3,) and len(model.window_columns()) == 7
    here, there = np.zeros((1, 7)), np.zeros((1, 7))
    there[0, [0, 2, 4]] = length[0]  # all lags of y, one lengthscale away
    slopes, bias = kernel.hyperparameters["linear.variance"], kernel.hyperparameters["linear.bias"]
    assert slopes.shape == (3,) and bias > 0
    smooth = kernel(here, there) - _linear(model, here, there)
    np.testing.assert_allclose(smooth, kernel.hyperparameters["outputscale"] * np.exp(-0.5))


def _linear(model: Any, one: Any, other: Any) -> Any:
    learned = model.posterior.learned(model.inputs.groups)
    x, z = (model.inputs.of_flat(torch.from_numpy(part)) for part in (one, other))
    return (learned.slopes * (x @ z.T + 1) * model.outputs.scale.square().mean()).numpy()


def test_what_of_its_shape_is_not_learned_is_printed() -> None:
    model, _, _ = fitted("matern")
    assert str(model.kernel).startswith("Matern(nu=1.5, lengthscale=[")
