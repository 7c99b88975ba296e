"""Fields that take any part of a kind: what they read, what they say of what they cannot, what they write."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from streamgp import choice, registry
from streamgp.choice import OneOf, at, build, options, part_name, read, written
from streamgp.encoders import Layout, gru, identity, lstm, mlp
from streamgp.errors import UsageError
from streamgp.kernels import linear, matern, squared_exponential
from streamgp.kernels import sum as kernel_sum
from tests.words import names


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: float = 0.1


class Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")] = identity.Config()
    kernel: Annotated[BaseModel, OneOf("kernels")] = matern.Config(nu=0.5)
    inner: Inner = Inner(rate=0.2)
    size: int = 3


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("lstm", lstm.Config()),
        ({"name": "lstm"}, lstm.Config()),
        ({"name": "gru", "hidden": "8"}, gru.Config(hidden=8)),
        ({"hidden": 8}, mlp.Config(hidden=8)),
        ({}, mlp.Config()),
        (gru.Config(width=3), gru.Config(width=3)),
    ],
)
def test_a_part_by_its_name_its_options_or_its_config(given: Any, made: BaseModel) -> None:
    config = Config.model_validate({"encoder": given})
    assert config.encoder == made and type(config.encoder) is type(made)


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ({"encoder": "lstmm"}, ("encoder",), "lstmm lstm"),
        ({"encoder": {"name": "zzz"}}, ("encoder",), "zzz"),
        ({"encoder": 3}, ("encoder",), "3"),
        ({"encoder": None}, ("encoder",), "None"),
        ({"encoder": matern.Config()}, ("encoder",), ""),
        ({"encoder": Inner()}, ("encoder",), ""),
        ({"kernel": {"nu": 0.5}}, ("kernel",), ""),
        ({"encoder": {"hiden": 8}}, ("encoder", "hiden"), ""),
        ({"encoder": {"name": "gru", "hidden": 0}}, ("encoder", "hidden"), "1"),
        (
            {"kernel": {"name": "sum", "parts": ["linear", {"name": "matern", "nu": 7}]}},
            ("kernel", "parts", 1, "nu"),
            "",
        ),
        ({"kernel": {"name": "sum", "parts": ["linear", "{braces}"]}}, ("kernel", "parts", 1), "{braces}"),
    ],
)
def test_an_error_has_the_place_of_what_is_wrong(given: Any, place: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(given)
    (error,) = caught.value.errors()
    assert error["loc"] == place and names(error["msg"], message)


def test_read_raises_what_a_command_can_print() -> None:
    assert read("encoders", "mlp") == mlp.Config()
    with pytest.raises(UsageError) as caught:
        read("encoders", "mpl")
    assert "mlp" in caught.value.hint
    with pytest.raises(UsageError):
        read("encoders", {"hidden": 3})


@pytest.mark.parametrize("kind", ["encoders", "kernels", "solvers"])
def test_every_part_is_written_as_it_is_read(kind: str) -> None:
    for name in registry.names(kind):
        config = registry.load(kind, name).Config()
        assert part_name(config) == name and read(kind, written(config)) == config
    whole = Config(kernel=kernel_sum.Config(), encoder=lstm.Config(hidden=4))
    assert Config.model_validate(whole.model_dump()) == whole
    assert Config.model_validate_json(whole.model_dump_json()) == whole


def test_build_passes_its_arguments_on() -> None:
    encoder = build("encoders", lstm.Config(width=3), Layout(lags=2, past=1))
    assert encoder(torch.zeros(4, 2, dtype=torch.float64)).shape == (4, 3)


def test_options_are_listed_with_the_defaults_that_stand_in_the_model() -> None:
    found = list(options(Config))
    assert [o.name for o in found if not o.part] == ["encoder", "kernel", "inner.rate", "size"]
    values = {(o.name, o.part): o.default for o in found}
    assert values["inner.rate", ""] == 0.2 and values["kernel.nu", "matern"] == 0.5
    assert values["encoder", ""] == identity.Config() and values["encoder.hidden", "mlp"] == 64
    assert values["kernel.lengthscale", "squared_exponential"] == squared_exponential.Config().lengthscale
    assert {o.part for o in found} == {"", *registry.names("encoders"), *registry.names("kernels")} - {"identity"}
    assert all(o.field.description for o in found if o.part)


def test_a_kind_inside_itself_is_named_and_not_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Masked(BaseModel):
        inner: Annotated[BaseModel, OneOf("kernels")] = linear.Config()
        scale: float = 1.0

    monkeypatch.setattr(OneOf, "configs", lambda self: {"masked": Masked})
    of_encoder = ["encoder", "encoder.inner", "encoder.inner.inner", "encoder.inner.scale", "encoder.scale"]
    of_kernel = ["kernel", "kernel.inner", "kernel.scale"]
    assert [o.name for o in options(Config)] == [*of_encoder, *of_kernel, "inner.rate", "size"]
    assert choice.one_of(at(Config, ["kernel", "inner", "inner"])[0]) == OneOf("kernels")


def test_fields_at_a_dotted_name() -> None:
    assert len(at(Config, ["encoder", "hidden"])) == 5 and len(at(Config, ["inner", "rate"])) == 1
    assert at(Config, ["inner", "rate", "more"]) == at(Config, ["zzz"]) == []
