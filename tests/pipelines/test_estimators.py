"""The regressors of scikit-learn: its own checks, and what they share with the models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from streamgp.errors import StreamgpWarning
from streamgp.sklearn import (
    ExactGPRegressor,
    FiniteRKHSRegressor,
    QSGPRegressor,
    RVMRegressor,
    SVDGPRegressor,
    SVGPRegressor,
)
from tests.words import names, naming

SMALL = [
    ExactGPRegressor(random_state=0),
    QSGPRegressor(options={"features.size": 64, "widen": False}, random_state=0),
    RVMRegressor(random_state=0),
    SVDGPRegressor(basis=64, random_state=0),
    SVGPRegressor(points=32, epochs=8, options={"widen": False}, random_state=0),
    FiniteRKHSRegressor(options={"fourier.size": 32}, epochs=8, random_state=0),
]


def rows(count: int = 120) -> tuple[Any, Any]:
    """sin(x₀) of unit noise .1; the second column says nothing."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-3, 3, (count, 2)) * [1, 50]
    return x, 7 * np.sin(x[:, 0]) + 0.1 * generator.normal(size=count)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace", "student_t"])
def test_the_noise_is_the_standard_deviation_of_predictions(likelihood: str) -> None:
    """Of Laplace and Student-t noise the scale is less."""
    x, y = rows(60)
    fitted = SVDGPRegressor(basis=64, likelihood=likelihood, random_state=0).fit(x, y)
    issued = fitted.model_.predict(fitted._windows(x))
    deviation = np.sqrt(float((issued.variance - issued.latent_variance).mean()))
    assert fitted.hyperparameters_["noise"] == pytest.approx([deviation], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("one", SMALL, ids=lambda one: type(one).__name__)
def test_the_checks_of_scikit_learn(one: Any) -> None:
    found = check_estimator(one, on_skip=None, on_fail=None)
    assert {check["check_name"]: check["exception"] for check in found if check["status"] == "failed"} == {}
    assert sum(check["status"] == "passed" for check in found) > 45


@pytest.mark.sampled
@pytest.mark.parametrize("one", SMALL, ids=lambda one: type(one).__name__)
def test_a_regressor_learns_goes_on_and_is_kept(one: Any) -> None:
    x, y = rows()
    state = torch.get_rng_state()
    fitted = one.fit(x[:80], y[:80])
    mean, std = fitted.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 and mean.shape == std.shape == y.shape
    low, high = fitted.predict_quantiles(x[80:], [0.025, 0.975]).T
    assert np.mean((low < y[80:]) & (y[80:] < high)) > 0.85
    assert fitted.log_prob(x, y).shape == y.shape and fitted.sample_y(x[:5], 3).shape == (5, 3)
    kernel, own = fitted.kernel_, fitted.hyperparameters_
    assert {*own} == {*kernel.hyperparameters, "noise"} and type(kernel).__name__ not in repr(kernel)
    assert "SquaredExponential(lengthscale=[" in repr(kernel) and kernel(x[:5], x).shape == (5, len(x))
    np.testing.assert_allclose(np.diag(kernel(x)), kernel.diag(x))
    assert hasattr(fitted, "inducing_points_") == isinstance(one, RVMRegressor | SVDGPRegressor | SVGPRegressor)
    lengths = fitted.hyperparameters_["lengthscale"]
    assert lengths.shape == (2,) and 0.5 < lengths[0] < 10 < lengths[1]  # in the columns' units
    again = pickle.loads(pickle.dumps(fitted))
    for regressor in (fitted, again):
        regressor.partial_fit(x[80:], y[80:])
    assert (again.predict(x) == fitted.predict(x)).all() and (fitted.predict(x) != mean).any()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.sampled
@pytest.mark.parametrize("one", SMALL, ids=lambda one: type(one).__name__)
def test_covariances_of_all_rows_have_the_variances_on_their_diagonal(one: Any) -> None:
    x, y = rows()
    fitted = one.fit(x[:80], np.stack((y, y**2), 1)[:80])
    (mean, covariance), (same, std) = fitted.predict(x[:30], return_cov=True), fitted.predict(x[:30], return_std=True)
    assert covariance.shape == (30, 30, 2) and np.array_equal(mean, same)
    for column in range(2):
        found = covariance[..., column]
        assert np.allclose(found, found.T) and np.allclose(found.diagonal(), std[:, column] ** 2, rtol=1e-8)
        assert np.linalg.eigvalsh(found).min() > 0
    part = fitted.predict(x[5:9], return_cov=True)[1]
    assert np.allclose(part, covariance[5:9, 5:9], rtol=1e-6, atol=1e-9)
    assert fitted.fit(x[:80], y[:80]).predict(x[:7], return_cov=True)[1].shape == (7, 7)
    with pytest.raises(RuntimeError, match="At most one"):
        fitted.predict(x, return_std=True, return_cov=True)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "one",
    [
        ExactGPRegressor(random_state=0),
        SVDGPRegressor(random_state=0),
        SVGPRegressor(points=80, epochs=8, random_state=0),  # whose noise is another one
        RVMRegressor(random_state=0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_covariances_are_those_of_the_dense_formula(one: Any) -> None:
    """K** − K*X (KXX + σ²I)⁻¹ KX*, off the diagonal, up to the factor on the variance: with a basis of all rows, or of
    the functions that the kernel is the sum of, nothing is approximated."""
    x, y = rows()
    fitted = one.fit(x[:80], y[:80])
    kernel, new = fitted.kernel_, x[80:]
    noise = np.asarray(kernel.noise_of_fit).item() ** 2
    cross = np.asarray(kernel(new, x[:80]))
    dense = np.asarray(kernel(new, new)) - cross @ np.linalg.solve(kernel(x[:80], x[:80]) + noise * np.eye(80), cross.T)
    found, off = fitted.predict(new, return_cov=True)[1], ~np.eye(len(new), dtype=bool)
    factor = (found[off] @ dense[off]) / (dense[off] @ dense[off])
    tolerance = 0.02 if isinstance(one, SVGPRegressor) else 1e-3
    assert 0.2 < factor < 5 and np.allclose(found[off], factor * dense[off], atol=tolerance * np.abs(dense[off]).max())


def test_covariances_of_features_are_those_of_the_dense_formula() -> None:
    """With k = φᵀφ, as with the formula of kernels."""
    x, y = rows()
    fitted = SMALL[1].fit(x[:80], y[:80])
    model, head = fitted.model_, fitted.model_.posterior.engine.head
    phi, new = (head.features(model.inputs(fitted._windows(part))).numpy() for part in (x[:80], x[80:]))
    gram = phi @ phi.T + float(head.noise) * np.eye(80)
    dense = new @ new.T - new @ phi.T @ np.linalg.solve(gram, phi @ new.T)
    found = fitted.predict(x[80:], return_cov=True)[1] / model.outputs.scale.item() ** 2
    off = ~np.eye(len(new), dtype=bool)
    assert np.allclose(found[off], dense[off], atol=1e-3 * np.abs(dense).max())  # sums of features are float32


def test_no_covariance_of_what_is_not_gaussian() -> None:
    x, y = rows()
    fitted = SVDGPRegressor(basis=32, likelihood="logistic", random_state=0).fit(x, (y > 0).astype(float))
    with pytest.raises(ValueError, match=naming("SVDGPRegressor return_std=True return_cov=True")):
        fitted.predict(x, return_cov=True)


def test_frames_searches_and_several_targets() -> None:
    x, y = rows()
    frame = pl.DataFrame(x, schema=["speed", "load"]).to_pandas()
    plain = {"widen": False}  # a fit in the place of five: nothing here looks at bands
    both = SVDGPRegressor(basis=32, options=plain, random_state=0).fit(frame, np.column_stack([y, -2 * y]))
    assert list(both.feature_names_in_) == ["speed", "load"]
    assert both.predict(frame).shape == both.predict(frame, return_std=True)[1].shape == (120, 2)
    assert both.predict_quantiles(frame, 0.5).shape == (120, 1, 2) and both.sample_y(frame, 4).shape == (120, 2, 4)
    with pytest.raises(ValueError, match="columns"):
        both.partial_fit(frame, y)
    pipeline = make_pipeline(StandardScaler(), SVDGPRegressor(options=plain))
    search = GridSearchCV(pipeline, {"svdgpregressor__basis": [2, 32]}, cv=2)
    assert search.fit(x, y).best_params_ == {"svdgpregressor__basis": 32}


def test_what_does_not_fit_is_a_value_error() -> None:
    x, y = rows(20)
    with pytest.raises(ValueError, match="basis"):
        SVDGPRegressor(basis=-1).fit(x, y)
    with pytest.raises(ValueError, match="bases"):
        SVDGPRegressor(options={"bases": 3}).fit(x, y)
    said = {
        SVDGPRegressor(basis=-1): "basis:",
        SVDGPRegressor(options={"bases": 3}): "options={",
        SVDGPRegressor(encoder="lstm"): "encoder mlp",
        ExactGPRegressor(rows=5): "SVDGPRegressor rows=20",
        ExactGPRegressor(kernel="nope"): "kernel matern",
    }
    for one, words in said.items():
        with pytest.raises(ValueError) as refused:
            one.fit(x, y)
        assert names(str(refused.value), words) and "--" not in str(refused.value), str(refused.value)
    with pytest.raises(NotFittedError):
        SVDGPRegressor().predict(x)
    assert not hasattr(SVDGPRegressor(), "kernel_")
    with pytest.raises(AttributeError, match="Fourier"):
        QSGPRegressor(options={"features.size": 16}).fit(x, y).inducing_points_  # noqa: B018


def test_arguments_that_contradict_each_other_are_refused() -> None:
    x, y = rows(20)
    said: list[tuple[Any, str]] = [
        (ExactGPRegressor(kernel="matern", options={"kernel": "periodic"}), "kernel matern periodic"),
        (ExactGPRegressor(kernel="matern", options={"kernel": {"name": "periodic"}}), "kernel matern periodic"),
        (QSGPRegressor(random_state=0, options={"seed": 5}), "random_state 0 5"),
        (SVGPRegressor(epochs=2, options={"epochs": 3}), "epochs 2 3"),
        (SVDGPRegressor(options=[1]), "options mapping"),  # type: ignore[arg-type]
        (SVDGPRegressor(device="gpu"), "device gpu cuda"),
        (SVDGPRegressor(options={"kernel": "matern"}), "svdgp kernels ExactGPRegressor"),
    ]
    for one, words in said:
        with pytest.raises(ValueError) as refused:
            one.fit(x, y)
        assert names(str(refused.value), words) and "--" not in str(refused.value), str(refused.value)
    same = ExactGPRegressor(kernel="matern", options={"kernel": "matern", "kernel.nu": 1.5}, random_state=0)
    assert "Matern" in repr(same.fit(x, y).kernel_)


def test_a_search_reaches_the_options_of_a_model() -> None:
    x, y = rows(40)
    one = ExactGPRegressor(kernel="matern", options={"linear": False, "widen": False}, random_state=0)
    grid = {"exactgpregressor__options__kernel.nu": [0.5, 2.5]}
    found = GridSearchCV(make_pipeline(StandardScaler(), one), grid, cv=2).fit(x, y).best_estimator_
    own = {"linear": False, "widen": False}
    assert found[-1].options == {**own, "kernel.nu": 2.5} and one.options == own


@pytest.mark.parametrize("value", [1e101, -1e150, 1e300])
def test_values_beyond_what_float64_can_square_are_refused(value: float) -> None:
    x, y = rows(20)
    frame = pl.DataFrame(x, schema=["speed", "load"]).to_pandas()
    fitted = ExactGPRegressor(options={"widen": False}, random_state=0).fit(frame, y)
    far, out = frame.copy(), y.copy()
    far.loc[3, "load"], out[3] = value, value
    for use in (lambda: fitted.fit(far, y), lambda: fitted.partial_fit(far, y), lambda: fitted.predict(far)):
        with pytest.raises(ValueError, match="'load'"):
            use()
    with pytest.raises(ValueError, match="column 1"):
        ExactGPRegressor().fit(far.to_numpy(), y)
    with pytest.raises(ValueError, match="y has"):
        fitted.fit(frame, out)
    with pytest.raises(ValueError, match="y, column 1"):
        ExactGPRegressor().fit(frame, np.column_stack([y, out]))


def test_quantiles_are_probabilities() -> None:
    fitted = SVDGPRegressor(basis=64, random_state=0).fit(*rows())
    for wanted in ([2.0], [95], [-1], [float("nan")], [0.0, 0.5]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            fitted.predict_quantiles(rows()[0], wanted)


def test_a_glitch_among_the_inputs_is_said() -> None:
    x, y = rows()
    fitted = SVDGPRegressor(basis=64, random_state=0).fit(x, y)
    with pytest.warns(StreamgpWarning, match=naming("standard deviations glitch")):
        fitted.predict([[1e9, 0.0], [0.0, 0.0]])
    assert fitted.predict([[1e3, 0.0]], return_std=True)[1] > 10  # far, and no glitch: a wide band
