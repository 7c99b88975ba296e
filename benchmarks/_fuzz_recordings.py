"""Fuzzed recordings, and definitions of their messages: valid structure with odd values and lengths, damaged bytes."""

from __future__ import annotations

import io
import json
import random
import re
import sqlite3
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from _fuzz import Check, Found, damaged, damaged_text, of_file, of_pool, one, tried

ROWS = 5
EPOCH = 1_700_000_000


def message(chance: random.Random, way: str) -> bytes:
    """A message of a topic: CDR, ROS 1 or JSON of the fields of DEFINITION."""
    if way == "json":
        found = {"x": chance.choice([1, 1.5, None, "a", [1, 2], {"y": 1}, 10**400]), "ok": True}
        return json.dumps(found).encode()
    head = b"" if way == "ros1" else b"\0\1\0\0"
    if way == "ros1":
        data = struct.pack("<dI2fI3s", chance.gauss(), 2, 1, 2, 3, b"abc")
    else:
        data = struct.pack("<dI2fI4s", chance.gauss(), 2, 1, 2, 4, b"abc\0")
    return head + data


DEFINITION = "float64 x\nfloat32[] q\nstring s\n"


def definition(chance: random.Random, usual: float = 0.6) -> str:
    """A definition of a message in ROS, mostly the usual one (code is made of each other one)."""
    if chance.random() < usual:
        return DEFINITION
    line = "=" * 80
    texts = [
        DEFINITION,
        f"C[3] c\nD d\n{line}\nMSG: a/C\nuint8 u\nint64 I=5\n{line}\nMSG: a/D\nC c\nfloat64[<=4] q\n",
        "string<=5[<=4] z\nbool b true\nfloat64[9] m\nstd_msgs/Header header\ntime stamp\n# note\n",
    ]
    text = chance.choice(texts)
    for old in ("float64", "C", "3", "x", "=", "\n"):
        if chance.random() < 0.2:
            words = ["9" * 20, "a/D", "string", "[]", "[9999]", "__import__('os')._exit(9)", "class", '"""', "", "é"]
            text = text.replace(old, chance.choice(words), 1)
    return damaged_text(text.encode(), chance).decode(errors="replace") if chance.random() < 0.3 else text


IDL = """module a { module msg {
module B_Constants { const long N = 2; };
@verbatim (language="comment", text="x")
struct B { double x; sequence<float, 5> q; double m[N]; string<8> s; };
}; };"""


def of_definitions(_: Path) -> Check:
    """Definitions of messages, from which rosbags makes code; and a message that is decoded by them."""
    from streamgp_data.recordings.ros import Types

    def check(chance: random.Random) -> Found:
        idl = chance.random() < 0.5
        text = damaged_text(IDL.encode(), chance).decode(errors="replace") if idl else definition(chance, 0)
        if idl and chance.random() < 0.5:
            text = text.replace("2", chance.choice(["(((2)))", "1+1*2", "9" * 30, "2 << 9999", "-1", "N", "2/0"]), 1)
        types, name = Types(), chance.choice(["a/msg/B"] * 9 + ["a/B", "B", "a/b/c/d", "a/B\n", "é/x"])
        why = types.define(name, text, idl)
        if why is None:
            try:
                types.decode(message(chance, "cdr") + bytes(chance.randrange(100)), name)
            except Exception:  # of what is damaged: the caller puts the message aside
                return one("set aside")
        return one("read" if why is None else "refused")

    return check


def of_mcap(home: Path) -> Check:
    from mcap.writer import CompressionType, Writer

    read = of_file(home, "mcap")
    ways = {"cdr": "ros2msg", "ros1": "ros1msg", "json": "jsonschema"}

    def check(chance: random.Random) -> Found:
        out, whole = io.BytesIO(), chance.random() < 0.15
        compression = chance.choice([CompressionType.NONE] * 3 + [CompressionType.ZSTD, CompressionType.LZ4])
        writer = Writer(
            out, chunk_size=200, compression=compression, enable_crcs=False, use_chunking=chance.random() < 0.7
        )
        writer.start()
        count = 0
        for way in chance.sample(list(ways), chance.randrange(1, 3)):
            text = "{}" if way == "json" else DEFINITION if whole else definition(chance, 0.97)
            key = writer.register_channel(f"/{way}", way, writer.register_schema("a/B", ways[way], text.encode()))
            times = chance.randrange(1, 4)
            for at in range(times):
                data = message(chance, way) if not (whole and way == "json") else b'{"x": 1}'
                data = data if whole or chance.random() < 0.7 else damaged(data, chance)
                time = EPOCH * 10**9 + at if chance.random() < 0.95 or whole else chance.getrandbits(64)
                writer.add_message(key, time, data, time)
            count = max(count, times)
        writer.finish()
        data = out.getvalue()
        return read(data if whole or chance.random() < 0.3 else damaged(data, chance), count if whole else None)

    return check


