"""The state of a model that is made of parts: each part's tensors under its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from streamgp.base import Inputs, Json, Stateful

Parts: TypeAlias = "Mapping[str, Stateful | nn.Module | Tensor]"
"""Stateful parts, plain modules (their parameters and buffers) and plain tensors."""


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
    """The inverse of `gather`, into parts that were built alike."""
    for name, part in parts.items():
        if isinstance(part, Stateful):
            own = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
            more = rest[name]
            assert isinstance(more, dict)
            part.restore(own, more)
            continue
        with torch.no_grad():
            if isinstance(part, Tensor):
                part.copy_(tensors[name])
                continue
            for key, value in part.state_dict().items():
                value.copy_(tensors[f"{name}.{key}"])


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
