"""`Forecaster.model_`: what was learned, of every model, without an underscore before a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgp
from streamgp import registry
from streamgp.errors import StateError
from tests.pipelines.worlds import frame_of

KERNELS = {"svdgp", "exact", "qsgp", "rvm", "svgp", "wiski", "finite_rkhs"}
POINTS = {"svdgp", "rvm", "svgp"}
MIXES = {"ensemble", "iterated", "gp_lstm", "gp_gru", "gp_rnn", "gp_narx", "gru", "lstm", "rnn", "narx"}
SMALL: dict[str, Any] = {"every": "1h", "horizon": 2, "inputs": "x", "lags": 4, "warmup": 150, "batch": 128}


FEW: dict[str, Any] = {
    "gru": {"epochs": 1},
    "gp_lstm": {"epochs": 1},
    "exact": {"training": {"evaluations": 8}},
    "qsgp": {"features": {"size": 192, "width": 64}},
}


def fitted(model: str, **options: Any) -> streamgp.Forecaster:
    small = FEW.get(model, {})
    given = SMALL | {"season": 24 if model != "iterated" else "none", "options": small} | options
    return streamgp.Forecaster("y", model=model, **given).fit(frame_of(300))


@pytest.mark.sampled
@pytest.mark.parametrize("model", sorted(KERNELS | {"linear", "persistence", "seasonal_naive", "iterated", "gru"}))
def test_every_model_shows_what_it_has_and_says_what_it_has_not(model: str) -> None:
    made = fitted(model)
    forecast = made.predict()
    found = made.model_
    assert found.name == model and repr(found).startswith(model) and model in found._repr_html_()
    assert bool(found.models) == (model in MIXES)
    if model in MIXES:
        assert any(one.hyperparameters for one in found.models.values())
        with pytest.raises(AttributeError, match="models"):
            found.kernel  # noqa: B018
    else:
        assert all(np.isfinite(value).all() for value in found.hyperparameters.values()) and found.hyperparameters
    if model in KERNELS:
        window = np.random.default_rng(0).normal(size=(5, len(found.columns)))
        assert np.linalg.eigvalsh(found.kernel(window)).min() > -1e-9 and "(" in repr(found.kernel)
        assert found.evidence_trace.shape[1] == 2 and (np.diff(found.evidence_trace[:, 0]) > 0).all()
        assert len(found.evidence_trace) >= 2 and np.isfinite(found.evidence_trace).all()
    else:
        for name in ("kernel", "columns", "evidence_trace"):
            with pytest.raises(AttributeError, match=f"^{model} has no"):
                getattr(found, name)
    if model in POINTS:
        assert found.inducing_points.shape[1] == len(found.columns)
    else:
        with pytest.raises(AttributeError, match="no inducing points"):
            found.inducing_points  # noqa: B018
    assert not hasattr(found, "inducing_points") or model in POINTS
    assert found.posterior(samples=1).equals(made.posterior(samples=1))
    assert made.predict().equals(forecast)


def test_all_models_are_in_the_lists_above() -> None:
    assert {*registry.names("models")} == KERNELS | MIXES | {"linear", "linear_short", "persistence", "seasonal_naive"}


def test_a_mix_has_weights_and_its_experts() -> None:
    found = fitted("ensemble", options={"experts": "linear,svdgp,persistence"}).model_
    assert list(found.weights) == list(found.models) == ["linear", "svdgp", "persistence"]
    np.testing.assert_allclose(sum(found.weights.values()), [1, 1])
    assert found.models["svdgp"].inducing_points.shape[1] == len(found.models["svdgp"].columns)
    for name in ("posterior", "evidence_trace"):
        with pytest.raises(AttributeError, match="forecaster"):
            getattr(found.models["svdgp"], name)() if name == "posterior" else getattr(found.models["svdgp"], name)


def test_what_was_looked_at_stays_as_it_was(tmp_path: Path) -> None:
    made = fitted("svdgp")
    before = made.model_
    length, points = before.hyperparameters["lengthscale"], before.inducing_points
    again = streamgp.load(made.save(tmp_path / "saved")).model_
    np.testing.assert_array_equal(again.inducing_points, points)
    made.fit(frame_of(300, seed=7))
    np.testing.assert_array_equal(before.hyperparameters["lengthscale"], length)
    np.testing.assert_array_equal(before.inducing_points, points)
    assert (made.model_.hyperparameters["lengthscale"] != length).any()


def test_before_a_fit_there_is_none() -> None:
    made = streamgp.Forecaster("y", model="svdgp", **SMALL)
    with pytest.raises(StateError):
        made.model_  # noqa: B018
    with pytest.raises(StateError, match="warm-up"):
        made.fit(frame_of(60)).model_  # noqa: B018
