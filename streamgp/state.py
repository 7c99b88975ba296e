"""State by declaration: a class names the fields that are its state, and gets `state` and `restore` from that.

A checkpoint is tensors by name and JSON. A field knows its keys in both, how it is read off an object, and what it
refuses. `restore` takes every key, those of the parts inside too, before it changes anything: what is missing, has
another shape or type, or is not known raises ValueError, which names the key.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, Protocol, TypeAlias, cast

import numpy as np
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

    @property
    def later(self) -> set[str]:
        """Keys that a state may lack, see `Arrays`."""
        return {name for field in self.STATE if isinstance(field, Arrays) for name in field.later}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors: dict[str, Tensor] = {}
        rest: dict[str, Json] = {}
        for field in self.STATE:
            field.save(self, tensors, rest)
        return tensors, rest

    def restore(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: it is not the state of such an object; nothing was changed.
        """
        self.restoring(tensors, rest)()

    def restoring(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
        """Check a state; calling the result restores it.

        Raises:
            ValueError: it is not the state of such an object.
        """
        left, more = dict(tensors), dict(rest)
        setting = [field.take(self, left, more) for field in self.STATE]
        for unknown in (*left, *more):
            raise ValueError(f"{unknown} is not known")
        self.check_state(tensors, rest)

        def put() -> None:
            for one in setting:
                one()
            self.restored()

        return put

    def check_state(self, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
        """What its fields cannot see of a state, each key of which fits.

        Raises:
            ValueError: it is not the state of such an object.
        """

    def restored(self) -> None:
        """What follows from the state is computed again here."""


class Tensors:
    """Tensors by the names of their attributes. Those that PyTorch registered are written in place, others replaced.

    Args:
        names: the keys; "part.name" is a tensor of a part.
        prefix: of the attributes, before the key.
        grows: axes that may be of another size in a state.
    """

    def __init__(self, *names: str, prefix: str = "", grows: tuple[int, ...] = ()) -> None:
        self.names, self.prefix, self.grows = names, prefix, grows

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors |= self._of(owner)

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        own = self._of(owner)
        found = {name: fitting(name, tensors.pop(name, None), like, self.grows) for name, like in own.items()}

        def put() -> None:
            for name, tensor in found.items():
                _set(*_inside(owner, self.prefix + name), tensor)

        return put

    def _of(self, owner: object) -> dict[str, Tensor]:
        return {name: attrgetter(self.prefix + name)(owner) for name in self.names}


class Arrays:
    """NumPy arrays, which a state replaces by copies.

    Args:
        names: the keys; arrays that grow have as many rows as the others of their field.
        prefix: of the attributes, before the key.
        grows: whether the first axis may be of another size in a state.
        later: which of them a state may lack that was saved before there were these; they are 0 then.

    Example:
        >>> class Sizes(Declared):
        ...     STATE = (Arrays("count", "seen", prefix="", later=("seen",)),)
        ...
        ...     def __init__(self) -> None:
        ...         self.count, self.seen = np.zeros(0), np.zeros(0)
        >>> sizes = Sizes()
        >>> sizes.restore({"count": torch.tensor([4.0, 2.0]).double()}, {})
        >>> sizes.seen.tolist()
        [0.0, 0.0]
    """

    def __init__(self, *names: str, prefix: str = "_", grows: bool = True, later: Sequence[str] = ()) -> None:
        self.names, self.prefix, self.grows, self.later = names, prefix, grows, later

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors |= {name: torch.from_numpy(getattr(owner, self.prefix + name).copy()) for name in self.names}

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found: dict[str, np.ndarray] = {}
        rows: int | None = None
        for name in self.names:
            like = torch.from_numpy(getattr(owner, self.prefix + name))
            if name in self.later and name not in tensors:
                tensors[name] = like.new_zeros(like.shape if rows is None else (rows, *like.shape[1:]))
            tensor = fitting(name, tensors.pop(name, None), like, (0,) if self.grows else ())
            rows = len(tensor) if rows is None else rows
            if self.grows and len(tensor) != rows:
                raise ValueError(f"{name} has {len(tensor)} rows, and {self.names[0]} has {rows}")
            found[name] = tensor.numpy()

        def put() -> None:
            for name, array in found.items():
                setattr(owner, self.prefix + name, array.copy())

        return put


class Padded:
    """Tensors with some rows in use, saved at their largest size with zeros after them, and how many rows there are.

    Args:
        names: of the attributes, which are the keys; they have as many rows.
        most: name of the attribute that says how many rows they can have.
        key: that the number of rows stands under.
    """

    def __init__(self, *names: str, most: str, key: str) -> None:
        self.names, self.most, self.key = names, most, key

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        most = getattr(owner, self.most)
        for name in self.names:
            used = getattr(owner, name)
            tensors[name] = used.new_zeros(most, *used.shape[1:])
            tensors[name][: len(used)] = used
            rest[self.key] = len(used)

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        most, rows = getattr(owner, self.most), pop(rest, self.key)
        if type(rows) is not int or not 0 <= rows <= most:
            raise ValueError(f"{self.key} is {rows!r}, not a number of rows up to {most}")
        found: dict[str, Tensor] = {}
        for name in self.names:
            own = getattr(owner, name)
            whole = fitting(name, tensors.pop(name, None), own.new_empty(most, *own.shape[1:]))
            found[name] = whole[:rows].clone().to(own.device)

        def put() -> None:
            for name, tensor in found.items():
                setattr(owner, name, tensor)

        return put


class InPlace(ABC):
    """Tensors that are written in place, by key."""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors |= self.of(owner)

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        pairs = [(own, fitting(key, tensors.pop(key, None), own)) for key, own in self.of(owner).items()]
        return lambda: copy(pairs)

    @abstractmethod
    def of(self, owner: object) -> dict[str, Tensor]:
        """Those of an object."""


class Members(InPlace):
    """Lists or mappings of tensors by the names of their attributes: their tensors as "name.place", written in place.

    Args:
        names: of the attributes, as many tensors in each as there will be.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def of(self, owner: object) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name in self.names:
            held = getattr(owner, name)
            places = held.items() if isinstance(held, Mapping) else enumerate(held)
            found |= {f"{name}.{place}": tensor for place, tensor in places}
        return found


class Parameters(InPlace):
    """All parameters and buffers of a module and of those in it, under PyTorch's names, written in place."""

    def of(self, owner: object) -> dict[str, Tensor]:
        assert isinstance(owner, nn.Module)
        return owner.state_dict()


@dataclass(frozen=True)
class Record:
    """A NamedTuple of tensors of whatever sizes, or None: its tensors as "name.field".

    Args:
        name: of the attribute.
        kind: the NamedTuple.
        beside: a tensor of the owner whose device they go to.
    """

    name: str
    kind: Callable[..., object]
    beside: str

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        record = getattr(owner, self.name)
        if record is not None:
            tensors |= {f"{self.name}.{field}": tensor for field, tensor in record._asdict().items()}

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        keys = [f"{self.name}.{field}" for field in getattr(self.kind, "_fields", ())]
        if not any(key in tensors for key in keys):
            return lambda: setattr(owner, self.name, None)
        for key in keys:
            if key not in tensors:
                raise ValueError(f"{key} is missing")
        device = attrgetter(self.beside)(owner).device
        found = self.kind(*(tensors.pop(key).clone().to(device) for key in keys))
        return lambda: setattr(owner, self.name, found)


@dataclass(frozen=True)
class Copies:
    """A mapping of whatever tensors, which a state replaces: those of modules as they once were, for instance.

    Args:
        name: of the attribute.
        prefix: of its keys, followed by a dot; none: all keys that no field before it takes.
    """

    name: str
    prefix: str = ""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        tensors |= {f"{self.prefix}{key}": tensor for key, tensor in getattr(owner, self.name).items()}

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found = {key: tensors.pop(key) for key in [*tensors] if key.startswith(self.prefix)}
        return lambda: setattr(
            owner, self.name, {key[len(self.prefix) :]: tensor.clone() for key, tensor in found.items()}
        )


@dataclass(frozen=True)
class Value:
    """A number, a truth value, a string, or an object that is kept as it is.

    Args:
        name: of the attribute, that of a part as "part.name".
        kind: its type; an int is a float too.
        none: a number that is not finite, which JSON does not have: it stands as null.
        key: where it is not the name.
    """

    name: str
    kind: type[bool] | type[int] | type[float] | type[str] | type[dict[str, Json]]
    none: float | None = None
    key: str = ""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        value = attrgetter(self.name)(owner)
        rest[self.key or self.name] = value if self.none is None or math.isfinite(value) else None

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        key = self.key or self.name
        value = pop(rest, key)
        if value is None and self.none is not None:
            value = self.none
        elif self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise ValueError(f"{key} is {value!r}, not of type {self.kind.__name__}")
        return lambda: setattr(*_inside(owner, self.name), value)


@dataclass(frozen=True)
class Listed:
    """A list of whole numbers or of strings, by the name of its attribute."""

    name: str
    kind: type[int] | type[str]

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        rest[self.name] = list(getattr(owner, self.name))

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        found = pop(rest, self.name)
        if not isinstance(found, list) or any(type(one) is not self.kind for one in found):
            raise ValueError(f"{self.name} is {found!r}, not a list of type {self.kind.__name__}")
        return lambda: setattr(owner, self.name, list(found))


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
        names: of the attributes, which are those of the parts.
        of: name of a method that says which parts there are beside them, by name.
        under: the key that the JSON of all parts stands under; none: each stands beside the other keys.
        optional: those of the names that are left out where the attribute has no state.
        made: attribute that may be None -> name of the method that makes its part, where a state has one.
        bare: whether the parts are tensors alone, so that there is no JSON of them.
    """

    def __init__(
        self,
        *names: str,
        of: str = "",
        under: str = "",
        optional: tuple[str, ...] = (),
        made: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> None:
        self.names, self.of, self.under, self.optional = names, of, under, optional
        self.made, self.bare = made or {}, bare

    def parts(self, owner: object) -> dict[str, Stateful | nn.Module | Tensor]:
        """Those that always are there."""
        found = {name: getattr(owner, name) for name in self.names}
        for name in self.optional:
            if not (isinstance(found[name], nn.Module | Tensor) or _stateful(found[name])):
                del found[name]
        return {**found, **getattr(owner, self.of)()} if self.of else found

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        parts = self.parts(owner)
        parts |= {name: part for name in self.made if (part := getattr(owner, name)) is not None}
        found, inner = gather(parts)
        tensors |= found
        if not self.bare:
            rest |= {self.under: inner} if self.under else inner

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        inner = _object(rest, self.under) if self.under else rest
        there = {key.partition(".")[0] for key in tensors} if self.bare else inner
        made = {name: getattr(owner, make)() if name in there else None for name, make in self.made.items()}
        parts = self.parts(owner) | {name: part for name, part in made.items() if part is not None}
        own = {key: tensors.pop(key) for key in [*tensors] if key in parts or key.partition(".")[0] in parts}
        more = {name: {} if self.bare else pop(inner, name) for name, part in parts.items() if _stateful(part)}
        for unknown in inner if self.under else ():
            raise ValueError(f"{self.under}.{unknown} is not known")
        put = scattering(parts, own, more)

        def put_all() -> None:
            for name, part in made.items():
                setattr(owner, name, part)
            put()

        return put_all


@dataclass(frozen=True)
class Whole:
    """A part whose keys stand among those of its owner: all that no field before it takes.

    Args:
        name: of the attribute.
        under: the key that the part's JSON stands under; none: it stands beside the other keys.
    """

    name: str
    under: str = ""

    def save(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        found, inner = getattr(owner, self.name).state()
        tensors |= found
        rest |= {self.under: inner} if self.under else inner

    def take(self, owner: object, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
        own, more = dict(tensors), _object(rest, self.under) if self.under else dict(rest)
        tensors.clear()
        if not self.under:
            rest.clear()
        return _restoring(getattr(owner, self.name), own, more)


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


def fitting(key: str, found: Tensor | None, like: Tensor, grows: tuple[int, ...] = ()) -> Tensor:
    """What was found at a key, in place of `like`; grows: axes that may have another size.

    Raises:
        ValueError: nothing was, or its shape or dtype is another than that of `like`.
    """
    if found is None:
        raise ValueError(f"{key} is missing")
    same = found.dtype == like.dtype and found.shape == like.shape
    if not same and not (grows and found.dtype == like.dtype and _fixed(found, grows) == _fixed(like, grows)):
        wanted = str(_fixed(like, grows)).replace("None", "any")
        raise ValueError(f"{key} is {tuple(found.shape)} {found.dtype}, not {wanted} {like.dtype}")
    return found


def _fixed(tensor: Tensor, grows: tuple[int, ...]) -> tuple[int | None, ...]:
    """Its shape, without the sizes that may be others."""
    return tuple(None if axis in grows else size for axis, size in enumerate(tensor.shape))


def copy(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """The second of each into the first."""
    with torch.no_grad():
        for own, found in pairs:
            own.copy_(found)


def _object(rest: dict[str, Json], key: str) -> dict[str, Json]:
    """A copy of the object at a key, which is removed."""
    found = pop(rest, key)
    if not isinstance(found, dict):
        raise ValueError(f"{key} is {found!r}, not an object")
    return dict(found)


def _stateful(part: object) -> bool:
    """As `Stateful` says, whose own check takes twenty times as long."""
    return hasattr(type(part), "restore") and hasattr(type(part), "state")


def _restoring(part: Stateful, tensors: dict[str, Tensor], rest: dict[str, Json]) -> Callable[[], None]:
    """The state of a part, checked as far as it can be before it is restored."""
    if isinstance(part, Declared) and type(part).restore is Declared.restore:
        return part.restoring(tensors, rest)
    return lambda: part.restore(tensors, rest)


def _inside(owner: object, name: str) -> tuple[object, str]:
    """Whose attribute "part.name" is, and its name there."""
    part, _, leaf = name.rpartition(".")
    return (attrgetter(part)(owner) if part else owner), leaf


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
        if isinstance(part, nn.Module) and not _stateful(part):
            inner = part.state_dict()
        else:
            inner, rest[name] = cast("Stateful", part).state()
        tensors |= {f"{name}.{key}": value.detach() for key, value in inner.items()}
    return tensors, rest


def scatter(parts: Parts, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> None:
    """The inverse of `gather`, into parts that were built alike.

    Raises:
        ValueError: it is not the state of such parts.
    """
    scattering(parts, tensors, rest)()


def scattering(parts: Parts, tensors: Mapping[str, Tensor], rest: Mapping[str, Json]) -> Callable[[], None]:
    """Check the state of parts; calling the result is `scatter`.

    Raises:
        ValueError: it is not the state of such parts.
    """
    setting: list[Callable[[], None]] = []
    pairs: list[tuple[Tensor, Tensor]] = []
    inside: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, place = key.partition(".")
        inside.setdefault(name, {})[place] = tensor
    for name, part in parts.items():
        if _stateful(part):
            more = rest.get(name)
            if not isinstance(more, dict):
                raise ValueError(f"{name} is {more!r}, not an object")
            try:
                setting.append(_restoring(cast("Stateful", part), inside.get(name, {}), more))
            except ValueError as error:
                raise ValueError(f"{name}.{error}") from None
        elif isinstance(part, Tensor):
            pairs.append((part, fitting(name, tensors.get(name), part)))
        else:
            assert isinstance(part, nn.Module)
            own = inside.get(name, {})
            for key, value in part.state_dict().items():
                pairs.append((value, fitting(f"{name}.{key}", own.pop(key, None), value)))
            for unknown in own:
                raise ValueError(f"{name}.{unknown} is not known")

    def put() -> None:
        copy(pairs)
        for one in setting:
            one()

    return put


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
