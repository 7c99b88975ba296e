"""Recordings that the libraries of the formats themselves write, of known signals; and short words for reading them."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from streamgp_data.reading.cells import FAULT, LINE, TEXT
from streamgp_data.reading.files import open_source
from streamgp_data.recordings.joined import Joined

EPOCH = 1_700_000_000
COUNT = 300

DBC = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 170 WHEELS: 8 ECU
 SG_ LEFT : 7|16@0+ (0.01,-67.67) [0|250] "km/h" ECU
 SG_ RIGHT : 23|16@0+ (0.01,-67.67) [0|250] "km/h" ECU

BO_ 180 SPEED: 8 ECU
 SG_ SPEED : 47|16@0+ (0.01,0) [0|250] "km/h" ECU

BO_ 2566834942 TILT: 4 ECU
 SG_ MODE M : 0|8@1+ (1,0) [0|255] "" ECU
 SG_ PITCH m0 : 8|16@1- (0.1,0) [-3000|3000] "deg" ECU
 SG_ ROLL m1 : 8|16@1- (0.1,0) [-3000|3000] "deg" ECU

"""
TILT = 2566834942 & 0x1FFFFFFF


def opened(path: Path, **options: Any) -> Joined:
    source = open_source(str(path), None, options)
    assert isinstance(source, Joined)
    return source


def read(source: Joined) -> pl.DataFrame:
    """All rows, faulty ones too."""
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches([chunk.rows for chunk in source.read({})])))


def frame(path: Path, **options: Any) -> pl.DataFrame:
    return read(opened(path, **options)).filter(pl.col(FAULT).is_null()).drop(LINE, FAULT, TEXT)


def write_database(folder: Path) -> Path:
    (folder / "car.dbc").write_text(DBC)
    return folder / "car.dbc"


def speeds() -> tuple[list[float], list[float]]:
    """Times (s) and speeds (km/h) of the simulated car, in steps of its signal."""
    times = [EPOCH + at / 50 for at in range(COUNT)]
    return times, [round(50 + 30 * np.sin(at / 40), 2) for at in range(COUNT)]


def write_can(path: Path) -> None:
    """The car's log: SPEED on can0 at 50 Hz, WHEELS on both buses at 25 Hz, a message that no database has, TILT with
    its two modes in turn."""
    import can

    times, values = speeds()

    def sent(at: int, key: int, data: bytes, bus: int = 0, long: bool = False) -> Any:
        channel = bus if path.suffix != ".log" else f"can{bus}"
        return can.Message(
            timestamp=times[at], arbitration_id=key, data=data, channel=channel, is_extended_id=long, check=True
        )

    with can.Logger(path) as log:
        for at, value in enumerate(values):
            log.on_message_received(sent(at, 180, bytes(5) + round(value * 100).to_bytes(2, "big") + bytes(1)))
            if at % 2:
                raw = round((value + 67.67) * 100).to_bytes(2, "big")
                log.on_message_received(sent(at, 170, raw + raw + bytes(4)))
                log.on_message_received(sent(at, 170, raw + bytes(6), bus=1))
                mode = at // 2 % 2
                tilt = bytes([mode]) + (at * (1 - 2 * mode)).to_bytes(2, "little", signed=True) + bytes(1)
                log.on_message_received(sent(at, TILT, tilt, long=True))
            if not at % 10:
                log.on_message_received(sent(at, 0x7DF, b"\x02\x01\x0c"))


def _imu() -> Any:
    """The message of a moment, by ROS's standard types."""
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    vector, named = store.types["geometry_msgs/msg/Vector3Stamped"], store.types["sensor_msgs/msg/JointState"]
    header = store.types["std_msgs/msg/Header"]
    stamp = store.types["builtin_interfaces/msg/Time"]
    point = store.types["geometry_msgs/msg/Vector3"]

    def make(at: int) -> tuple[Any, Any]:
        head = header(stamp=stamp(sec=at, nanosec=0), frame_id="base")
        joints = named(
            header=head,
            name=["hip", "knee"],
            position=np.array([at / 10, -at / 10]),
            velocity=np.array([], np.float64),
            effort=np.array([1.5 * at, 2.5 * at]),
        )
        return vector(header=head, vector=point(x=at / 7, y=0.0, z=-1.0)), joints

    return store, make


TOPICS = (("/imu/vector", "geometry_msgs/msg/Vector3Stamped", 1), ("/joints", "sensor_msgs/msg/JointState", 3))


