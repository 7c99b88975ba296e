"""Checkpoints: everything that the next row depends on, on disk, whole or not at all.

A checkpoint is a directory named after the rows seen. It holds `tensors.safetensors.zst` and `state.json`; the JSON
holds the format version, the SHA-256 of the tensor file and of its own body. What is learned in shards has a file more
for each, which the JSON names with its SHA-256. The tensors are compressed without loss
(Zstandard): a reservoir of overlapping windows holds every value of the stream many times. The directory is written
under a temporary name, synced to the disk and renamed, so that a kill at any moment leaves the older ones or the new
one. Nothing is pickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from threading import get_ident
from typing import Any

import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from streamgp.base import Json, Stateful
from streamgp.errors import CheckpointError, ServiceError, StateError, StreamgpError
from streamgp.windows.fitting import check_fits
from streamgp_data import remote
from streamgp_data.disk import load_file, memory_at_hand, store_file, sync
from streamgp_data.intervals import written
from streamgp_data.presence import NAME, homed, no_checkpoint

_log = logging.getLogger("streamgp")

FORMAT = 1
KEEP = 2
"""Checkpoints that stay: the newest, and the one before it in case the newest is damaged."""

TENSORS = "tensors.safetensors.zst"
_SHARD = ".shard"
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_SHARD_NAME = re.compile(r"[\w-]+")
_OWN = ("streamgp", "streamgp_pipelines")
_LONGEST = 1 << 30
"""Bytes of a state.json."""
_TEMPORARY = ".tmp-"


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """While something is made of what a checkpoint says: whatever is wrong with it is wrong with the checkpoint.

    Raises:
        CheckpointError: it does not fit; only a lack of memory and of what the checkpoint is not to blame for is left.
    """
    try:
        yield
    except (StateError, ServiceError, MemoryError):
        raise
    except Exception as error:
        said = error.message if isinstance(error, StreamgpError) else f"{type(error).__name__}: {error}"
        message = f"{what} does not fit: {said[:500]}"
        raise CheckpointError(
            message, hint="another version wrote it, or it was changed; start with --fresh"
        ) from error


@dataclass(frozen=True)
class State:
    """The state of parts.

    Attributes:
        name: of what they are.
        tensors, rest: by the part's name.
    """

    name: str
    tensors: dict[str, dict[str, Tensor]]
    rest: dict[str, dict[str, Json]]

    def restore(self, parts: Mapping[str, Stateful], fresh: bool = True) -> None:
        """As `Saved.restore`; fresh: whether the parts have learned nothing yet."""
        for name, part in parts.items():
            if name not in self.rest:
                raise CheckpointError(f"{self.name} holds no {name!r}", hint="start with --fresh")
            tensors, rest = self.tensors.get(name, {}), self.rest[name]
            with fitting(f"{name!r} in {self.name}"):
                begun = part.state() if fresh and type(part).__module__.partition(".")[0] in _OWN else None
                part.restore(tensors, rest)
                if begun is not None:
                    later: set[str] = getattr(part, "later", set()) - set(tensors)
                    own = {key: tensor for key, tensor in begun[0].items() if key not in later}
                    check_fits(tensors, rest, (own, begun[1]), sizes=name == "windows")


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds.

    Attributes:
        path: its directory.
        rows: rows of the stream that it has seen.
        manifest: what the writer said about it.
        tensors, rest: the state of every part, by the part's name.
        warning: why a newer checkpoint was passed over, or "".
        shards: what is learned in shards, packed, by name.
    """

    path: Path
    rows: int
    manifest: dict[str, Json]
    tensors: dict[str, dict[str, Tensor]]
    rest: dict[str, dict[str, Json]]
    warning: str = ""
    shards: Mapping[str, bytes] = field(default_factory=dict)

    def states(self) -> Iterator[State]:
        """The state of the parts, and then of those of every shard."""
        yield State("", self.tensors, self.rest)
        for name, data in self.shards.items():
            yield unpack(data, name)

    def restore(self, parts: Mapping[str, Stateful]) -> None:
        """Bring every part back to its state.

        Raises:
            CheckpointError: a part is not in the checkpoint, or does not fit it.
        """
        State(str(self.path), self.tensors, self.rest).restore(parts)


def pack(parts: Mapping[str, Stateful]) -> bytes:
    """The state of parts in one piece; `unpack` is the inverse."""
    tensors, rest = _flat(parts)
    rest_bytes = torch.frombuffer(bytearray(json.dumps(rest).encode()), dtype=torch.uint8)
    data, size = _compressed(tensors | {"rest": rest_bytes})
    return size.to_bytes(8, "little") + data


