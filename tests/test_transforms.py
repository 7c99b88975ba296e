"""Transforms of targets: there and back, finite and increasing for any values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgp.errors import DataError
from streamgp.transforms import Transform, by_row, choose, each, made, means

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30).map(np.array)
TRANSFORMS = (
    Transform("log", lower=-2.0, floor=0.01),
    Transform("logit", lower=-2.0, width=5.0, floor=0.01),
    Transform(),
)


@pytest.mark.parametrize("one", TRANSFORMS)
@given(y=VALUES)
def test_any_value_is_finite_and_inside_comes_back(one: Transform, y: np.ndarray) -> None:
    z, order = one.forward(y), np.argsort(y)
    assert np.isfinite(z).all() and np.isfinite(one.log_slope(y)).all()
    assert (np.diff(z[order]) >= 0).all() and (np.diff(one.backward(np.sort(z))) >= 0).all()
    most = {"log": np.inf, "logit": one.lower + one.width - 0.011, "none": np.inf}[one.kind]
    inside = ((y > one.lower + 0.011) & (y < most)) | (one.kind == "none")
    np.testing.assert_allclose(one.backward(z)[inside], y[inside], rtol=1e-9, atol=1e-9)
    if one.kind == "logit":
        assert set(one.backward(one.forward(np.array([-9.0, -2.0, 3.0, 9.0])))) == {-2.0, 3.0}


@pytest.mark.parametrize("one", TRANSFORMS)
def test_the_slope_is_the_derivative(one: Transform) -> None:
    y = np.linspace(-1.9, 2.9, 50)
    numeric = (one.forward(y + 1e-6) - one.forward(y - 1e-6)) / 2e-6
    np.testing.assert_allclose(np.exp(one.log_slope(y)), numeric, rtol=1e-6)


def test_each_target_has_its_own() -> None:
    y = np.abs(np.random.default_rng(0).normal(size=(4, 6)))
    parts = [one.forward(y[:, 2 * o : 2 * o + 2]) for o, one in enumerate(TRANSFORMS)]
    np.testing.assert_array_equal(each(TRANSFORMS, "forward", y), np.concatenate(parts, 1))
    assert each(TRANSFORMS, "forward", y[:0]).shape == (0, 6)
    output = np.array([2, 0, 1, 0, 2, 1])
    rows = by_row(TRANSFORMS, "forward", y, output)
    for at, o in enumerate(output):
        np.testing.assert_array_equal(rows[:, at], TRANSFORMS[o].forward(y[:, at]))


def test_values_of_the_warm_up_say_where_the_limits_are() -> None:
    assert made("log", np.array([0.0, 2.0, 4.0, np.nan]), None, None, "y") == Transform("log", 0.0, 1.0, 1.0)
    assert made("log", np.array([3.0, 3.0]), 1.0, None, "y") == Transform("log", 1.0, 1.0, 2e-6)
    assert made("logit", np.array([0.0, 1.0, 9.0]), 0.0, 10.0, "y").floor == 0.5
    assert made("none", np.array([-1.0]), None, None, "y") == Transform()
    for y, kind in (([-1.0, 2.0], "log"), ([0.0, 0.0], "log"), ([0.5, 1.5], "logit")):
        with pytest.raises(DataError):
            made(kind, np.array(y), None, 1.0, "y")  # type: ignore[arg-type]


def test_what_is_chosen() -> None:
    generator = np.random.default_rng(0)
    wave = 10 + np.sin(np.arange(960) / 4) + generator.normal(size=960)
    level = np.repeat(np.exp(generator.normal(size=40)), 24) * np.exp(0.3 * generator.normal(size=960))
    assert choose(wave, None, None) == "none" and choose(level, None, None) == "log"
    zeros = np.where(generator.random(960) < 0.1, 0.0, level)
    assert choose(zeros, None, None) == choose(zeros, 0.0, 100.0) == choose(level[:50], None, None) == "none"
    assert choose(level, 0.0, 1000.0) == "logit" and choose(level, 0.0, 1.0) == "none"


def test_means_are_exact_for_normal_z() -> None:
    weights, matrix = means([-3.0, -1.0, 0.5, 2.0])
    z = 0.3 + 0.8 * np.array([-3.0, -1.0, 0.5, 2.0])
    assert weights @ np.exp(matrix @ z) == pytest.approx(np.exp(0.3 + 0.32), rel=1e-9)
