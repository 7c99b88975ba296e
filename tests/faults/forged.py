"""Checkpoints that somebody has forged: every field replaced, every tensor changed, and checksums that fit."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from streamgp_data import checkpoint

DEEP: Any = 1
for _ in range(400):
    DEEP = [DEEP]
GONE = object()
VALUES: dict[str, Any] = {
    "gone": GONE, "null": None, "text": "x", "negative": -1, "huge": 2**70, "large": 10**12, "nan": math.nan,
    "big": 1e308, "list": [], "object": {}, "true": True, "deep": DEEP, "mixed": [None, "x", {}],
}  # fmt: skip
"""What a field is replaced by."""

Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every field of a document, and of lists the first element."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def changed(document: Any, at: Place, value: Any) -> Any:
    """A copy of a document with one field replaced."""
    key, *rest = at
    copy = document.copy()
    if rest:
        copy[key] = changed(document[key], tuple(rest), value)
    elif value is not GONE:
        copy[key] = value
    else:
        del copy[key]
    return copy


def state(path: Path) -> dict[str, Any]:
    """The body of a checkpoint's state.json."""
    body: dict[str, Any] = json.loads((path / "state.json").read_bytes())["body"]
    return body


def forge(path: Path, body: Any) -> None:
    """Write a body, with the checksum that fits."""
    whole = {"format": checkpoint.FORMAT, "sha256": checkpoint.digest(body), "body": body}
    (path / "state.json").write_text(json.dumps(whole))


def tensors(path: Path) -> dict[str, Tensor]:
    """What the tensor file holds."""
    import pyarrow as pa

    data = pa.Codec("zstd").decompress((path / checkpoint.TENSORS).read_bytes(), state(path)["tensors_bytes"])
    return load(data.to_pybytes())


def forge_tensors(path: Path, found: dict[str, Tensor]) -> None:
    """Write tensors, with the checksums that fit."""
    data, size = checkpoint._compressed(found)
    (path / checkpoint.TENSORS).write_bytes(data)
    forge(path, state(path) | {"tensors_bytes": size, "tensors_sha256": hashlib.sha256(data).hexdigest()})


def _filled(tensor: Tensor, value: float) -> Tensor:
    return torch.full_like(tensor, value) if tensor.is_floating_point() else torch.full_like(tensor, int(value) % 128)


TENSORS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "gone": lambda one: None,
    "empty": lambda one: one.new_zeros(0),
    "scalar": lambda one: one.new_zeros(()),
    "flat": lambda one: one.reshape(-1),
    "axis more": lambda one: one[None].contiguous(),
    "longer": lambda one: torch.cat([one, one]) if one.dim() else one.new_zeros(2),
    "shorter": lambda one: one[: len(one) // 2].clone() if one.dim() else one.new_zeros(0),
    "turned": lambda one: one.mT.contiguous() if one.dim() > 1 else one.new_zeros(1, 1),
    "other kind": lambda one: one.to(torch.int64 if one.is_floating_point() else torch.float64),
    "bytes": lambda one: one.to(torch.uint8),
    "nan": lambda one: _filled(one, math.nan) if one.is_floating_point() else torch.full_like(one, 1),
    "negative": lambda one: -torch.ones_like(one) if one.dtype != torch.bool else ~one,
    "large": lambda one: torch.full_like(one, 1e300 if one.is_floating_point() else torch.iinfo(one.dtype).max)
    if one.dtype != torch.bool
    else ~one,
}  # fmt: skip


def files(path: Path) -> dict[str, Callable[[], None]]:
    """What else a file of a checkpoint may be."""

    def replaced(name: str, by: Callable[[Path], object]) -> Callable[[], None]:
        def change() -> None:
            (path / name).unlink()
            by(path / name)

        return change

    ways: dict[str, Callable[[Path], object]] = {
        "folder": Path.mkdir,
        "pipe": lambda one: os.mkfifo(one),
        "zero": lambda one: one.symlink_to("/dev/zero"),
        "null": lambda one: one.symlink_to("/dev/null"),
        "itself": lambda one: one.symlink_to(one),
        "sparse": lambda one: (one.touch(), os.truncate(one, 2**42)),
        "empty": Path.touch,
        "deep": lambda one: one.write_bytes(b"[" * 10**6),
        "list": lambda one: one.write_bytes(b"[]"),
    }
    return {
        f"{name} {way}": replaced(name, by) for name in ("state.json", checkpoint.TENSORS) for way, by in ways.items()
    }
