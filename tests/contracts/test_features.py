"""Every registered feature map obeys the laws of one; feature maps broken on purpose do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import Tensor

from streamgp import choice, registry
from streamgp.features import fourier
from streamgp.features.fourier import Fourier
from streamgp.testing import check_features

SIZE = {"size": 22, "width": 8}
OPTIONS: list[dict[str, Any]] = [
    *({"name": name, **SIZE} for name in registry.names("features")),
    {"name": "fourier", "size": 8, "width": 2, "seed": 2**63 - 1},
    {"name": "inducing", "size": 60, "width": 7},
    {"name": "inducing", "independent": True, **SIZE},
]


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_laws(options: dict[str, Any]) -> None:
    config = choice.read("features", options)
    check_features(lambda kernel: choice.build("features", config, kernel))


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_settings_survive_json(options: dict[str, Any]) -> None:
    config = choice.read("features", options)
    assert choice.read("features", json.loads(json.dumps(choice.written(config)))) == config


class _Overlaps(Fourier):
    def span(self, block: int) -> slice:
        span = super().span(block)
        return slice(max(span.start - 1, 0), span.stop)


class _Draws(Fourier):
    """From a generator that goes on."""

    def block(self, x: Tensor, block: int) -> Tensor:
        self.seed += 1
        return super().block(x, block)


class _Repeats(Fourier):
    def block(self, x: Tensor, block: int) -> Tensor:
        return super().block(x, 0)[:, : self.span(block).stop - self.span(block).start]


class _Centres(Fourier):
    def block(self, x: Tensor, block: int) -> Tensor:
        return super().block(x - x.mean(0), block)


class _Widens(Fourier):
    def block(self, x: Tensor, block: int) -> Tensor:
        return super().block(x.double(), block)


class _Claims(Fourier):
    diagonal_precision = False


class _Exceeds(Fourier):
    def block(self, x: Tensor, block: int) -> Tensor:
        return 1.1 * super().block(x, block)


class _Detaches(Fourier):
    def block(self, x: Tensor, block: int) -> Tensor:
        return super().block(x, block).detach() + 0.0 * x.sum()


class _Keeps(Fourier):
    """What was computed from the hyper-parameters once."""

    kept: Tensor | None = None

    def block(self, x: Tensor, block: int) -> Tensor:
        if self.kept is None:
            self.kept = self.kernel.log_outputscale.detach().clone()
        return super().block(x, block) * (1.0 + 1e-9 * (self.kept - self.kernel.log_outputscale))


BROKEN = {
    _Overlaps: "partition",
    _Draws: "asked before",
    _Repeats: "repeat",
    _Centres: "other rows",
    _Widens: "dtype",
    _Claims: "diagonal_precision",
    _Exceeds: "prior variance",
    _Detaches: "gradients",
    _Keeps: "same bits",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_feature_map_is_found(broken: type[Fourier]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        check_features(lambda kernel: broken(fourier.Config(**SIZE), kernel))
