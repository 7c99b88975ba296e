"""MLflow's server with a page in front that keeps the browser in the training view.

MLflow finds it by the entry point `mlflow.app` of the name `streamgp`, its way to extend a server. What the page sets
is kept by the browser, as if the user had clicked "Model training" and closed the assistant's panel. The server's own
address leads there too, in a browser that has not chosen the other view.
"""

from __future__ import annotations

from pathlib import Path
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
FIRST = """<script>
  if (!localStorage.getItem("mlflow.workflowType_v1")) {
    localStorage.setItem("mlflow.workflowType_v1", JSON.stringify("machine_learning"));
    localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
  }
  if (["", "#", "#/"].includes(location.hash)) location.replace("#/experiments");
</script>"""
"""Before MLflow's own scripts: its first page is that of language models."""


def create_app() -> Any:
    """The ASGI application."""
    import mlflow.server
    from mlflow.server.fastapi_app import app
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    index = Path(mlflow.server.__file__).parent / "js" / "build" / "index.html"
    pages = {f"/{PATH}": PAGE}
    if index.is_file():
        pages["/"] = index.read_text(encoding="utf-8").replace("<head>", f"<head>{FIRST}", 1)

    def page(request: Any) -> HTMLResponse:
        return HTMLResponse(pages[request.url.path], headers={"Cache-Control": "no-cache"})

    for path in pages:  # before the catch-all of MLflow
        app.router.routes.insert(0, Route(path, page))
    return app
