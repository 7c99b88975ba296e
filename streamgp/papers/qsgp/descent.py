"""Quadruply stochastic steps: drawn rows, two drawn blocks of features, a control variate, updates of what was drawn.

−2 ELBO in the means is estimated from ñ of n rows and independent blocks i and j of B, each standing for B blocks
(Evans & Nair 2020, theorem 1; `quadruple`):

    B²μ_jᵀΦ_ℓjᵀΦ_ℓiμ_i − B y_ℓᵀ(Φ_ℓiμ_i + Φ_ℓjμ_j)          rows weighted by n/ñσ², symmetric in i and j
    + ½ B (μ_iᵀS_iiμ_i + μ_jᵀS_jjμ_j)                        S = I; else B²μ_jᵀS_jiμ_i
    − B²μ_jᵀΦ_pjᵀΦ_piμ_i + aᵀa,  a = Φ_pμ                    on n̄ support rows p (eq. 3, proposition 3)
    − B²μ_jᵀΦ_pjᵀK_pp⁻¹Φ_piμ_i + aᵀK_pp⁻¹a                   inducing functions, S = K: the same for μᵀSμ (F.2)

The gradient is unbiased, and kept on i ∪ j alone (F.1). Its noise is that of BΦ_jμ_j, of standard deviation
√(v‖μ‖²/m̃ (1 − m̃/m)) or so, which the control variate takes away on rows like the support rows.

**Dense columns** of the chevron are k more columns of the same regression. Column r is c_r = c_rr (e_r + u_r), u_r in
the rows after r: theorem 2's terms in u_r are c_rr² times those of a target −φ_r, with a control variate like the
means', and c_rr has a closed form given u_r. So a step has T + k columns, and the diagonal adds no noise.

**Steps**: `adagrad` is the paper's, a rate for every weight that falls with its squared gradients. `preconditioned`
(ours) multiplies a block's gradient by (Φ_bᵀΦ_b/σ² + S_bb)⁻¹ on the rows of the step: on windows that overlap the
curvature differs by factors of 10⁴ from one direction to another, which no rate of single weights knows. Both move
blocks that were drawn and no others. The noise of the gradient grows with ‖μ‖ and with the number of blocks, so that a
step that is too long leads away: with ν_s the change of f that step s would make if it were whole, in spreads of the
targets, where the fit alone has 1 at most, a step is the rate over the mean of ν_s² so far, if that is above 1; and no
step is longer than (Σ_s ν_s²)^−½ of the whole (AdaGrad's rule for a single rate; Ward et al. 2019).

A step takes O((ñ + n̄) m̃ (W + K)), preconditioned O(n̄m̃² + m̃³) more, whatever n and m are. What takes O(m) is Φμ at new
inputs: a forecast, and a row that enters the support.

Shapes: R rows, W columns of an input, m features in B blocks, m̃ in one, T target columns, K = T + k.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from streamgp.base import FLOAT
from streamgp.errors import UsageError
from streamgp.features import Features
from streamgp.features.inducing import augmentation
from streamgp.linalg.cholesky import cholesky, whiten
from streamgp.papers.qsgp import control_variates
from streamgp.papers.qsgp.adagrad import SparseAdaGrad
from streamgp.papers.qsgp.draws import CellPair, draw_cells
from streamgp.papers.qsgp.hyper import SlowAdam
from streamgp.papers.qsgp.quadruple import (
    constant_term,
    diagonal_optimum,
    diagonal_prior_term,
    diagonal_term,
    fit_term,
    log_term,
    prior_term,
)
from streamgp.papers.qsgp.rows import SampledRows
from streamgp.papers.qsgp.steps import Drawn, Image, StepOptions
from streamgp.papers.qsgp.weights import SampledWeights
from streamgp.regression.dual_descent import reserved

TINY = 1e-300
SMOOTH = 0.02
"""Weight of a new draw in the running mean of the loss, once 50 were taken."""
FEW = 100
"""Rows that the size of the dense columns' targets is measured on."""
AVERAGE = 0.1
"""The same of the squares of features."""


