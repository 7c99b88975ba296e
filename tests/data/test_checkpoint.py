"""Checkpoints: whole or not at all, whatever dies when; damage is found; what is read is what was written."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from streamgp.base import Json
from streamgp.errors import CheckpointError, ServiceError, StateError
from streamgp_data import checkpoint
from tests.pipelines.killed import wait_for
from tests.words import naming


class Part:
    """A stateful number."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
        tensors = {"square": torch.full((3, 2), float(self.value) ** 2, dtype=torch.float64), "none": torch.zeros(0, 4)}
        return tensors, {"value": self.value, "tenth": self.value / 10, "nested": {"list": [None, True, "ü"]}}

    def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
        assert tensors["none"].shape == (0, 4)
        assert rest["nested"] == {"list": [None, True, "ü"]}
        self.value = int(str(rest["value"]))
        assert tensors["square"].eq(self.value**2).all()


def write(home: Path, value: int, **options: Any) -> Path:
    return checkpoint.write(home, 100 * value, {"part": Part(value)}, {"value": value}, **options)


def value_of(home: Path) -> int:
    part = Part()
    saved = checkpoint.read(home)
    saved.restore({"part": part})
    assert saved.manifest == {"value": part.value} and saved.rows == 100 * part.value
    return part.value


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    awkward = torch.arange(6, dtype=torch.float64).reshape(2, 3).T  # not contiguous
    shared = awkward[0]

    class Odd(Part):
        def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
            return {"a": awkward, "b": shared, "rng": torch.get_rng_state(), "i": torch.tensor(7)}, {"x": 0.1 + 0.2}

    checkpoint.write(tmp_path, 5, {"odd": Odd()}, {})
    saved = checkpoint.read(tmp_path)
    assert torch.equal(saved.tensors["odd"]["a"], awkward) and torch.equal(saved.tensors["odd"]["b"], shared)
    assert torch.equal(saved.tensors["odd"]["rng"], torch.get_rng_state())
    assert saved.rest["odd"] == {"x": 0.1 + 0.2} and saved.warning == ""


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for value in range(1, 6):
        write(tmp_path, value, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000400", "000000000500"]
    assert value_of(tmp_path) == 5


def test_two_stay_and_windows_that_overlap_are_not_stored_many_times(tmp_path: Path) -> None:
    class Reservoir(Part):
        def state(self) -> tuple[dict[str, Tensor], dict[str, Json]]:
            stream = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            return {"windows": stream.unfold(0, 100, 1).contiguous()}, {}

    for rows in (1, 2, 3):
        checkpoint.write(tmp_path, rows, {"reservoir": Reservoir()}, {})
    files = list(tmp_path.glob(f"*/{checkpoint.TENSORS}"))
    assert len(files) == 2 and sum(file.stat().st_size for file in files) < 2 * 901 * 100 * 8 / 10
    windows = checkpoint.read(tmp_path).tensors["reservoir"]["windows"]
    assert torch.equal(windows, Reservoir().state()[0]["windows"])


def test_a_second_one_at_the_same_rows_counts_as_newer(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, 700, {"part": Part(1)}, {})
    checkpoint.write(tmp_path, 700, {"part": Part(7)}, {})
    assert checkpoint.read(tmp_path).rest["part"]["value"] == 7


def test_one_may_stand_instead_of_those_of_frames_with_more_rows(tmp_path: Path) -> None:
    def of_frame(home: Path, value: int, **options: Any) -> Path:
        return checkpoint.write(home, 100 * value, {"part": Part(value)}, {"frames": "polars"}, **options)

    for value in (3, 4, 1):
        of_frame(tmp_path, value)
    assert checkpoint.read(tmp_path).rows == 400
    of_frame(tmp_path, 2, instead=True)
    assert checkpoint.read(tmp_path).rows == 200
    write(tmp_path, 5)  # of a run of train
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StateError, match="500 rows"):
        of_frame(tmp_path, 3, instead=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_damaged_ones_with_more_rows_stay_where_one_is_written_instead(tmp_path: Path) -> None:
    for value in (4, 5):
        (write(tmp_path, value) / "state.json").write_text("{")
    write(tmp_path, 2, instead=True)
    assert checkpoint.read(tmp_path).rows == 200 and len([*tmp_path.iterdir()]) == 3


def test_a_run_of_train_that_saves_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A save waits, says so, and then sees what the one before it has written."""
    with ThreadPoolExecutor(1) as pool, naming_warnings() as said:
        with checkpoint._alone(tmp_path):
            waits = pool.submit(write, tmp_path, 2, instead=True)
            wait_for(lambda: bool(said))
            shutil.copytree(write(tmp_path / "run", 3), tmp_path / "000000000300")
        with pytest.raises(StateError):
            waits.result()
    assert len(said) == 1 and str(tmp_path) in said[0]


@contextmanager
def naming_warnings() -> Iterator[list[str]]:
    """What is logged."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("streamgp").addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger("streamgp").removeHandler(handler)


def test_several_write_at_once(tmp_path: Path) -> None:
    """None sweeps away what another one has half written, nor takes its name."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: checkpoint.write(tmp_path, 700, {"part": Part(7)}, {"value": 7}), range(24)))
    assert checkpoint.read(tmp_path).warning == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000700-22", "000000000700-23"]


def test_none_there(tmp_path: Path) -> None:
    assert not checkpoint.exists(tmp_path / "nowhere")
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path / "nowhere")


# --- a kill at any moment -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", range(11))
@pytest.mark.parametrize("before", [True, False])
def test_an_error_at_any_step_leaves_the_older_or_the_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int, before: bool
) -> None:
    """The n-th call that touches the disk fails, before or after having done its work."""
    for value in (1, 2, 3):
        write(tmp_path, value)
    calls = 0

    def break_at(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point + 1 and before:
                raise OSError(28, "No space left on device")
            done = real(*args, **kwargs)
            if calls == point + 1:
                raise OSError(28, "No space left on device")
            return done

        return call

    for target, name in ((os, "fsync"), (os, "rename"), (os, "mkdir"), (shutil, "rmtree")):
        monkeypatch.setattr(target, name, break_at(getattr(target, name)))
    try:
        write(tmp_path, 4)
        assert value_of(tmp_path) == 4
    except ServiceError as error:
        assert error.hint
    monkeypatch.undo()
    assert value_of(tmp_path) in (3, 4)
    write(tmp_path, 5)
    assert value_of(tmp_path) == 5
    assert len(list(tmp_path.iterdir())) == checkpoint.KEEP  # nothing of the failed attempt is left


def killed_at(home: Path, point: int) -> None:
    """Write a fourth checkpoint, in a fork that ends at the n-th call that touches the disk."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    calls = 0

    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return call

    try:
        os.fsync, os.rename, os.mkdir = killing(os.fsync), killing(os.rename), killing(os.mkdir)
        write(home, 4)
    finally:
        os._exit(0)


def test_sigkill_at_any_step_leaves_the_older_or_the_newer(tmp_path: Path) -> None:
    found = []
    for point in range(1, 16):
        home = tmp_path / str(point)
        for value in (1, 2, 3):
            write(home, value)
        killed_at(home, point)
        found.append(value_of(home))
        write(home, 5)
        assert value_of(home) == 5
    assert {*found} == {3, 4} and found == sorted(found)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensors.safetensors.zst", "state.json"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_damaged_byte_is_found_and_the_older_one_serves(tmp_path: Path, name: str, part: float, damage: str) -> None:
    write(tmp_path, 1)
    file = write(tmp_path, 2) / name
    data = bytearray(file.read_bytes())
    at = int(part * len(data))
    if damage == "flip":
        data[at] ^= 1
    file.write_bytes(data[:at] if damage == "truncate" else data)
    assert value_of(tmp_path) == 1
    assert "000000000200" in checkpoint.read(tmp_path).warning
    shutil.rmtree(tmp_path / "000000000100")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.read(tmp_path)
    assert caught.value.hint


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    (write(tmp_path, 1) / "tensors.safetensors.zst").unlink()
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path)


