"""A handful of truths that decide the RMSE: found as a sort of all errors finds them, and not in heavy tails."""

from __future__ import annotations

import numpy as np
import pytest

from streamgp.forecasting.outliers import MOST, Largest, Outliers

HORIZON = 4


def fed(errors: np.ndarray, batch: int, series: np.ndarray | None = None) -> Largest:
    """Errors (N, H) of truths, a batch of truths at a time."""
    largest, count = Largest(1, HORIZON), len(errors)
    names = np.zeros(count, np.int64) if series is None else series
    for at in range(0, count, batch):
        part = errors[at : at + batch]
        ds, codes = (np.repeat(one[at : at + batch], HORIZON) for one in (np.arange(count), names))
        order = np.argsort(np.tile(np.arange(HORIZON), len(part)), kind="stable")  # step by step, as a ledger pops
        flat = (part**2).reshape(-1)
        largest.add(codes[order], ds[order], np.zeros(len(flat), np.int64), flat[order])
    return largest


def asked(largest: Largest, errors: np.ndarray) -> Outliers | None:
    return largest.outliers(0, float(errors.size), float((errors**2).sum()), float(np.abs(errors).sum()))


@pytest.mark.parametrize("batch", [1, 7, 5000])
def test_the_largest_are_those_of_a_sort(batch: int) -> None:
    errors = np.random.default_rng(0).standard_t(2, (5000 if batch > 1 else 300, HORIZON))
    total = (errors**2).sum(1)
    best = np.argsort(-total, kind="stable")[:MOST]
    found = fed(errors, batch)
    assert found.places[0, :, 1].tolist() == best.tolist()
    assert found.squares[0] == pytest.approx(total[best], rel=1e-12)


@pytest.mark.parametrize("spikes", [1, 3, MOST])
def test_spikes_are_found_and_what_would_be_without_them(spikes: int) -> None:
    rng = np.random.default_rng(1)
    errors = rng.standard_normal((5000, HORIZON))
    places = rng.choice(5000, spikes, replace=False)
    errors[places] = 1e4
    found = asked(fed(errors, 64), errors)
    assert found is not None and sorted(found.ds.tolist()) == sorted(places.tolist())
    assert found.share > 0.999 and found.truths == 5000
    kept = np.delete(errors, places, 0)
    assert found.rmse == pytest.approx(float(np.sqrt((kept**2).mean())), rel=1e-3)


def test_more_than_a_handful_is_no_accident() -> None:
    errors = np.random.default_rng(2).standard_normal((5000, HORIZON))
    errors[:: 5000 // (2 * MOST)] = 1e4
    assert asked(fed(errors, 64), errors) is None


@pytest.mark.parametrize("kind", ["normal", "laplace", "t3", "lognormal"])
def test_heavy_tails_are_no_accident(kind: str) -> None:
    """At the sizes where the largest weigh most; the one kind that may fire does so in fewer than 1 in 100 samples."""
    rng = np.random.default_rng(3)
    draw = {
        "normal": rng.standard_normal,
        "laplace": lambda size: rng.laplace(size=size),
        "t3": lambda size: rng.standard_t(3, size),
        "lognormal": lambda size: rng.lognormal(0, 1, size),
    }[kind]
    fired = 0
    for count in np.repeat([200, 1000, 5000], 100).tolist():
        errors, largest, nil = draw(count), Largest(1, 1), np.zeros(count, np.int64)
        largest.add(nil, np.arange(count), nil, errors**2)
        found = largest.outliers(0, float(count), float((errors**2).sum()), float(np.abs(errors).sum()))
        fired += found is not None
    assert fired <= 3 * (kind == "t3")


def test_parts_of_the_series_together() -> None:
    errors = np.random.default_rng(4).standard_t(2, (2000, HORIZON))
    series = np.arange(2000) % 4
    parts = []
    for codes in ([0, 2], [1, 3]):
        here = np.isin(series, codes)
        one = Largest(1, HORIZON)
        ds = np.repeat(np.flatnonzero(here), HORIZON)
        own = np.repeat(np.searchsorted(codes, series[here]), HORIZON)
        one.add(own, ds, np.zeros(len(ds), np.int64), (errors[here] ** 2).reshape(-1))
        parts.append((one, np.array(codes)))
    whole = Largest(1, HORIZON)
    whole.gather(parts)
    alone = fed(errors, 64, series)
    assert whole.places.tolist() == alone.places.tolist() and whole.squares == pytest.approx(alone.squares)


def test_nothing_scored() -> None:
    assert Largest(1, HORIZON).outliers(0, 0.0, 0.0, 0.0) is None
