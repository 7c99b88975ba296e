"""The process of `streamgp serve`: the API in uvicorn, the learners in their threads, and the end of both."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn

from streamgp.errors import ServiceError
from streamgp_pipelines.adapters.web.app import create_app
from streamgp_pipelines.adapters.web.connections import limits_here, protocol
from streamgp_pipelines.adapters.web.guard import token_of
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.serving.service import Service, serving

if TYPE_CHECKING:
    from streamgp_pipelines.adapters.mlflow.origin import Origin

_STOP_SECONDS = 30
_NEWS_SECONDS = 60


def run(config: ServeConfig, ready: Callable[[dict[str, object]], None], note: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM: requests at hand are answered, rows that wait are written, then checkpoints.

    Args:
        config: what to serve, and how.
        ready: called with address, token file and checkpoints when requests are answered.
        note: called, in a thread of its own, when the registry has another version of the model that is served, or the
            broker of --source is away or back.

    Raises:
        UsageError: the registry has no such model.
        ServiceError: it does not answer, or the address cannot be listened on.
        StreamgpError: of `serving`, or what ended a learner.
    """
    origin = None
    if config.model_uri is not None:
        from streamgp_pipelines.adapters.mlflow.origin import adopt, name_of
        from streamgp_pipelines.adapters.mlflow.store import store_uri

        (directory,) = config.checkpoint or (Path(name_of(config.model_uri)),)
        origin = adopt(config.model_uri, store_uri(config.tracking_uri), directory)
        config = config.model_copy(update={"checkpoint": (directory,)})
    with _listen(config.host, config.port) as listening:
        server: uvicorn.Server | None = None

        def failed() -> None:
            if server is not None:
                server.should_exit = True

        with serving(config, failed, note) as service:
            if origin is not None:
                Thread(target=_watch, args=(service, origin, note), name="registry", daemon=True).start()
            token, file = token_of(config)
            app = create_app(service, config, token)
            limits = limits_here()
            server = uvicorn.Server(
                uvicorn.Config(
                    app,
                    http=protocol(limits),
                    ws="none",
                    log_level="error",  # warnings are of what clients send
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=_STOP_SECONDS,
                    lifespan="off",
                )
            )
            host, port = listening.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            known: dict[str, object] = {"url": url, "token_file": file, "token": token is not None}
            listening.listen(limits.connections)
            ready(known | {"checkpoints": list(service.hosts), "warnings": service.warnings})
            server.should_exit = service.error is not None  # it came before there was a server
            if not server.should_exit:
                server.run(sockets=[listening])
        if service.error is not None:
            raise service.error


def _watch(service: Service, origin: Origin, note: Callable[[str], None]) -> None:
    """Look now and then whether the registry has a newer version."""
    last = ""
    while True:
        news = origin.news()
        service.notes = (news,) if news else ()
        if news and news != last:
            note(news)
        last = news
        time.sleep(_NEWS_SECONDS)


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
