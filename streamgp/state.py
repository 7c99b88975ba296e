"""State by declaration: a class names the fields that are its state, and gets `state` and `restore` from that.

A checkpoint is tensors by name and JSON. A field knows its keys in both, how it is read off an object, and what it
refuses. `restore` takes every key before it changes anything of its own: what is missing, has another shape or type, or
is not known raises ValueError.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import torch
from torch import Generator, Tensor, nn

from streamgp.base import Inputs, Json, Stateful

Parts: TypeAlias = "Mapping[str, Stateful | nn.Module | Tensor]"
"""Stateful parts, plain modules (their parameters and buffers) and plain tensors."""


class Field(Protocol):
    """One line of a declaration."""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        """Add its keys."""

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        """Remove its keys, and check what they hold; calling the result sets the attributes.

        Raises:
            ValueError: a key is missing, or holds what the owner cannot have.
        """


class Declared:
    """Stateful by its `STATE`.

    Attributes:
        STATE: the fields, in the order of their keys.
        NOT_STATE: attribute -> why it may differ after a restore, for the test that compares all others.

    Example:
        >>> class Sum(Declared):
        ...     STATE = (Tensors("total"), Value("rows", int))
        ...
        ...     def __init__(self) -> None:
        ...         self.total, self.rows = torch.zeros(2), 0
        >>> Sum().state()
        ({'total': tensor([0., 0.])}, {'rows': 0})
        >>> Sum().restore({"total": torch.zeros(3)}, {"rows": 0})
        Traceback (most recent call last):
        ...
        ValueError: total is (3,) torch.float32, not (2,) torch.float32
    """

    STATE: ClassVar[tuple[Field, ...]] = ()
    NOT_STATE: ClassVar[Mapping[str, str]] = {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors: dict[str, Tensor] = {}
        rest: dict[str, Json] = {}
        for field in self.STATE:
            field.save(self, tensors, rest)
        return tensors, rest

    def restore(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: it is not the state of such an object.
        """
        left, more = dict(tensors), dict(rest)
        setting = [field.take(self, left, more) for field in self.STATE]
        if unknown := [*left, *more]:
            raise ValueError(f"{type(self).__name__} has no {unknown[0]}")
        for put in setting:
            put()
        self.restored()

    def restored(self) -> None:
        """What follows from the state is computed again here."""