def unpack(data: bytes, name: str = "") -> State:
    """The state that was packed.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        flat = _decompressed(data[8:], int.from_bytes(data[:8], "little"))
        rest = json.loads(flat.pop("rest").numpy().tobytes())
        _check_rest(rest)
        return State(name, *_parts(flat, rest))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"shard {name} is damaged: {type(error).__name__}: {error}") from error


def write(
    directory: Path,
    rows: int,
    parts: Mapping[str, Stateful],
    manifest: Mapping[str, Json],
    keep: int = KEEP,
    shards: Iterable[tuple[str, bytes]] = (),
    instead: bool = False,
) -> Path:
    """Write the state of all parts, and let go of all but the newest `keep` checkpoints. Of several writers at once
    each waits for the one before it.

    Args:
        directory: the checkpoints' home; made where it is not there.
        rows: rows of the stream seen; the newest checkpoint is the one with the most.
        parts: by name; a name has no "/".
        manifest: what else the reader should know: the fingerprint, the offset.
        keep: how many stay.
        shards: name and packed state of what is learned in shards.
        instead: whether to let go of those of data frames that have seen more rows, and would be read in place of this
            one.

    Returns:
        the directory of the new checkpoint.

    Raises:
        StateError: `instead`, and a run of `train` has its checkpoint there, with more rows; nothing was written.
        ServiceError: the disk refused (full, read-only); the older checkpoints are untouched.

    Example:
        >>> import tempfile, torch
        >>> class Counter:
        ...     count = 0
        ...     def state(self): return {"twice": torch.tensor([2 * self.count])}, {"count": self.count}
        ...     def restore(self, tensors, rest): self.count = rest["count"]
        >>> one, two = Counter(), Counter()
        >>> one.count = 7
        >>> with tempfile.TemporaryDirectory() as home:
        ...     _ = write(Path(home), 100, {"counter": one}, {"seed": 0})
        ...     saved = read(Path(home))
        >>> saved.restore({"counter": two})
        >>> saved.rows, saved.manifest, saved.tensors["counter"]["twice"].item(), two.count
        (100, {'seed': 0}, 14, 7)
    """
    tensors, rest = _flat(parts)
    data, size = _compressed(tensors)
    del tensors
    body: dict[str, Any] = {
        "rows": rows,
        "manifest": dict(manifest),
        "rest": rest,
        "tensors_bytes": size,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "shards": {},
    }
    scratch = directory / f"{_TEMPORARY}{os.getpid()}-{get_ident()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _alone(directory):
            _sweep(directory)
            newer = _of_frames_after(directory, rows) if instead else []
            scratch.mkdir()
            store_file(scratch / TENSORS, data)
            for name, shard in shards:
                body["shards"][name] = hashlib.sha256(shard).hexdigest()
                store_file(scratch / f"{name}{_SHARD}", shard)
            text = json.dumps({"format": FORMAT, "sha256": digest(body), "body": body})
            store_file(scratch / "state.json", text.encode())
            sync(scratch)
            final = free_name(directory, rows)
            remote.push(directory, final.name, scratch)
            os.rename(scratch, final)
            sync(directory)
            ahead = rows if instead else sys.maxsize  # damaged ones with more rows are passed over by readers
            for old in (*newer, *[path for path in _all(directory) if _order(path)[0] <= ahead][keep:]):
                remove_directory(old)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        message = f"the checkpoint in {directory} could not be written: {error.strerror or error}"
        raise ServiceError(message, hint="is there room on the disk, and may you write there?") from error
    return final


def read(directory: Path) -> Saved:
    """The newest checkpoint that is whole; `directory` is the checkpoints' home, or one checkpoint itself.

    Raises:
        CheckpointError: there is none, or all are damaged, or another version of the format wrote them.
    """
    if (directory / "state.json").is_file():
        return _read(directory, "")
    remote.refresh(directory)
    problems: list[CheckpointError] = []
    for path in _all(directory):
        try:
            return _read(path, "; ".join(error.message for error in problems))
        except CheckpointError as error:
            problems.append(error)
    if problems:
        hint = problems[0].hint or "restore a copy, or start with --fresh"
        raise CheckpointError("; ".join(error.message for error in problems), hint=hint)
    raise no_checkpoint(directory)


def newest(directory: Path) -> Path:
    """The newest checkpoint of a home, whole or not; there must be one."""
    return _all(directory)[0]


def manifest_of(path: Path) -> tuple[int, dict[str, Json]]:
    """Rows and manifest of one checkpoint, as far as they can be read: its state is not looked at."""
    try:
        body = json.loads(load_file(path / "state.json", _LONGEST))["body"]
        return int(body["rows"]), dict(body["manifest"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, {}


def exists(directory: Path) -> bool:
    """Whether there is a checkpoint, whole or not."""
    remote.refresh(directory)
    return bool(_all(directory))


def check_fingerprint(saved: Mapping[str, Json], wanted: Mapping[str, Json]) -> None:
    """Compare the options that shaped a checkpoint with those of this run.

    Raises:
        CheckpointError: some differ; the message names each with both values.

    Example:
        >>> check_fingerprint({"known": ["T [°C]"], "lags": 24}, {"known": [], "lags": 24})
        Traceback (most recent call last):
        streamgp.errors.CheckpointError: the checkpoint was made with other options: known T [°C], now none
    """
    names = [*wanted, *(name for name in saved if name not in wanted)]
    differ = [
        f"{name} {_show(saved, name)}, now {_show(wanted, name)}"
        for name in names
        if _canonical(saved.get(name)) != _canonical(wanted.get(name))
    ]
    if differ:
        message = f"the checkpoint was made with other options: {'; '.join(differ)}"
        raise CheckpointError(message, hint="use the options it was made with, another --checkpoint, or --fresh")


def _show(options: Mapping[str, Json], name: str) -> str:
    """An option as a user gives it."""
    value = options.get(name)
    if name in ("every", "tolerance") and isinstance(value, int):
        return written(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        value = [f"{key}={one}" for key, one in value.items()]
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "not given" if value is None else str(value)


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def digest(body: Mapping[str, Any]) -> str:
    """SHA-256 of the state as JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _flat(parts: Mapping[str, Stateful]) -> tuple[dict[str, Tensor], dict[str, Json]]:
    """The tensors of parts by part/name, and the rest by part."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Json] = {}
    met = set[int]()
    for name, part in parts.items():
        own, rest_of = part.state()
        for key, tensor in own.items():
            held = tensor.detach().cpu().contiguous()
            where = held.untyped_storage().data_ptr()
            tensors[f"{name}/{key}"] = held.clone() if where in met else held  # safetensors refuses shared memory
            met.add(where)
        rest[name] = rest_of
    return tensors, rest


def _compressed(tensors: Mapping[str, Tensor]) -> tuple[bytes, int]:
    """Tensors in the format of safetensors, compressed, and how many bytes they are uncompressed.

    Its own writer makes one piece of all tensors, and needs the memory of a large fleet twice more.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # so that each is aligned
    ends = list(accumulate((tensors[name].nbytes for name in order), initial=0))
    header = {
        name: {"dtype": _DTYPES[tensors[name].dtype], "shape": list(tensors[name].shape), "data_offsets": list(ends)}
        for name, ends in zip(order, pairwise(ends), strict=True)
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    found = pa.BufferOutputStream()
    with pa.CompressedOutputStream(found, "zstd") as stream:  # at level 1: others take up to ten times as long
        stream.write(len(head).to_bytes(8, "little") + head)
        for name in order:
            stream.write(pa.py_buffer(tensors[name].numpy().data))
    return found.getvalue().to_pybytes(), 8 + len(head) + ends[-1]


def _decompressed(data: bytes, size: int) -> dict[str, Tensor]:
    """The inverse of `_compressed`.

    Raises:
        ValueError, OSError, SafetensorError: they are none, or larger than the memory.
    """
    if size > (most := memory_at_hand()):
        raise ValueError(f"its tensors are said to take {size / 1e9:,.1f} GB, and {most / 1e9:,.1f} GB are at hand")
    return load(pa.Codec("zstd").decompress(data, size, asbytes=True))


def _parts(flat: Mapping[str, Tensor], rest: Any) -> tuple[dict[str, dict[str, Tensor]], dict[str, dict[str, Json]]]:
    """The inverse of `_flat`; both by part.

    Raises:
        ValueError: a tensor is of no part.
    """
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, tensor in flat.items():
        part, key = name.split("/", 1)
        tensors.setdefault(part, {})[key] = tensor
    return tensors, rest


def _read(path: Path, warning: str) -> Saved:
    try:
        whole = json.loads(load_file(path / "state.json", _LONGEST))
        version = whole["format"]
        if version != FORMAT:
            message = f"{path} has format {_shown(version)}; this version reads {FORMAT}"
            hint = "train again with --fresh, or use the version of streamgp that wrote it"
            raise CheckpointError(message, hint=hint)
        body, data = whole["body"], load_file(path / TENSORS, memory_at_hand())
        if whole["sha256"] != digest(body) or body["tensors_sha256"] != hashlib.sha256(data).hexdigest():
            raise CheckpointError(f"{path} is damaged: its checksum is wrong")
        _check_body(body)
        tensors, rest = _parts(_decompressed(data, body["tensors_bytes"]), body["rest"])
        sums = body["shards"]
        shards = {name: load_file(path / f"{name}{_SHARD}", memory_at_hand()) for name in sums}
        if wrong := [name for name, shard in shards.items() if hashlib.sha256(shard).hexdigest() != sums[name]]:
            raise CheckpointError(f"{path} is damaged: the checksum of shard {wrong[0]} is wrong")
    except PermissionError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}", hint="give permission") from None
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is damaged: {Path(error.filename).name} is gone") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: its state.json is not whole") from error
    except OSError as error:
        name = f"{Path(error.filename).name}: " if error.filename else ""
        raise CheckpointError(f"{path} is damaged: {name}{error.strerror or error}") from error
    except (ValueError, RuntimeError, SafetensorError) as error:  # a RecursionError is a RuntimeError
        raise CheckpointError(f"{path} is damaged: {str(error)[:500] or type(error).__name__}") from error
    return Saved(path, body["rows"], body["manifest"], tensors, rest, warning, shards)


