"""The streaming variational update (Bui, Nguyen & Turner 2017, "Streaming sparse Gaussian process approximations").

Hyper-parameters θ and basis b move, and the old posterior is carried through: what q(a) says of the function at the old
points a, beyond the old prior p(a | θ_old), is a likelihood of f(a) whatever the new prior is. Per column,

    q(a)/p(a | θ_old) ∝ N(ŷ_a; f(a), D_a),   D_a = (S_a⁻¹ − K'_aa⁻¹)⁻¹,   ŷ_a = D_a S_a⁻¹m_a
    q(b) ∝ p(b | θ) exp(E_{p(a | b, θ)} log N(ŷ_a; f(a), D_a) + E_{p(f | b, θ)} log p(y | f))

(section 3; K' under the old kernel). The bound is E_q log N(ŷ_a; f(a), D_a) + E_q log p(y | f) − KL[q(b) ‖ p(b | θ)].

D_a is infinite in directions of which the rows said nothing. So nothing is inverted here: with w = C⁻¹f(a) and CCᵀ =
K'_aa the posterior of w has precision I + Λ and the likelihood is exp(ηᵀw − ½wᵀΛw), Λ = CᵀD_a⁻¹C, η = CᵀD_a⁻¹ŷ_a. Both
are what a whitened posterior keeps anyway: sums over rows in closed form, natural parameters for natural gradients.
With whitened new variables w' on b, CᵦCᵦᵀ = K_bb, and K_ab, K_aa under the new kernel,

    E[w | w'] = Pw',  P = C⁻¹K_ab Cᵦ⁻ᵀ,    cov[w | w'] = R = C⁻¹K_aa C⁻ᵀ − PPᵀ
    q(w') = N(S'(Pᵀη + Σ φ y/σ²), S'),  S'⁻¹ = I + PᵀΛP + Σ φφᵀ/σ²    (Gaussian noise)

and ½tr ΛR is what the bound loses by the move. Where b has all points of a and θ stays, P = I and nothing is lost.

Departure: a point that stays keeps the jitter of its variance as noise of its own, in K_ab too. Else repeated moves
would wear out what is known of directions that the kernel hardly has.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT
from streamgp.likelihoods import Likelihood
from streamgp.linalg.cholesky import cholesky, solve, whiten
from streamgp.linalg.saliency import salient
from streamgp.training.decoupled import Hyper, Orthogonal, Prepared, SettledRows, settled

FRESH = 0.25
"""Part of the basis that a move gives to rows of the memory."""
CANDIDATES = 4
"""Rows that are looked at for each of them."""
EXPLAINED = 1e-4
"""Part of the prior variance below which a row is as good as in the span of the basis."""


class Carried(NamedTuple):
    """The old posterior as a likelihood of f(a), log l = ηᵀw − ½wᵀΛw with w = C⁻¹f(a); T columns have one Λ.

    Attributes:
        lower: (m, m) C, under the old kernel.
        precision: (m, m) Λ, positive semidefinite.
        pull: (m, T) η.
    """

    lower: Tensor
    precision: Tensor
    pull: Tensor

    def seen(self, across: Tensor, here: Tensor) -> Tensor:
        """P (m, m'). across: (m, m') K_ab under the new kernel, here: (m', m') Cᵦ. O(m m'(m + m'))."""
        return whiten(here, whiten(self.lower, across).T).T

    def missed(self, own: Tensor, seen: Tensor) -> Tensor:
        """(): tr ΛR, of each column. own: (m, m) K_aa under the new kernel, seen: (m, m') P. O(m³)."""
        prior = whiten(self.lower, whiten(self.lower, own).T)
        return (self.precision * (prior - seen @ seen.T)).sum()

    def expected(self, seen: Tensor, missed: Tensor, mean: Tensor, root: Tensor) -> Tensor:
        """(): E log l over q(w') = N(mean, root rootᵀ) and p(a | b), summed over columns.

        Args:
            seen: (m, m') P.
            missed: () tr ΛR.
            mean: (m', T)
            root: (m', m')
        """
        here, spread = seen @ mean, seen @ root
        columns = mean.shape[1]
        curve = (here * (self.precision @ here)).sum() + columns * (spread * (self.precision @ spread)).sum()
        return (self.pull * here).sum() - 0.5 * (curve + columns * missed)


def fresh(unexplained: Tensor, prior: float, count: int, generator: Generator) -> Tensor:
    """(<= count,) rows that become basis points: drawn with the variance that the basis leaves unexplained.

    Args:
        unexplained: (N,) of each row, >= 0.
        prior: the prior variance.
        count: of rows, at most; those that the basis explains are left out.
        generator: of the draw.

    Example:
        >>> sorted(fresh(torch.tensor([0.5, 0.0, 0.2]).double(), 1.0, 3, torch.Generator().manual_seed(0)).tolist())
        [0, 2]
    """
    odds = torch.where(unexplained > EXPLAINED * prior, unexplained, 0.0)
    count = min(count, int((odds > 0).sum()))
    if not count:
        return torch.empty(0, dtype=torch.int64, device=unexplained.device)
    return torch.multinomial(odds.cpu(), count, generator=generator).to(unexplained.device)


def sharing(across: Tensor, kept: Tensor, jitter: float | Tensor) -> Tensor:
    """K_ab (m, m') where the leading points of b are those of a at `kept` (k,), with their jitter in common."""
    shared = torch.zeros_like(across)
    shared[kept, torch.arange(len(kept), device=across.device)] = 1.0
    return across + jitter * shared


class Streaming(Orthogonal):
    """q at X̃ alone, without residual functions, that is carried from batch to batch: rows are learned once.

    Before a batch `carry` makes a likelihood of q, discounted by what is forgotten. While it is held the KL is that of
    the bound above, KL − E_q log l, and `settle` goes to q ∝ p exp(E log l + E log p(y | f)): for any likelihood,
    kernel and points may move meanwhile. Residual functions would have no precision that could be carried.

    Attributes:
        old: the likelihood that is held, if any.
        before: (m, d) its points.
        kept: (k,) where the leading points of now stood among them.
    """

    first = 0.0  # jitter would be added again with every batch
    old: Carried | None = None
    before: Tensor
    kept: Tensor

    def _carried(self, hyper: Hyper) -> Carried:
        """Of q as it is: Λ = S'⁻¹ − I, η = S'⁻¹μ."""
        m = self.beta.size
        inverse = torch.cholesky_inverse(self._root())
        eye = torch.eye(m, dtype=FLOAT, device=inverse.device)
        lower = hyper.rho * cholesky(self.beta.gram(hyper.lengthscale)).lower
        return Carried(lower, inverse - eye, inverse @ self.mean[:m])

    @torch.no_grad()
    def carry(self, hyper: Hyper, left: float = 1.0) -> None:
        """Hold the likelihood that q is of its points under these hyper-parameters; `left` of it is not forgotten."""
        found = self._carried(hyper)
        self.old = found._replace(precision=left * found.precision, pull=left * found.pull)
        self.before = self.beta.active.detach().clone()
        self.kept = torch.arange(self.beta.size, device=self.before.device)

    def release(self) -> None:
        """Hold none."""
        self.old = None

    def _seen(self, hyper: Hyper, prepared: Prepared) -> Tensor:
        """P, of variables with unit prior variance: cov(f(a), u_b) = ρK_ab."""
        assert self.old is not None
        jitter = (prepared.factor[0, 0].square() - 1.0).detach()  # the Gram matrix has ones on its diagonal
        across = sharing(self.beta.cross(self.before, hyper.lengthscale), self.kept, jitter)
        return self.old.seen(hyper.rho * across, prepared.factor)

    def kl(self, hyper: Hyper, prepared: Prepared, index: Tensor) -> Tensor:
        """KL[q ‖ p] − E_q log l."""
        own = super().kl(hyper, prepared, index)
        if self.old is None:
            return own
        seen, m = self._seen(hyper, prepared), self.beta.size
        prior = self.beta.gram_of(self.before, self.before, hyper.lengthscale)
        jitter = (prepared.factor[0, 0].square() - 1.0).detach()
        prior = prior + jitter * torch.eye(len(prior), dtype=FLOAT, device=prior.device)
        missed = self.old.missed(hyper.rho.square() * prior, seen)
        return own - self.old.expected(seen, missed, self.mean[:m], self._root())

    @torch.no_grad()
    def settle(
        self, rows: SettledRows, hyper: Hyper, likelihood: Likelihood, offset: Tensor | None, size: float, steps: int
    ) -> dict[str, Tensor]:
        """As `Orthogonal.settle`, with PᵀΛP and Pᵀη beside what the rows say."""
        if self.old is None:
            return super().settle(rows, hyper, likelihood, offset, size, steps)
        prepared, m = self.prepare(hyper), self.beta.size
        seen = self._seen(hyper, prepared)
        before = seen.T @ self.old.precision @ seen, seen.T @ self.old.pull
        half = whiten(prepared.factor, hyper.rho * self.beta.cross(rows.x, hyper.lengthscale).T)
        rest = rows.y.new_zeros(rows.y.shape) if offset is None else offset.expand(rows.y.shape)
        began = self.mean[:m].clone(), torch.cholesky_inverse(self._root())
        mean, precision = settled(half, rest, hyper.rho.square(), rows, likelihood, began, size, steps, before)
        self.take(mean, torch.cholesky_inverse(cholesky(precision, first=0.0).lower))
        return self.renewed()

    @torch.no_grad()
    def move(self, x: Tensor, hyper: Hyper, generator: Generator) -> tuple[int, int]:
        """Put q, as the likelihood that is held, on a new basis under these hyper-parameters.

        The most salient points stay, and rows take the places of the others.

        Args:
            x: (N, d) latents of rows that may become points.
            hyper: from now on.
            generator: of the draw.

        Returns:
            how many points stay, and how many are new.
        """
        assert self.old is not None
        m, capacity = self.beta.size, self.beta.capacity
        stay = min(m, capacity - int(FRESH * capacity))
        self.kept = salient(self.old.lower, self.mean[:m], stay)
        use = self.beta.use[self.kept].clone()
        self.beta.points[:stay], self.beta.use[:stay] = self.before[self.kept], use
        self.beta.count.fill_(stay)
        some = x[torch.randperm(len(x), generator=generator)[: CANDIDATES * (capacity - stay)].to(x.device)]
        lower = cholesky(self.beta.gram(hyper.lengthscale)).lower
        gap = (1.0 - whiten(lower, self.beta.cross(some, hyper.lengthscale).T).square().sum(0)).clamp(min=0.0)
        new = self.beta.add(some[fresh(gap, 1.0, capacity - stay, generator)])
        prepared = self.prepare(hyper)
        seen = self._seen(hyper, prepared)
        precision = seen.T @ self.old.precision @ seen
        precision.diagonal().add_(1.0)
        root = cholesky(precision, first=0.0).lower
        self.take(solve(root, seen.T @ self.old.pull), torch.cholesky_inverse(root))
        self.root.data[self.beta.size :], self.root.data[:, self.beta.size :] = 0.0, 0.0
        self.mean.data[self.beta.size :] = 0.0
        return stay, len(new)
