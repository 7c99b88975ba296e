"""The process of an MLflow server: it ends with the process that started it, however that one ended.

    python -m streamgp_pipelines.adapters.mlflow.child server --port 5000

runs MLflow's own command line. Its standard input is a pipe from the starter; when that closes, this process and
everything that it has started in its process group are killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib.metadata import entry_points

from streamgp_pipelines.adapters.mlflow import app as mlflow_app


def main() -> None:
    """Run MLflow's command line beside the watch."""
    threading.Thread(target=end_with_the_starter, daemon=True).start()
    from mlflow.cli import cli

    sys.argv[0] = "mlflow"
    if any(one.name == mlflow_app.NAME for one in entry_points(group="mlflow.app")):
        sys.argv += ["--app-name", mlflow_app.NAME]  # absent where streamgp runs from its sources and is not installed
    cli()


def end_with_the_starter() -> None:
    """Wait until standard input is closed, then kill the process group."""
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
