"""The checkpoint directory of a run: which process holds it, with which options it was made, and where a run
continues."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import streamgp
from streamgp.base import Json, Offset
from streamgp.errors import CheckpointError, StateError, StreamgpError
from streamgp.evidence.initial import Initial
from streamgp.windows.windows import WindowSpec
from streamgp_data import checkpoint, remote
from streamgp_data.moments import Moments
from streamgp_data.remote import LOCK
from streamgp_data.table import Table
from streamgp_pipelines.assembly import as_text, flatten
from streamgp_pipelines.config import TrainConfig
from streamgp_pipelines.learning.initial import digest
from streamgp_pipelines.learning.learner import Learner


def fingerprint(config: TrainConfig, spec: WindowSpec, warmup: int, initial: Initial | None = None) -> dict[str, Json]:
    """The options that shape state: a run continues only under the same ones."""
    shared: dict[str, Json] = {
        "target": list(spec.targets),
        "inputs": list(spec.inputs),
        "known": list(spec.known),
        "calendar": spec.calendar,
        "lags": spec.lags,
        "horizon": spec.horizon,
        "season": ",".join(str(season) for season in spec.seasons or (spec.season,)),
        "gaps": spec.gaps,
        "sentinel": [*config.sentinel],
        "every": spec.every_ns,
        "tolerance": spec.tolerance_ns,
        "model": config.model,
        "set": {key: as_text(value) for key, value in sorted(flatten(config.set).items())},
        "seed": config.seed,
        "batch": config.batch,
        "level": list(config.level),
        "quantiles": list(config.quantiles),
        "point": config.point,
        "lower": config.lower,
        "upper": config.upper,
        "transform": list(config.transform),
        "mode": "online" if config.online else "batch",
    }
    if initial is not None:
        shared["init"] = f"{initial.found.get('method')} {digest(initial)}"
    if config.simulate is not None:
        shared["simulate"] = config.simulate
    if config.alarm_rate is not None:
        shared["alarm-rate"] = config.alarm_rate
    if config.fleet:
        shared["fleet"] = True
    if config.scale != "auto":
        shared["scale"] = config.scale
    if spec.late != "skip":
        shared["late"] = spec.late
    if config.online:
        return shared | {"warmup": warmup, "score-from": config.score_from}
    if config.sample is not None:
        shared["sample"] = config.sample
    if config.test_blocks is not None:
        shared["test-blocks"] = config.test_blocks
    return shared | {"test-column": config.test_column, "test-tail": config.test_tail, "max-rows": config.max_rows}


def manifest(learner: Learner, table: Table, options: dict[str, Json], offset: Offset) -> dict[str, Json]:
    """What a checkpoint says of itself: enough to rebuild the learner and to forecast without the table."""
    spec = learner.windows.spec
    return {
        "streamgp": streamgp.__version__,
        "fingerprint": options,
        "recipe": learner.recipe.to_json(),
        "moments": asdict(Moments.of(table.meta)),
        "unit": unit_of(table, spec),
        "units": units_of(table, spec),
        "rows": learner.rows,
        "begun": table.rows > 0,
        "offset": dict(offset),
        "table": {"path": str(table.path), "id": table.id, "version": table.version},
        "threads": torch.get_num_threads(),
        "device": learner.device.type,
    }


def state_digest(saved: checkpoint.Saved) -> str:
    """A digest of everything in a checkpoint but its stop-watch: equal where the same rows gave the same state."""
    found = hashlib.sha256()
    for state in saved.states():
        found.update(state.name.encode())
        for part in sorted(state.rest.keys() - {"clock"}):
            for name, tensor in sorted(state.tensors.get(part, {}).items()):
                found.update(f"{part}/{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                found.update(tensor.contiguous().numpy().tobytes())
            found.update(json.dumps([part, state.rest[part]], sort_keys=True).encode())
    return found.hexdigest()[:16]


def units_of(table: Table, spec: WindowSpec) -> dict[str, Json]:
    """Column -> unit, of the columns that windows are made of, where ingest found one."""
    about = {name: table.schema.field(name).metadata or {} for name in spec.columns}
    return {name: one[b"unit"].decode() for name, one in about.items() if b"unit" in one}


def unit_of(table: Table, spec: WindowSpec) -> str:
    """The first target's unit, for the axes of pictures; "" where ingest found none."""
    about = table.schema.field(spec.targets[0]).metadata or {}
    return about.get(b"unit", b"").decode()


def match_machine(saved: checkpoint.Saved, device: torch.device) -> list[str]:
    """Take up the thread count the run began with; returns warnings where bit-identity is off."""
    threads, kind = saved.manifest["threads"], saved.manifest["device"]
    warnings = []
    if isinstance(threads, int) and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    if kind != device.type:
        warnings.append(f"this run began on {kind}, and continues on {device.type}: last digits may differ")
    return warnings


def passed_over(saved: checkpoint.Saved) -> list[str]:
    """The warning about a checkpoint that was read in place of a newer one; empty where it is the newest."""
    if not saved.warning:
        return []
    return [f"{saved.warning}; the one of row {saved.rows} is used instead"]


def refuse_passed_over(saved: checkpoint.Saved) -> None:
    """Check that no newer checkpoint was passed over.

    Raises:
        CheckpointError: one was, because it is damaged.
    """
    if saved.warning:
        hint = f"leave out --strict to continue from row {saved.rows}, or run train again with the same line"
        raise CheckpointError(saved.warning, hint=hint)


def set_aside(directory: Path) -> Path | None:
    """Move an old checkpoint directory out of the way (`NAME.1`, `NAME.2`, ...); returns where to, or None.

    Raises:
        StateError: another process trains in it, or it cannot be moved.
    """
    directory = directory.resolve()
    if Path.cwd().is_relative_to(directory):
        raise StateError(f"{directory} cannot be set aside: it is worked in", hint="choose another --checkpoint")
    with held(directory):
        remote.drop(directory, keep=True)
        if all(path.name == LOCK for path in directory.iterdir()):
            return None
        number = 1
        while (aside := directory.with_name(f"{directory.name}.{number}")).exists():
            number += 1
        try:
            os.rename(directory, aside)
        except OSError as error:
            raise StateError(
                f"{directory} cannot be set aside: {error.strerror}", hint="choose another --checkpoint"
            ) from None
        return aside


@contextmanager
def unless_refused(directory: Path) -> Iterator[Callable[[bool], None]]:
    """Write into a directory; what a refused run has written is removed, so that the corrected command can use it.

    A run is refused when an error ends it before its model has learned anything.

    Yields:
        A function to call with whether the model has learned anything.
    """
    before = set(directory.iterdir())
    learned = checkpoint.exists(directory)

    def say(whether: bool) -> None:
        nonlocal learned
        learned = learned or whether

    try:
        yield say
    except StreamgpError:
        if not learned:
            remote.drop(directory)
            for path in set(directory.iterdir()) - before:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the directory for this process.

    Raises:
        StateError: it cannot be written, or another process holds it.
    """
    made = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock: Any = open(directory / LOCK, "w")  # noqa: SIM115 - held until the end of the run
    except OSError as error:
        raise StateError(
            f"the checkpoint directory {directory} cannot be written: {error}", hint="choose another --checkpoint"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"another process trains in {remote.shown(directory)}",
                hint="wait for it, or choose another --checkpoint",
            ) from None
        try:
            remote.pull(directory)
            yield
        finally:
            if made and directory.is_dir() and [path.name for path in directory.iterdir()] == [LOCK]:
                shutil.rmtree(directory, ignore_errors=True)
