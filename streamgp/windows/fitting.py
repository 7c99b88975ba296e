"""Whether a saved state fits a part: names, kinds and sizes, compared with those of a fresh part."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeAlias

from torch import Tensor

from streamgp.base import Json

Flat: TypeAlias = tuple[Mapping[str, Tensor], Any]
"""Tensors and the rest, as `Stateful.state` gives them."""
LARGEST = 2**63
"""Whole numbers are less than this."""


def check_fits(tensors: Mapping[str, Tensor], rest: Json, fresh: Flat, sizes: bool = False) -> None:
    """Check that a state may be restored into a part. What the fresh part lacks is made while it learns, and is left to
    the part; so are sizes, as most may grow.

    Args:
        tensors: of the state.
        rest: of the state.
        fresh: those of the part, before its first row.
        sizes: whether those that are not 0 in a fresh part stay as they are.

    Raises:
        ValueError: it does not fit; the message names the field.

    Example:
        >>> import torch
        >>> fresh = {"ring": torch.zeros(0, 3)}, {"rows": 0}
        >>> check_fits({"ring": torch.ones(7, 3)}, {"rows": 5}, fresh)
        >>> check_fits({"ring": torch.ones(7, 4)}, {"rows": 5}, fresh, sizes=True)
        Traceback (most recent call last):
        ValueError: ring is (7, 4), not (any, 3)
        >>> check_fits({"ring": torch.ones(7, 3)}, {"rows": "5"}, fresh)
        Traceback (most recent call last):
        ValueError: rows is of str, not int
    """
    for name, like in fresh[0].items():
        if name not in tensors:
            raise ValueError(f"{name} is not there")
        found = tensors[name]
        if found.dtype != like.dtype:
            raise ValueError(f"{name} is of {found.dtype}, not {like.dtype}")
        if like.numel() and not found.numel():
            raise ValueError(f"{name} is empty")
        same = not sizes or all(size in (0, own) for size, own in zip(like.shape, found.shape, strict=False))
        if found.dim() != like.dim() or not same:
            wanted = ", ".join(str(size or "any") for size in like.shape)
            raise ValueError(f"{name} is {tuple(found.shape)}, not ({wanted})")
    _check_rest(rest, fresh[1], "")


def _check_rest(found: Json, like: Json, name: str) -> None:
    """Check that plain values have the kinds of the fresh ones; where these are None (not known yet), any plain value
    will do."""
    if isinstance(like, dict) and isinstance(found, dict):
        for key in found:
            _check_rest(found[key], like.get(key), f"{name}.{key}" if name else key)
        return
    if isinstance(found, list) and isinstance(like, list | None):
        for at, one in enumerate(found):
            _check_rest(one, like[at] if like and at < len(like) else None, f"{name}[{at}]")
        return
    if isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found) and abs(found) >= LARGEST:
        raise ValueError(f"{name} is {found}")
    if like is None:
        return
    wanted = (int, float) if isinstance(like, float) else type(like)
    if not isinstance(found, wanted) or isinstance(found, bool) != isinstance(like, bool):
        raise ValueError(f"{name or 'the rest'} is of {type(found).__name__}, not {type(like).__name__}")
