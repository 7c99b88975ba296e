"""Faults of what answers over a network: brokers, object stores, name servers, certificates, ports."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.faults.room import START, TRAIN, UNTRACKED, Outcome, Room, fault, small_disk
from tests.faults.storage import fill, made
from tests.live.brokers import PASSWORD, free_port, running

GROUP = "service"


def payload(row: int) -> bytes:
    return json.dumps({"ds": (START + timedelta(minutes=row)).isoformat(), "y": row}).encode()


def payloads(start: int, count: int) -> list[bytes]:
    return [payload(row) for row in range(start, start + count)]


def broker_away(room: Room, name: str) -> Outcome:
    """Away at the start, and in the middle."""
    with running(name, room.path) as (broker, publish):
        url = broker.url.format(f":{PASSWORD}")
        publish(payloads(0, 1))
        broker.stop()
        refused = room.run("ingest", url, "--table", "t").refused(5)
        process = room.start("ingest", url, "--table", "t", "--follow", "--linger", "0.02")
        time.sleep(3)
        broker.start()
        room.until(lambda: room.count() == 1, "the first row")
        publish(payloads(1, 200))
        room.until(lambda: room.count() == 201, "the rows")
        broker.stop()
        time.sleep(1)
        broker.start()
        publish(payloads(201, 200))
        room.until(lambda: room.count() == 401, "the rows behind the restart")
        ended = room.end(process, signal.SIGTERM).clean()
        assert ended.code == 143 and PASSWORD not in ended.out + ended.err + refused.err, ended
    return Outcome("exit 5; with --follow it waits, and continues", room.whole(401), room.shown(refused.error))


@fault(GROUP, "MQTT broker gone")
def mqtt_away(room: Room) -> Outcome:
    return broker_away(room, "mqtt")


@fault(GROUP, "Redis gone")
def redis_away(room: Room) -> Outcome:
    return broker_away(room, "redis")


@fault(GROUP, "NATS gone")
def nats_away(room: Room) -> Outcome:
    return broker_away(room, "nats")


@fault(GROUP, "broker that accepts and says nothing")
def silent_broker(room: Room) -> Outcome:
    said = ""
    for scheme, rest in (("redis", "/0?stream=plant"), ("mqtt", "/plant/#"), ("nats", "/plant.>")):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(5)
            began = time.monotonic()
            ended = room.run("ingest", f"{scheme}://127.0.0.1:{server.getsockname()[1]}{rest}", "--table", "t").refused(
                5
            )
            assert time.monotonic() - began < 90
            said = said or room.shown(ended.error)
    return Outcome("exit 5 after some seconds", "nothing", said)


@fault(GROUP, "broker that says nonsense")
def nonsense_broker(room: Room) -> Outcome:
    said = ""
    for scheme, rest in (("redis", "/0?stream=plant"), ("mqtt", "/plant/#"), ("nats", "/plant.>")):
        with nonsense() as port:
            ended = room.run("ingest", f"{scheme}://127.0.0.1:{port}{rest}", "--table", "t").refused(5)
            said = said or room.shown(ended.error)
    return Outcome("exit 5", "nothing", said)


@contextmanager
def nonsense() -> Iterator[int]:
    """A port where every connection is answered with HTTP."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\xff\xff")

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


@fault(GROUP, "broker's name not known (DNS)")
def no_name(room: Room) -> Outcome:
    said = ""
    for url in (
        "mqtt://broker.invalid/plant/#",
        "redis://broker.invalid/0?stream=plant",
        "nats://broker.invalid/plant.>",
    ):
        ended = room.run("ingest", url, "--table", "t").refused(5)
        said = said or room.shown(ended.error)
    return Outcome("exit 5", "nothing", said)


@fault(GROUP, "object store's name not known (DNS)")
def no_store_name(room: Room) -> Outcome:
    room.rows("a.csv", 0, 50)
    ended = room.run("ingest", "a.csv", "--table", "s3://rows/t", env=store("http://store.invalid:9")).refused(5)
    return Outcome("exit 5", "nothing", room.shown(ended.error))


def store(address: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": PASSWORD,
    }


def refusing(room: Room, status: int, code: str) -> Outcome:
    """A store that refuses everything."""
    room.rows("a.csv", 0, 50)

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>{code} says the store</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ended = room.run(
            "ingest", "a.csv", "--table", "s3://rows/t", env=store(f"http://127.0.0.1:{server.server_port}")
        )
        server.shutdown()
    assert PASSWORD not in ended.err
    return Outcome("exit 5", "nothing", room.shown(ended.refused(5).error))


