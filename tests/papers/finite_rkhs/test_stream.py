"""Every method on a stream, as `--set training.method=...` makes it: the laws of a model; the default loads none."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.slow
def test_the_default_loads_none_of_it() -> None:
    program = (
        "import sys, streamgp.registry as r; from streamgp.base import Shape; m = r.load('models', 'finite_rkhs');"
        "m.build(m.Config(encoder='mlp'), Shape(targets=('y',), horizon=1, lags=2, past=('y',), future=()));"
        "print([name for name in sys.modules if name.startswith('streamgp.papers')])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
