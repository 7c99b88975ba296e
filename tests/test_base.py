"""The contracts cost nothing that is not used, and their annotations are real."""

from __future__ import annotations

import subprocess
import sys
from typing import get_type_hints

import pytest
import torch

from streamgp import base
from tests.words import naming

HEAVY = ("torch", "mlflow", "matplotlib")
MODULES = (
    "streamgp.base",
    "streamgp.registry",
    "streamgp_data.table",
    "streamgp_data.batches",
    "streamgp_data.admission",
    "streamgp_data.sources.csv",
)


def test_no_torch_to_fill_and_read_tables() -> None:
    imports = "; ".join(f"import {name}" for name in MODULES)
    program = f"import sys; {imports}; print([name for name in {HEAVY!r} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_annotations_are_types() -> None:
    assert get_type_hints(base.Inputs)["past"] is torch.Tensor
    assert get_type_hints(base.Due)["x"] is base.Inputs
    assert get_type_hints(base.Model.predict)["return"] is base.Predictive
    assert get_type_hints(base.Shape)["lags"] is int


def test_names_of_tensors_are_those_of_their_module() -> None:
    from streamgp import tensors

    assert all(getattr(base, name) is getattr(tensors, name) for name in ("FLOAT", "Inputs", "Due", "Model"))
    with pytest.raises(AttributeError, match=naming("Tensors")):
        base.Tensors  # noqa: B018
