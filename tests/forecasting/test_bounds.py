"""A lower bound that the truths respect: when it is found, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamgp.forecasting.bounds import Bounds
from streamgp.forecasting.calibration import Calibration


def bounded(y: object) -> bool:
    bounds, values = Bounds(1), np.asarray(y, float)
    bounds.follow(np.zeros(len(values), np.int64), values)
    return bool(bounds.lower(np.zeros(1, np.int64))[0] == 0)


def test_rain_nights_and_counts_have_a_bound_and_others_have_none() -> None:
    generator = np.random.default_rng(0)
    night = np.sin(np.arange(480) / 24 * 2 * np.pi).clip(0).round(9)
    assert bounded(night) and bounded(generator.poisson(1.0, 200)) and bounded(np.append(night, np.nan))
    demand, degrees = generator.normal(50, 5, 500), generator.normal(0, 3, 500).round()
    assert not any(map(bounded, (demand, degrees, demand - 50, np.zeros(500), np.append(night, -1e-9))))
    assert not bounded(np.append(np.zeros(500), np.ones(19))) and bounded(np.append(np.zeros(500), np.ones(20)))
    assert not bounded(np.where(np.arange(1000) < 40, 0.0, demand.mean()))  # too seldom


def test_each_unit_has_its_own_and_it_ends_with_the_first_value_below() -> None:
    bounds, unit = Bounds(2), np.tile([0, 1], 60)
    values = np.where(unit == 0, np.arange(120) // 2 % 2, -1.0)
    assert bounds.follow(unit, values).found.tolist() == [0]
    assert bounds.lower(np.arange(2)).tolist() == [0.0, -np.inf] and bounds.shares(np.arange(2)).tolist() == [0.5, 0.0]
    other = Bounds(2)
    other.restore(*bounds.state())
    assert other.follow(np.zeros(1, np.int64), np.array([-2.0])).ended.tolist() == [0]
    with pytest.raises(ValueError, match=r"counts is \(2, 2\)"):
        other.restore({"counts": torch.zeros(2, 2)}, {})


def test_the_point_is_at_a_bound_that_was_found() -> None:
    quantiles = torch.tensor([[0.0, 0.5], [0.0, 1.0], [1.0, 2.0]]).double()
    mean = torch.tensor([-1.0, -1.0]).double()
    assert Calibration().of(mean, quantiles).tolist() == [0.0, -1.0]
    assert Calibration(finds=False).of(mean, quantiles).tolist() == [-1.0, -1.0]
