"""MLflow's server with a page in front that keeps the browser in the training view.

MLflow finds it by the entry point `mlflow.app` of the name `streamgp`, its way to extend a server. What the page sets
is kept by the browser, as if the user had clicked "Model training" and closed the assistant's panel.
"""

from __future__ import annotations

from typing import Any

NAME = "streamgp"
PATH = "training"
MARK = b"mlflow.workflowType_v1"

PAGE = """<!doctype html>
<title>MLflow</title>
<script>
  localStorage.setItem("mlflow.workflowType_v1", JSON.stringify("machine_learning"));
  localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
  location.replace("./#" + (decodeURI(location.search.slice(1)) || "/experiments"));
</script>
"""


def create_app() -> Any:
    """The ASGI application."""
    from mlflow.server.fastapi_app import app
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    app.router.routes.insert(0, Route(f"/{PATH}", lambda _: HTMLResponse(PAGE)))  # before the catch-all of MLflow
    return app
