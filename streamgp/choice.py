"""A field of a Config that takes any part of a kind: its name, or its name and options.

    kernel: Annotated[BaseModel, OneOf("kernels")] = squared_exponential.Config()

takes `"matern"`, `{"name": "matern", "nu": 1.5}` or a Config, and holds the part's own Config. On the command line
that is `--set kernel=matern` or `--set kernel.name=matern --set kernel.nu=1.5`. A new file in the room is a new choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from streamgp import registry
from streamgp.errors import UsageError


@dataclass(frozen=True)
class OneOf:
    """Marks a field as a choice among the parts of a kind.

    Attributes:
        kind: of part, as the registry names it.
        unnamed: the part that options without a name belong to; "" asks for the name.
        optional: whether there may be none.
        but: parts that cannot stand here.

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
    optional: bool = False
    but: tuple[str, ...] = ()

    def configs(self) -> dict[str, type[BaseModel]]:
        """Every part's Config by the part's name; those of other packages that cannot be imported are left out."""
        found = {}
        for name in self._names():
            with suppress(UsageError):
                found[name] = registry.load(self.kind, name).Config
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(_written)
        )

    def _read(self, value: Any) -> BaseModel | None:
        """An error in an option of the part keeps its place: pydantic adds the inner path to the field's own."""
        if value is None and self.optional:
            return None
        if isinstance(value, BaseModel):
            outside = registry.owner(type(value))
            if type(value).__module__ in self._modules() or (outside is not None and outside[0] == self.kind):
                return value
        try:
            return read(self.kind, value, self.unnamed, self.but)
        except UsageError as error:
            raise PydanticCustomError("part", "{why}", {"why": f"{error.message}; {error.hint}"}) from None

    def _modules(self) -> list[str]:
        return [f"streamgp.{self.kind}.{name}" for name in self._names()]

    def _names(self) -> list[str]:
        return [name for name in registry.names(self.kind) if name not in self.but]


@dataclass(frozen=True)
class Its:
    """Marks a field as the options of one part, which is imported when they are asked for; None where they are not.

    Attributes:
        kind, name: of the part, as the registry names it.

    Example:
        >>> from typing import Annotated
        >>> class Config(BaseModel):
        ...     gru: Annotated[BaseModel | None, Its("encoders", "gru")] = None
        >>> made = Config.model_validate({"gru": {"hidden": 8}})
        >>> made.gru.hidden, Config().gru
        (8, None)
    """

    kind: str
    name: str

    def config(self) -> type[BaseModel]:
        """The part's Config."""
        found: type[BaseModel] = registry.load(self.kind, self.name).Config
        return found

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.config().model_validate(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda config: None if config is None else config.model_dump()
            ),
        )


def read(kind: str, value: Any, unnamed: str = "", but: tuple[str, ...] = ()) -> BaseModel:
    """The Config of a part from its name, or from a mapping of its name and options.

    Raises:
        UsageError: no such part, or no name.
        ValidationError: an option is unknown or has a wrong value.

    Example:
        >>> read("encoders", {"name": "mlp", "hidden": 8}).hidden
        8
    """
    known = f"there are: {', '.join(name for name in registry.names(kind) if name not in but)}"
    if isinstance(value, Mapping):
        options = dict(value)
        name = options.pop("name", unnamed)
        if not name:
            raise UsageError(f"options of {kind} without a name", hint=f"add a name; {known}")
    elif isinstance(value, str):
        options, name = {}, value
    else:
        raise UsageError(f"{value!r} names none of the {kind}", hint=known)
    if name in but:
        raise UsageError(f"{name!r} is none of the {kind} here", hint=known)
    config: type[BaseModel] = registry.load(kind, str(name)).Config
    return config.model_validate(options)


def part_name(config: BaseModel) -> str:
    """The name of the part that a Config belongs to: that of its file, or as another package calls it."""
    outside = registry.owner(type(config))
    return type(config).__module__.rpartition(".")[2] if outside is None else outside[1]


