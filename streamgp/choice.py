"""A field of a Config that takes any part of a kind: its name, or its name and options.

    kernel: Annotated[BaseModel, OneOf("kernels")] = squared_exponential.Config()

takes `"matern"`, `{"name": "matern", "nu": 1.5}` or a Config, and holds the part's own Config. On the command line
that is `--set kernel=matern` or `--set kernel.name=matern --set kernel.nu=1.5`. A new file in the room is a new choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from streamgp import registry
from streamgp.errors import UsageError


@dataclass(frozen=True)
class OneOf:
    """Marks a field as a choice among the parts of a kind.

    Attributes:
        kind: of part, as the registry names it.
        unnamed: the part that options without a name belong to; "" asks for the name.

    Example:
        >>> from typing import Annotated
        >>> class Config(BaseModel):
        ...     encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")]
        >>> made = Config.model_validate({"encoder": {"hidden": 8}})
        >>> part_name(made.encoder), made.encoder.hidden
        ('mlp', 8)
    """

    kind: str
    unnamed: str = ""

    def configs(self) -> dict[str, type[BaseModel]]:
        """Every part's Config by the part's name."""
        return {name: registry.load(self.kind, name).Config for name in registry.names(self.kind)}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(written)
        )

    def _read(self, value: Any) -> BaseModel:
        if isinstance(value, BaseModel):
            return value
        try:
            return read(self.kind, value, self.unnamed)
        except UsageError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None


def read(kind: str, value: Any, unnamed: str = "") -> BaseModel:
    """The Config of a part from its name, or from a mapping of its name and options.

    Raises:
        UsageError: no such part, or no name.
        ValidationError: an option is unknown or has a wrong value.

    Example:
        >>> read("encoders", {"name": "mlp", "hidden": 8}).hidden
        8
    """
    options = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    if options is None or not (name := options.pop("name", unnamed)):
        raise UsageError(f"{value!r} names none of the {kind}", hint=f"there are: {', '.join(registry.names(kind))}")
    config: type[BaseModel] = registry.load(kind, str(name)).Config
    return config.model_validate(options)


def part_name(config: BaseModel) -> str:
    """The name of the part that a Config belongs to: that of its file."""
    return type(config).__module__.rpartition(".")[2]


def written(config: BaseModel) -> dict[str, Any]:
    """A Config as a mapping that `read` takes: its name, then its options."""
    return {"name": part_name(config), **config.model_dump()}


def build(kind: str, config: BaseModel, *arguments: Any) -> Any:
    """Call the `build` of the part that a Config belongs to.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> type(build("kernels", squared_exponential.Config(), 2)).__name__
        'SquaredExponential'
    """
    return registry.load(kind, part_name(config)).build(config, *arguments)