@fault(GROUP, "object store that answers 503 for ever")
def unavailable(room: Room) -> Outcome:
    return refusing(room, 503, "SlowDown")


@fault(GROUP, "credentials of the object store expired")
def expired_credentials(room: Room) -> Outcome:
    return refusing(room, 400, "ExpiredToken")


@fault(GROUP, "access to the object store denied")
def denied(room: Room) -> Outcome:
    return refusing(room, 403, "AccessDenied")


def certified(room: Room, subject: str, other: str, clock: tuple[str, ...]) -> str:
    """What is said of a broker with such a certificate."""
    key, certificate, port = room.path / "key.pem", room.path / "cert.pem", free_port()
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    openssl += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", subject]
    subprocess.run([*clock, *openssl, "-addext", f"subjectAltName={other}"], check=True, capture_output=True)
    config = f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nkeyfile {key}\ncertfile {certificate}\n"
    command = ["mosquitto", "-c", str(room.write("m.conf", config))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(1)
            url = f"mqtts://127.0.0.1:{port}/plant/#?ca={certificate}"
            return room.shown(room.run("ingest", url, "--table", "t", "--follow").refused(5, word="certificate").error)
        finally:
            server.terminate()


@fault(GROUP, "certificate expired")
def expired_certificate(room: Room) -> Outcome:
    said = certified(room, "/CN=localhost", "IP:127.0.0.1", ("faketime", "-f", "-30d"))
    return Outcome("exit 5, with --follow too", "nothing", said)


@fault(GROUP, "certificate of another host")
def other_host(room: Room) -> Outcome:
    said = certified(room, "/CN=elsewhere", "DNS:elsewhere", ())
    return Outcome("exit 5, with --follow too", "nothing", said)


@fault(GROUP, "wrong password")
def wrong_password(room: Room) -> Outcome:
    with running("redis", room.path) as (broker, _):
        ended = room.run("ingest", broker.url.format(":wrong"), "--table", "t", "--follow").refused(5)
    assert ":wrong" not in ended.err
    return Outcome("exit 5", "nothing", room.shown(ended.error))


@fault(GROUP, "messages that are broken, empty, 1 MB, deep, or no text")
def odd_messages(room: Room) -> Outcome:
    odd = [b"", b"{", b"\xff\xfe", b"[" * 50_000, b'{"ds": "2024-01-03", "y": 1, "z": 5}', b'{"y": 3}', b"null", b"17"]
    odd += [
        b'{"ds": "2024-01-02", "y": "' + b"x" * 1_000_000 + b'"}',
        b'{"ds": "2024-01-02T01:00", "y": ' + b"9" * 5000 + b"}",
    ]
    with running("redis", room.path) as (broker, publish):
        publish([*payloads(0, 100), *odd, *payloads(100, 100)])
        room.run("ingest", broker.url.format(f":{PASSWORD}"), "--table", "t").fine()
    taken, aside = [value for value in room.taken() if value is not None], room.aside()
    assert set(range(200)) <= {int(one) for one in taken}
    assert len(room.taken()) + len(aside) == 200 + len(odd), (len(taken), aside)
    return Outcome(f"{len(aside)} of {len(odd)} are put aside", "nothing", ", ".join(sorted(set(aside))))


@fault(GROUP, "disk full while a broker is followed")
def broker_disk_full(room: Room) -> Outcome:
    with running("redis", room.path) as (broker, publish), small_disk(room, 2) as disk:
        url = broker.url.format(f":{PASSWORD}")
        process = room.start("ingest", url, "--table", "disk/t", "--follow", "--linger", "0.02")
        publish(payloads(0, 100))
        room.until(lambda: room.count("disk/t") == 100, "the rows")
        fill(disk)
        publish(payloads(100, 5000))
        ended = room.end(process).refused(5)
        (disk / "ballast").unlink()
        room.here("ingest", url, "--table", "disk/t")
        return Outcome(
            "exit 5; the rest is not acknowledged, and comes again", room.whole(5100, "disk/t"), room.shown(ended.error)
        )


@fault(GROUP, "port of serve taken")
def port_taken(room: Room) -> Outcome:
    made(room)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = room.run("serve", "--checkpoint", "c", "--port", taken.getsockname()[1]).refused(2, 5)
    return Outcome(f"exit {ended.code}", "nothing", room.shown(ended.error))


@contextmanager
def serving(room: Room, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A service on a table of 1,000 rows."""
    made(room)
    room.here(*TRAIN, "--table", "t", *UNTRACKED, "--checkpoint", "c")
    port = free_port()
    process = room.start("serve", "--checkpoint", "c", "--port", port, *more)

    def ready() -> bool:
        assert process.poll() is None, process.communicate()
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                return True
        except OSError:
            return False

    room.until(ready, "the service")
    yield f"http://127.0.0.1:{port}", process


def post(url: str, body: bytes, kind: str = "application/json") -> tuple[int, str]:
    try:
        with urlopen(Request(f"{url}/rows", data=body, headers={"Content-Type": kind}), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@fault(GROUP, "requests that are broken, too large, or of another kind")
def odd_requests(room: Room) -> Outcome:
    with serving(room) as (url, process):
        said = []
        for body, kind in (
            (b"", "application/json"), (b"{", "application/json"), (b"[" * 100_000, "application/json"),
            (b'{"rows": 5}', "application/json"), (b"\xff" * 100, "application/vnd.apache.arrow.stream"),
            (b'{"rows": [' + b'{"ds": "2024-01-01", "y": 1},' * 2_000_000 + b"{}]}", "application/json"),
            (b"x", "text/plain"), (b'{"rows": [{"ds": "2024-01-02T00:00", "y": 1, "q": 2}]}', "application/json"),
        ):  # fmt: skip
            try:
                status, text = post(url, body, kind)
            except OSError:  # it does not read what is too large
                status, text = 413, "the connection ends"
            assert 400 <= status < 500, (status, text[:300], body[:50])
            said.append(f"{status} {text[:100]}")
        status, text = post(url, json.dumps({"rows": [json.loads(payload(row)) for row in range(1000, 1010)]}).encode())
        assert status == 200, text
        ended = room.end(process, signal.SIGTERM).clean()
        assert ended.code == 143, ended
    return Outcome("refused with 4xx; the service continues", room.whole(1010), room.shown(said[1]))


@fault(GROUP, "disk full while serve is sent rows")
def serve_disk_full(room: Room) -> Outcome:
    with small_disk(room, 4) as disk:
        (disk / "t").mkdir()
        (room.path / "t").symlink_to(disk / "t")
        with serving(room) as (url, process):
            fill(disk)
            status, text = post(
                url, json.dumps({"rows": [json.loads(payload(row)) for row in range(1000, 3000)]}).encode()
            )
            assert status in (500, 503, 507), (status, text)
            (disk / "ballast").unlink()
            again, told = post(
                url, json.dumps({"rows": [json.loads(payload(row)) for row in range(1000, 3000)]}).encode()
            )
            assert again == 200, (again, told)
            room.end(process, signal.SIGTERM).clean()
        return Outcome(f"answered with {status}; taken when sent again", room.whole(3000), room.shown(text))


@fault(GROUP, "clients that say nothing, or go away in the middle")
def slow_clients(room: Room) -> Outcome:
    with serving(room) as (url, process):
        port = int(url.rpartition(":")[2])
        held = []
        for _ in range(50):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(
                b"POST /rows HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            held.append(client)
        for client in held[::2]:
            client.close()
        status, text = post(url, json.dumps({"rows": [json.loads(payload(row)) for row in range(1000, 1010)]}).encode())
        assert status == 200, text
        ended = room.end(process, signal.SIGTERM)
        for client in held:
            client.close()
        ended.clean()
        assert ended.code == 143, ended
    return Outcome("others are answered; SIGTERM ends it", room.whole(1010), "nothing")


@fault(GROUP, "serve killed (SIGKILL) while it takes rows")
def serve_killed(room: Room) -> Outcome:
    answered = 1000
    with serving(room) as (url, process):
        timer = threading.Timer(1.5, process.kill)
        timer.start()
        try:
            while answered < 20_000:
                status, _ = post(
                    url,
                    json.dumps({"rows": [json.loads(payload(row)) for row in range(answered, answered + 10)]}).encode(),
                )
                assert status == 200
                answered += 10
        except OSError:
            pass
        process.communicate()
    found = room.taken()
    assert set(map(float, range(answered))) <= set(found) and len(found) == len(set(found))
    return Outcome(f"all {answered - 1000:,} answered rows are in the table", "nothing", "the connection ends")