def written(config: BaseModel) -> dict[str, Any]:
    """A Config as a mapping that `read` takes: its name, then its options."""
    return {"name": part_name(config), **config.model_dump()}


def _written(config: BaseModel | None) -> dict[str, Any] | None:
    return None if config is None else written(config)


def build(kind: str, config: BaseModel, *arguments: Any) -> Any:
    """Call the `build` of the part that a Config belongs to.

    Example:
        >>> from streamgp.kernels import squared_exponential
        >>> type(build("kernels", squared_exponential.Config(), 2)).__name__
        'SquaredExponential'
    """
    return registry.load(kind, part_name(config)).build(config, *arguments)


def one_of(field: FieldInfo) -> OneOf | None:
    """The mark of a field that takes any part of a kind."""
    return next((mark for mark in field.metadata if isinstance(mark, OneOf)), None)


def its(field: FieldInfo) -> Its | None:
    """The mark of a field that has the options of one part."""
    return next((mark for mark in field.metadata if isinstance(mark, Its)), None)


def inside(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """The Configs that may stand in a field: those of the parts to choose from by name, or that of its type as ""."""
    if mark := one_of(field):
        return mark.configs()
    if own := its(field):
        return {"": own.config()}
    types = (field.annotation, *get_args(field.annotation))
    return dict([("", one) for one in types if isinstance(one, type) and issubclass(one, BaseModel)][:1])


class Option(NamedTuple):
    """Something that can be set of a model.

    Attributes:
        name: dotted.
        field: where it stands.
        default: its value where it is not set.
        part: to choose, that it is an option of; "" where there is nothing to choose.
    """

    name: str
    field: FieldInfo
    default: Any
    part: str = ""


def options(config: type[BaseModel]) -> Iterator[Option]:
    """Everything that can be set, depth first; a choice of parts, then the options of each part.

    A kind that is met inside itself (a sum of kernels) is named there, and not listed again.

    Example:
        >>> from streamgp.models import svdgp
        >>> found = [(option.name, option.part, option.default) for option in options(svdgp.Config)]
        >>> [one for one in found if one[0] == "encoder.layers"][1:3]
        [('encoder.layers', 'lstm', 1), ('encoder.layers', 'lstm_peephole', 1)]
    """
    return _options(config, None, "", "", ())


def _options(
    config: type[BaseModel], standing: BaseModel | None, prefix: str, part: str, within: Sequence[str]
) -> Iterator[Option]:
    for key, field in config.model_fields.items():
        default = getattr(standing, key) if standing is not None else default_of(field)
        mark, configs = one_of(field), inside(field)
        if mark or not configs:
            yield Option(f"{prefix}{key}", field, default, part)
        if mark and mark.kind in within:
            continue
        for name, inner in configs.items():
            here = default if type(default) is inner else None
            yield from _options(inner, here, f"{prefix}{key}.", name or part, (*within, mark.kind) if mark else within)


def default_of(field: FieldInfo) -> Any:
    """What stands in a field that is not set; None where it has to be."""
    if own := its(field):
        return own.config()()
    return None if field.is_required() else field.get_default(call_default_factory=True)


def at(config: type[BaseModel], path: Sequence[str]) -> list[FieldInfo]:
    """The fields that a dotted name may mean, one for each part that has it.

    Example:
        >>> from streamgp.models import svdgp
        >>> names = ("encoder", "encoder.hidden", "encoder.activation", "encoder.hiden")
        >>> [len(at(svdgp.Config, name.split("."))) for name in names]
        [1, 5, 1, 0]
    """
    configs, fields = [config], list[FieldInfo]()
    for key in path:
        fields = [one.model_fields[key] for one in configs if key in one.model_fields]
        configs = [inner for field in fields for inner in inside(field).values()]
    return fields
