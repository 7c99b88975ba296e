"""What the engine of solver=quadruple adds to its steps."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import Shape
from streamgp.models.qsgp import Config
from streamgp.models.qsgp.posterior import QsgpPosterior
from streamgp.models.qsgp.quadruple import QuadrupleEngine

SHAPE = Shape(targets=("y",), horizon=1, lags=3, past=("y",), future=())


@pytest.mark.slow
def test_hyper_parameters_that_steps_moved_outlive_a_new_beginning() -> None:
    """learn=elbo: what is estimated once is moved by the steps, and a rebuild begins from where they left it."""
    features = {"size": 40, "width": 20}
    config = Config(features=features, solver="quadruple", optimiser="adagrad", learn="elbo", steps=50, reservoir=200)
    engine = QsgpPosterior(config, SHAPE).engine
    assert isinstance(engine, QuadrupleEngine)
    z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    y, kernel = torch.sin(3.0 * z[:, :1]), engine.kernel
    base = kernel.log_lengthscale.detach().clone()
    engine.begin(torch.tensor(0.5).double(), y)
    engine.epoch(engine.training_rows(z, y, torch.ones(200).double()), 0, 1)
    moved, noise = kernel.log_lengthscale.detach().clone(), engine.descent.noise.clone()
    assert bool((moved != base).all()) and float(noise) != 0.5
    kernel.log_lengthscale.data.copy_(base)
    engine.basis.requires_grad_(False)
    kernel.log_outputscale.data.copy_(engine.base[-1])
    engine.begin(torch.tensor(0.5).double(), y)
    torch.testing.assert_close(kernel.log_lengthscale.detach(), moved)
    torch.testing.assert_close(engine.descent.noise, noise)
