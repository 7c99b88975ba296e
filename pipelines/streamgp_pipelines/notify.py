"""`--on-alarm`: pass alarms on, to a command or to a URL."""

from __future__ import annotations

import shlex
import subprocess
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

from pydantic_core import to_json

COMMAND_SECONDS, URL_SECONDS = 30.0, 5.0
"""How long a command may take, and the answer to a request."""
TRIES, PAUSE = 3, 0.5
"""Requests before an alarm is given up, and seconds before the second, twice as many before the third."""


def notify(target: str, event: dict[str, Any]) -> str:
    """Pass an event on as JSON: to the standard input of a command, or as a POST request to an http(s) URL.

    A command is split as a shell would do, and started without one. It has 30 s, a request three tries of 5 s.

    Returns:
        What went wrong, without the target, which may hold a secret; "" where it arrived.

    Example:
        >>> notify("cat", {"kind": "age"}), notify("false", {})
        ('', 'the command ended with 1')
    """
    body = to_json(event, inf_nan_mode="null", fallback=str)
    return _post(target, body) if is_url(target) else _run(target, body)


def is_url(target: str) -> bool:
    """Whether it is no command."""
    return "://" in target.split(maxsplit=1)[0]


def _run(command: str, body: bytes) -> str:
    try:
        done = subprocess.run(
            shlex.split(command), input=body, timeout=COMMAND_SECONDS, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the command did not end within {COMMAND_SECONDS:g} s"
    except OSError as error:
        return f"the command cannot be started: {error.strerror}"
    return "" if done.returncode == 0 else f"the command ended with {done.returncode}"


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what is sent goes to the host that was named, and nowhere else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def _post(url: str, body: bytes) -> str:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    opener = urllib.request.build_opener(_Stay)
    said, host = "", urlsplit(url).netloc.rpartition("@")[2]
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            with opener.open(request, timeout=URL_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            said = f"{host} answered {error.code}"
            error.close()
            if error.code < 500 and error.code not in (408, 429):
                break
        except (OSError, HTTPException, ValueError):
            said = f"{host} did not answer"
    return said
