"""The exact GP as a model: GPyTorch's predictions, a stream equals a batch, and what is refused or undone."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from streamgp.base import FLOAT, Inputs, Shape, Simulates
from streamgp.errors import NotPositiveDefinite, UsageError
from streamgp.evidence import marginal_likelihood
from streamgp.evidence.initial import Initial, TakesInitial
from streamgp.evidence.minimise import BOUND
from streamgp.models import exact
from streamgp.models.exact.hyper import Hyperparameters
from streamgp.models.exact.posterior import ExactPosterior
from streamgp.online.model import SimulatedStreamModel
from streamgp.testing.models import SHAPES, example_windows
from streamgp.testing.stateful import reborn
from tests.words import names, naming

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch

REGRESSION = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u", "k"), future=("u", "k"))
PLAIN = {"linear": False, "rescale": False, "training": {"prior": None}}
FEW = {"training": {"evaluations": 8}, "evidence_rows": 60}


def build(shape: Shape, **options: Any) -> SimulatedStreamModel:
    return exact.build(exact.Config(**options), shape)


def posterior_of(model: SimulatedStreamModel) -> ExactPosterior:
    assert isinstance(model.posterior, ExactPosterior)
    return model.posterior


def hyper_of(model: SimulatedStreamModel) -> Hyperparameters:
    return posterior_of(model).hyper


def regression(rows: int, seed: int = 0) -> tuple[Inputs, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(rows, 1, 2, generator=generator, dtype=FLOAT) * torch.tensor([3.0, 0.1], dtype=FLOAT)
    noise = torch.randn(rows, 1, generator=generator, dtype=FLOAT)
    return Inputs(torch.zeros(rows, 0, 3, dtype=FLOAT), u), 50 + 10 * torch.sin(u[:, :, 0]) + 20 * u[:, :, 1] + noise


class Twin(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_predictions_and_marginal_likelihood_are_gpytorchs() -> None:
    x, y = regression(120)
    model = build(REGRESSION, **PLAIN)
    step = next(model.fit(x, y, epochs=1))
    z, mean, scale = model.inputs(x), model.outputs.location, model.outputs.scale
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-8))
    twin = Twin(z, (y[:, 0] - mean) / scale, likelihood).double()
    values = dict(hyper_of(model).kernel.named_parameters())
    twin.covar_module.base_kernel.lengthscale = values["log_lengthscale"].exp()[None]
    twin.covar_module.outputscale = values["log_outputscale"].exp()
    likelihood.noise = hyper_of(model).log_noise.exp()
    at, _ = regression(20, seed=1)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False), torch.no_grad():
        warnings.simplefilter("ignore")
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, twin)(twin(z), twin.train_targets)
        told = likelihood(twin.eval()(model.inputs(at)))
    issued = model.predict(at)
    assert step.loss == pytest.approx(loss.item(), abs=1e-8)
    np.testing.assert_allclose(issued.mean[:, 0], told.mean * scale + mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(issued.variance[:, 0], told.variance * scale**2, rtol=1e-7)


def test_a_stream_ends_with_the_batch_posterior_of_the_rows_that_it_keeps() -> None:
    """Same scaling and hyper-parameters; some updates drop the oldest rows."""
    x, y = example_windows(SHAPES[0], 400)
    model = build(SHAPES[0], rows=150, rebuild=0, limit=None, rescale=False, **FEW)
    next(model.fit(x.rows(slice(0, 100)), y[:100], 1))
    sizes, dropped = [], 0
    for start in range(100, 400, 20):
        step = model.update(x.rows(slice(start, start + 20)), y[start : start + 20])
        dropped += bool(sizes) and step.basis < sizes[-1] + 20
        sizes.append(step.basis)
    assert max(sizes) <= 150 and min(sizes[3:]) >= 120 and dropped >= 6
    at = x.rows(slice(0, 30))
    one = model.predict(at)
    kept, h = sizes[-1], model.inputs(x)
    r = (y - model.reference(x) - model.outputs.location) / model.outputs.scale
    mean, variance = hyper_of(model).prior().append(h[400 - kept :], r[400 - kept :]).moments(h[:30])
    wanted = mean * model.outputs.scale + model.outputs.location + model.reference(at)
    assert torch.allclose(one.mean, wanted, rtol=0, atol=1e-8)
    assert torch.allclose(one.latent_variance, variance * model.outputs.scale.square(), rtol=0, atol=1e-8)


def test_rebuilds_come_early_and_then_by_schedule() -> None:
    x, y = example_windows(SHAPES[0], 700)
    model = build(SHAPES[0], rows=200, rebuild=200, **FEW)
    done = [model.update(x.rows(slice(s, s + 20)), y[s : s + 20]).done for s in range(0, 700, 20)]
    rebuilds = [place for place, text in enumerate(done) if text.startswith("rebuild")]
    assert rebuilds[:2] == [0, 2] and names(done[2], "40") and names(done[rebuilds[-1]], "200")
    assert any(text and place not in rebuilds for place, text in enumerate(done)), "no row was dropped"


def test_more_rows_than_it_may_keep_are_refused_with_a_remedy() -> None:
    x, y = regression(60)
    with pytest.raises(UsageError, match=naming("50")) as caught:
        list(build(REGRESSION, rows=50).fit(x, y, 1))
    assert "svgp" in caught.value.hint and "rows=60" in caught.value.hint
    with pytest.raises(UsageError):
        build(Shape(targets=("y",), horizon=1, lags=0, past=("y",), future=()))


def test_bands_of_a_table_with_many_columns_are_no_narrower_than_its_errors() -> None:
    """100 hyper-parameters fit 100 rows better than they know the function; rows that were left out say so."""
    generator = torch.Generator().manual_seed(1)
    shape = Shape(("y",), 1, 0, ("y", *(f"x{at}" for at in range(50))), tuple(f"x{at}" for at in range(50)))
    values = torch.randn(600, 50, generator=generator, dtype=FLOAT)
    y = values @ torch.linspace(-1.0, 1.0, 50, dtype=FLOAT)[:, None] + 0.2 * torch.randn(
        600, 1, generator=generator, dtype=FLOAT
    )
    x, off = Inputs(values.new_zeros(600, 0, 51), values[:, None]), []
    for widen in (False, True):
        model = exact.build(exact.Config(widen=widen), shape)
        list(model.fit(x.rows(slice(0, 100)), y[:100], 1))
        issued = model.predict(x.rows(slice(100, None)))
        off.append(float(((y[100:] - issued.mean).square() / issued.variance).mean()))
    assert off[0] > 1.5 and 0.2 < off[1] < 1.2


def test_several_steps_ahead_share_their_noise_unless_told_otherwise() -> None:
    two = Shape(targets=("y", "z"), horizon=1, lags=1, past=("y", "z"), future=())
    for shape, noise, factors in ((two, "auto", 2), (two, "shared", 1), (SHAPES[1], "auto", 1), (SHAPES[1], "own", 6)):
        assert len(posterior_of(build(shape, training={"noise": noise})).rows.noise) == factors


def test_any_kernel_and_one_lengthscale_a_column() -> None:
    x, y = example_windows(SHAPES[1], 80)
    for kernel in ("matern", "rational_quadratic", "locally_periodic", {"name": "spectral_mixture", "components": 2}):
        model = build(SHAPES[1], kernel=kernel, ard="column", **FEW)
        assert next(model.fit(x, y, 1)).healthy
        assert all(len(v) in (2, SHAPES[1].width) for n, v in hyper_of(model).kernel.named_parameters() if v.ndim)


def test_a_lengthscale_that_is_set_is_where_the_search_starts() -> None:
    x, y = regression(60)
    starts = []
    for kernel in ({"name": "matern"}, {"name": "matern", "lengthscale": 3.0}):
        model = build(REGRESSION, kernel=kernel, linear=False, training={"evaluations": 1, "method": "adam"})
        next(model.fit(x, y, 1))
        starts.append(hyper_of(model).kernel.log_lengthscale.exp())
    assert torch.allclose(starts[1], torch.full((2,), 3.0, dtype=FLOAT))
    assert torch.allclose(starts[0], torch.full((2,), math.sqrt(2), dtype=FLOAT), rtol=0.02)
    kept = build(REGRESSION, kernel={"name": "matern", "lengthscale": 3.0}, linear=False, evidence_rows=0)
    next(kept.fit(x, y, 1))
    assert torch.allclose(hyper_of(kept).kernel.log_lengthscale.exp(), torch.full((2,), 3.0, dtype=FLOAT))


def test_missing_targets_leave_the_mean_of_their_column_as_it_is() -> None:
    """Column by column, a model that never saw the rows whose truth is missing."""
    shape = Shape(targets=("y", "z"), horizon=1, lags=0, past=("y", "z", "u", "k"), future=("u", "k"))
    x, y = regression(80)
    x = Inputs(torch.zeros(80, 0, 4, dtype=FLOAT), x.future)
    both = torch.cat((y, 2 * y.flip(0)), 1)
    both[60:, 1] = torch.nan
    model = build(shape, evidence_rows=0, linear=False, rescale=False)
    next(model.fit(x, both, 1))
    r = (both - model.outputs.location) / model.outputs.scale
    h = model.inputs(x)
    seen = hyper_of(model).prior().append(h[:60], r[:60])
    assert torch.allclose(posterior_of(model).rows.mean(h)[:, 1], seen.mean(h)[:, 1], rtol=0, atol=1e-9)
    assert not torch.allclose(posterior_of(model).rows.mean(h)[:, 0], seen.mean(h)[:, 0], rtol=0, atol=1e-3)


def test_a_search_that_fails_is_undone_and_its_rows_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = example_windows(SHAPES[0], 300)
    failed, never = (build(SHAPES[0], rows=200, rebuild=rows, **FEW) for rows in (60, 0))
    for model in (failed, never):
        next(model.fit(x.rows(slice(0, 100)), y[:100], 1))

    def fail(*_: Any, **__: Any) -> None:
        raise NotPositiveDefinite("no factor", hint="none")

    with monkeypatch.context() as patch:
        patch.setattr(marginal_likelihood, "maximise", fail)
        step = failed.update(x.rows(slice(100, 160)), y[100:160])
    assert not step.healthy and step.done == "rebuild: 60 rows; undone: no factor; update"
    assert never.update(x.rows(slice(100, 160)), y[100:160]).healthy
    assert torch.equal(failed.predict(x).parameters(), never.predict(x).parameters())
    again = reborn(failed, build(SHAPES[0], rows=200, rebuild=60, **FEW))
    done = []
    for start in (160, 180, 200, 220):
        for model in (failed, again):
            done.append(model.update(x.rows(slice(start, start + 20)), y[start : start + 20]).done)
    assert [text for text in done if text.startswith("rebuild")] == 2 * ["rebuild: 60 rows"]
    assert torch.equal(failed.predict(x).parameters(), again.predict(x).parameters())


def test_a_first_batch_without_signal_does_not_last() -> None:
    """A rebuild searches from the last hyper-parameters, and from the default."""
    x, y = regression(400)
    model = build(REGRESSION, rebuild=60, linear=False, evidence_rows=100)
    noise = torch.randn(50, 1, generator=torch.Generator().manual_seed(1), dtype=FLOAT)
    model.update(x.rows(slice(0, 50)), 50 + 7 * noise)
    with torch.no_grad():  # as far as such a batch can send them
        hyper_of(model).kernel.log_outputscale.fill_(-BOUND)
    for start in range(50, 400, 50):
        model.update(x.rows(slice(start, start + 50)), y[start : start + 50])
    issued = model.predict(x.rows(slice(300, None)))
    assert not model.warnings() and float((issued.mean - y[300:]).square().mean()) < 0.1 * float(y[300:].var())


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_functions_spread_as_forecasts_do(noise: str) -> None:
    x, y = example_windows(SHAPES[1], 150)
    model = build(SHAPES[1], training={"evaluations": 8, "noise": noise}, evidence_rows=60)
    assert isinstance(model, Simulates)
    assert model.functions(3, torch.Generator())(x.rows(slice(0, 3))).isfinite().all(), "of the prior"
    next(model.fit(x.rows(slice(0, 120)), y[:120], 1))
    at, paths = x.rows(slice(130, 132)), 2000
    observe = model.functions(paths, torch.Generator().manual_seed(0))
    values = observe(Inputs(at.past.repeat(paths, 1, 1), at.future.repeat(paths, 1, 1))).unflatten(0, (paths, 2))
    issued = model.predict(at)
    assert ((values.mean(0) - issued.mean) / (issued.variance / paths).sqrt()).abs().max() < 5
    assert ((values.var(0) / issued.variance - 1) / (2 / paths) ** 0.5).abs().max() < 5


def found(kernel: Any, values: dict[str, Tensor]) -> Initial:
    scale, columns = torch.tensor([3.0, 0.1], dtype=FLOAT), torch.ones(1, dtype=FLOAT)
    return Initial(REGRESSION, "auto", 0.9, kernel, values, scale, 7 * columns, 1.0 * columns, {"method": "none"})


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"ard": "column"}, {"linear": False}, {}])
def test_it_starts_from_hyper_parameters_found_before(options: dict[str, Any]) -> None:
    values = {
        "log_lengthscale": torch.tensor([0.5, 1.5], dtype=FLOAT),
        "log_outputscale": torch.tensor(0.3, dtype=FLOAT),
    }
    initial = found({"name": "squared_exponential"}, values)
    model = build(REGRESSION, learn="once", rescale=False, rebuild=80, **options)
    assert isinstance(model, TakesInitial)
    model.initialise(initial)
    x, y = regression(80)
    next(model.fit(x, y, 1))
    own = build(REGRESSION, evidence_rows=0, linear=False, rescale=False)
    next(own.fit(x, y, 1))  # of which the scaling is wanted
    z = (x.future[:, 0] - own.inputs.scaling.future.location) / torch.tensor([3.0, 0.1], dtype=FLOAT)
    lengthscale = values["log_lengthscale"].exp()
    square = ((z[:, None] - z) / lengthscale).square().sum(2)
    covariance = math.exp(0.3) * 49.0 * torch.exp(-0.5 * square)  # in squared units of y
    left = y - own.outputs.location
    wanted = covariance @ torch.linalg.solve(covariance + torch.eye(80, dtype=FLOAT), left) + own.outputs.location
    assert torch.allclose(model.predict(x).mean, wanted, rtol=0, atol=1e-5)
    assert model.predict(x).noise[0, 0].item() == pytest.approx(1.0, abs=1e-9)
    model.update(x._replace(future=4.0 * x.future), y)  # a rebuild, in other units: lengthscales are what they were
    near, far = (model.inputs(x.rows(slice(0, 1))._replace(future=x.future[:1] + by)) for by in (0.0, 0.1))
    away = hyper_of(model).kernel(near, far)
    square = (0.1 / (torch.tensor([3.0, 0.1], dtype=FLOAT) * lengthscale)).square().sum()
    factor = math.exp(0.3) * (7.0 / model.outputs.scale.item()) ** 2
    assert model.rebuilt == 160
    assert away.item() == pytest.approx(factor * math.exp(-0.5 * square.item()), rel=1e-6)
    searched = build(REGRESSION, **options, **FEW)
    searched.initialise(initial)
    assert next(searched.fit(x, y, 1)).healthy
    with pytest.raises(UsageError):
        build(REGRESSION, kernel="matern").initialise(initial)
    whole = build(REGRESSION, kernel="linear", linear=True)
    both = {"name": "sum", "parts": [{"name": "linear"}, {"name": "linear"}]}
    names = ("parts.0.log_variance", "parts.1.log_variance", "parts.0.log_bias", "parts.1.log_bias")
    zeros = [torch.zeros(2, dtype=FLOAT)] * 2 + [torch.zeros((), dtype=FLOAT)] * 2
    whole.initialise(found(both, dict(zip(names, zeros, strict=True))))
    assert next(whole.fit(x, y, 1)).healthy
