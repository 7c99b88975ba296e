"""A checkpoint directory that begins as a model of MLflow's registry, for a service that learns on from there.

The directory notes which version it began as. From then on it is a checkpoint as any other: a restart reads it,
not the registry, and a version that takes the alias later is reported, not taken.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic_core import ValidationError, to_json

from streamgp.errors import CheckpointError, ServiceError, StateError, UsageError
from streamgp.redaction import reason, redacted
from streamgp_data import checkpoint
from streamgp_pipelines.adapters.mlflow.registry import fetch
from streamgp_pipelines.adapters.mlflow.store import open_store
from streamgp_pipelines.files import replaced
from streamgp_pipelines.learning.checkpointing import held
from streamgp_pipelines.learning.restored import read_checkpoint

if TYPE_CHECKING:
    from mlflow import MlflowClient

FILE = "origin.json"
_URI = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[\w-]+)|/(?P<version>\d+|latest))")


@dataclass(frozen=True)
class Origin:
    """The registered model that a checkpoint directory began as.

    Attributes:
        model_uri: as it was asked for, such as models:/NAME@champion.
        store: URI of the MLflow store; in the directory without user and password.
        version: that this was then.
    """

    model_uri: str
    store: str
    version: int

    @property
    def title(self) -> str:
        """Such as "models:/NAME@champion, version 3"."""
        return f"{self.model_uri}, version {self.version}"

    def news(self) -> str:
        """That the URI means another version now, and what to do; "" where it does not, or nobody can say."""
        try:
            now = _version(open_store(self.store), self.model_uri)
        except Exception:  # whatever a store may raise: forecasts do not need it
            return ""
        message = f"{self.model_uri} is version {now} now, and this service began as version {self.version}"
        return "" if now == self.version else f"{message}: to serve the new one, start with another --checkpoint"


def name_of(model_uri: str) -> str:
    """The registered name.

    Raises:
        UsageError: the URI is none of a registered model.

    Example:
        >>> name_of("models:/demand-demand_gw-h48@champion")
        'demand-demand_gw-h48'
    """
    return _parse(model_uri)["name"] or ""


def adopt(model_uri: str, store: str, directory: Path) -> Origin:
    """Copy the checkpoint of a registered model into a directory to go on from; one that is there already stays.

    Args:
        model_uri: models:/NAME@ALIAS, models:/NAME/VERSION or models:/NAME/latest.
        store: URI of the MLflow store.
        directory: of the service's own checkpoints.

    Raises:
        UsageError: the registry has no such model.
        ServiceError: it does not answer, and there is no checkpoint yet.
        StateError: the directory is of a training run or began as another model, or a process works in it.
    """
    name_of(model_uri)
    with held(directory):
        if checkpoint.exists(directory):
            return replace(_began(model_uri, directory), store=store)
        found = Origin(model_uri, store, _version(open_store(store), model_uri))
        with TemporaryDirectory(dir=directory, prefix=".tmp-") as folder:
            exact = f"models:/{name_of(model_uri)}/{found.version}"
            saved = read_checkpoint(fetch(exact, store, Path(folder)))
            with replaced(directory / FILE) as temporary:
                temporary.write_bytes(to_json(asdict(replace(found, store=redacted(store)))))
            os.rename(saved.path, checkpoint.free_name(directory, saved.rows))
    return found


def _began(model_uri: str, directory: Path) -> Origin:
    """What the directory began as, which must be the model that is asked for."""
    file = directory / FILE
    if not file.is_file():
        raise StateError(
            f"{directory} has a checkpoint that did not begin as {model_uri}",
            hint="leave out --model-uri to serve it, or choose another --checkpoint",
        )
    try:
        found = TypeAdapter(Origin).validate_json(file.read_bytes())
    except (OSError, ValidationError):
        raise CheckpointError(f"{file} is damaged", hint="leave out --model-uri to serve the checkpoint") from None
    if found.model_uri != model_uri:
        raise StateError(f"{directory} began as {found.title}, not as {model_uri}", hint="choose another --checkpoint")
    return found


def _version(client: MlflowClient, model_uri: str) -> int:
    """The version that a URI means now."""
    from mlflow.exceptions import MlflowException

    asked = _parse(model_uri)
    name, alias, version = asked["name"] or "", asked["alias"], asked["version"]
    if alias is None and version != "latest":
        return int(version or 0)
    try:
        if alias is not None:
            return int(client.get_model_version_by_alias(name, alias).version)
        newest = client.search_model_versions(f"name = '{name}'", max_results=1, order_by=["version_number DESC"])
    except MlflowException as error:
        wrong = error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
        hint = "models:/NAME@champion, models:/NAME/VERSION; streamgp ui lists the names"
        raise (UsageError if wrong else ServiceError)(
            f"{model_uri} cannot be read: {reason(error, model_uri)}", hint=hint
        ) from None
    if not newest:
        raise UsageError(f"{model_uri}: the registry has no such model", hint="streamgp ui lists the names")
    return int(newest[0].version)


def _parse(model_uri: str) -> dict[str, str | None]:
    found = _URI.fullmatch(model_uri)
    if found is None:
        raise UsageError(
            f"--model-uri {model_uri!r} names no registered model", hint="models:/NAME@champion or models:/NAME/VERSION"
        )
    return found.groupdict()
