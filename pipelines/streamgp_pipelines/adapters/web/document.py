"""The parts of the OpenAPI document that are not derived from types: bodies, formats, examples, limits."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from streamgp_data.table import SEQ
from streamgp_pipelines.serving.host import Host
from streamgp_pipelines.serving.service import Service

JSON, ARROW, CSV = "application/json", "application/vnd.apache.arrow.stream", "text/csv"


def describe(app: FastAPI, service: Service) -> None:
    """Write into the OpenAPI document what only this service knows: names, the longest horizon, the token."""
    document = app.openapi()
    most = max(host.session.learner.windows.spec.horizon for host in service.hosts.values())
    limits = {"name": {"enum": list(service.hosts)}, "horizon": {"maximum": most}}
    for operations in document["paths"].values():
        for operation in operations.values():
            for one in operation.get("parameters", ()):
                kinds = one["schema"].get("anyOf", [])
                one["schema"] = {**one["schema"], **kinds[0]} if kinds else one["schema"]  # a query has no null
                one["schema"].pop("anyOf", None)
                one["schema"] |= limits.get(one["name"], {})
            operation["security"] = [{"token": []}, {}]
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}


def formats(text: str) -> dict[str, Any]:
    """A response that is a frame."""
    rows = {"type": "object", "properties": {"name": {"type": "string"}, "rows": {"type": "integer"}}}
    return {"description": text, "content": {JSON: {"schema": rows}, ARROW: {}, CSV: {"schema": {"type": "string"}}}}


def json_object(text: str) -> dict[str, Any]:
    """A response that is an object."""
    return {"description": text, "content": {JSON: {"schema": {"type": "object"}}}}


def body_of_rows(service: Service, most: int) -> dict[str, Any]:
    """The body of POST /rows, with a row of each table as an example."""
    examples = {}
    for name, host in service.hosts.items():
        table = service.intake(host).table
        newest = table.read({SEQ: table.rows - 1} if table.rows else {})
        row = next((chunk.rows.to_pylist()[-1] for chunk in newest if chunk.rows.num_rows), {})
        shown = {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}
        examples[name] = {"value": {"rows": [{key: value for key, value in shown.items() if key != SEQ}]}}
    return _request_body(examples, most)


def body_of_future(host: Host) -> dict[str, Any]:
    """The body of POST /forecast."""
    spec = host.session.learner.windows.spec
    row: dict[str, Any] = {} if spec.time is None else {spec.time: "2026-01-01T00:00:00"}
    row |= {} if spec.series is None else {spec.series: "a"}
    return _request_body({host.name: {"value": {"rows": [row | dict.fromkeys(spec.known, 1.0)]}}})


def _request_body(examples: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    rows: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
    rows |= {} if most is None else {"maxItems": most}
    schema = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
    content = {JSON: {"schema": {"oneOf": [schema, rows]}, "examples": examples}, ARROW: {}}
    return {"requestBody": {"required": True, "content": content}}