def bag(chance: random.Random, home: Path) -> bytes:
    from rosbags.rosbag1 import Writer

    path = home / f"o{chance.getrandbits(60)}.bag"
    writer = Writer(path)
    if chance.random() < 0.3:
        writer.set_compression(chance.choice(list(Writer.CompressionFormat)))
    with writer:
        text = DEFINITION if chance.random() < 0.8 else definition(chance, 0)
        link = writer.add_connection("/x", "a/msg/B", msgdef=text, md5sum="0" * 32)
        for at in range(chance.randrange(1, 4)):
            data = message(chance, "ros1")
            writer.write(link, EPOCH * 10**9 + at, data if chance.random() < 0.8 else damaged(data, chance))
    return path.read_bytes()


def of_db3(home: Path) -> Check:
    read = of_file(home, "db3")

    def check(chance: random.Random) -> Found:
        base, whole = sqlite3.connect(":memory:"), chance.random() < 0.2
        base.execute("PRAGMA page_size=512")

        def odd(usual: Any) -> Any:
            values = [None, -1, 2**62, 1.5, "x", b"\xff", "", 10**12]
            return usual if whole or chance.random() < 0.93 else chance.choice(values)

        base.execute("CREATE TABLE topics (id INTEGER PRIMARY KEY, name, type, serialization_format)")
        base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic_id, timestamp, data)")
        base.execute("INSERT INTO topics VALUES (0, ?, ?, ?)", (odd("/x"), odd("a/msg/B"), odd("cdr")))
        base.execute("CREATE TABLE message_definitions (topic_type, encoding, encoded_message_definition)")
        text = DEFINITION if whole else definition(chance, 0.97)
        base.execute("INSERT INTO message_definitions VALUES (?, ?, ?)", (odd("a/msg/B"), odd("ros2msg"), odd(text)))
        count = chance.randrange(1, 4)
        for at in range(count):
            raw = message(chance, "cdr")
            raw = raw if whole or chance.random() < 0.8 else damaged(raw, chance)
            asked = "INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)"
            base.execute(asked, (odd(0), odd(EPOCH * 10**9 + at), odd(raw)))
        base.commit()
        data = base.serialize()
        base.close()
        return read(data if whole or chance.random() < 0.5 else damaged(data, chance), count if whole else None)

    return check


_DBC = """VERSION ""
BU_: ECU
BO_ 180 SPEED: 8 ECU
 SG_ SPEED : 47|16@0+ (0.01,0) [0|250] "km/h" ECU

BO_ 2566834942 TILT: 4 ECU
 SG_ MODE M : 0|8@1+ (1,0) [0|255] "" ECU
 SG_ PITCH m0 : 8|16@1- (0.1,0) [-3000|3000] "deg" ECU

"""


_HEADS = re.compile(
    r"//|(date|base)\b|(no )?internal events|(begin|end) triggerblock|[0-9.]+ start of measurement", re.ASCII
)


def _known(home: Path) -> Path:
    """The database of the logs, which is read once."""
    from streamgp_data.sources import can

    path = home / "car.dbc"
    path.write_text(_DBC)
    can._messages = cache(can._messages)
    return path


def of_lines(suffix: str) -> Callable[[Path], Check]:
    """Logs of lines: each line that is not blank is a frame, is counted, or is set aside."""

    def make(home: Path) -> Check:
        from streamgp_data.reading.files import open_source

        dbc, path = _known(home), home / f"a.{suffix}"
        frames = (
            *[("0B4", "0000000000138800")] * 6,
            ("18FEF2FE", "00010000"),
            ("7DF", "02010C"),
            ("0B4", "00"),
            ("0B4#R", ""),
        )

        def line(chance: random.Random, at: int) -> str:
            key, data = chance.choice(frames)
            if suffix == "log":
                return f"({EPOCH + at}.000100) can0 {key}#{data}"
            octets = " ".join(data[at : at + 2] for at in range(0, len(data), 2))
            return (
                f"   {at}.0010 1  {key.split('#')[0]}{'x' if len(key) == 8 else ''}  Rx   d {len(data) // 2} {octets}"
            )

        def check(chance: random.Random) -> Found:
            head = ["date Tue Nov 14 22:13:20 2023", "base hex  timestamps absolute"] if suffix == "asc" else []
            lines = [*head, *(line(chance, at) for at in range(chance.randrange(1, 5)))]
            if suffix == "asc" and chance.random() < 0.2:
                lines.insert(
                    chance.randrange(len(lines)),
                    chance.choice(["0.5 1 ErrorFrame", "// x", "0.1 Start of measurement"]),
                )
            data = ("\n".join(lines) + "\n").encode()
            data = data if chance.random() < 0.2 else damaged_text(data, chance)
            path.write_bytes(data)
            sources: list[Any] = []

            def rows() -> Any:
                sources.append(open_source(str(path), None, {"dbc": str(dbc)}))
                for chunk in sources[0].read({}):
                    yield chunk.rows.num_rows, chunk.rows.num_rows - chunk.rows.column("_fault").null_count

            found = tried(rows)
            if not sources or found.fault:
                return found
            signals, seen = sources[0].samples.signals.items(), sources[0].recording.left_out.values()
            frames = sum(one.count for name, one in signals if name.endswith((".SPEED", ".MODE")))
            known = frames + sum(int(text.replace(",", "")) for text in seen) + sources[0].lost
            said = [one.strip() for one in data.decode("utf-8", "backslashreplace").split("\n")]
            wanted = sum(bool(one) and _HEADS.match(one.lower()) is None for one in said)
            return found if known == wanted else one("miscounted", f"{known} of {wanted} lines")

        return check

    return make


