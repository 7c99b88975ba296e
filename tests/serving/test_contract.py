"""Every operation of the OpenAPI document, with requests that fit it and requests that do not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serving.test_app import TOKEN, client_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # it tells of its own use of libraries

EXAMPLES = 20
"""Requests an operation and mode."""

LEFT_OUT = {"positive_data_acceptance"}
"""A row can fit the document and not the table: its columns are not written there."""

OPERATIONS = [
    "POST /rows",
    "GET /forecast",
    "POST /forecast",
    "GET /history",
    "GET /scored",
    "GET /scores",
    "GET /alarms",
    "GET /models",
]
OPERATIONS += ["GET /health", "GET /ready", "GET /metrics"]
ASKED = [(operation, "positive") for operation in OPERATIONS]
ASKED += [(operation, "negative") for operation in OPERATIONS[:6]]  # the others can be asked one way only
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def operations(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    import schemathesis  # not above: `make test` collects this file, and runs nothing of it
    from schemathesis.checks import load_all_checks

    load_all_checks()
    home = tmp_path_factory.mktemp("contract") / "home"
    shutil.copytree(trained, home)
    with client_of(home, "plain", "known", token=TOKEN, rate=0) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app, headers=HEADERS)
        rejected = schema.config.checks.negative_data_rejection
        rejected.expected_statuses = [*rejected.expected_statuses, "413"]  # too many rows are invalid data too
        found = (one.ok() for one in schema.get_all_operations())
        yield {f"{one.method.upper()} {one.path}": one for one in found}


def test_every_operation_is_tested(operations: dict[str, Any]) -> None:
    assert set(OPERATIONS) == set(operations)


@pytest.mark.parametrize(("operation", "mode"), ASKED, ids=str)
def test_the_document_is_kept(operations: dict[str, Any], operation: str, mode: str) -> None:
    from schemathesis.checks import CHECKS
    from schemathesis.generation.modes import GenerationMode

    checks = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operations[operation].as_strategy(generation_mode=GenerationMode(mode)))
    def ask(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, checks=checks)

    ask()