class Tensors:
    """Tensors by the names of their attributes. Those that PyTorch registered are written in place, others replaced.

    Args:
        names: of the attributes, which are the keys.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors |= {name: getattr(owner, name) for name in self.names}

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found = {name: fitting(name, tensors.pop(name, None), getattr(owner, name)) for name in self.names}

        def put() -> None:
            for name, tensor in found.items():
                _set(owner, name, tensor)

        return put


@dataclass(frozen=True)
class Value:
    """A number, a truth value or a string.

    Args:
        name: of the attribute, which is the key.
        kind: its type; an int is a float too.
        none: a number that is not finite, which JSON does not have: it stands as null.
    """

    name: str
    kind: type[bool] | type[int] | type[float] | type[str]
    none: float | None = None

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        value = getattr(owner, self.name)
        rest[self.name] = value if self.none is None or math.isfinite(value) else None

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        value = pop(rest, self.name)
        if value is None and self.none is not None:
            value = self.none
        elif self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise ValueError(f"{self.name} is {value!r}, not of type {self.kind.__name__}")
        return lambda: setattr(owner, self.name, value)


@dataclass(frozen=True)
class RandomState:
    """A generator on the CPU, by the name of its attribute."""

    name: str

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors[self.name] = self._of(owner).get_state()

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found = fitting(self.name, tensors.pop(self.name, None), self._of(owner).get_state()).cpu()
        return lambda: void(self._of(owner).set_state(found))

    def _of(self, owner: object) -> Generator:
        found = getattr(owner, self.name)
        assert isinstance(found, Generator)
        return found


class Nested:
    """Parts by the names of their attributes: each one's tensors as "name.key", its JSON under its name.

    Args:
        names: of the attributes.
        under: the key that the JSON of all parts stands under; none: each stands beside the other keys.
        optional: those of the names that are left out where the attribute has no state.
    """

    def __init__(self, *names: str, under: str = "", optional: tuple[str, ...] = ()) -> None:
        self.names, self.under, self.optional = names, under, optional

    def parts(self, owner: object) -> Parts:
        every = {name: getattr(owner, name) for name in self.names}
        return {
            name: part
            for name, part in every.items()
            if name not in self.optional or isinstance(part, Stateful | nn.Module | Tensor)
        }

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        found, inner = gather(self.parts(owner))
        tensors |= found
        rest |= {self.under: inner} if self.under else inner

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        parts = self.parts(owner)
        inner = rest
        if self.under:
            found = pop(rest, self.under)
            if not isinstance(found, dict):
                raise ValueError(f"{self.under} is {found!r}, not an object")
            inner = dict(found)
        own = {key: tensors.pop(key) for key in [*tensors] if key in parts or key.partition(".")[0] in parts}
        more = {name: pop(inner, name) for name, part in parts.items() if isinstance(part, Stateful)}
        if self.under and inner:
            raise ValueError(f"{self.under} has no {next(iter(inner))}")
        return lambda: scatter(parts, own, more)


@dataclass(frozen=True)
class Whole:
    """A part whose keys stand among those of its owner: all that no field before it takes."""

    name: str

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        found, inner = getattr(owner, self.name).state()
        tensors |= found
        rest |= inner

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        own, more = dict(tensors), dict(rest)
        tensors.clear()
        rest.clear()
        return lambda: void(getattr(owner, self.name).restore(own, more))


def void(_: object) -> None:
    """Nothing, of a call whose result does not matter."""


def pop(rest: dict[str, Json], key: str) -> Json:
    """The value of a key, which is removed.

    Raises:
        ValueError: there is none.
    """
    if key not in rest:
        raise ValueError(f"{key} is missing")
    return rest.pop(key)


def fitting(key: str, found: Tensor | None, like: Tensor) -> Tensor:
    """What was found at a key, in place of `like`.

    Raises:
        ValueError: nothing was, or its shape or dtype is another than that of `like`.
    """
    if found is None:
        raise ValueError(f"{key} is missing")
    if found.shape != like.shape or found.dtype != like.dtype:
        raise ValueError(f"{key} is {tuple(found.shape)} {found.dtype}, not {tuple(like.shape)} {like.dtype}")
    return found


def _set(owner: object, name: str, tensor: Tensor) -> None:
    own = getattr(owner, name)
    if isinstance(owner, nn.Module) and (name in owner._buffers or name in owner._parameters):
        with torch.no_grad():
            own.copy_(tensor)
    else:
        setattr(owner, name, tensor.clone().to(own.device))


def gather(parts: Parts) -> tuple[dict[str, Tensor], dict[str, Json]]:
    """The state of every part.

    Example:
        >>> tensors, rest = gather({"head": nn.Linear(2, 1), "noise": torch.ones(1)})
        >>> sorted(tensors), rest
        (['head.bias', 'head.weight', 'noise'], {})
    """
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Json] = {}
    for name, part in parts.items():
        if isinstance(part, Tensor):
            tensors[name] = part
            continue
        if isinstance(part, Stateful):
            inner, rest[name] = part.state()
        else:
            inner = part.state_dict()
        tensors |= {f"{name}.{key}": value.detach() for key, value in inner.items()}
    return tensors, rest


def scatter(parts: Parts, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
    """The inverse of `gather`, into parts that were built alike.

    Raises:
        ValueError: it is not the state of such parts.
    """
    for name, part in parts.items():
        if isinstance(part, Stateful):
            own = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
            more = rest[name]
            if not isinstance(more, dict):
                raise ValueError(f"{name} is {more!r}, not an object")
            part.restore(own, more)
            continue
        whole = {name: part} if isinstance(part, Tensor) else part.state_dict(prefix=f"{name}.")
        with torch.no_grad():
            for key, value in whole.items():
                value.copy_(fitting(key, tensors.get(key), value))


def holding(parts: Parts) -> Callable[[], None]:
    """Hold on to copies of all parts; calling the result puts them back.

    Example:
        >>> noise = torch.ones(1)
        >>> put_back = holding({"noise": noise})
        >>> _ = noise.zero_()
        >>> put_back()
        >>> noise
        tensor([1.])
    """
    tensors, rest = gather(parts)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    return lambda: scatter(parts, copies, rest)


def fingerprint(x: Inputs, y: Tensor) -> str:
    """Of a batch, so that a model knows one that it has fitted.

    Example:
        >>> none, u = torch.zeros(2, 0, 1).double(), torch.ones(2, 1, 1).double()
        >>> y = torch.zeros(2, 1).double()
        >>> fingerprint(Inputs(none, u), y) == fingerprint(Inputs(none, u + 1.0), y)
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (x.past, x.future, y):
        digest.update(str(tuple(part.shape)).encode())
        digest.update(part.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
