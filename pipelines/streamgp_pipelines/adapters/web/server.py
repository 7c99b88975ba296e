"""The process of `streamgp serve`: the API in uvicorn, the learners in their threads, and the end of both."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import uvicorn

from streamgp.errors import ServiceError
from streamgp_pipelines.adapters.web.app import create_app
from streamgp_pipelines.adapters.web.guard import token_of
from streamgp_pipelines.serving.service import serving
from streamgp_pipelines.serving.settings import ServeConfig

CONNECTIONS = 256
"""Requests at a time; more are answered with 503."""

_STOP_SECONDS = 30


def run(config: ServeConfig, tell: Callable[[dict[str, object]], None]) -> None:
    """Serve until SIGINT or SIGTERM: requests at hand are answered, rows that wait are written, then checkpoints.

    Args:
        config: what to serve, and how.
        tell: called with address, token file and checkpoints when requests are answered.

    Raises:
        ServiceError: the address cannot be listened on.
        StreamgpError: of `serving`, or what ended a learner.
    """
    with _listen(config.host, config.port) as listening:
        server: uvicorn.Server | None = None

        def failed() -> None:
            if server is not None:
                server.should_exit = True

        with serving(config, failed) as service:
            token, file = token_of(config)
            app = create_app(service, config, token)
            server = uvicorn.Server(
                uvicorn.Config(
                    app,
                    log_level="warning",
                    access_log=False,
                    server_header=False,
                    limit_concurrency=CONNECTIONS,
                    timeout_graceful_shutdown=_STOP_SECONDS,
                    lifespan="off",
                )
            )
            host, port = listening.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            known: dict[str, object] = {"url": url, "token_file": file, "token": token is not None}
            listening.listen(CONNECTIONS)
            tell(known | {"checkpoints": list(service.hosts), "warnings": service.warnings})
            server.should_exit = service.error is not None  # it came before there was a server
            if not server.should_exit:
                server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY where it says TCP
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        where = "another --port" if error.errno == errno.EADDRINUSE else "another --host"
        reason = (error.strerror or str(error)).lower()
        raise ServiceError(f"cannot listen on {host}:{port}: {reason}", hint=f"choose {where}") from None
    return found
