"""The exact GP on a stream: the newest rows, factorised whole.

New rows extend the Cholesky factor (`growing`), O(N²) a row for N rows kept. Once there would be more rows than the
model may keep, the oldest fifth is dropped and the rest factorised again: O(N³) once in N/5 rows, O(N²) a row.

A target that is missing where others of its row are not is replaced by the forecast of the model: its column's mean
stays as it is, the variance shrinks as if it had been observed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self, cast

import torch
from torch import Generator, Tensor

from streamgp.base import FLOAT, Json, Shape
from streamgp.errors import UsageError
from streamgp.evidence.initial import Initial
from streamgp.models.exact.config import Config
from streamgp.models.exact.growing import GrowingPosterior
from streamgp.models.exact.hyper import Hyperparameters
from streamgp.online.posterior import Arrival, DrawsFunctions, LearnedFunction, Look, Posterior, Rows, Units
from streamgp.state import Declared, Nested, fitting, holding, pop

DROPPED = 5
"""Once too many rows are kept, one of DROPPED is dropped."""


class Blocks:
    """The field of the rows, and of the blocks in which they came: the factor follows from them, bit for bit."""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        assert isinstance(owner, ExactPosterior)
        for name, part in (("z", owner.rows.h), ("y", owner.rows.y)):
            tensors[name] = part.new_zeros(owner.config.rows, part.shape[1])
            tensors[name][: owner.size] = part
        rest["blocks"] = list(owner.rows.blocks)

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        assert isinstance(owner, ExactPosterior)
        found = pop(rest, "blocks")
        blocks = [size for size in found if type(size) is int and size > 0] if isinstance(found, list) else None
        most = owner.config.rows
        if blocks is None or len(blocks) < len(cast("list[Json]", found)) or sum(blocks) > most:
            raise ValueError(f"blocks is {found!r}, not sizes of blocks of at most {most} rows")
        z, y = (
            fitting(name, tensors.pop(name, None), part.new_empty(most, part.shape[1]))
            for name, part in (("z", owner.rows.h), ("y", owner.rows.y))
        )
        return lambda: owner.replay(blocks, z, y)


class ExactPosterior(Declared, Posterior, DrawsFunctions):
    """See the module; built by `streamgp.models.exact.build`.

    Args:
        config: of the model.
        shape: of the windows.
        groups: (W,) the group of each column, of `KernelInputs`.

    Attributes:
        hyper: kernel and noise.
        rows: what was learned under them.
    """

    STATE = (Nested("hyper"), Blocks())

    def __init__(self, config: Config, shape: Shape, groups: Tensor) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.hyper = Hyperparameters(config, shape, groups)
        self.rows: GrowingPosterior = self.hyper.prior()

    @property
    def size(self) -> int:
        return self.rows.rows

    @property
    def weight(self) -> Tensor:
        return self.rows.noise.new_tensor(float(self.size))

    @property
    def healthy(self) -> bool:
        return bool(torch.isfinite(self.rows.alpha).all())

    @property
    def signal(self) -> float | None:
        if not self.size or not bool(self.hyper.found):
            return None
        return float(self.rows.kernel.diagonal(self.rows.h).mean() / self.hyper.log_noise.exp().mean())

    def learned(self, groups: Tensor) -> LearnedFunction:
        return LearnedFunction(self.rows.kernel, self.hyper.log_noise.exp())

    def look(self, z: Tensor) -> Look:
        mean, latent, half = self.rows.look(z)
        return Look(z, half, mean, latent, self.rows.noises)

    def covariance(self, z: Tensor) -> Tensor:
        return self.rows.covariance(z)

    def absorb(self, look: Look, arrival: Arrival) -> str:
        z, half, y, rows, event = look.z, look.features, arrival.y, self.rows, ""
        y = torch.where(torch.isfinite(y), y, look.mean)
        if len(arrival.rows) < len(z):
            z, y, half = z[arrival.rows], y[arrival.rows], None
        most = self.config.rows
        if rows.rows + len(z) > most:
            kept = max(most - most // DROPPED - len(z), 0)
            event = f"{rows.rows - kept} rows dropped"
            rows, half = rows.newest(kept) if kept else self.hyper.prior(), None
        self.rows = rows.append(z, y, half)
        return event

    def rebuild(self, rows: Rows, units: Units, generator: Generator) -> str:
        failures = self.hyper.estimate(rows.z, rows.y, units.inputs, units.outputs)
        prior, z, y = self.hyper.prior(), rows.z, rows.y
        whole = torch.isfinite(y).all(1)
        if not bool(whole.all()):
            known = prior.append(z[whole], y[whole]).mean(z) if bool(whole.any()) else torch.zeros_like(y)
            y = torch.where(torch.isfinite(y), y, known)
        self.rows = prior.append(z, y)
        return "; ".join(failures)

    def epoch(self, rows: Rows, units: Units, first: bool, generator: Generator, left: int) -> bool:
        """One epoch is exact, so that there is nothing left for another."""
        if first:
            self.hyper.reset()
            self.rebuild(rows, units, generator)
        return False

    def checked(self, rows: int) -> bool:
        given = self.config.learn == "once" and self.hyper.initial is not None
        return self.config.evidence_rows != 0 and not given

    def loss(self) -> float:
        return self.rows.loss() if self.size else math.nan

    def check_batch(self, rows: int) -> None:
        most = self.config.rows
        if rows > most:
            raise UsageError(
                f"the exact GP would factorise {rows:,} rows, and takes {most:,} at most",
                hint="use --model svgp, qsgp or svdgp, which take any number of rows, fewer rows (--warmup on a "
                f"stream), or --set rows={rows} if memory ({8e-6 * rows**2:,.0f} MB a factor) and time allow",
            )

    def start_from(self, initial: Initial) -> None:
        """The kernel is that of the file, or, with linear=true, the one beside the linear kernel."""
        self.hyper.start_from(initial)

    def draw(self, paths: int, generator: Generator) -> Callable[[Tensor], Tensor]:
        rows = self.rows
        drawn = rows.draw(paths, generator)

        def observe(z: Tensor) -> Tensor:
            mean = rows.mean(z)
            spread = (drawn(z.unflatten(0, (paths, -1))).flatten(0, 1) - mean) * rows.scale.sqrt()
            noise = torch.randn(mean.shape, generator=generator, dtype=FLOAT, device=generator.device)
            return mean + spread + noise.to(mean) * rows.noises.sqrt()

        return observe

    def snapshot(self) -> Callable[[], None]:
        """A reference to the rows suffices: they are never changed in place."""
        rows, hyper = self.rows, holding({"hyper": self.hyper})

        def put_back() -> None:
            hyper()
            self.rows = rows

        return put_back

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The rows to where the hyper-parameters are: they are no module, which PyTorch would move."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.replay(list(self.rows.blocks), self.rows.h, self.rows.y)
        return self

    def replay(self, blocks: list[int], z: Tensor, y: Tensor) -> None:
        """Learn rows (N, W), (N, T) under the hyper-parameters of now, in blocks of these sizes, and no others."""
        rows, count = self.hyper.prior(), sum(blocks)
        if count:
            z, y = (part[:count].to(rows.noise.device) for part in (z, y))
            for own, targets in zip(z.split(blocks), y.split(blocks), strict=True):
                rows = rows.append(own.clone(), targets.clone())
        self.rows = rows
