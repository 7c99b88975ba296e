"""The HTTP API around a service; the OpenAPI document is its contract."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any, Literal, cast

import pyarrow as pa
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from streamgp.errors import DataError, StreamgpError
from streamgp_data.table import SEQ
from streamgp_pipelines.adapters.web.document import (
    ARROW,
    CSV,
    JSON,
    Example,
    body,
    describe,
    example_of_future,
    example_of_rows,
    formats,
    json_object,
)
from streamgp_pipelines.adapters.web.guard import Guard
from streamgp_pipelines.adapters.web.memo import Memo
from streamgp_pipelines.adapters.web.metrics import Metrics
from streamgp_pipelines.adapters.web.problems import Problem, Refusal, answer, of_library, of_validation
from streamgp_pipelines.config.serve import ServeConfig
from streamgp_pipelines.forecasting.simulate import BeginsLater
from streamgp_pipelines.learning.checkpointing import unit_of
from streamgp_pipelines.learning.newest import MOST
from streamgp_pipelines.live.bodies import JsonRows, arrow_rows, check_columns, parse_arrow, parse_json
from streamgp_pipelines.serving.host import Host
from streamgp_pipelines.serving.intake import Receipt
from streamgp_pipelines.serving.service import Service
from streamgp_pipelines.serving.view import Format, LearnerView, ordered

FORMATS: dict[str, Format] = {JSON: "json", ARROW: "arrow", CSV: "csv"}
BODY_SECONDS = 30.0
"""A body that takes longer to come is not waited for."""

CATCH_UP_SECONDS = 5.0
"""Rows that were sent are waited for as long, where known inputs begin after them."""

MOST_HISTORY = 500
LOOKED = 10_000
"""Names of series that one which is not there is compared with."""

_futures = itertools.count(1)

Name = Annotated[str | None, Query(description="Checkpoint; needed where there are several")]
Horizon = Annotated[int | None, Query(ge=1, description="Steps ahead; default: all")]
Levels = Annotated[
    list[Annotated[float, Field(ge=1, lt=100)]] | None,
    Query(alias="level", max_length=20, description="Bands in percent, repeatable; default: those of the training"),
]
Quantiles = Annotated[
    list[Annotated[float, Field(gt=0, lt=1)]] | None,
    Query(alias="quantile", max_length=50, description="Probabilities, repeatable; default: those of the training"),
]

Series = Annotated[
    list[str] | None, Query(max_length=1000, description="Series by name, repeatable; default: all that there are")
]


class Quarantined(BaseModel):
    """A row that could not be read, or is too far ahead; it is in the quarantine of the table."""

    row: int = Field(description="Its place in the request, from 0", examples=[3])
    reason: str = Field(examples=["unparsable"])
    column: str = Field(examples=["y"])
    detail: str = Field(examples=["'abc' is not a number"])


class Taken(BaseModel):
    """What became of posted rows. All that were accepted are on disk, and are learned once."""

    accepted: int = Field(description="Rows that are new in the table", examples=[1])
    late: int = Field(description="Of these, rows after a later one of their series: windows leave them out")
    duplicates: int = Field(description="Rows that the table had, with these values: left out", examples=[0])
    quarantined: list[Quarantined]
    rows: int = Field(description="Rows of the table now", examples=[17473])
    notes: list[str] = Field(description="What to know of them, such as that their times leap ahead or are late")


class Untaken(Problem):
    """Why a request was refused; of one whose rows all went to the quarantine, why each did."""

    quarantined: list[Quarantined] = Field([], description="The rows, where all of them are there now")


class ModelInfo(BaseModel):
    """A checkpoint and what it forecasts."""

    name: str
    model: str
    target: list[str]
    known: list[str]
    horizon: int
    level: list[float]
    table: str
    columns: list[str] = Field(description="Of the table, which posted rows may have")
    table_rows: int
    learned_rows: int
    ready: bool
    unit: str = Field(description="Of the first target; empty where it is not known")
    alarms: bool = Field(description="Whether it judges values: /alarms")


class ServiceState(BaseModel):
    """Whether the service does its work."""

    status: str = Field(examples=["ok"])
    notes: list[str] = Field([], description="Such as a newer model in the registry, or rows whose clock was wrong")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The request is not meant for this service",
        401: "The token is missing or wrong",
        404: "There is no such checkpoint",
        406: "No such content type can be given",
        408: "The body did not come in time",
        409: "The model has not learned enough yet",
        413: "The body or its rows are too many",
        415: "The content type is not read",
        422: "A parameter or a row is wrong",
        429: "Too many requests",
        503: "Too much waits, or the service is ending",
    }.items()
}


def create_app(service: Service, config: ServeConfig, token: str | None) -> FastAPI:
    """The API.

    Args:
        service: that it is of.
        config: its limits.
        token: that clients need; None where anybody may ask.
    """
    shared = _Shared(service, config, Metrics(service), Memo())
    app = FastAPI(
        title="streamgp",
        version=version("streamgp"),
        description="Forecasts of streams that are learned while they are served.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        dependencies=[Depends(_asked)],
    )
    app.add_middleware(cast("Any", Guard), config=config, token=token, metrics=shared.metrics, memo=shared.memo)
    _handle_errors(app)
    _add_rows(app, shared)  # to the app itself: a router would cost each request a tenth more
    _add_forecasts(app, shared)
    _add_newest(app, shared)
    _add_service(app, shared)
    describe(app, service)
    return app


@dataclass(frozen=True)
class _Shared:
    """What the routes share."""

    service: Service
    config: ServeConfig
    metrics: Metrics
    memo: Memo

    def host(self, name: str | None) -> Host:
        """The checkpoint of a request.

        Raises:
            Refusal: there are several and it names none, or there is none of this name.
        """
        hosts = self.service.hosts
        if name is None and len(hosts) == 1:
            return next(iter(hosts.values()))
        known = f"one of: {', '.join(hosts)}"
        if name is None:
            raise Refusal(422, "query.name: there are several checkpoints", known, "query.name")
        if name not in hosts:
            raise Refusal(404, f"query.name: there is no checkpoint {name!r}", known, "query.name")
        return hosts[name]


def _add_rows(app: FastAPI, shared: _Shared) -> None:
    """The route that takes rows."""
    row_of = {name: example_of_rows(shared.service.intake(host).table) for name, host in shared.service.hosts.items()}
    posted = body(row_of, shared.config.request_rows)
    untaken = PROBLEMS | {422: {"model": Untaken, "description": "A parameter is wrong, or no row was taken"}}

    @app.post("/rows", response_model=Taken, responses=untaken, openapi_extra=posted, summary="Add rows")
    async def rows(request: Request, name: Name = None) -> Response:
        """Append rows to the table of a checkpoint, from which they are learned.

        The answer comes when they are on disk. A row that the table has is a duplicate: a request can be sent
        again. Times are written as in the table's source, or as ISO 8601. Rows that cannot be taken are named with
        their reasons, beside what became of the others; a request of such rows alone is answered with 422.
        """
        host = shared.host(name)
        intake = shared.service.intake(host)
        given, kind = await _body(request, shared.config)

        def read() -> Any:
            return intake.submit(_source(given, kind, shared.config, intake.table, row_of[host.name]))

        found: Receipt = await asyncio.wrap_future(await run_in_threadpool(read))
        shared.metrics.rows(intake.table.path, found)
        aside = [Quarantined(**one._asdict()) for one in found.quarantined]
        if aside and not found.accepted + found.duplicates:
            return answer(422, _untaken(aside))
        taken = Taken(
            accepted=found.accepted,
            late=found.late,
            duplicates=found.duplicates,
            quarantined=aside,
            rows=found.rows,
            notes=list(found.notes),
        )
        return Response(taken.model_dump_json(), media_type=JSON)


def _add_forecasts(app: FastAPI, shared: _Shared) -> None:
    """Forecasts of the newest state, with the known inputs that were posted last or with those of the request."""
    future_of = {
        name: example_of_future(shared.service.intake(host).table, host.session.learner.windows.spec)
        for name, host in shared.service.hosts.items()
    }
    long = "Long format: unique_id, ds, cutoff, the forecast and its bands, one row a step"
    shown: dict[int | str, dict[str, Any]] = {**PROBLEMS, 200: formats(long)}

    @app.get("/forecast", responses=shown, summary="Forecast")
    async def forecast(
        request: Request, name: Name = None, horizon: Horizon = None, level: Levels = None, quantile: Quantiles = None,
        series: Series = None,
    ) -> Response:  # fmt: skip
        """The next steps of every series, or of those that are named, of the newest state that has been learned.

        Known inputs are those that were posted last.
        """
        host = shared.host(name)
        view, future = _view(host), host.future
        found = await _forecast(host, view, _wanted(request), horizon, level, quantile, series, future)
        if future is host.future:
            shared.memo.keep(request.scope, host, view, found)
        return found

    @app.post(
        "/forecast",
        responses=shown,
        openapi_extra=body(future_of),
        summary="Forecast from inputs",
    )
    async def forecast_from(
        request: Request, name: Name = None, horizon: Horizon = None, level: Levels = None, quantile: Quantiles = None,
        series: Series = None,
    ) -> Response:  # fmt: skip
        """The same, with future values of the known inputs: a row for each step, matched by time.

        They are kept, and used by later requests that have none.
        """
        host = shared.host(name)
        view, form = _view(host), _wanted(request)
        given, kind = await _body(request, shared.config)
        future = (next(_futures), await run_in_threadpool(_frame, given, kind, shared.config, future_of[host.name]))
        found = await _forecast(host, view, form, horizon, level, quantile, series, future)
        await run_in_threadpool(host.keep_future, future)
        return found


async def _forecast(
    host: Host, view: LearnerView, form: Format, horizon: int | None, levels: list[float] | None,
    quantiles: list[float] | None, series: list[str] | None, future: tuple[int, Any] | None,
) -> Response:  # fmt: skip
    """The forecast of a view, made once for all who ask the same; future: known inputs, and the mark of these."""
    most = view.spec.horizon
    if horizon is not None and horizon > most:
        message = f"query.horizon: this checkpoint forecasts {most} steps"
        raise Refusal(422, message, f"ask for at most {most}, or train with a longer --horizon", "query.horizon")
    for one in sorted({*series} - {*view.series}) if series else ():
        hint = await run_in_threadpool(_nearest, one, view.series)
        raise Refusal(404, f"query.series: there is no series {one[:80]!r}", hint, "query.series")
    marked, rows = future or (None, None)
    asked = (form, horizon, ordered(levels), ordered(quantiles))
    named = tuple(sorted({*series})) if series else None

    async def made(view: LearnerView) -> Response:
        beside = (marked, host.lagging, named)
        kept = view.kept("forecast", *asked, *beside)
        if kept is None:
            kept = await run_in_threadpool(view.forecast, *asked, rows, *beside)
        return _response(kept, form, view)

    received = host.received()
    try:
        return await made(view)
    except BeginsLater as error:
        if host.error is not None or view.read >= received:
            raise DataError(error.message, hint=error.hint) from None
        newer = await _caught_up(host, received)
        if newer is None:
            hint = f"{error.hint}; rows that were sent before wait to be learned: ask again"
            raise DataError(error.message, hint=hint) from None
    try:
        return await made(newer)
    except BeginsLater as error:
        raise DataError(error.message, hint=error.hint) from None


async def _caught_up(host: Host, received: int) -> LearnerView | None:
    """The first view that has seen as many rows of the table; None where there is none in time."""
    until = time.monotonic() + CATCH_UP_SECONDS
    while time.monotonic() < until and host.error is None:
        if host.view is not None and host.view.read >= received:
            return host.view
        await asyncio.sleep(0.02)
    return None


def _nearest(name: str, series: Sequence[str]) -> str:
    """A hint for a name that no series has: those like it, of the first LOOKED."""
    if not series:
        return "no series has a row yet"
    near = get_close_matches(name[:80], series[:LOOKED], n=3) or series[:3]
    return f"of {len(series):,} series the nearest names: {', '.join(near)}"


def _add_newest(app: FastAPI, shared: _Shared) -> None:
    """What came last: rows, scores, forecasts with their truths, alarms."""

    async def newest_of(what: Literal["history", "scored"], request: Request, name: str | None, rows: int) -> Response:
        view, form = _view(shared.host(name)), _wanted(request)
        make, kept = view.history if what == "history" else view.scored, view.kept(what, form, rows)
        return _response(await run_in_threadpool(make, form, rows) if kept is None else kept, form, view)

    @app.get("/history", responses={**PROBLEMS, 200: formats("Long format: unique_id, ds, y")}, summary="Newest rows")
    async def history(
        request: Request,
        name: Name = None,
        rows: Annotated[int, Query(ge=1, le=MOST_HISTORY, description="Of each series")] = 96,
    ) -> Response:
        """The newest rows of every series that the state has learned."""
        return await newest_of("history", request, name, rows)

    @app.get("/scores", responses={**PROBLEMS, 200: json_object("Scores of all forecasts so far")}, summary="Scores")
    async def scores(name: Name = None) -> Response:
        """Scores of every forecast so far whose truth has come: rmse, mae, crps, coverage by level, by step, ..."""
        view = _view(shared.host(name))
        kept = view.kept("scores")
        return _response(await run_in_threadpool(view.scores) if kept is None else kept, "json", view)

    @app.get(
        "/scored",
        responses={**PROBLEMS, 200: formats("Long format: unique_id, ds, cutoff, y, the forecast and its bands")},
        summary="Forecasts and truths",
    )
    async def scored(
        request: Request,
        name: Name = None,
        rows: Annotated[int, Query(ge=1, le=MOST, description="Of each series")] = 336,
    ) -> Response:
        """The newest forecasts whose truth has come, one of each value, issued every horizon; six series at most."""
        return await newest_of("scored", request, name, rows)

    @app.get("/alarms", responses={**PROBLEMS, 200: json_object("Counts, and the newest alarms")}, summary="Alarms")
    async def alarms(name: Name = None) -> Response:
        """The newest alarms, at most 1,000, of a checkpoint with --alarm-rate."""
        host = shared.host(name)
        return _response(await run_in_threadpool(host.alarms), "json", _view(host))


def _add_service(app: FastAPI, shared: _Shared) -> None:
    """The state of the service, and its page."""
    service = shared.service
    state: dict[int | str, dict[str, Any]] = {503: {"model": ServiceState}, **_only(400, 422, 429)}

    @app.get("/models", responses=PROBLEMS, summary="Checkpoints")
    async def models() -> list[ModelInfo]:
        """The checkpoints that are served."""
        return [_about(host, service) for host in service.hosts.values()]

    @app.get("/health", responses=state, summary="Alive", response_model_exclude_defaults=True)
    async def health(response: Response) -> ServiceState:
        """Whether every learner runs, and the rows that were sent last could be written."""
        failures = service.failures
        response.status_code = 200 if service.error is None and not failures else 503
        status = "a learner has ended" if service.error is not None else "rows cannot be written" if failures else "ok"
        return ServiceState(status=status, notes=[*failures, *service.notes, *service.leaps])

    @app.get("/ready", responses=state, summary="Ready", response_model_exclude_defaults=True)
    async def ready(response: Response) -> ServiceState:
        """Whether every checkpoint can be asked."""
        response.status_code = 200 if service.ready else 503
        return ServiceState(status="ok" if service.ready else "a checkpoint is not read yet")

    @app.get("/metrics", responses={**PROBLEMS, 200: {"content": {"text/plain": {}}}}, summary="Metrics")
    async def prometheus() -> Response:
        """Counts and gauges for Prometheus."""
        page = await run_in_threadpool(shared.metrics.page)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def live() -> Response:
        return _page()


def _asked(request: Request) -> None:
    """See that a route has the parameters of a query: one that is misspelt would do nothing.

    Raises:
        Refusal: it has one of them not.
    """
    own = [one.alias for one in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in own:
            near = get_close_matches(name, own, n=1)
            did = f"did you mean {near[0]!r}? " if near else ""
            there = f"it has: {', '.join(own)}" if own else "it has none"
            where = f"query.{name[:80]}"
            raise Refusal(422, f"{where}: {request.url.path} has no such parameter", f"{did}{there}", where)


def _handle_errors(app: FastAPI) -> None:
    def add(kind: type[Exception], make: Callable[[Any], Response]) -> None:
        async def handle(_: Request, error: Exception) -> Response:
            return make(error)

        app.add_exception_handler(kind, handle)

    add(StreamgpError, of_library)
    add(Refusal, lambda error: answer(error.status, error.problem))
    add(RequestValidationError, lambda error: of_validation(error.errors()))
    wrong = partial(Problem, error="Refused", hint="see /openapi.json")
    add(Exception, lambda _: answer(500, Problem(error="Defect", message="a defect of streamgp", hint="see its log")))
    add(HTTPException, lambda error: _with(answer(error.status_code, wrong(message=str(error.detail))), error.headers))


def _with(response: Response, headers: Any) -> Response:
    response.headers.update(headers or {})
    return response


def _untaken(aside: list[Quarantined]) -> Untaken:
    """What is said where every row is in the quarantine."""
    first = aside[0]
    where = f"rows[{first.row}].{first.column}" if first.column else f"rows[{first.row}]"
    message = f"{where}: {first.detail} ({first.reason}); none of {len(aside):,} rows was taken"
    hint = "the rows are in the quarantine of the table: correct them, and send them again"
    return Untaken(error="DataError", message=message, hint=hint, field=where, quarantined=aside)


def _view(host: Host) -> LearnerView:
    if host.view is None:
        raise Refusal(503, f"checkpoint {host.name} is not read yet", "ask /ready")
    return host.view


def _wanted(request: Request) -> Format:
    """The format that the client accepts most."""
    ranges = []
    for part in request.headers.get("accept", "*/*").split(","):
        kind, *options = (word.strip() for word in part.split(";"))
        weights = [word[2:] for word in options if word.startswith("q=")]
        try:
            ranges.append((-float(weights[0]) if weights else -1.0, kind.lower()))
        except ValueError:
            continue
    for weight, kind in sorted(ranges, key=lambda one: one[0]):
        found = [name for name in FORMATS if kind in (name, "*/*", f"{name.partition('/')[0]}/*")]
        if found and weight < 0:
            return FORMATS[found[0]]
    raise Refusal(406, "header.accept: none of these can be given", f"one of: {', '.join(FORMATS)}", "header.accept")


async def _body(request: Request, config: ServeConfig) -> tuple[bytes, str]:
    """The body and its content type.

    Raises:
        Refusal: the type is not read, or the body is too large or too slow.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, ARROW):
        raise Refusal(415, "header.content-type: not read", f"one of: {JSON}, {ARROW}", "header.content-type")
    length = request.headers.get("content-length", "0")
    too_large = Refusal(413, f"body: more than {config.max_body:,} bytes", "send fewer rows at a time", "body")
    if length.isdigit() and int(length) > config.max_body:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > config.max_body:
                    raise too_large
                parts.append(part)
    except ClientDisconnect:
        raise Refusal(400, "body: the client broke off", "send it again", "body") from None  # counted, and read by none
    except TimeoutError:
        raise Refusal(408, f"body: not there after {BODY_SECONDS:.0f} s", "send it faster", "body") from None
    return b"".join(parts), kind