class QuadrupleDescent(SampledWeights):
    """μ of T columns under σ_t², and one chevron covariance, by steps on drawn blocks. The buffers are the state.

    Args:
        features: Φ and S.
        columns: T.
        steps: what they are.
        seed: of all draws.
        dtype: of the weights, and of features while learning.

    Attributes:
        weights: (capacity, K) μ and U; a block that was never stepped is 0 exactly.
        sums: (capacity, K) of squared gradients (AdaGrad).
        squares: (capacity,) mean of φ_r² over rows.
        last: (blocks,) int64, 1 + the number of the step that was the last on each block; 0: never stepped.
        steps: () int64, steps taken.
        stream: state of the generator that all draws come from.
        noise: (T,) σ_t².
        norms: (k,) u_rᵀSu_r, kept up to date.
        heights: (k,) mean square of φ_r + Φu_r over rows.
        count: () rows that were learned.
        beyond: () running mean of −2 ELBO, a row and column.
        noisy: (K,) Σ ν², in mean squares of the targets, those of the dense columns being −φ_r (preconditioned).

    Example:
        >>> from streamgp.features import fourier
        >>> from streamgp.kernels import squared_exponential
        >>> kernel = squared_exponential.build(squared_exponential.Config(), dims=1)
        >>> features = fourier.build(fourier.Config(size=80, width=20), kernel)
        >>> x = torch.linspace(-2, 2, 100).double()[:, None]
        >>> descent = QuadrupleDescent(features, columns=1, options=StepOptions(rate=0.2)).begin(0.01)
        >>> rows = descent.rows(x, x.sin())
        >>> for step in range(300):
        ...     descent.step(rows, decay=0.99**step)
        >>> found = descent.image(x)
        >>> bool((found.mean - x.sin()).abs().max() < 0.1), bool(found.variance.max() < 0.1)
        (True, True)
    """

    def __init__(
        self,
        features: Features,
        columns: int,
        options: StepOptions | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.options = options = options or StepOptions()
        total = columns + options.columns
        if not features.diagonal_precision and (options.columns or options.hyper):
            raise UsageError(
                "weights that depend on each other take neither dense columns nor steps of hyper-parameters",
                hint="leave them out, or use random Fourier features",
            )
        super().__init__(features, columns, total, total, options.support, seed, dtype)
        self.sums: Tensor
        self.squares: Tensor
        self.noise: Tensor
        self.norms: Tensor
        self.heights: Tensor
        self.count: Tensor
        self.beyond: Tensor
        self.noisy: Tensor
        if options.optimiser == "adagrad":
            self.register_buffer("sums", reserved((features.capacity, total), torch.float32))
        self.register_buffer("squares", reserved((features.capacity,), torch.float32))
        self.register_buffer("noise", torch.ones(columns, dtype=FLOAT))
        self.register_buffer("norms", torch.zeros(options.columns, dtype=FLOAT))
        self.register_buffer("heights", torch.zeros(options.columns, dtype=FLOAT))
        self.register_buffer("count", torch.zeros((), dtype=FLOAT))
        self.register_buffer("beyond", torch.zeros((), dtype=FLOAT))
        self.register_buffer("noisy", torch.zeros(total, dtype=FLOAT))
        self.optimiser = SparseAdaGrad({}, {})
        theta = sum(p.numel() for p in features.parameters())
        self.started = copy.deepcopy(features) if options.hyper else None
        self.adam = SlowAdam(theta + columns) if options.hyper else None

    @property
    def variance(self) -> Tensor:
        """() σ² = 1/mean_t(1/σ_t²), that of the covariance."""
        return 1.0 / (1.0 / self.noise).mean()

    @property
    def noises(self) -> Tensor:
        """(K,) σ_t² of the means, then σ² of the dense columns."""
        return torch.cat((self.noise, self.variance.expand(self.options.columns)))

    @property
    def rate(self) -> float:
        """Step size; none is named: 0.02, and 0.2 of a single block, as no functions are sampled then."""
        if self.options.rate is not None:
            return self.options.rate
        return 0.02 if self.features.blocks > 1 else 0.2

    @property
    def healthy(self) -> bool:
        """Whether all that steps have seen is finite."""
        return bool(torch.isfinite(self.beyond))

    @property
    def loss(self) -> float:
        """−ELBO a row and column: a running mean of the draws. Σ log s_rr stands for log|S|, which no step moves."""
        return float(0.5 * self.beyond)

    @property
    def shown(self) -> Features:
        """The features at which the running expectation was started."""
        return self.features if self.started is None else self.started

    @torch.no_grad()
    def begin(self, noise: Tensor | float) -> Self:
        """μ = 0 under a new σ², (T,) or one number, and whatever the features' hyper-parameters now are; O(touched)."""
        self.forget(self.squares, *([self.sums] if hasattr(self, "sums") else []))
        for buffer in (self.norms, self.heights, self.count, self.beyond, self.noisy):
            buffer.zero_()
        self.noise.copy_(torch.as_tensor(noise))
        if self.adam is not None:
            self.adam.forget()
        self._restart()
        return self

    def _restart(self) -> None:
        if self.started is not None:
            self.started.load_state_dict(self.features.state_dict())

    @torch.no_grad()
    def image(self, x: Tensor) -> Image:
        """Means and variances of inputs (N, W); O(N (W + K)) a touched feature, and no other.

        The variance is ‖Cᵀφ‖². Features of blocks that were never drawn have that of their prior on average: what they
        add is a part of the prior variance of f(x). Inducing functions that were never drawn are like those that were.
        """
        k, precision = self.options.columns, self.count / self.variance
        total, own = x.new_zeros(len(x), self.total), x.new_zeros(len(x))
        norm, used = x.new_zeros(len(x)), 0
        for block in self.touched():
            span = self.features.span(block)
            phi = self.features.block(x, block)
            total.addmm_(phi, self.weights[span].to(phi.dtype))
            squares = phi.square()
            own.addmv_(squares, self.entries(block, precision).square().to(phi.dtype))
            norm += squares.sum(1)
            used += phi.shape[1]
        if k:
            dense = (total[:, self.columns :] + self.heads(x, k)) * self.scales(precision).to(x.dtype)
            own += dense.square().sum(1)
        if not self.features.diagonal_precision:
            return Image(total, self._of_inducing(x, own, norm, used))
        share = 1.0 - used / max(self.features.size, 1)
        if share > 0.0:
            prior = self.features.prior_variance(x)
            own += prior * (share / (1.0 + precision * float(prior.mean()) / max(self.features.size, 1))).to(prior)
        return Image(total[:, : self.columns], own)

    def _of_inducing(self, x: Tensor, own: Tensor, norm: Tensor, used: int) -> Tensor:
        """(N,) latent variance from that of `used` functions, own (N,), and the sum of their squares, norm (N,)."""
        prior = self.features.prior_variance(x)
        if not used:
            return prior
        own = own * (self.features.size / used)
        if self.options.augment:
            found = augmentation(prior, norm * (self.count / used).to(norm), self.variance.reshape(1).to(norm))
            own = own + found[:, 0]
        return own

    def entries(self, block: int, precision: Tensor) -> Tensor:
        """(|b|,) c_rr of the diagonal columns (proposition 1), 0 of the dense ones. precision: n/σ²."""
        span = self.features.span(block)
        found = diagonal_optimum(self.squares[span].to(FLOAT), self.prior(block), precision)
        found[: max(self.options.columns - span.start, 0)] = 0.0
        return found

    def scales(self, precision: Tensor) -> Tensor:
        """(k,) c_rr of the dense columns, given what is below it: (n mean (φ_r + Φu_r)²/σ² + s_rr + u_rᵀSu_r)^−½.

        φ_r itself is orthogonal to u_r in S where S is diagonal; where it is not, the cross terms are in the norm.
        """
        return torch.rsqrt(self.heights * precision + 1.0 + self.norms)

    def step(self, rows: SampledRows, decay: float = 1.0) -> None:
        """One step. decay: factor on the step sizes."""
        if not len(rows.places()) or not self.features.blocks:
            return  # nothing to learn from yet
        learning, steps = self.adam is not None, int(self.steps)
        if learning and steps and steps % self.options.restart == 0:
            self.renew(rows)
        generator = self._generator()
        cells = draw_cells(self.features.blocks, generator)
        some = rows.draw(self.options.batch, generator)
        self.stream.copy_(generator.get_state())
        theta = list(self.features.parameters()) if learning else []
        for parameter in theta:
            parameter.requires_grad_(True)
        log_noise = self.noise.log().requires_grad_(learning)
        leaves = {b: self.weights[self.features.span(b)].clone().requires_grad_(True) for b in cells.touched}
        drawn = self.see(rows, cells, some, learning)
        means, columns = self.mean_part(rows, drawn, leaves, log_noise.exp())
        with torch.set_grad_enabled(learning):
            rest = self.rest(rows, drawn, log_noise.exp())
        wanted = [*leaves.values(), *theta, *([log_noise] if learning else [])]
        found = torch.autograd.grad(means + columns + rest, wanted, allow_unused=True)  # one kernel of several
        gradients = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, found, strict=True)]
        total = float(rows.count.sum())
        self.beyond.lerp_((means + rest).detach() / total, max(SMOOTH, 1.0 / (steps + 1)))
        self.count.copy_(rows.count.mean())
        self.steps += 1
        with torch.no_grad():
            for (block, before), gradient in zip(leaves.items(), gradients, strict=False):
                self._descend(rows, drawn, block, before.detach(), gradient, decay)
            self._note(rows)
            if self.adam is not None:
                slopes = [gradient / total for gradient in gradients[len(leaves) :]]
                self.adam.step(wanted[len(leaves) :], slopes, decay * self.options.hyper)
                self.noise.copy_(log_noise.exp())
        for parameter in theta:
            parameter.requires_grad_(False)

    def see(self, rows: SampledRows, cells: CellPair, some: Tensor, learning: bool = False) -> Drawn:
        """The features of a draw, with a graph for their hyper-parameters if asked for. some: (ñ,) places of rows."""
        x, held = rows.x[some], rows.x[rows.held]
        if self.started is None:
            with torch.no_grad():
                joined = {b: self.features.block(torch.cat((x, held)), b) for b in cells.touched}
            parts = [{b: f[part] for b, f in joined.items()} for part in (slice(len(x)), slice(len(x), None))]
            return Drawn(cells, some, *parts)
        with torch.set_grad_enabled(learning):
            phi = {b: self.features.block(x, b) for b in cells.touched}
        with torch.no_grad():
            return Drawn(cells, some, phi, {b: self.started.block(held, b) for b in cells.touched})

    def mean_part(
        self, rows: SampledRows, drawn: Drawn, leaves: dict[int, Tensor], noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The estimates of L_μ, with its control variate, and of its likes for the dense columns; () both.

        Args:
            leaves: block -> (|b|, K), of both blocks.
            noise: (T,) σ_t².
        """
        cells, weight = drawn.cells, drawn.cells.weight
        i, j, held, of = cells.i, cells.j, rows.held, len(rows.places())
        precision, known = (rows.precision(places, noise, of) for places in (drawn.some, held))
        image, seen = ({b: (f @ leaves[b]).to(FLOAT) for b, f in part.items()} for part in (drawn.phi, drawn.support))
        union = seen[i] if i == j else seen[i] + seen[j]

        def part(columns: slice, y: Tensor, own: Tensor, beside: Tensor) -> Tensor:
            image_i, image_j = image[i][:, columns], image[j][:, columns]
            mu_i, mu_j = (leaves[b][:, columns].to(FLOAT) for b in (i, j))
            value = 0.5 * fit_term(image_i, image_j, y, own, weight)
            value = value + 0.5 * fit_term(image_j, image_i, y, own, weight)
            value = value + self._prior(cells, mu_i, mu_j)
            if len(held):
                fit = control_variates.attach(rows.known[:, columns], union[:, columns], cells.scale)
                value = value + control_variates.quadratic(
                    seen[i][:, columns], seen[j][:, columns], fit, beside, weight
                )
                if not self.features.diagonal_precision:
                    value = value + self._nystrom(rows, cells, seen)
            return value

        means = part(slice(self.columns), rows.target[drawn.some], precision, known)
        if not self.options.columns:
            return means, means.new_zeros(())
        with torch.no_grad():
            own, beside = (p.detach().mean(1, keepdim=True) for p in (precision, known))
            y = -self.heads(rows.x[drawn.some], self.options.columns).to(FLOAT)
        return means, part(slice(self.columns, None), y, own.expand_as(y), beside)

    def _nystrom(self, rows: SampledRows, cells: CellPair, seen: dict[int, Tensor]) -> Tensor:
        """The control variate of μᵀSμ, S = K (F.2): L⁻¹Φ_pμ is the image of μ under a Nyström approximation."""
        with torch.no_grad():
            root = rows.root(self.features.kernel)
        images = {b: whiten(root, image) for b, image in seen.items()}
        union = torch.stack(list(images.values())).sum(0)
        fit = control_variates.attach(whiten(root, rows.known), union, cells.scale)
        one = torch.ones_like(fit)
        return control_variates.quadratic(images[cells.i], images[cells.j], fit, one, cells.weight)

    def _prior(self, cells: CellPair, mu_i: Tensor, mu_j: Tensor) -> Tensor:
        if not self.features.diagonal_precision:
            return prior_term(mu_i, mu_j, self.features.precision(cells.j, cells.i), cells.weight)
        value = 0.5 * diagonal_prior_term(mu_i, self.prior(cells.i), cells.weight)
        return value + 0.5 * diagonal_prior_term(mu_j, self.prior(cells.j), cells.weight)

    def rest(self, rows: SampledRows, drawn: Drawn, noise: Tensor) -> Tensor:
        """L_Σ at the best diagonal, whose entries are held fixed (they are optimal), and L_const (proposition 2)."""
        i, weight, some, count, of = drawn.cells.i, drawn.cells.weight, drawn.some, len(noise), len(rows.places())
        phi, prior, precision = drawn.phi[i], self.prior(i), rows.precision(drawn.some, noise, of)
        with torch.no_grad():
            for block in drawn.cells.touched:
                self._note_squares(rows, drawn, block)
            span = self.features.span(i)
            c = diagonal_optimum(self.squares[span].to(FLOAT), prior, rows.count.mean() / self.variance)
        c_i, s_i, own = (value.to(phi.dtype) for value in (c, prior, precision))
        value = diagonal_term(phi, c_i, s_i, own, weight).to(FLOAT) + log_term(c, count, weight)
        target = torch.where(rows.observed[some], rows.target[some], torch.nan)
        stands = rows.weight[some] * (of / len(some))
        return value + constant_term(target, noise, stands, prior, self.features.size, weight)

    def _note_squares(self, rows: SampledRows, drawn: Drawn, block: int) -> None:
        """The running mean of φ_r² over rows, of which the diagonal is made, on mini-batch and support rows."""
        span, own = self.features.span(block), rows.weight[drawn.some]
        parts = [(own, drawn.phi[block])]
        if len(rows.held):
            parts.append((rows.weight[rows.held], drawn.support[block]))
        seen = torch.stack([w @ f.square().to(FLOAT) for w, f in parts]).sum(0)
        fresh = seen / torch.stack([w.sum() for w, _ in parts]).sum().clamp(min=TINY)
        rate = AVERAGE if int(self.last[block]) else 1.0
        self.squares[span] = self.squares[span].lerp(fresh.to(torch.float32), rate)

    def _descend(
        self, rows: SampledRows, drawn: Drawn, block: int, before: Tensor, gradient: Tensor, decay: float
    ) -> None:
        """A step on one block, and the running expectation after it."""
        span, rate = self.features.span(block), decay * self.rate
        free = self.below(block, self.options.columns)
        if free is not None:
            gradient = torch.cat((gradient[:, : self.columns], gradient[:, self.columns :] * free), 1)
        if self.options.optimiser == "adagrad":
            names = [str(column) for column in range(self.total)]
            self.optimiser.parameters = dict(zip(names, self.weights.unbind(1), strict=True))
            self.optimiser.sums = dict(zip(names, self.sums.unbind(1), strict=True))
            self.optimiser.rates = dict.fromkeys(names, 1.0)
            columns = zip(names, gradient.unbind(1), strict=True)
            self.optimiser.step({name: (span, column) for name, column in columns}, rate)
        else:
            change, size = self._newton(rows, drawn, block, gradient)
            self.noisy += size
            mean = self.noisy / (2.0 * int(self.steps))  # of two blocks a step
            change *= torch.minimum(rate / mean.clamp(min=1.0), self.noisy.rsqrt()).to(change)
            if free is not None:
                change[:, self.columns :] *= free
            self.weights[span] -= change.to(self.dtype)
        self.last[block] = self.steps
        after = self.weights[span]
        rows.fit[rows.support >= 0] += (drawn.support[block] @ (after - before)).to(FLOAT)
        if self.options.columns:
            self.norms += (
                after[:, self.columns :].to(FLOAT).square() - before[:, self.columns :].to(FLOAT).square()
            ).sum(0)

    def _newton(self, rows: SampledRows, drawn: Drawn, block: int, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """A whole Newton step of a block, (|b|, K), and the mean square of what it changes, (K,), over the targets'.

        (Φ_bᵀΦ_b/σ² + S_bb)⁻¹ times half of the block's share of the gradient, Φ_b on mini-batch and support rows. Few
        rows know little of |b| directions, their squares are known: the matrix is shrunk towards its diagonal.
        """
        phi = drawn.phi[block].detach()
        weight = rows.weight[drawn.some]
        if len(rows.held):
            phi = torch.cat((phi, drawn.support[block]))
            weight = torch.cat((weight, rows.weight[rows.held]))
        share = weight / weight.sum().clamp(min=TINY)
        half = phi * (share * rows.count.mean() / self.variance).sqrt().to(phi.dtype)[:, None]
        part = phi.shape[1] / (phi.shape[1] + len(phi))
        matrix = half.mT @ half
        diagonal = matrix.diagonal().clone()
        matrix.mul_(1.0 - part)
        matrix.diagonal().copy_(diagonal)
        if self.features.diagonal_precision:
            matrix.diagonal().add_(self.prior(block))
        else:
            matrix += self.features.precision(block, block).to(matrix.dtype)
        slope = gradient * (len(drawn.cells.touched) / (2.0 * drawn.cells.weight) * self.noises / self.variance)
        change = torch.cholesky_solve(slope.to(matrix.dtype), cholesky(matrix).lower)
        size = share @ (phi @ change).to(FLOAT).square()
        if self.options.columns:
            some = rows.x[rows.held[:FEW]]
            size[self.columns :] /= self.heads(some, self.options.columns).to(FLOAT).square().mean(0).clamp(min=TINY)
        return change, size

    def _note(self, rows: SampledRows) -> None:
        """The heights of the dense columns on the support rows."""
        if self.options.columns and len(rows.held):
            own = rows.weight[rows.held]
            square = (
                self.heads(rows.x[rows.held], self.options.columns, self.shown).to(FLOAT)
                + rows.known[:, self.columns :]
            ).square()
            self.heights.copy_((own @ square) / own.sum().clamp(min=TINY))