def test_another_format_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, 1) / "state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match=naming("99")) as found:
        checkpoint.read(tmp_path)
    assert "--fresh" in found.value.hint and "version" in found.value.hint


def test_a_part_that_does_not_fit(tmp_path: Path) -> None:
    write(tmp_path, 1)
    saved = checkpoint.read(tmp_path)
    with pytest.raises(CheckpointError, match=naming("other")):
        saved.restore({"other": Part()})

    class Stranger(Part):
        def restore(self, tensors: dict[str, Tensor], rest: dict[str, Json]) -> None:
            tensors["weights"]

    with pytest.raises(CheckpointError, match=naming("part KeyError")):
        saved.restore({"part": Stranger()})


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError) as caught:
        write(tmp_path / "file", 1)
    assert caught.value.hint


# --- fingerprints ---------------------------------------------------------------------------------------------------


def test_every_difference_is_named_with_both_values() -> None:
    saved: dict[str, Json] = {"lags": 24, "model": "svdgp", "inputs": ["a"], "old": 1, "same": 1.0}
    wanted: dict[str, Json] = {"lags": 48, "model": "svdgp", "inputs": ["a", "b"], "new": None, "same": 1.0}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.check_fingerprint(saved, wanted)
    for words in ("lags 24, now 48", "inputs a, now a,b", "old 1, now not given"):
        assert words in caught.value.message
    assert "model" not in caught.value.message and caught.value.hint
    checkpoint.check_fingerprint(saved, dict(saved))
