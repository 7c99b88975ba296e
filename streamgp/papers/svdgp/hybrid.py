"""The hybrid parametrisation (Cheng & Boots 2017, appendix A.3, equations 11 to 14), all of it learned by Adam.

    m̂(x) = k(x, X̃)K⁻¹m̃ + k(x, α)a,    k̂(x, x') = k(x, x') − k(x, X̃)K⁻¹(K − S̃)K⁻¹k(X̃, x'),    m̃ = L_k m', S̃ = L_k S' L_kᵀ

Departure: the parameter is not m' but μ = m' + L_k⁻¹K_{X̃,α}a, the whitened mean of all of q at X̃. That is one
substitution, costs nothing, and takes the directions that X̃ spans out of the residual's gradient, whose stiffness they
are. It is also what makes the residual orthogonal to X̃ (Salimbeni et al. 2018): the two parametrisations are one family
of q, and differ in who learns (μ, S'). Here a start settles them once, and Adam continues.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgp.training.decoupled import Orthogonal


class Hybrid(Orthogonal):
    """μ and the root of S' are parameters; a step of Adam costs O(N M_α + N M_β² + M_β³)."""

    natural = False

    def hold(self, mean: Tensor, root: Tensor) -> None:
        """Keep these as μ and S', for Adam."""
        self.mean, self.root = nn.Parameter(mean), nn.Parameter(root)

    def renewed(self) -> dict[str, Tensor]:
        """All rows of both: Adam begins there again."""
        everything = torch.arange(self.beta.size, device=self.mean.device)
        return {"mean": everything, "root": everything}
