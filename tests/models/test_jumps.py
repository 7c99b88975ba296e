"""svdgp with `jumps`: a target that jumps where an input changes its sign, as friction does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape
from streamgp.errors import UsageError
from streamgp.evidence.initial import example
from streamgp.models import svdgp
from streamgp.online.inputs import KernelInputs
from streamgp.testing.models import SHAPES, check_model
from tests.words import naming

SHAPE = Shape(targets=("torque",), horizon=1, lags=0, past=("torque", "q", "qd"), future=("q", "qd"))
SMALL = {"basis": 48, "reservoir": 256, "rebuild": 200, "evidence_rows": 60}


def joint(rows: int, seed: int, unit: float = 1.0) -> tuple[Inputs, Tensor]:
    """Positions, velocities in radians over `unit`, and gravity, inertia and dry friction."""
    generator = torch.Generator().manual_seed(seed)
    q, qd = torch.randn(2, rows, dtype=FLOAT, generator=generator)
    noise = 0.05 * torch.randn(rows, dtype=FLOAT, generator=generator)
    future = torch.stack([q, (qd + 0.5) * unit], 1)[:, None]
    return Inputs(torch.zeros(rows, 0, 3, dtype=FLOAT), future), (torch.sin(q) + (qd + 0.5).sign() + noise)[:, None]


def learned(jumps: str, unit: float = 1.0) -> Tensor:
    """Forecasts of 200 other rows, from 300."""
    model = svdgp.build(svdgp.Config(jumps=jumps), SHAPE)
    list(model.fit(*joint(300, 0, unit), epochs=1))
    return model.predict(joint(200, 1, unit)[0]).mean


def test_a_jump_at_the_sign_of_a_velocity_is_learned() -> None:
    truth = joint(200, 1)[1]
    plain, jumping = ((learned(jumps) - truth).square().mean().sqrt() for jumps in ("", "qd"))
    assert jumping < 0.5 * plain
    torch.testing.assert_close(learned("q?", unit=1000.0), learned("q?"), rtol=0, atol=1e-6)


def test_series_that_share_a_kernel_learn_a_jump() -> None:
    (x, y), (ahead, truth), errors = joint(300, 0), joint(200, 1), list[float]()
    for jumps in ("", "qd"):
        fleet = svdgp.build_fleet(svdgp.Config(jumps=jumps, shared=True), SHAPE, torch.device("cpu"))
        assert fleet is not None
        whole = Inputs.cat([x, x._replace(future=10.0 * x.future)]), torch.cat([y, y])  # each in its own units
        series = torch.arange(2).repeat_interleave(300)
        assert fleet.predict(whole[0], series).isfinite().all()
        assert all(step.healthy for step in fleet.fit(*whole, series))
        found = fleet.predict(ahead._replace(future=10.0 * ahead.future), torch.ones(200, dtype=torch.int64))[0]
        errors.append(float((found - truth).square().mean().sqrt()))
    assert errors[1] < 0.5 * errors[0]


def test_the_inputs_are_those_of_the_formula() -> None:
    x = joint(100, 2)[0]
    inputs = KernelInputs(SHAPE, jumps=["qd"])
    inputs.scaling.fit(x)
    v = x.future[:, 0, 1].numpy()
    np.testing.assert_allclose(inputs(x)[:, 2].numpy(), 2 / np.pi * np.arctan(v / (0.05 * v.std())), atol=1e-12)
    assert inputs.count == len(inputs.scale) == 3 and inputs.groups.tolist() == [0, 1, 2]
    windows = KernelInputs(Shape(("y",), 2, 3, ("y", "u"), ("u",)), jumps=["u"])
    assert windows.groups[8:].tolist() == [3, 3, 3, 4, 4]  # its lags, and its steps ahead


@pytest.mark.slow
def test_the_laws_of_a_model_hold() -> None:
    torch.set_num_threads(1)
    check_model(lambda shape: svdgp.build(svdgp.Config(**SMALL, jumps="*"), shape), SHAPES[:3])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match=naming("slip jumps")):
        svdgp.build(svdgp.Config(jumps="qd,slip*"), SHAPE)
    with pytest.raises(ValidationError, match=naming("jumps inference")):
        svdgp.Config(jumps="qd", inference="gradient")
    with pytest.raises(UsageError, match=naming("--init jumps")):
        svdgp.build(svdgp.Config(jumps="qd"), SHAPE).initialise(example(SHAPE))
