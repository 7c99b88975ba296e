"""Copies of learned state that are made often: after each row that is forecast from, for one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

Thing = TypeVar("Thing")

_SHARED = ("streamgp.", "streamgp_")
_ATOMS = {int, float, complex, bool, str, bytes, type(None), type, range, slice, FunctionType, BuiltinFunctionType}
_ATOMS |= {torch.dtype, torch.device, torch.Size, np.dtype}
_IMMUTABLE = ("pyarrow.", "polars.", "zoneinfo", "datetime", "pydantic", "re", "pathlib")
"""Modules whose objects nobody changes here."""


def fork(thing: Thing) -> Thing:
    """A copy that changes without the original, as of `copy.deepcopy`, which takes several times as long.

    Both share what is never changed in place: tuples with their tensors and arrays, frozen dataclasses, Arrow data, and
    the buffers of modules that have `replaces = True`. Such a module assigns new tensors to its attributes and never
    writes into the old ones. A class that defines `__deepcopy__` is copied by that method.

    Example:
        >>> module = nn.Linear(2, 1)
        >>> held = {"rows": [1, 2], "module": module}
        >>> other = fork(held)
        >>> other["rows"].append(3)
        >>> held["rows"], torch.equal(other["module"].weight, module.weight), other["module"].weight is module.weight
        ([1, 2], True, False)
    """
    return cast(Thing, _fork(thing, {}))


def _fork(thing: Any, memo: dict[int, Any]) -> Any:
    kind = type(thing)
    if kind in _ATOMS:
        return thing
    found = memo.get(id(thing))
    if found is not None:
        return found
    way = _WAYS.get(kind)
    if way is None:
        way = _WAYS[kind] = _way(kind)
    found = memo[id(thing)] = way(thing, memo)
    return found


def _way(kind: type) -> Callable[[Any, dict[int, Any]], Any]:
    """How things of a type are copied."""
    if issubclass(kind, tuple):
        return _tuple
    if _frozen(kind) or f"{kind.__module__}.".startswith(_IMMUTABLE):
        return _same
    if "__deepcopy__" in dir(kind):
        return _deep
    if issubclass(kind, nn.Module) and (_own(kind) or kind in (nn.ModuleList, nn.ModuleDict)):
        return _module
    if _own(kind) and not issubclass(kind, BaseException) and kind.__reduce_ex__ is object.__reduce_ex__:
        return _object
    return _deep


def _frozen(kind: type) -> bool:
    """Dataclasses and pydantic models that cannot be changed."""
    if is_dataclass(kind):
        return bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    return bool(getattr(kind, "model_config", {}).get("frozen"))


def _own(kind: type) -> bool:
    return f"{kind.__module__}.".startswith(_SHARED)


def _same(thing: Any, memo: dict[int, Any]) -> Any:
    return thing


def _deep(thing: Any, memo: dict[int, Any]) -> Any:
    return copy.deepcopy(thing, memo)


def _generator(thing: torch.Generator, memo: dict[int, Any]) -> torch.Generator:
    """PyTorch never frees the state of a Generator that `deepcopy` copied: 2.6 kB each."""
    return thing.clone_state()


def _tensor(thing: Tensor, memo: dict[int, Any]) -> Tensor:
    """Memory of its own from when one of both is written to; PyTorch cannot do so with NumPy's memory."""
    if thing.requires_grad:
        return copy.deepcopy(thing, memo)
    try:
        return torch._lazy_clone(thing)
    except RuntimeError:
        return thing.clone()


def _array(thing: Any, memo: dict[int, Any]) -> Any:
    return thing.copy() if thing.dtype != object else copy.deepcopy(thing, memo)


def _tuple(thing: tuple[Any, ...], memo: dict[int, Any]) -> Any:
    parts = [part if type(part) in (Tensor, np.ndarray) else _fork(part, memo) for part in thing]
    if all(one is two for one, two in zip(parts, thing, strict=True)):
        return thing
    return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)


def _dict(thing: dict[Any, Any], memo: dict[int, Any]) -> dict[Any, Any]:
    return {key: _fork(value, memo) for key, value in thing.items()}


def _list(thing: list[Any], memo: dict[int, Any]) -> list[Any]:
    return [_fork(value, memo) for value in thing]


def _object(thing: Any, memo: dict[int, Any]) -> Any:
    found = memo[id(thing)] = object.__new__(type(thing))
    for name in getattr(type(thing), "__slots__", ()):
        if hasattr(thing, name):
            object.__setattr__(found, name, _fork(getattr(thing, name), memo))
    for name, value in getattr(thing, "__dict__", {}).items():
        found.__dict__[name] = _fork(value, memo)
    return found


def _module(thing: nn.Module, memo: dict[int, Any]) -> nn.Module:
    found = memo[id(thing)] = object.__new__(type(thing))
    shared = getattr(thing, "replaces", False)
    for name, value in vars(thing).items():
        if name.endswith("hooks") or "hooks_" in name or name == "_non_persistent_buffers_set":
            found.__dict__[name] = value.copy() if value is not None and value is not False else value
        elif name == "_buffers" and shared:
            found.__dict__[name] = dict(value)
        else:
            found.__dict__[name] = _fork(value, memo)
    return found


_WAYS: dict[type, Callable[[Any, dict[int, Any]], Any]] = {
    Tensor: _tensor,
    nn.Parameter: _deep,
    np.ndarray: _array,
    torch.Generator: _generator,
    dict: _dict,
    list: _list,
    set: lambda thing, _: set(thing),
    frozenset: _same,
}
