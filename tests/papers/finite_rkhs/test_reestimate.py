"""Hyper-parameters by SCGD: the dense evidence's optimum, families on a stream, one pass and the same restored."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from streamgp import registry
from streamgp.base import FLOAT, Model, Shape
from streamgp.evidence.thinned import LogHyper, by_lbfgs
from streamgp.kernels import matern, squared_exponential
from streamgp.objectives.finite_evidence import statistics
from streamgp.papers.finite_rkhs import reestimate
from streamgp.papers.finite_rkhs.reestimate import Radial, descend, negative_evidence
from streamgp.testing import check_model
from streamgp.testing.models import SHAPES
from tests.training.finite_toys import nlml, normal

GROUPS = torch.tensor([0, 0, 1])


def test_the_value_is_that_of_all_rows() -> None:
    phi, y, noise = normal(30, 5, seed=0), normal(30, 2, seed=1), torch.tensor([0.1, 0.4], dtype=FLOAT)
    data = statistics([(phi, y)])
    assert negative_evidence(data, noise) == pytest.approx(float(nlml(data, noise)), rel=1e-12)


@pytest.mark.parametrize("kind", ["squared_exponential", "matern"])
def test_features_are_those_of_the_kernel_whatever_its_own_hyper_parameters(kind: str) -> None:
    module: Any = {"squared_exponential": squared_exponential, "matern": matern}[kind]
    begin = LogHyper.unpack(torch.tensor([0.3, -0.2, 0.5, -1.0], dtype=FLOAT))
    x, length = normal(6, 3, seed=0), begin.lengthscale[GROUPS].exp() * torch.tensor([2.0, 2.0, 1.0]).double().sqrt()
    own = module.build(module.Config(), 3)
    with torch.no_grad():
        phi = Radial(module.build(module.Config(lengthscale=5.0), 3), GROUPS, begin, pairs=4000)(x)
        own.log_lengthscale.copy_(length.log())
        own.log_outputscale.copy_(begin.outputscale)
        torch.testing.assert_close(phi @ phi.T, own(x, x), rtol=0, atol=0.16)


@pytest.mark.slow
def test_it_finds_what_the_dense_evidence_finds() -> None:
    """L-BFGS on the exact marginal likelihood of the same rows; two groups, of which one says nothing."""
    x = 2 * normal(600, 3, seed=0)
    y = torch.sin(x[:, :1]) * torch.cos(x[:, 1:2]) + 0.2 * normal(600, 1, seed=1)
    kernel = squared_exponential.build(squared_exponential.Config(), 3)
    best = by_lbfgs(x, y, GROUPS, [(LogHyper.start(2), 60)])
    found = descend(kernel, x, y, GROUPS, LogHyper.start(2), epochs=30)
    assert found.hyper.lengthscale[0].item() == pytest.approx(best.hyper.lengthscale[0].item(), abs=0.15)
    assert found.hyper.noise.item() == pytest.approx(best.hyper.noise.item(), abs=0.15)
    assert found.hyper.lengthscale[1] > found.hyper.lengthscale[0] + 0.5
    constant = 0.5 * 600 * math.log(2 * math.pi)
    assert found.value - constant < best.value + 25  # nats of 600 rows: 128 frequencies for the kernel


SMALL: dict[str, dict[str, Any]] = {
    "svdgp": {"basis": 24, "reservoir": 256, "rebuild": 400},
    "finite_rkhs": {"fourier": {"size": 40}, "reservoir": 256, "rebuild": 400, "online": {"epochs": 0}},
    "rvm": {"dictionary": 60, "basis": 24, "reservoir": 256, "rebuild": 400},
    "qsgp": {"features": {"size": 96}, "reservoir": 256, "rebuild": 400},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_laws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, few in (("PAIRS", 8), ("EPOCHS", 2), ("FURTHER", 1)):
        monkeypatch.setattr(reestimate, constant, few)
    module = registry.load("models", name)

    def build(shape: Shape) -> Model:
        model: Model = module.build(module.Config(evidence="scgd", **SMALL[name]), shape)
        return model

    check_model(build, SHAPES[1:], full=512)
