"""Notifications to systemd of a service with Type=notify (sd_notify(3)); none without a listener."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(**fields: str) -> None:
    """Send fields such as READY="1" and STATUS="...".

    Example:
        >>> notify(READY="1")  # not started by systemd: nobody listens
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path or not hasattr(socket, "AF_UNIX"):
        return
    text = "\n".join(f"{name}={' '.join(value.split())}" for name, value in fields.items())
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.connect("\0" + path[1:] if path.startswith("@") else path)
        found.sendall(text.encode())
