"""Fits of few rows: how much too narrow their forecasts are, by rows left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from streamgp.base import Inputs, Shape
from streamgp.errors import NotPositiveDefinite
from streamgp.models import svdgp
from streamgp.models.svdgp.conjugate import Conjugate
from streamgp.online.held_out import FOLDS, PRIOR_ROWS
from streamgp.online.summing import in_blocks
from streamgp.sklearn import ExactGPRegressor, FiniteRKHSRegressor, RVMRegressor, SVDGPRegressor, SVGPRegressor
from streamgp_pipelines.assembly import build_model

MANY = [ExactGPRegressor(), SVDGPRegressor(), RVMRegressor(), FiniteRKHSRegressor(), SVGPRegressor(epochs=5)]


def table(rows: int, columns: int) -> tuple[Any, Any]:
    """A smooth function of two columns; the others say nothing."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (rows, columns))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * generator.normal(size=rows)


def narrow(one: Any) -> Any:
    return type(one)(**one.get_params() | {"options": {"widen": False}})


@pytest.mark.sampled
@pytest.mark.parametrize("one", MANY, ids=lambda one: type(one).__name__)
def test_rows_left_out_widen_the_bands_and_leave_the_means(one: Any) -> None:
    x, y = table(460, 20)
    wide = one.set_params(random_state=0).fit(x[:60], y[:60])
    plain = narrow(wide).fit(x[:60], y[:60])
    (mean, std), (other, narrower) = (found.predict(x[60:], return_std=True) for found in (wide, plain))
    factor = wide.model_.widening.item()
    np.testing.assert_allclose(mean, other, rtol=1e-9)
    np.testing.assert_allclose(std, narrower * factor**0.5)
    np.testing.assert_allclose(wide.hyperparameters_["noise"], plain.hyperparameters_["noise"] * factor**0.5)
    joint = wide.predict(x[60:70], return_cov=True)[1]
    np.testing.assert_allclose(np.diag(joint), std[:10] ** 2)
    assert np.mean((y[60:] - mean) ** 2 / std**2) < 1.5 and factor >= 1


def test_the_factor_is_that_of_four_fits_of_the_other_rows() -> None:
    x, y = table(60, 20)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    fitted = RVMRegressor(random_state=0).fit(x, y)
    seed = fitted.model_.options.seed
    fold = torch.randperm(60, generator=torch.Generator().manual_seed(seed)).numpy() % FOLDS
    total = PRIOR_ROWS
    for held in (fold == part for part in range(FOLDS)):
        mean, std = narrow(fitted).fit(x[~held], y[~held]).predict(x[held], return_std=True)
        total += np.sum((y[held] - mean) ** 2 / std**2)
    # each of these fits standardises its own rows, and draws others
    assert fitted.model_.widening.item() == pytest.approx(total / (60 + PRIOR_ROWS), rel=0.25)


def test_a_rebuild_leaves_the_factor_behind_and_a_copy_keeps_it() -> None:
    x, y = table(400, 20)
    fitted = SVDGPRegressor(random_state=0, options={"rebuild": 60}).fit(x[:60], y[:60])
    found = fitted.model_.widening.clone()
    assert found.item() > 1
    tensors, rest = fitted.model_.state()
    other = SVDGPRegressor(random_state=0, options={"rebuild": 60, "widen": False}).fit(x[:60], y[:60])
    assert other.model_.widening.item() == 1
    other.model_.restore(tensors, rest)
    assert torch.equal(other.model_.widening, found)
    fitted.partial_fit(x[60:], y[60:])
    assert fitted.model_.widening.item() == 1


@pytest.mark.parametrize(
    "options", [{"online": "transfer", "reservoir": 60, "basis": 32, "rebuild": 50}, {"rebuild": 0}], ids=str
)
def test_a_transfer_or_rows_enough_end_the_factor(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(420, 2)
    fitted = SVDGPRegressor(random_state=0, options=options).fit(x[:60], y[:60])
    model = fitted.model_
    model.widening = torch.full_like(model.widening, 2.0)
    fitted.partial_fit(x[60:100], y[60:100])
    assert model.widening.item() == 2
    if options["rebuild"]:
        with monkeypatch.context() as patch:
            patch.setattr(Conjugate, "move", no_factor)
            fitted.partial_fit(x[100:120], y[100:120])
        assert model.widening.item() == 2
    fitted.partial_fit(x[120:], y[120:])
    assert model.widening.item() == 1


def no_factor(*given: Any) -> Any:
    raise NotPositiveDefinite("no factor")


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, np.nan, np.inf])
def test_a_factor_that_no_fit_has_is_refused(value: float) -> None:
    model = svdgp.build(svdgp.Config(), Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",)))
    tensors, rest = model.state()
    with pytest.raises(ValueError, match="widening is"):
        model.restore(tensors | {"widening": torch.full_like(tensors["widening"], value)}, rest)


def test_outcomes_heavy_tails_and_large_tables_are_not_checked() -> None:
    x, y = table(60, 3)
    for likelihood in ("logistic", "laplace"):
        own = (y > 0).astype(float) if likelihood == "logistic" else y
        fitted = SVGPRegressor(likelihood=likelihood, points=8, epochs=1, random_state=0).fit(x, own)
        assert fitted.model_.widening.item() == 1


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["svdgp", "rvm", "finite_rkhs", "svgp"])
def test_fits_before_change_no_factor(name: str) -> None:
    (x, y), (u, _) = table(60, 6), table(40, 6)
    again, fresh = (build(name) for _ in range(2))
    for rows, truths in ((u, np.cos(4 * u[:, 0])), (x, y)):
        assert [step.healthy for step in again.fit(*windows(rows, truths), 3)]
    assert [step.healthy for step in fresh.fit(*windows(x, y), 3)]
    assert fresh.widening.item() > 1
    assert again.widening.item() == pytest.approx(fresh.widening.item(), rel=1e-6)


def test_the_fits_of_a_check_learn_in_this_process() -> None:
    class Elsewhere:
        def __init__(self) -> None:
            self.module, self.calls = np, 0

        def __call__(self, *given: Any) -> None:
            self.calls += 1
            in_blocks(*given)

    x, y = windows(*table(60, 6))
    here, there = (build("svdgp") for _ in range(2))
    there.posterior.summing = summing = Elsewhere()
    for model in (here, there):
        assert list(model.fit(x, y, 1))
    assert torch.equal(here.widening, there.widening) and here.widening.item() > 1
    assert summing.calls == 1 and there.posterior.summing is summing


def test_many_epochs_of_more_rows_are_not_checked() -> None:
    posterior = build("svgp").posterior
    assert posterior.checked(199) and not posterior.checked(1100)
    assert build("svgp", epochs=5).posterior.checked(1100)


def build(name: str, **options: Any) -> Any:
    shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", *"abcdef"), future=tuple("abcdef"))
    return build_model(name, options, shape, torch.device("cpu"))


def windows(x: Any, y: Any) -> tuple[Inputs, torch.Tensor]:
    future = torch.from_numpy(x)[:, None]
    return Inputs(future.new_zeros(len(x), 0, 7), future), torch.from_numpy(y)[:, None]
