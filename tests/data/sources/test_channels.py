"""MDF and ULog."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamgp.errors import DataError
from streamgp_data.reading.cells import FAULT
from tests.data.sources.recordings import COUNT, EPOCH, frame, opened, read, write_mdf, write_ulog

T = np.arange(COUNT) / 100


@pytest.mark.slow
def test_channels_of_an_mdf(tmp_path: Path) -> None:
    write_mdf(tmp_path / "a.mf4")
    source = opened(tmp_path / "a.mf4")
    assert source.names == ["time", "count", "speed", "volt"]
    assert source.units == {"speed": "m/s", "volt": "V"}
    assert source.recording.left_out == {"text": "text"}
    found = read(source)
    np.testing.assert_array_equal(found["time"].dt.epoch("us"), EPOCH * 10**6 + np.arange(COUNT) * 10_000)
    np.testing.assert_array_equal(found["volt"], np.sin(T))
    np.testing.assert_array_equal(found["speed"], np.cos(T[::5])[np.arange(COUNT) // 5])
    assert frame(tmp_path / "a.mf4", signals=("speed",)).height == COUNT // 5


def test_topics_of_a_ulog(tmp_path: Path) -> None:
    write_ulog(tmp_path / "a.ulg")
    source = opened(tmp_path / "a.ulg", clock="accel.x")
    names = [f"{topic}.{field}" for topic in ("accel.1", "accel") for field in ("mode", "q.0", "q.1", "x")]
    assert source.names == ["time", *names]
    found = read(source)
    np.testing.assert_allclose(found["time"], 5 + T, atol=1e-6)
    np.testing.assert_array_equal(found["accel.q.1"], -np.arange(COUNT) / 4)
    np.testing.assert_array_equal(found["accel.1.x"], np.arange(COUNT) // 2 * 2 / 8)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("name", [pytest.param("a.mf4", marks=pytest.mark.slow), "a.ulg"])
def test_half_a_file_is_refused(tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    (write_mdf if name == "a.mf4" else write_ulog)(path)
    whole = frame(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError) as caught:
        opened(path)
    assert name in caught.value.message
    if name == "a.ulg" and share > 0.1:
        source = opened(path, salvage=True)
        assert [one.split("|")[0] for one in read(source)[FAULT].drop_nulls()] == ["damaged"]
        rows = frame(path, salvage=True)
        assert rows.height > share * whole.height * 0.8