def write_mcap(path: Path, compression: str = "ZSTD") -> None:
    """Vectors at 100 Hz, joints at 33 Hz, JSON at 10 Hz, and a topic of bytes that nobody can read."""
    from mcap.writer import CompressionType, Writer

    store, make = _imu()
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4096, compression=CompressionType[compression])
        writer.start()
        channels = []
        for topic, kind, _ in TOPICS:
            text, _ = store.generate_msgdef(kind, ros_version=2)
            schema = writer.register_schema(kind.replace("/msg/", "/"), "ros2msg", text.encode())
            channels.append(writer.register_channel(topic, "cdr", schema))
        plain = writer.register_channel("/status", "json", writer.register_schema("status", "jsonschema", b"{}"))
        other = writer.register_channel("/blob", "custom", 0)
        for at in range(COUNT):
            time = EPOCH * 10**9 + at * 10**7
            for channel, message, (_, kind, step) in zip(channels, make(at), TOPICS, strict=True):
                if not at % step:
                    raw = bytes(store.serialize_cdr(message, kind))
                    writer.add_message(channel, time, raw, time)
            if not at % 10:
                said = json.dumps({"battery": {"volts": 12 + at / 100}, "ok": True, "text": "x"}).encode()
                writer.add_message(plain, time, said, time)
                writer.add_message(other, time, b"\0\1", time)
        writer.finish()


def write_bag(path: Path, compression: str | None = None) -> None:
    """The same topics as a bag of ROS 1."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    _, make = _imu()
    one = get_typestore(Stores.ROS1_NOETIC)
    header, stamp = one.types["std_msgs/msg/Header"], one.types["builtin_interfaces/msg/Time"]
    writer = Writer(path)
    if compression:
        writer.set_compression(Writer.CompressionFormat[compression])
    with writer:
        links = [writer.add_connection(topic, kind, typestore=one) for topic, kind, _ in TOPICS]
        for at in range(COUNT):
            for link, message, (_, kind, step) in zip(links, make(at), TOPICS, strict=True):
                if not at % step:
                    message.header = header(seq=at, stamp=stamp(sec=at, nanosec=0), frame_id="base")
                    writer.write(link, EPOCH * 10**9 + at * 10**7, bytes(one.serialize_ros1(message, kind)))


def write_db3(path: Path) -> None:
    """The same topics as the database of a bag of ROS 2, as rosbag2 lays it out."""
    store, make = _imu()
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
    base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
    for key, (topic, kind, _) in enumerate(TOPICS):
        base.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr')", (key, topic, kind))
    for at in range(COUNT):
        for key, (message, (_, kind, step)) in enumerate(zip(make(at), TOPICS, strict=True)):
            if not at % step:
                raw = bytes(store.serialize_cdr(message, kind))
                asked = "INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)"
                base.execute(asked, (key, EPOCH * 10**9 + at * 10**7, raw))
    base.commit()
    base.close()


def write_hdf5(path: Path) -> None:
    import h5py

    t = np.arange(COUNT) / 100
    with h5py.File(path, "w") as file:
        file["imu/t"], file["imu/xyz"] = t, np.c_[np.sin(t), np.cos(t), t]
        file.create_dataset("wheel/t", data=t[::5], compression="gzip")
        file.create_dataset("wheel/speed", data=np.cos(t[::5]), compression="gzip", fletcher32=True)


def write_matlab(path: Path) -> None:
    from scipy.io import savemat

    t = np.arange(COUNT) / 100
    savemat(path, {"run": {"t": t, "u": np.sin(t), "y": np.cos(t)}}, do_compression=True)


def write_mdf(path: Path) -> None:
    """volt and count at 100 Hz, speed at 20 Hz, a text; from EPOCH on."""
    from datetime import UTC, datetime

    from asammdf import MDF, Signal

    t = np.arange(COUNT) / 100
    with MDF(version="4.10") as file:
        file.start_time = datetime.fromtimestamp(EPOCH, UTC)
        file.append(
            [Signal(np.sin(t), t, unit="V", name="volt"), Signal(np.arange(COUNT, dtype="u2"), t, name="count")]
        )
        file.append([Signal(np.cos(t[::5]), t[::5], unit="m/s", name="speed")])
        file.append([Signal(np.array([b"on", b"no"] * (COUNT // 10)), t[::5], name="text", encoding="utf-8")])
        file.save(path, overwrite=True, compression=2)


def write_ulog(path: Path) -> None:
    """Two accelerometers at 100 and 50 Hz, as the format is laid out: header, formats, subscriptions, data."""

    def message(kind: str, data: bytes) -> bytes:
        return struct.pack("<HB", len(data), ord(kind)) + data

    out = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 5_000_000)
    out += message("F", b"accel:uint64_t timestamp;float x;float[2] q;int8_t mode;")
    out += b"".join(message("A", struct.pack("<BH", at, at) + b"accel") for at in (0, 1))
    for at in range(COUNT):
        for sensor in range(1 + (at % 2 == 0)):
            values = struct.pack("<Q3fb", 5_000_000 + at * 10_000, at / 8, sensor, -at / 4, at % 100)
            out += message("D", struct.pack("<H", sensor) + values)
    path.write_bytes(out)


WRITERS: dict[str, Callable[[Path], None]] = {
    "h5": write_hdf5,
    "mat": write_matlab,
    "mcap": write_mcap,
    "bag": write_bag,
    "db3": write_db3,
    "log": write_can,
    "asc": write_can,
    "blf": write_can,
    "mf4": write_mdf,
    "ulg": write_ulog,
}
"""Suffix -> what writes such a file."""
