"""What is in a checkpoint: what it was trained with, how far it is, and how large its parts are."""

from __future__ import annotations

from pathlib import Path

from streamgp.base import Json
from streamgp_pipelines.config import DescribeConfig
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.describe_file import describe_file

_SHOWN = (
    "table",
    "offset",
    "device",
    "threads",
    "streamgp",
)


def describe(config: DescribeConfig) -> dict[str, Json]:
    """What `describe_file`, `describe_table` or `describe_checkpoint` says.

    Raises:
        DataError, UsageError: the file cannot be read.
        TableError, CheckpointError: there is none, or it is damaged.
    """
    if config.source is not None:
        return describe_file(config)
    if config.table is not None:
        return describe_table(config.table)
    return describe_checkpoint(config.checkpoint or Path(), config.strict)


def describe_checkpoint(directory: Path, strict: bool = False) -> dict[str, Json]:
    """The newest checkpoint of a directory, read and verified.

    Args:
        directory: of the checkpoint.
        strict: whether it is refused where a newer one is damaged; else there is a warning.

    Returns:
        path, rows, the options it was trained with, the table and the offset it continues from, and the megabytes of
        each part; the ledger's are what grows with series, horizon and outputs.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    from streamgp_data.remote import shown  # these import torch, which a table does not need
    from streamgp_pipelines.learning.checkpointing import passed_over, refuse_passed_over
    from streamgp_pipelines.learning.restored import read_checkpoint, recipe_of

    saved = read_checkpoint(directory)
    if strict:
        refuse_passed_over(saved)
    parts: dict[str, float] = {}
    for state in saved.states():
        for name, tensors in state.tensors.items():
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) / 1e6
            parts[name] = parts.get(name, 0.0) + size
    made = recipe_of(saved)
    about = made.to_json()
    about |= {"set": about.pop("options"), "batch": made.schedule.batch, "warmup": made.schedule.warmup}
    about |= {name: saved.manifest[name] for name in _SHOWN}
    return {
        "checkpoint": f"{shown(saved.path.parent)}/{saved.path.name}",
        "rows": saved.rows,
        **about,
        "parts_mb": dict(parts),
        "total_mb": sum(parts.values()),
        "warnings": list(passed_over(saved)),
    }
