"""Answers that are given again as they are, before the request is looked at, until the state or the inputs change."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Scope

from streamgp_pipelines.serving.host import Host
from streamgp_pipelines.serving.view import LearnerView

KEPT = 256
"""Questions whose answers are kept."""


class _Answer(NamedTuple):
    host: Host
    view: weakref.ref[LearnerView]  # which would hold a whole state in memory
    mark: tuple[int | None, bool]
    response: Response


class Memo:
    """Answers to GET requests by path, query and accepted types."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bytes, bytes], _Answer] = OrderedDict()

    def find(self, scope: Scope) -> Response | None:
        """The answer to a request, if nothing has changed since it was made."""
        if scope["method"] != "GET":
            return None
        found = self._kept.get(_key(scope))
        if found is None or found.view() is not found.host.view or found.mark != _mark(found.host):
            return None
        return found.response

    def keep(self, scope: Scope, host: Host, view: LearnerView, response: Response) -> None:
        """Keep the answer that `view` gave with the inputs that `host` has now."""
        self._kept.pop(key := _key(scope), None)
        self._kept[key] = _Answer(host, weakref.ref(view), _mark(host), response)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _mark(host: Host) -> tuple[int | None, bool]:
    return None if host.future is None else host.future[0], host.lagging


def _key(scope: Scope) -> tuple[str, bytes, bytes]:
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["path"], scope["query_string"], accepted
