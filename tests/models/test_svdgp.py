"""SVDGP as a model: the laws of base.Model for both ways of inference, and what Config promises."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from streamgp.models import svdgp
from streamgp.testing.models import check_model

SMALL = {"basis": 48, "reservoir": 256, "rebuild": 200, "evidence_rows": 60}
GRADIENT = {"mean_basis": 24, "covariance_basis": 16, "grow": 8, "batch": 64, "steps": 2, "reservoir": 128}


@pytest.mark.parametrize(
    "config",
    [
        svdgp.Config(**SMALL),
        svdgp.Config(**SMALL, linear=False, memory=100, temper=2.0, target="level"),
        svdgp.Config(inference="gradient", gradient=GRADIENT),
        svdgp.Config(
            likelihood="student_t", encoder={"hidden": 8}, gradient=GRADIENT | {"parametrisation": "decoupled"}
        ),
    ],
    ids=["closed form", "closed form, forgetting", "gradient", "student-t behind a perceptron"],
)
def test_the_laws_of_a_model_hold(config: svdgp.Config) -> None:
    torch.set_num_threads(1)
    check_model(lambda shape: svdgp.build(config, shape))


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="inference=gradient"):
        svdgp.Config(inference="conjugate", likelihood="student_t")
    with pytest.raises(ValidationError, match="extra"):
        svdgp.Config.model_validate({"bases": 3})


def test_dotted_settings_choose_the_encoder() -> None:
    config = svdgp.Config.model_validate({"encoder": {"hidden": "32"}, "memory": "5000"})
    assert config.by_gradient and config.encoder.model_dump()["hidden"] == 32 and config.memory == 5000
    assert not svdgp.Config().by_gradient
