"""SVDGP as a model: the laws of base.Model for both ways of inference, and what Config promises."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from streamgp.encoders import mlp
from streamgp.errors import UsageError
from streamgp.models import svdgp
from streamgp.registry import names
from streamgp.testing.models import SHAPES, check_model, example_windows

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
    for name in ("memory", "temper"):
        with pytest.raises(ValidationError, match="greater than 0"):
            svdgp.Config.model_validate({name: 0})
    with pytest.raises(ValidationError, match="extra"):
        svdgp.Config.model_validate({"bases": 3})


def test_any_encoder_may_stand_before_the_kernel() -> None:
    config = svdgp.Config.model_validate({"encoder": {"hidden": "32"}, "memory": "5000"})
    assert config.encoder == mlp.Config(hidden=32) and config.memory == 5000
    assert not svdgp.Config().by_gradient and not svdgp.Config.model_validate({"encoder": "identity"}).by_gradient
    for name in set(names("encoders")) - {"identity"}:
        config = svdgp.Config.model_validate({"encoder": name, "gradient": GRADIENT})
        assert config.by_gradient
        for shape in SHAPES[:2]:
            x, y = example_windows(shape, 40)
            model = svdgp.build(config, shape)
            assert model.update(x, y).healthy and model.predict(x).mean.isfinite().all()
    with pytest.raises(UsageError, match="encoder lstm"):
        svdgp.build(svdgp.Config.model_validate({"encoder": "lstm"}), SHAPES[2])
    with pytest.raises(ValidationError, match="inference=gradient"):
        svdgp.Config.model_validate({"encoder": "gru", "inference": "conjugate"})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize(
    "options", [{}, {"inference": "gradient", "gradient": GRADIENT}], ids=["closed form", "gradient"]
)
def test_the_gpu_computes_what_the_cpu_does(options: dict[str, object]) -> None:
    x, y = example_windows(SHAPES[1], 400)
    issued = []
    for device in ("cpu", "cuda"):
        model = svdgp.build(svdgp.Config.model_validate({**SMALL, **options}), SHAPES[1]).to(device)
        for start in range(0, 300, 50):
            part = slice(start, start + 50)
            assert model.update(x.rows(part).to(torch.device(device)), y[part].to(device)).healthy
        issued.append(model.predict(x.rows(slice(300, 400)).to(torch.device(device))).parameters().cpu())
    torch.testing.assert_close(issued[1], issued[0], rtol=1e-3, atol=1e-3)
