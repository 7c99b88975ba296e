"""Names, versions and aliases in the model registry: one name a task, one version a run, one champion.

A task is a table, a target and a horizon, and has one registered name, such as `demand-demand_gw-h48`. What is compared
is on the version as tags, so that anyone can check a decision. MLflow reserves `@latest`: `models:/NAME/latest` is the
newest version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamgp.base import ModelCard
from streamgp.errors import ServiceError, UsageError
from streamgp.redaction import reason
from streamgp_data.numbers import number
from streamgp_pipelines.adapters.mlflow.store import open_store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"
KEPT = 10
"""Versions of other runs that stay under a name, beside those with an alias."""

ENOUGH = 0.9
"""Share of the champion's scored forecasts that another version must have, or luck on few rows would decide."""

STATE = "streamgp.state"
_TASK = ("table_id", "target", "horizon", "season", "protocol", "metric")


class ChampionVerdict(NamedTuple):
    """Whether a version becomes the champion, why not, and whether that is because they cannot be compared."""

    moves: bool
    reason: str = ""
    unlike: bool = False


def fetch(model_uri: str, uri: str, folder: Path) -> Path:
    """Copy the checkpoint of a registered model into a folder; returns where it is.

    Args:
        model_uri: such as models:/NAME@champion, models:/NAME/3 or runs:/ID/NAME.
        uri: of the store.
        folder: existing directory.

    Raises:
        ServiceError: the store does not answer.
        UsageError: it has no such model, or one that is none of streamgp.
    """
    open_store(uri)
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None  # type: ignore[no-untyped-call]
    mlflow.set_tracking_uri(uri)
    try:
        home = Path(mlflow.artifacts.download_artifacts(model_uri, dst_path=str(folder)))
    except (MlflowException, OSError, ValueError) as error:  # the last of a URL that is none of a store
        hint = "models:/NAME@champion, models:/NAME/VERSION; streamgp ui lists the names"
        wrong = getattr(error, "error_code", "") in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
        raise (UsageError if wrong or isinstance(error, ValueError) else ServiceError)(
            f"{model_uri} cannot be read from {uri}: {reason(error, uri, model_uri)}", hint=hint
        ) from None
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None unsets it
    try:
        found = Model.load(str(home)).flavors["python_function"]["artifacts"]["checkpoint"]["path"]
    except (KeyError, TypeError, MlflowException):
        raise UsageError(f"{model_uri} is no model of streamgp", hint="name one that streamgp train logged") from None
    return home / str(found)


def tags(card: ModelCard) -> dict[str, str]:
    """What a version says of itself; `score` is missing where nothing was scored."""
    found = {
        "model": card.model,
        "table": card.table,
        "table_id": card.table_id,
        "target": ",".join(card.targets),
        "horizon": str(card.horizon),
        "season": str(card.season),
        "protocol": card.protocol,
        "metric": card.metric,
        "scored": str(card.scored),
        "rows": str(card.rows),
        STATE: card.state,
    }
    return found if card.score is None else found | {"score": repr(card.score)}


def judge(holder: Mapping[str, str] | None, held_by: str, card: ModelCard, run_id: str) -> ChampionVerdict:
    """Whether a version takes the alias from its holder.

    A run that holds it keeps it while it continues. Another run takes it by a better score on the same task, over at
    least `ENOUGH` of the holder's number of scored forecasts.

    Args:
        holder: tags of the version that has the alias; None where none has.
        held_by: run of that version.
        card: of the new version.
        run_id: of the new version.
    """
    if holder is not None and held_by == run_id:
        return ChampionVerdict(True)
    if card.score is None:
        return ChampionVerdict(False, "nothing was scored")
    if holder is None:
        return ChampionVerdict(True)
    if "score" not in holder:
        return ChampionVerdict(False, "it has no score to compare with", unlike=True)
    own = tags(card)
    differ = [f"{name} {holder.get(name, '?')}, here {own[name]}" for name in _TASK if holder.get(name) != own[name]]
    if differ:
        return ChampionVerdict(False, f"it was scored on another task ({'; '.join(differ)})", unlike=True)
    best, scored = float(holder["score"]), int(holder["scored"])
    if card.score >= best:
        return ChampionVerdict(False, f"its {card.metric} of {number(best)} is better than {number(card.score)}")
    if card.scored < ENOUGH * scored:
        reason = f"it has {scored:,} scored forecasts, this run {card.scored:,}: too few to compare"
        return ChampionVerdict(False, reason, unlike=True)
    return ChampionVerdict(True)


def crown(client: MlflowClient, made: ModelVersion, card: ModelCard) -> tuple[int, ChampionVerdict]:
    """Give a new version the alias if it is to have it; returns the version that has it now (0: none) and why."""
    holder = _holder(client, made.name)
    verdict = judge(
        None if holder is None else holder.tags, "" if holder is None else str(holder.run_id), card, str(made.run_id)
    )
    if verdict.moves:
        client.set_registered_model_alias(made.name, CHAMPION, made.version)
        return int(made.version), verdict
    return 0 if holder is None else int(holder.version), verdict


def champion(client: MlflowClient, name: str) -> int:
    """The version that has the alias; 0 where none has."""
    holder = _holder(client, name)
    return 0 if holder is None else int(holder.version)


def prune(client: MlflowClient, made: ModelVersion) -> list[str]:
    """Delete old versions with their logged models and files; returns the versions' numbers.

    Of this run only the new version stays, and of the others the newest `KEPT`. A version with an alias stays, and so
    does one that streamgp has not made.
    """
    found = _versions(client, made.name)
    named = {str(version) for version in client.get_registered_model(made.name).aliases.values()}
    free = [one for one in found if STATE in one.tags and str(one.version) not in named]
    own = [one for one in free if one.run_id == made.run_id and one.version != made.version]
    others = sorted((one for one in free if one.run_id != made.run_id), key=lambda one: -int(one.version))
    doomed = own + others[KEPT:]
    for one in doomed:
        client.delete_model_version(made.name, one.version)
    for run_id in {str(made.run_id), *(str(one.run_id) for one in doomed)}:
        for model_id in _unregistered(client, run_id):
            _delete_logged(client, model_id)
    return [str(one.version) for one in doomed]


def _holder(client: MlflowClient, name: str) -> ModelVersion | None:
    version = client.get_registered_model(name).aliases.get(CHAMPION)
    return None if version is None else client.get_model_version(name, str(version))


def _versions(client: MlflowClient, name: str) -> list[ModelVersion]:
    found: list[ModelVersion] = []
    token = None
    while True:
        page = client.search_model_versions(f"name = '{name}'", max_results=200, page_token=token)
        found += page
        if not (token := page.token):
            return found


def _unregistered(client: MlflowClient, run_id: str) -> set[str]:
    """Models that streamgp has logged with a run and that no version is made of: pruned, or left by a kill.

    A version under another name, to which a user has copied it, counts.
    """
    experiment = client.get_run(run_id).info.experiment_id
    logged = client.search_logged_models([experiment], f"source_run_id = '{run_id}'", max_results=200)
    ours = {model.model_id for model in logged if STATE in model.tags}
    sources = [str(one.source) for one in client.search_model_versions(f"run_id = '{run_id}'")]
    return {model_id for model_id in ours if not any(model_id in source for source in sources)}


def _delete_logged(client: MlflowClient, model_id: str) -> None:
    """A logged model with its files: MLflow's own deletion keeps them."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    where = client.get_logged_model(model_id).artifact_location
    get_artifact_repository(str(where)).delete_artifacts()  # type: ignore[no-untyped-call]
    client.delete_logged_model(model_id)
