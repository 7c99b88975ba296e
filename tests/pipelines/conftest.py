"""One Ray for all that want it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamgp_pipelines.adapters.ray import cluster


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """Ray on this machine, for tests marked `needs("ray")`; to start it takes as long as many a test."""
    found = cluster.imported()
    found.init(
        num_cpus=3, include_dashboard=False, object_store_memory=10**8, log_to_driver=False, logging_level="ERROR"
    )
    yield found
    found.shutdown()