def blf(chance: random.Random, home: Path) -> bytes:
    import can

    path = home / "o.blf"
    with can.BLFWriter(str(path), compression_level=chance.choice([0, 0, -1])) as log:
        for at in range(chance.randrange(1, 4)):
            data = bytes(5) + chance.randbytes(3)
            log.on_message_received(
                can.Message(timestamp=EPOCH + at, arbitration_id=180, data=data, is_extended_id=False, channel=0)
            )
            if chance.random() < 0.3:
                log.on_message_received(can.Message(timestamp=EPOCH + at, is_error_frame=True, channel=0))
            if chance.random() < 0.3:
                log.on_message_received(can.Message(timestamp=EPOCH + at, is_fd=True, data=bytes(12), channel=0))
    return path.read_bytes()


def of_blf(home: Path) -> Check:
    valid, read = [blf(random.Random(at), home) for at in range(60)], of_file(home, "blf", dbc=str(_known(home)))
    return lambda chance: read(damaged(chance.choice(valid), chance) if chance.random() < 0.95 else valid[0], None)


def of_databases(home: Path) -> Check:
    """Databases of a bus."""
    from streamgp_data.sources import can

    path = home / "a.dbc"

    def check(chance: random.Random) -> Found:
        path.write_bytes(damaged_text(_DBC.encode(), chance))
        return tried(lambda: iter([(len(can._messages(path)), 0)]))

    return check


def of_ulog(home: Path) -> Check:
    """Logs of one or two topics; of one, each of its messages is a row."""
    read = of_file(home, "ulg")

    def part(kind: str, data: bytes) -> bytes:
        return struct.pack("<HB", len(data), ord(kind)) + data

    def check(chance: random.Random) -> Found:
        out = [b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 5_000_000)]
        if chance.random() < 0.3:
            out.append(part("B", bytes(40)))
        out.append(part("F", b"accel:uint64_t timestamp;float x;float[2] q;int8_t mode;"))
        if chance.random() < 0.3:
            out += [
                part("I", b"\x0bchar[3] verABC"),
                part("P", b"\x07float ab" + bytes(4)),
                part("Q", b"\0\x07float ab" + bytes(4)),
            ]
        if chance.random() < 0.2:
            out += [part("F", b"pair:uint64_t timestamp;accel[2] a;"), part("M", b"\0\x06char[1] ab")]
        topics = chance.choice([1, 1, 2])
        out += [part("A", struct.pack("<BH", at, at) + b"accel") for at in range(topics)]
        count = chance.randrange(1, 4)
        for at in range(count):
            for key in range(topics):
                out.append(part("D", struct.pack("<HQ3fb", key, 5_000_000 + at, at, 1, 2, 3)))
            if chance.random() < 0.2:
                out.append(
                    chance.choice([part("O", b"\5\0"), part("S", bytes(8)), part("L", b"\6" + bytes(8) + b"hi")])
                )
        whole = b"".join(out)
        dropped = sum(one[2:3] == b"O" for one in out)
        if chance.random() < 0.2:
            return read(whole, count + dropped)
        at = chance.randrange(1, len(out))
        if chance.random() < 0.3:  # a message that is damaged, and says its length rightly
            inner = damaged(out[at][3:], chance)[:60_000]
            out[at] = struct.pack("<H", len(inner)) + out[at][2:3] + inner
            return read(b"".join(out), None)
        return read(damaged(whole, chance), None)

    return check


def of_descriptors(_: Path) -> Check:
    """Schemas of Protocol Buffers, as an MCAP file has them, and messages of them."""
    from streamgp_data.protobuf import ProtobufSchema, tree
    from tests.data.protobufs import descriptor_set, meter

    whole, said = descriptor_set(), meter()(y=1.5, raw=b"\xff").SerializeToString()

    def check(chance: random.Random) -> Found:
        try:
            types = ProtobufSchema(damaged(whole, chance))
            kind = types.message("plant.Meter")
        except ValueError:
            return one("refused")
        try:
            tree(types.parse(kind, damaged(said, chance)))
        except ValueError:
            return one("set aside")
        return one("read")

    return check


KINDS: dict[str, Callable[[Path], Check]] = {
    "ULog": of_ulog,
    "candump": of_lines("log"),
    "Vector ASCII": of_lines("asc"),
    "BLF": of_blf,
    "DBC": of_databases,
    "MCAP": of_mcap,
    "ROS 1 bag": of_pool("bag", bag),
    "ROS 2 bag": of_db3,
    "definitions of ROS": of_definitions,
    "schemas of Protobuf": of_descriptors,
}
