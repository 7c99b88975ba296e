"""Errors as clients get them: JSON that names what is wrong, where, and what to do."""

from __future__ import annotations

import re
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from streamgp.errors import DataError, ServiceError, StateError, StreamgpError, UsageError


class Problem(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="Kind of the error", examples=["DataError"])
    message: str = Field(description="What is wrong", examples=["rows[0].demnd: the table has no such column"])
    hint: str = Field(description="What to do", examples=["did you mean 'demand'? it has: ds, demand"])
    field: str | None = Field(None, description="Part of the request that is meant", examples=["rows[0].demnd"])


class Refusal(Exception):
    """A request that is refused with an HTTP status of its own."""

    def __init__(self, status: int, message: str, hint: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, Problem(error="Refused", message=message, hint=hint, field=field)


LONGEST = 400
"""Characters of a message: what a client sent may be in it."""

_FIELD = re.compile(r"((?:body|rows|query|header)[\w.\[\]]*): ")


def status_of(error: StreamgpError) -> int:
    """The HTTP status that says the same."""
    kinds: list[tuple[type[StreamgpError], int]] = [(ServiceError, 503), (StateError, 409)]
    kinds += [(UsageError, 422), (DataError, 422)]
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def answer(status: int, problem: Problem) -> JSONResponse:
    """The response."""
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    cut = {name: _short(getattr(problem, name)) for name in ("message", "hint")}
    return JSONResponse(problem.model_dump() | cut, status, headers)


def _short(text: str) -> str:
    """On one line, and not longer than can be read."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def of_library(error: StreamgpError) -> JSONResponse:
    """The response to an error of streamgp."""
    named = _FIELD.match(error.message)
    field = named[1] if named else None
    return answer(
        status_of(error), Problem(error=type(error).__name__, message=error.message, hint=error.hint, field=field)
    )


def of_validation(errors: list[dict[str, Any]]) -> JSONResponse:
    """The response to parameters that are none."""
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"][:2])
    name = str(first["loc"][1]) if len(first["loc"]) > 1 else field
    hint = f"see {name} in /openapi.json; several values are given as {name}=1&{name}=2"
    return answer(422, Problem(error="UsageError", message=f"{field}: {first['msg']}", hint=hint, field=field))