def _checked(rows: int, config: ServeConfig) -> None:
    if rows > config.request_rows:
        raise Refusal(413, f"rows: more than {config.request_rows:,}", "send fewer rows at a time", "rows")


def _source(given: bytes, kind: str, config: ServeConfig, table: Any, example: Example) -> Any:
    if kind == ARROW:
        rows = parse_arrow(given, config.max_body)
        _checked(rows.num_rows, config)
        return arrow_rows(rows, table)
    found = parse_json(given, example)
    _checked(len(found), config)
    return JsonRows(found, table)


def _frame(given: bytes, kind: str, config: ServeConfig, example: Example) -> pa.Table:
    """Future values of inputs."""
    if kind == ARROW:
        rows = parse_arrow(given, config.max_body)
    else:
        found = parse_json(given, {"rows": example["rows"][:1]})
        try:
            rows = pa.Table.from_pylist(found)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            reason = (str(error).splitlines() or ["?"])[0]
            raise Refusal(422, f"rows: {reason}", "a column holds values of one kind", "rows") from None
    check_columns(rows)
    _checked(rows.num_rows, config)
    return rows


def _response(body: bytes, form: Format, view: LearnerView) -> Response:
    kind = next(name for name, short in FORMATS.items() if short == form)
    headers = {"X-Streamgp-Rows": str(view.rows), "Cache-Control": "no-store"}
    return Response(body, media_type=kind, headers=headers)


def _about(host: Host, service: Service) -> ModelInfo:
    spec, table, learned = host.session.learner.windows.spec, service.intake(host).table, host.rows
    return ModelInfo(
        name=host.name,
        model=host.session.config.model,
        target=list(spec.targets),
        known=list(spec.known),
        horizon=spec.horizon,
        level=list(host.session.learner.calibration.levels),
        table=table.path,
        columns=[name for name in table.schema.names if name != SEQ],
        table_rows=host.received(),
        learned_rows=learned,
        ready=host.view is not None,
        unit=unit_of(table, spec),
        alarms=host.session.learner.alarms is not None,
    )


def _only(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: PROBLEMS[status] for status in statuses}


def _page() -> Response:
    """The live page, which may run its own script and nothing else."""
    html = files(__package__).joinpath("page.html").read_text("utf-8")
    allowed = {}
    for tag in ("script", "style"):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)[0]
        allowed[tag] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    policy = f"default-src 'none'; connect-src 'self'; script-src 'sha256-{allowed['script']}'; "
    policy += f"style-src 'sha256-{allowed['style']}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return Response(html, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})
