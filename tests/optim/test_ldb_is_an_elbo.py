"""The loss of LDB against −2·ELBO of a Gaussian posterior of the weights, by torch.distributions."""

import math

import torch
from torch.distributions import MultivariateNormal, kl_divergence

from streamgp.base import FLOAT
from streamgp.objectives.finite_evidence import row_terms, statistics
from streamgp.optim.finite_head import FiniteHead
from streamgp.optim.ldb import Ldb, LdbConfig


def test_loss_with_any_p_is_minus_twice_the_elbo() -> None:
    generator = torch.Generator().manual_seed(0)
    n, d = 40, 5
    phi = torch.randn(n, d, generator=generator, dtype=FLOAT)
    y = torch.randn(n, 1, generator=generator, dtype=FLOAT)
    head = FiniteHead(d, 1, noise=0.3, floor=0.0)
    with torch.no_grad():
        head.weights.normal_(generator=generator)
        noise = head.noise
    method = Ldb(LdbConfig(every=1))
    method.begin(statistics([(phi + 0.3, y)]), head)  # of other features: P is not F⁻¹
    part = method.determinant(phi, noise[0], n)  # then a step on T, which leaves L₀
    root = method.root  # before its first step T = I
    p = root @ root.T

    loss = row_terms(phi, y, head.weights.detach(), noise, n).sum() + part.value + n * math.log(2 * math.pi)

    mean, variance = (phi @ head.weights.detach())[:, 0], noise * ((phi @ p) * phi).sum(1)
    fit = -0.5 * (n * (2 * math.pi * noise).log() + ((y[:, 0] - mean).square() + variance).sum() / noise)
    q = MultivariateNormal(head.weights.detach()[:, 0], noise * 0.5 * (p + p.T))
    prior = MultivariateNormal(torch.zeros(d, dtype=FLOAT), torch.eye(d, dtype=FLOAT))
    elbo = fit - kl_divergence(q, prior)
    torch.testing.assert_close(loss, -2.0 * elbo[0], rtol=1e-10, atol=1e-9)
