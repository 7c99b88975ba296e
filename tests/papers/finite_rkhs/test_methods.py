"""Every method beside SCGD: means over all mini-batches, the dense evidence at convergence, restarts, AdaDelta."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from streamgp.base import FLOAT
from streamgp.models.finite_rkhs.training import FiniteTrainingConfig, descent, estimator
from streamgp.objectives import finite_evidence as fe
from streamgp.papers.finite_rkhs import minimax
from streamgp.papers.finite_rkhs.adadelta import AdaDelta
from streamgp.papers.finite_rkhs.bsgd import Bsgd
from streamgp.papers.finite_rkhs.ldb import Ldb
from streamgp.papers.finite_rkhs.minimax import Minimax, project_ball
from streamgp.papers.finite_rkhs.no_determinant import NoDeterminant
from streamgp.training.finite_descent import FiniteDescent
from streamgp.training.finite_head import Estimator, FiniteHead, Scgd
from tests.training.finite_toys import Live, features, loss, network, nlml, normal, problem, true_rows

METHODS: list[dict[str, Any]] = [
    {"method": "minimax"},
    {"method": "minimax", "whitened": False},
    {"method": "ldb"},
    {"method": "bsgd"},
    {"method": "none"},
    {"method": "ldb", "optimiser": "adadelta"},
]


def names(method: dict[str, Any]) -> str:
    return "-".join(str(value) for value in method.values())


def chosen(method: dict[str, Any]) -> Estimator:
    made = estimator(FiniteTrainingConfig.model_validate(method))
    assert made is not None
    return made


def rows(count: int = 200) -> tuple[Tensor, Tensor]:
    x = normal(count, 3, seed=20)
    signal = torch.stack([torch.sin(2 * x[:, 0]) + x[:, c] * x[:, 1] for c in range(2)], 1)
    return x, signal + 0.1 * normal(count, 2, seed=21)


def made(method: dict[str, Any], epochs: int = 6) -> FiniteDescent:
    config = FiniteTrainingConfig.model_validate({"batch": 16, "rate": 1e-2, "weights_rate": 1e-2} | method)
    return descent(network(3, 8, seed=30), FiniteHead(8, 2, 0.5, 1e-3), config, epochs)


def evidence(driver: FiniteDescent, x: Tensor, y: Tensor) -> float:
    """NLML of all rows, per row."""
    with torch.no_grad():
        return float(nlml(driver.statistics(x, y), driver.head.noise)) / len(y)


def everything(driver: FiniteDescent) -> list[Tensor]:
    return [p.detach().clone() for module in (driver.features, driver.head) for p in module.parameters()]


def mean_of_all(method: Estimator, phi: Tensor, y: Tensor, head: FiniteHead, size: int) -> list[Tensor]:
    """Value and gradients in φ, w and log σ² from every mini-batch of so many rows, none left out, and their mean."""
    n, found = len(phi), list[list[Tensor]]()
    for some in itertools.combinations(range(n), size):
        at = list(some)
        one = method.estimate(phi[at], y[at], head, n)
        spread = torch.zeros_like(phi)
        spread[at] = one.phi
        found.append([one.value, spread, one.weights, one.log_noise])
    return [torch.stack(each).mean(0) for each in zip(*found, strict=True)]


def ahead(phi: Tensor, y: Tensor) -> fe.Statistics:
    """Sums over rows that are not quite these: P is not F⁻¹."""
    return fe.statistics([(1.2 * phi + 0.1, y)])


@pytest.mark.sampled
@pytest.mark.parametrize("which", ["ldb", "minimax", "none"])
def test_the_mean_over_all_mini_batches_is_the_gradient(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P, or A and B, as they are: what is linear in F is unbiased, whatever they are."""
    monkeypatch.setattr(minimax, "EVERY", 10**9)  # no step on A meanwhile
    phi, y, head, _ = problem(7, 3, 2)
    method = {"ldb": Ldb(rate=0.0), "minimax": Minimax(), "none": NoDeterminant()}[which]
    method.begin(ahead(phi, y), head)
    leaf, kappa = phi.clone().requires_grad_(), fe.ridge(head.noise)
    full = leaf.T @ leaf + kappa * torch.eye(3, dtype=FLOAT)
    instead = torch.zeros((), dtype=FLOAT)
    if isinstance(method, Ldb):
        instead = (method.held * full).sum() - method.log_p - 3
    if isinstance(method, Minimax):
        method.dual = project_ball(method.dual + 0.05 * (normal(3, 3, seed=5) + normal(3, 3, seed=5).T))
        white = method.root.T @ full @ method.root
        pull = method.penalty / method.primal.norm()
        instead = method.log_determinant + pull * (method.dual * (method.primal - white)).sum()
    data = fe.statistics([(leaf, y)])
    value = (loss(data, head.weights, head.noise) + 2 * (instead - torch.logdet(full))) / 7
    expected = [value.detach(), *torch.autograd.grad(value, [leaf, head.weights, head.log_noise])]
    for ours, theirs in zip(mean_of_all(method, phi, y, head, 3), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_the_ascent_of_minimax_is_unbiased() -> None:
    """B's step, over all mini-batches and inside the ball, is that with the F of all rows."""
    phi, y, head, _ = problem(7, 3, 1)
    method = Minimax()
    method.begin(ahead(phi, y), head)
    begun, ends = 0.1 * method.dual, []
    for some in itertools.combinations(range(7), 3):
        method.dual = begun
        method.ascend(phi[list(some)], head, 7)
        ends.append(method.dual)
    method.dual = begun
    method.ascend(phi, head, 7)
    torch.testing.assert_close(torch.stack(ends).mean(0), method.dual, rtol=1e-10, atol=1e-13)


def test_means_of_scgd_and_bsgd_are_off_by_as_much_as_they_are() -> None:
    """Both take the inverse of an estimate of F; by Jensen P is too large in the mean, that of BSGD several times."""
    phi, _, head, data = problem(9, 4, 1)
    kappa = fe.ridge(head.noise.detach())
    truth = float((true_rows(phi, kappa) * phi).sum())
    ratios = {}
    for name in ("bsgd", "scgd 0.9", "scgd 0.02"):
        total = 0.0
        for some in itertools.combinations(range(9), 3):
            rows = phi[list(some)]
            method: Estimator = Bsgd()
            if name != "bsgd":
                method = Scgd(float(name.split()[1]))
                method.seen, method.gram = 8, data.gram.clone()  # a long past of features that stand still
                method.seen = 10**6 * 8
            part = method.determinant(rows, kappa, 9)
            total += 3 * float((part.rows * rows).sum())  # N/|b|
        ratios[name] = total / math.comb(9, 3) / truth
    assert ratios["bsgd"] > 1.3 and ratios["scgd 0.9"] < 0.8 and abs(ratios["scgd 0.02"] - 1) < 0.03, ratios


def test_bsgd_is_l_of_the_mini_batch_at_its_own_weights() -> None:
    phi, y, head, _ = problem(5, 9, 1)
    data = fe.statistics([(phi, y)])
    expected = loss(data, fe.best_weights(data, head.noise.detach()), head.noise.detach())
    found = Bsgd().estimate(phi, y, head, total=1000)
    torch.testing.assert_close(5 * found.value, expected.detach(), rtol=1e-9, atol=0)
    assert not bool(found.weights.any())


def test_bsgd_lowers_the_noise_that_all_rows_ask_for() -> None:
    """Six rows have weights of their own on twelve features, and are fitted where all 240 are not."""
    x, rate = 3 * normal(240, 1, seed=0), 10 * normal(1, 6, seed=10)
    phi = torch.cat([(x @ rate).cos(), (x @ rate).sin()], 1) / 6**0.5
    y = torch.sin(2 * x) * x.cos()
    data, found = fe.statistics([(phi, y)]), {}
    for noise in torch.logspace(-3, 0, 31, dtype=FLOAT):
        head = FiniteHead(12, 1, float(noise), floor=0.0)
        batches = zip(phi.split(6), y.split(6), strict=True)
        parts = [float(Bsgd().estimate(some, targets, head, 240).value) for some, targets in batches]
        found[float(noise)] = (float(nlml(data, head.noise.detach())), sum(parts))
    whole, own = (min(found, key=lambda noise: found[noise][which]) for which in (0, 1))
    assert own < 0.1 * whole


def test_ldb_with_any_p_is_minus_twice_the_elbo() -> None:
    n, d = 40, 5
    phi, y, head = normal(n, d, seed=0), normal(n, 1, seed=1), FiniteHead(d, 1, noise=0.3, floor=0.0)
    with torch.no_grad():
        head.weights.copy_(normal(d, 1, seed=2))
        noise = head.noise
    method = Ldb(rate=0.0)
    method.begin(fe.statistics([(phi + 0.3, y)]), head)  # of other features: P is not F⁻¹
    found = n * method.estimate(phi, y, head, n).value + n * math.log(2 * math.pi)
    p = method.root @ method.root.T
    mean, variance = (phi @ head.weights.detach())[:, 0], noise * ((phi @ p) * phi).sum(1)
    fit = -0.5 * (n * (2 * math.pi * noise).log() + ((y[:, 0] - mean).square() + variance).sum() / noise)
    q = MultivariateNormal(head.weights.detach()[:, 0], noise * 0.5 * (p + p.T))
    prior = MultivariateNormal(torch.zeros(d, dtype=FLOAT), torch.eye(d, dtype=FLOAT))
    torch.testing.assert_close(found, -2.0 * (fit - kl_divergence(q, prior))[0], rtol=1e-10, atol=1e-9)


@pytest.mark.slow
def test_ldb_finds_the_inverse() -> None:
    """Steps on P alone, from that of other features."""
    phi, y, head, _ = problem(60, 4, 1)
    kappa, method = fe.ridge(head.noise.detach()), Ldb(rate=1e-2)
    method.begin(fe.statistics([(0.7 * phi, y)]), head)
    for _ in range(8000):
        method.determinant(phi, kappa, 60)
    truth = torch.linalg.inv(fe.regularised(phi.T @ phi, kappa))
    torch.testing.assert_close(method.held, truth, rtol=0, atol=1e-4 * float(truth.abs().max()))


class Waves(nn.Module):
    """Fixed Fourier features of an SE kernel with a lengthscale and a size to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.5, dtype=FLOAT))
        self.size = nn.Parameter(torch.tensor(-0.15, dtype=FLOAT))
        self.at = normal(1, 6, seed=9)

    def forward(self, x: Tensor) -> Tensor:
        phase = x @ self.at * self.rate.exp()
        return torch.cat([phase.cos(), phase.sin()], 1) * self.size.exp() / 6**0.5


@pytest.mark.slow
@pytest.mark.parametrize("method", [{"method": "scgd", "b": 0.02}, {"method": "minimax"}, {"method": "ldb"}], ids=names)
def test_the_evidence_at_convergence_is_the_dense_ones(method: dict[str, Any]) -> None:
    """L-BFGS on the NLML of a dense Gaussian by autograd; without log|F| the size drifts off."""
    x = 3 * normal(120, 1, seed=0)
    y = torch.sin(2 * x) + 0.3 * normal(120, 1, seed=1)
    eye = torch.eye(120, dtype=FLOAT)

    def dense(at: Any) -> tuple[float, Any]:
        leaf, phi = torch.tensor(at, dtype=FLOAT, requires_grad=True), Waves()
        phase = x @ phi.at * leaf[0].exp()
        z = torch.cat([phase.cos(), phase.sin()], 1) * leaf[1].exp() / 6**0.5
        value = -MultivariateNormal(torch.zeros(120, dtype=FLOAT), z @ z.T + leaf[2].exp() * eye).log_prob(y[:, 0])
        value.backward()
        assert leaf.grad is not None
        return float(value.detach()) / 120, (leaf.grad / 120).numpy()

    best = minimize(dense, [0.5, -0.15, -2.0], jac=True, method="L-BFGS-B")
    config = {"batch": 30, "rate": 1e-2, "weights_rate": 1e-1}

    def trained(method: dict[str, Any]) -> float:
        driver = descent(
            Waves(), FiniteHead(12, 1, 0.13, 1e-6), FiniteTrainingConfig.model_validate(config | method), epochs=200
        )
        generator = torch.Generator().manual_seed(0)
        for _ in range(200):
            driver.epoch(x, y, generator)
        with torch.no_grad():
            return float(nlml(driver.statistics(x, y), driver.head.noise)) / 120

    found = trained(method)
    assert best.fun - 1e-9 < found < best.fun + 1e-3
    if method["method"] == "ldb":
        assert trained({"method": "none"}) > best.fun + 4e-3


@pytest.mark.sampled
@pytest.mark.parametrize("method", METHODS, ids=names)
def test_epochs_lower_the_nlml(method: dict[str, Any]) -> None:
    x, y = rows()
    driver, generator = made(method, 12), torch.Generator().manual_seed(0)
    before = evidence(driver, x, y)
    for _ in range(12):
        driver.epoch(x, y, generator)
    assert driver.healthy and evidence(driver, x, y) < before - 0.1


@pytest.mark.sampled
@pytest.mark.parametrize("method", METHODS, ids=names)
def test_restored_it_goes_on_bit_for_bit(method: dict[str, Any]) -> None:
    """In the middle of an epoch's worth of steps, after an epoch."""
    x, y = rows()
    whole, generator = made(method), torch.Generator().manual_seed(0)
    whole.epoch(x, y, generator)
    whole.steps(x, y, 5, generator)
    again, resumed = made(method), torch.Generator()
    again.features.load_state_dict(whole.features.state_dict())
    again.head.load_state_dict(whole.head.state_dict())
    tensors, rest = whole.state()
    again.restore({name: t.clone() for name, t in tensors.items()}, rest)
    resumed.set_state(generator.get_state())
    for driver, drawn in ((whole, generator), (again, resumed)):
        driver.steps(x, y, 9, drawn)
        driver.epoch(x, y, drawn)
    assert all(torch.equal(a, b) for a, b in zip(everything(whole), everything(again), strict=True))
    one, other = whole.state(), again.state()
    assert one[1] == other[1] and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[:5], ids=names)
