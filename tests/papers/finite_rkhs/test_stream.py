"""Every method on a stream, as `--set training.method=...` makes it: the laws of a model."""

from __future__ import annotations

from typing import Any

import pytest

from streamgp import registry
from streamgp.base import Model, Shape
from streamgp.testing import check_model
from streamgp.testing.models import SHAPES
from tests.papers.finite_rkhs.test_methods import METHODS, names

SMALL: dict[str, Any] = {"reservoir": 200, "rebuild": 300, "online": {"epochs": 1, "first": 1}, "epochs": 1}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=names)
def test_laws(method: dict[str, Any]) -> None:
    module = registry.load("models", "finite_rkhs")

    def build(shape: Shape) -> Model:
        model: Model = module.build(module.Config(encoder={"hidden": 8}, training=method, **SMALL), shape)
        return model

    check_model(build, SHAPES[1:], full=512)
