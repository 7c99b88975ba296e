"""Every registered model obeys the laws of base.Model."""

from __future__ import annotations

from typing import Any

import pytest

from streamgp import registry
from streamgp.base import Model, Shape
from streamgp.testing import check_model

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "linear": [{}, {"predictive": "student_t", "memory": 500.0}, {"target": "level", "ridge": 10.0}],
    "persistence": [{}, {"memory": 200.0}],
    "svdgp": [{"basis": 32}],  # small, so that its basis is soon as large as it may be
}
CASES = [(name, options) for name in registry.names("models") for options in VARIANTS.get(name, [{}])]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: str(value))
def test_laws(name: str, options: dict[str, Any]) -> None:
    module = registry.load("models", name)

    def build(shape: Shape) -> Model:
        model: Model = module.build(module.Config(**options), shape)
        return model

    check_model(build)


@pytest.mark.parametrize("name", registry.names("models"))
def test_config_is_frozen_strict_and_described(name: str) -> None:
    """The command line lists every field with its unit and default, and refuses misspelt ones."""
    config = registry.load("models", name).Config
    assert config.model_config.get("frozen") and config.model_config.get("extra") == "forbid"
    assert not [field for field, info in config.model_fields.items() if not info.description]
    config()  # everything has a default
