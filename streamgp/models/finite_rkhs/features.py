"""φ of a finite-dimensional kernel k(x, x') = φ(x)ᵀφ(x'): an encoder, then the features of a kernel on its latents.

    φ(z) = [ s z, s ; φ_k(e(z)) ]

e is the encoder, φ_k the linear kernel's features [√v ∘ h, √b], or random Fourier features √(2v/m) [cos ωᵀh, sin ωᵀh]
of a kernel with a spectral density (Rahimi & Recht 2007). The linear part s z is optional. Frequencies that are the
kernel's own are drawn orthogonal to each other, as far as there are dimensions (Yu et al. 2016): fewer of them do.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamgp import choice
from streamgp.base import FLOAT
from streamgp.encoders import Encoder
from streamgp.errors import UsageError
from streamgp.features.fourier import standard_normals
from streamgp.kernels import Kernel, drawn, names_where
from streamgp.kernels.linear import Linear


class FiniteFeatures(nn.Module):
    """See the module. float64, or the encoder's precision where it is in training mode.

    Args:
        encoder: e.
        kernel: the Config of the kernel on the latents.
        size: m, Fourier features, cosines and sines counted singly; even.
        seed: of the frequencies.
        linear: whether there is a linear part.
        learned: whether the frequencies themselves are learned, not only the kernel's hyper-parameters.

    Attributes:
        kernel: with the hyper-parameters.
        normals: (m/2, n) what the frequencies are made of; empty with the linear kernel.
        slope: () s.

    Raises:
        UsageError: the kernel is neither linear nor has it a spectral density to draw from.

    Example:
        >>> from streamgp.encoders import identity
        >>> from streamgp.encoders import Layout
        >>> from streamgp.kernels import squared_exponential
        >>> encoder = identity.build(identity.Config(), Layout(lags=0, past=0, future=2))
        >>> features = FiniteFeatures(encoder, squared_exponential.Config(), 400, seed=0, linear=False)
        >>> phi = features(torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=FLOAT)).detach()
        >>> phi.shape, [round(value, 1) for value in (phi @ phi.T)[0].tolist()]  # 1, exp(−½)
        (torch.Size([2, 400]), [1.0, 0.6])
    """

    normals: Tensor
    place: Tensor
    slope: Tensor

    def __init__(
        self, encoder: Encoder, kernel: BaseModel, size: int, seed: int, linear: bool, learned: bool = False
    ) -> None:
        super().__init__()
        self.encoder, self.linear = encoder, linear
        self.kernel: Kernel = choice.build("kernels", kernel, encoder.width)
        self.straight = isinstance(self.kernel, Linear)
        if not self.straight and not self.kernel.normals:
            raise UsageError(
                f"kernel={choice.part_name(kernel)} has no random frequencies",
                hint=f"use linear or {names_where(drawn)}, or sums and products of the others",
            )
        pairs = 0 if self.straight else size // 2
        normals = standard_normals(seed, 0, pairs, self.kernel.normals) if pairs else torch.zeros(0, 0, dtype=FLOAT)
        if pairs and self.kernel.strata == 1:
            normals[:, : encoder.width] = orthogonal(normals[:, : encoder.width])
        if learned and pairs:
            self.normals = nn.Parameter(normals)
        else:
            self.register_buffer("normals", normals, persistent=False)
        self.register_buffer("place", torch.arange(pairs), persistent=False)
        self.register_buffer("slope", torch.ones((), dtype=FLOAT))
        self.width = encoder.width + 1 if self.straight else 2 * pairs

    def forward(self, z: Tensor) -> Tensor:
        """(N, W) -> (N, width)"""
        latent: Tensor = self.encoder(z)
        parts = self._straight(latent) if self.straight else self._waves(latent)
        if self.linear:
            one = torch.ones_like(z[:, :1])
            parts = [self.slope * z, self.slope * one, *parts]
        return torch.cat(parts, 1)

    def _straight(self, latent: Tensor) -> list[Tensor]:
        """[√v ∘ h, √b]"""
        assert isinstance(self.kernel, Linear)
        height = (0.5 * self.kernel.log_variance).exp().to(latent.dtype)
        bias = (0.5 * self.kernel.log_bias).exp().to(latent.dtype)
        return [latent * height, bias.expand(len(latent), 1)]

    def _waves(self, latent: Tensor) -> list[Tensor]:
        """√(2v/m) [cos ωᵀh, sin ωᵀh]"""
        rate, weight = self.kernel.frequencies(self.normals, self.place)
        phase = latent @ rate.to(latent.dtype).T
        height = (weight / len(self.place)).sqrt().to(latent.dtype)
        return [phase.cos() * height, phase.sin() * height]


def orthogonal(normals: Tensor) -> Tensor:
    """(P, W) standard normals -> the same lengths, in directions of which W at a time are orthogonal.

    Every row by itself is distributed as before.

    Example:
        >>> rows = orthogonal(standard_normals(0, 0, 5, 3))
        >>> gram = rows @ rows.T
        >>> bool(gram[0, 1].abs() < 1e-12), bool(gram[0, 3].abs() > 1e-3)
        (True, True)
    """
    parts = []
    for some in normals.split(max(normals.shape[1], 1)):
        q, r = torch.linalg.qr(some.T)
        parts.append((q * r.diagonal().sign()).T * some.norm(dim=1, keepdim=True))
    return torch.cat(parts) if parts else normals