def _check_body(body: Any) -> None:
    """See that what every checkpoint says is there, and of its kind.

    Raises:
        ValueError: it is not.
    """
    for name in ("rows", "tensors_bytes"):
        value = body.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise ValueError(f"its {name} cannot be {_shown(value)}")
    if not isinstance(body.get("manifest"), dict):
        raise ValueError("its manifest is no object")
    _check_rest(body.get("rest"))
    shards = body.get("shards")
    if not isinstance(shards, dict) or not all(_SHARD_NAME.fullmatch(name) for name in shards):
        raise ValueError(f"its shards cannot be {_shown(shards)}")


def _check_rest(rest: Any) -> None:
    if not isinstance(rest, dict) or not all(isinstance(part, dict) for part in rest.values()):
        raise ValueError("its rest has a part that is no object")


def _shown(value: Any) -> str:
    """A value of a document in a message, as short as it must be."""
    return f"{value!r}"[:60] if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"


def _order(path: Path) -> tuple[int, int]:
    """Rows, and the number of times that a checkpoint was written at these rows before."""
    match = NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, -1)


def _all(directory: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted(homed(directory), key=_order, reverse=True)


def free_name(directory: Path, rows: int) -> Path:
    """A name for a checkpoint at `rows`; a second one at the same rows takes a suffix and counts as newer."""
    serials = [_order(path)[1] for path in _all(directory) if _order(path)[0] == rows]
    return directory / (f"{rows:012d}-{max(serials) + 1}" if serials else f"{rows:012d}")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Wait for others that write into a directory, in this process or another, and log that: each takes what it finds
    half written for what a killed writer left. Where a file system locks no directories, nothing is waited for."""
    held = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.warning(f"another save into {remote.shown(directory)} is under way: waiting for it to end")
                fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _of_frames_after(directory: Path, rows: int) -> list[Path]:
    """Checkpoints of data frames that have seen more rows than these.

    Raises:
        StateError: one that has is of a run of `train`, which is not let go of.
    """
    remote.refresh(directory)
    found = []
    for path in _all(directory):
        seen, about = manifest_of(path)
        if "frames" in about and _order(path)[0] > rows:
            found.append(path)
        elif seen > rows:
            raise StateError(
                f"{remote.shown(directory)} is the checkpoint of a run that has seen {seen:,} rows, and would be read "
                f"in place of this one, which has seen {rows:,}",
                hint="save it into another directory",
            )
    return found


def _sweep(directory: Path) -> None:
    """Remove what a killed writer left."""
    for path in half_written(directory):
        shutil.rmtree(path)


def half_written(directory: Path) -> list[Path]:
    """What a killed writer left; nothing of it is ever read."""
    return [path for path in directory.iterdir() if path.name.startswith(_TEMPORARY)]


def remove_directory(path: Path) -> None:
    """Let go of a checkpoint: it loses its name first, so that it is never seen half removed."""
    doomed = path.with_name(f"{_TEMPORARY}{path.name}")
    os.rename(path, doomed)
    shutil.rmtree(doomed)
