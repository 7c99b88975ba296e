"""The laws of base.Model for the closed form."""

from __future__ import annotations

import torch

from streamgp.base import Shape
from streamgp.models import svdgp
from streamgp.testing.models import check_model


def test_the_laws_of_a_model_hold() -> None:
    torch.set_num_threads(1)
    config = svdgp.Config(basis=48, reservoir=256, rebuild=200, evidence_rows=60)
    check_model(lambda shape: svdgp.build(config, shape))
