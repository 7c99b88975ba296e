"""Standardisation: what it is fitted on, constants, missing values, state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp import registry
from streamgp.base import Inputs, Shape
from streamgp.online.inputs import KernelInputs
from streamgp.online.scaling import InputScaling, Standardiser
from streamgp.testing import SHAPES, example_windows, reborn


def test_moments_are_those_of_numpy_with_nan_left_out() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(1e6, 3.0, (7, 5, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    scaler = Standardiser(3)
    scaler.fit(torch.from_numpy(values))  # of 7 models
    np.testing.assert_allclose(scaler.location.numpy(), np.nanmean(values, 1), rtol=1e-14)
    np.testing.assert_allclose(scaler.scale.numpy(), np.nanstd(values, 1), rtol=1e-9)
    rows = values.reshape(-1, 3)
    scaler.fit(torch.from_numpy(rows))
    np.testing.assert_allclose(scaler.location.numpy(), np.nanmean(rows, 0), rtol=1e-14)
    np.testing.assert_allclose(scaler.scale.numpy(), np.nanstd(rows, 0), rtol=1e-9)
    again = scaler.transform(torch.from_numpy(values))
    assert (again[torch.from_numpy(np.isnan(values))] == 0).all()


def test_constant_and_empty_channels_stay_finite() -> None:
    scaler = Standardiser(3)
    scaler.fit(torch.tensor([[0.1 + 0.2, float("nan"), 0.0]] * 5, dtype=torch.float64))
    assert scaler.scale.tolist() == [1.0, 1.0, 1.0]
    assert torch.isfinite(scaler.transform(torch.tensor([[7.0, 8.0, 9.0]], dtype=torch.float64))).all()
    nothing = Standardiser(2)
    nothing.fit(torch.zeros(0, 2, dtype=torch.float64))
    assert nothing.fitted and nothing.scale.tolist() == [1.0, 1.0]


def test_a_target_that_never_varied_has_a_thousandth_of_its_size() -> None:
    """Rounding of what it departs from is no variation."""
    scaler = Standardiser(4)
    targets = torch.tensor([[-20.0, 0.0, float("nan"), 7.0]] * 5, dtype=torch.float64)
    rows = torch.arange(5, dtype=torch.float64)[:, None]
    scaler.fit(rows * torch.tensor([1e-15, 0.0, 0.0, 1.0]), targets)
    assert scaler.scale.tolist() == pytest.approx([0.02, 1.0, 1.0, 2.0**0.5])


@pytest.mark.parametrize("name", ["linear", "svdgp", "persistence", "gp_narx", "narx"])
def test_the_first_bands_of_a_target_that_never_varied_do_not_depend_on_its_unit(name: str) -> None:
    torch.set_num_threads(1)
    shape = Shape(targets=("y",), horizon=1, lags=3, past=("y",), future=())
    bands = []
    for level in (1e-3, 1.0, 1e6):
        x = Inputs(torch.full((60, 3, 1), level).double(), torch.zeros(60, 1, 0).double())
        module = registry.load("models", name)
        model = module.build(module.Config(), shape)
        found = [model.predict(x.rows(slice(0, 1))).variance] if name != "svdgp" else []  # its prior has no units
        list(model.fit(x, torch.full((60, 1), level).double(), 1))
        found.append(model.predict(x.rows(slice(0, 1))).variance)
        bands.append([float(one.sqrt()) / level for one in found])
        assert max(bands[-1]) < 2e-3
    np.testing.assert_allclose(bands[1:], bands[:1] * 2, rtol=1e-3)


def test_small_units_are_not_taken_for_constants() -> None:
    scaler = Standardiser(1)
    scaler.fit(torch.tensor([[1e-12], [3e-12]], dtype=torch.float64))
    assert scaler.scale.item() == 1e-12


def test_windows_of_every_shape_are_flattened_oldest_first() -> None:
    for shape in SHAPES:
        x, _ = example_windows(shape, 40)
        inputs = KernelInputs(shape)
        scaling = inputs.scaling
        assert not scaling.fitted
        scaling.fit(x)
        z = inputs(x)
        assert z.shape == (40, shape.width)
        wanted = [(x.past - scaling.past.location) / scaling.past.scale]
        wanted.append((x.future - scaling.future.location) / scaling.future.scale)
        assert torch.equal(z, torch.cat([part.reshape(40, -1) for part in wanted], 1))
        other = reborn(inputs, KernelInputs(shape))
        assert other.scaling.fitted and torch.equal(other(x), z)


def test_a_window_without_channels_ahead() -> None:
    scaling = InputScaling(SHAPES[0])
    scaling.fit(Inputs(torch.zeros(3, 3, 1).double(), torch.zeros(3, 1, 0).double()))
    assert scaling.fitted
