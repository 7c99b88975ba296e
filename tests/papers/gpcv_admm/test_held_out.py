"""The choice between ways of tuning: scores against torch.distributions, the winner, what is told of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from streamgp.base import FLOAT
from streamgp.errors import NumericalError, UsageError
from streamgp.evidence.tuned import Tuned
from streamgp.kernels import Tied, squared_exponential
from streamgp.papers.gpcv_admm.held_out import choose, left_out, score
from streamgp_data.table import Table
from streamgp_pipelines.tuning.methods import read_options
from tests.pipelines.test_tune import REGRESSION, found_on, surface


def rows(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 6 * torch.rand(count, 1, generator=generator, dtype=FLOAT)
    return x, torch.sin(x) + 0.1 * torch.randn(count, 2, generator=generator, dtype=FLOAT)


def kernel(lengthscale: float = 1.0) -> Tied:
    return Tied(squared_exponential.Config(lengthscale=lengthscale), torch.zeros(1, dtype=torch.int64))


def test_scores_are_those_of_the_joint_gaussian() -> None:
    """log p(y_V | y_T) = log p(y) − log p(y_T), by dense Gaussians of all rows."""
    (x, y), noise, one = rows(), torch.tensor([0.05, 0.2], dtype=FLOAT), kernel()
    held = torch.arange(40) % 3 == 0
    total, squares = 0.0, 0.0
    with torch.no_grad():
        gram = one(x, x)
    for target, variance in zip(y.T, noise, strict=True):
        c, seen = gram + variance * torch.eye(40, dtype=FLOAT), ~held
        every = MultivariateNormal(torch.zeros(40, dtype=FLOAT), c).log_prob(target)
        part = MultivariateNormal(torch.zeros(26, dtype=FLOAT), c[seen][:, seen]).log_prob(target[seen])
        total -= float(every - part) / 14
        mean = gram[held][:, seen] @ torch.linalg.solve(c[seen][:, seen], target[seen])
        squares += float((target[held] - mean).square().mean())
    assert score(one, noise, x, y, held, "nlpd") == pytest.approx(total / 2, rel=1e-9)
    assert score(one, noise, x, y, held, "mse") == pytest.approx(squares / 2, rel=1e-9)


def fixed(lengthscale: float, calls: list[int]) -> Any:
    """A way that always finds this."""

    def way(given: Tied, log_noise: Tensor, x: Tensor, y: Tensor) -> Tuned:
        calls.append(len(x))
        state = kernel(lengthscale).state_dict()
        return Tuned(dict(state), torch.full((2,), 0.01, dtype=FLOAT), 0.0, (), 1.0, 3)

    return way


def test_rows_left_out_are_conditionals_of_the_joint_gaussian() -> None:
    """log p(y_i | all others) = log p(y) − log p(y without i), row by row."""
    (x, y), noise, one = rows(12), torch.tensor([0.05, 0.2], dtype=FLOAT), kernel()
    total, squares = 0.0, 0.0
    with torch.no_grad():
        gram = one(x, x)
    for target, variance in zip(y.T, noise, strict=True):
        c = gram + variance * torch.eye(12, dtype=FLOAT)
        every = MultivariateNormal(torch.zeros(12, dtype=FLOAT), c).log_prob(target)
        for row in range(12):
            seen = torch.arange(12) != row
            part = MultivariateNormal(torch.zeros(11, dtype=FLOAT), c[seen][:, seen]).log_prob(target[seen])
            total -= float(every - part) / 12
            mean = gram[row, seen] @ torch.linalg.solve(c[seen][:, seen], target[seen])
            squares += float(target[row] - mean) ** 2 / 12
    assert left_out(one, noise, x, y, "nlpd") == pytest.approx(total / 2, rel=1e-9)
    assert left_out(one, noise, x, y, "mse") == pytest.approx(squares / 2, rel=1e-9)


def test_the_better_one_is_what_it_found_on_all_rows() -> None:
    (x, y), good, bad = rows(), list[int](), list[int]()
    ways = {"bad": fixed(0.05, bad), "good": fixed(1.5, good)}
    found = choose(ways, kernel(), torch.zeros(2, dtype=FLOAT), x, y)
    assert [name for name, _ in found.judged] == ["good", "bad"] and found.judged[0][1] < found.judged[1][1]
    assert found.judged[0][1] == pytest.approx(left_out(kernel(1.5), found.noise, x, y, "nlpd"))
    assert bad == [40] and good == [40]  # no search is done twice
    assert found.seconds == 2.0 and found.evaluations == 6
    assert float(found.kernel["log_lengthscale"].exp()) == pytest.approx(1.5)


@pytest.mark.parametrize("arrangement", ["random", "contiguous"])
def test_the_better_one_goes_on_with_all_rows(arrangement: Any) -> None:
    (x, y), good, bad = rows(), list[int](), list[int]()
    ways = {"bad": fixed(0.05, bad), "good": fixed(1.5, good)}
    found = choose(ways, kernel(), torch.zeros(2, dtype=FLOAT), x, y, scheme="part", arrangement=arrangement)
    assert [name for name, _ in found.judged] == ["good", "bad"] and found.judged[0][1] < found.judged[1][1]
    assert bad == [30] and good == [30, 40]  # what is kept back is seen by the winner alone, and last
    assert found.seconds == 3.0 and found.evaluations == 9


@pytest.mark.parametrize("scheme", ["loo", "part"])
def test_a_way_that_fails_leaves_the_others(scheme: Any) -> None:
    def failing(*given: Any) -> Tuned:
        raise NumericalError("not this one")

    (x, y), start = rows(), torch.zeros(2, dtype=FLOAT)
    found = choose({"none": failing, "one": fixed(1.0, [])}, kernel(), start, x, y, scheme=scheme)
    assert found.judged[0][0] == "one" and found.judged[1][1] == float("inf") and "not this one" in found.failures[0]
    with pytest.raises(NumericalError):
        choose({"none": failing, "other": failing}, kernel(), start, x, y, scheme=scheme)
    few = 8 if scheme == "part" else 5
    with pytest.raises(UsageError):
        choose({"one": fixed(1.0, [])}, kernel(), start, x[:few], y[:few], scheme=scheme)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return surface(tmp_path_factory.mktemp("auto") / "t", rows=80)


@pytest.mark.slow
def test_tune_says_what_it_chose(table: Table, tmp_path: Path) -> None:
    few = {
        "ml.evaluations": "10",
        "ml.restarts": "0",
        "admm.iterations": "10",
        "admm.polish": "5",
        "admm.restarts": "0",
    }
    data = {name: REGRESSION[name] for name in ("known", "lags", "horizon", "season")} | {"target": "y", "rows": 80}
    found = found_on(table, tmp_path / "a.json", method="auto", set=few, **data)
    assert sorted(found["held_out"]) == ["cv-admm", "ml"] and found["method"] == "auto"
    best = min(found["held_out"], key=lambda name: found["held_out"][name])
    alone = found_on(table, tmp_path / "b.json", method="auto", set=few | {"auto.score": "mse"}, **data)
    assert found["loss_is"].startswith("negative log" if best == "ml" else "mean squared")
    assert found["held_out"] != alone["held_out"]


def test_options_of_both_methods_are_taken() -> None:
    given = {"ml.evaluations": "7", "admm.rho": "2", "auto.scheme": "part", "auto.part": "0.5"}
    options: Any = read_options("auto", given, seed=3)
    assert (options.ml.evaluations, options.admm.rho, options.auto.part, options.auto.seed) == (7, 2.0, 0.5, 3)
    with pytest.raises(UsageError):
        read_options("ml", {"auto.part": "0.5"}, seed=0)
    for name, value in (("part", "0.5"), ("arrangement", "contiguous")):
        with pytest.raises(UsageError):  # it would do nothing
            read_options("auto", {f"auto.{name}": value, "auto.scheme": "loo"}, seed=0)
        alone: Any = read_options("auto", {f"auto.{name}": value}, seed=0)
        assert alone.for_windows(0).auto.scheme == "part"


def test_windows_that_overlap_are_not_forecast_from_those_beside_them() -> None:
    options: Any = read_options("auto", {}, seed=0)
    assert options.for_windows(0).auto.scheme == "loo" and options.for_windows(12).auto.scheme == "part"
    assert options.for_windows(12).ml == options.ml