def test_memory_of_a_step_is_that_of_the_matrices_and_the_mini_batch(method: dict[str, Any]) -> None:
    """Live bytes in units of d² + |b|d numbers; the number of rows does not matter."""
    for width, batch in ((64, 16), (128, 16), (16, 64)):
        phi, y, head, data = problem(batch, width, 1)
        one = chosen(method)
        with Live() as live:
            one.begin(data, head)
            for _ in range(3):
                one.estimate(phi, y, head, 10_000_000)
                one.ascend(phi, head, 10_000_000)
        assert live.peak < 20 * 8 * (width**2 + batch * width)


@pytest.mark.parametrize("method", METHODS[:5], ids=names)
def test_float32_features_give_float32_rows(method: dict[str, Any]) -> None:
    phi, y, head, data = problem(16, 4, 1)
    one = chosen(method)
    one.begin(data, head)
    assert one.determinant(phi.float(), torch.ones((), dtype=FLOAT), 16).rows.dtype == torch.float32
    found = one.estimate(phi.float(), y, head, 16)
    assert found.phi.dtype == torch.float32 and bool(torch.isfinite(found.phi).all())


def test_adadelta_is_pytorchs() -> None:
    ours, theirs = normal(4, 3, seed=0), normal(4, 3, seed=0).requires_grad_()
    steps, reference = AdaDelta([ours]), torch.optim.Adadelta([theirs], lr=0.4)
    for seed in range(5):
        theirs.grad = normal(4, 3, seed=10 + seed)
        reference.step()
        steps.step([theirs.grad], rate=0.002)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)


def test_the_truth_over_a_partition_where_p_is_the_inverse() -> None:
    """LDB and MINIMAX at its whitened saddle, before any step."""
    phi, head = features(256, 12), FiniteHead(12, 1)
    kappa = fe.ridge(head.noise.detach())
    for method in (Ldb(rate=0.0), Minimax()):
        method.begin(fe.statistics([(phi, phi[:, :1])]), head)
        part = method.determinant(phi[:64], kappa, 256)
        torch.testing.assert_close(part.rows, true_rows(phi, kappa)[:64], rtol=1e-8, atol=1e-12)


def test_options_of_minimax_belong_to_it() -> None:
    with pytest.raises(ValueError, match="method=minimax"):
        FiniteTrainingConfig(mu=2.0)
    config = FiniteTrainingConfig(method="ldb")
    assert FiniteTrainingConfig.model_validate(config.model_dump()) == config
