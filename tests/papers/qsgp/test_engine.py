"""What the engine of solver=quadruple adds to its steps."""

from __future__ import annotations

import pytest
import torch

from streamgp.base import Shape
from streamgp.errors import UsageError
from streamgp.models.qsgp import Config
from streamgp.models.qsgp.posterior import QsgpPosterior
from streamgp.models.qsgp.quadruple import QuadrupleEngine, SiteEngine

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


def test_windows_with_many_columns_have_as_many_blocks() -> None:
    """The linear part makes the first block longer, and no block fewer."""
    shape = Shape(targets=("y",), horizon=1, lags=30, past=("y",), future=())
    features = {"size": 400, "width": 40}
    engine = QsgpPosterior(Config(features=features, solver="quadruple", reservoir=50, steps=100), shape).engine
    z = torch.randn(50, 30, generator=torch.Generator().manual_seed(0)).double()
    engine.begin(torch.tensor(0.5).double(), z[:, :1])
    assert isinstance(engine, QuadrupleEngine) and engine.basis.blocks == len(engine.descent.last) == 10
    engine.epoch(engine.training_rows(z, z[:, :1], torch.ones(50).double()), 0, 1)
    assert len(engine.descent.touched()) == 10 and engine.healthy


def test_functions_stand_on_rows_with_a_weight_in_random_order() -> None:
    features = {"name": "inducing", "size": 30, "width": 10}
    engine = QsgpPosterior(Config(features=features, solver="quadruple", reservoir=50), SHAPE).engine
    z, weight = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double(), torch.ones(50).double()
    weight[:30] = 0.0
    engine.place(z, weight, torch.Generator().manual_seed(0))
    assert engine.basis.size == 20 and engine.basis.blocks == 2 and not engine.basis.extra
    points = engine.basis.inner.points[:20]  # type: ignore[union-attr]
    order = torch.cdist(points, z[30:]).argmin(1)
    assert sorted(order.tolist()) == list(range(20)) and order.tolist() != list(range(20))


@pytest.mark.parametrize("name", ["logistic", "laplace"])
def test_tempered_rows_count_less_and_other_likelihoods_keep_their_unit(name: str) -> None:
    """The noise of the system is 1, and of T tempered rows one counts."""
    from streamgp.papers.qsgp.site_descent import SiteDescent

    shape = Shape(targets=("y",), horizon=4, lags=3, past=("y",), future=())
    config = Config(features={"size": 40, "width": 20}, solver="quadruple", likelihood=name, reservoir=50)  # type: ignore[arg-type]
    engine = QsgpPosterior(config, shape).engine
    assert isinstance(engine, SiteEngine) and isinstance(engine.descent, SiteDescent)
    assert engine.temper == engine.descent.options.temper == 2.0 and engine.averaged
    y = torch.ones(20, 4).double()
    engine.begin(torch.tensor(0.5).double(), y)
    found = engine.descent.expectation(y, torch.zeros(20, 4).double(), torch.ones(20, 1).double())
    assert found.shape == (20, 4) and float(engine.basis.scale) == 1.0
    if name == "logistic":  # with nearly all outcomes 1, an offset of their log-odds
        assert bool((found > -0.4).all())


@pytest.mark.parametrize("support", [0, 200])
def test_residuals_tell_the_noise_with_control_variates_and_without(support: int) -> None:
    features = {"size": 40, "width": 40}
    config = Config(features=features, solver="quadruple", steps=150, reservoir=200, control_variates=support)  # type: ignore[arg-type]
    engine = QsgpPosterior(config, SHAPE).engine
    z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    y = z[:, :1] + 0.3 * torch.randn(200, 1, generator=torch.Generator().manual_seed(1)).double()
    engine.begin(torch.tensor(0.1).double(), y)
    training = engine.training_rows(z, y, torch.ones(200).double())
    engine.epoch(training, 0, 1)
    engine.refresh_noise(training, 0.0)
    assert 0.03 < float(engine.sites.level()) < 0.2


def test_more_dense_columns_than_functions_are_refused() -> None:
    config = Config(features={"size": 40, "width": 20}, solver="quadruple", covariance="chevron", columns=50)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="columns=50 is more than the 4"):
        QsgpPosterior(config, SHAPE)
