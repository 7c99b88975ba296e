"""The parts of the OpenAPI document that are not derived from types: bodies, formats, examples, limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import FastAPI

from streamgp.windows.calendar import Ints
from streamgp.windows.rows import times
from streamgp.windows.windows import WindowSpec
from streamgp_data.batches import together
from streamgp_data.moments import Moments
from streamgp_data.table import SEQ, Table, TableMeta
from streamgp_pipelines.serving.service import Service

Example = dict[str, list[dict[str, Any]]]
"""Rows as a client writes them."""

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


def example_of_rows(table: Table) -> Example:
    """The newest row of a table, as a body of POST /rows: its time as the source writes them."""
    rows = _newest(table, 1)
    values = rows.drop_columns([SEQ]).to_pylist()[-1] if rows.num_rows else {}
    shown = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in values.items()}
    if (time := table.meta.time) is not None and shown:
        shown |= {time: _written(times(rows, time), table.meta)[0]}
    return {"rows": [shown]}


def example_of_future(table: Table, spec: WindowSpec) -> Example:
    """Known inputs of the steps after the newest row of a table, as a body of POST /forecast."""
    rows = _newest(table, _LOOKED_AT)
    if spec.time is None or not rows.num_rows:
        return {"rows": [dict.fromkeys(spec.known, 1.0)]}
    last = rows.to_pylist()[-1]
    if spec.series is not None:
        rows = rows.filter(pc.equal(rows.column(spec.series), pa.scalar(last[spec.series])))
    newest = times(rows, spec.time)[-2:]
    every = table.meta.every_ns or (int(newest[-1] - newest[0]) or _HOUR)
    ahead = newest[-1] + every * np.arange(1, min(spec.horizon, _SHOWN) + 1)
    known = {name: 1.0 if last[name] is None else last[name] for name in spec.known}
    same = known if spec.series is None else {spec.series: last[spec.series], **known}
    return {"rows": [{spec.time: time, **same} for time in _written(ahead, table.meta)]}


_LOOKED_AT, _SHOWN, _HOUR = 1000, 48, 3600 * 10**9


def _newest(table: Table, count: int) -> pa.RecordBatch:
    """The newest rows of a table, at most `count`."""
    parts = [chunk.rows for chunk in table.read({SEQ: max(0, table.rows - count)}) if chunk.rows.num_rows]
    return together(parts) if parts else pa.RecordBatch.from_pylist([], table.schema)


def _written(moments: Ints, meta: TableMeta) -> list[Any]:
    """Times as the source writes them: numbers, or ISO 8601."""
    found = Moments.of(meta).write(moments)
    return [time if found.dtype.is_numeric() else time.isoformat() for time in found.to_list()]


def body(examples: Mapping[str, Example], most: int | None = None) -> dict[str, Any]:
    """A body of rows, with an example of each checkpoint."""
    rows: dict[str, Any] = {"type": "array", "items": {"type": "object"}}
    rows |= {} if most is None else {"maxItems": most}
    schema = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
    shown = {name: {"value": example} for name, example in examples.items()}
    content = {JSON: {"schema": {"oneOf": [schema, rows]}, "examples": shown}, ARROW: {}}
    return {"requestBody": {"required": True, "content": content}}
