"""The model of a run that names none."""

from __future__ import annotations

from streamgp import registry
from streamgp.windows.windows import WindowSpec
from streamgp_pipelines.assembly import flatten
from streamgp_pipelines.config import AUTO, TrainConfig

MIXED = "ensemble"
ALONE = "svdgp"


def with_model(config: TrainConfig, spec: WindowSpec) -> TrainConfig:
    """The settings with the model that `auto` stands for.

    That is `ensemble` for a stream with lags. It is `svdgp` for regression, in batch training, with `--init`, and where
    an option is set that `svdgp` has and `ensemble` has not, such as `likelihood=logistic`.

    Example:
        >>> spec = WindowSpec(targets=("y",), lags=2)
        >>> with_model(TrainConfig(table="t", online=True), spec).model
        'ensemble'
        >>> with_model(TrainConfig(table="t", online=True, set={"likelihood": "logistic"}), spec).model
        'svdgp'
        >>> with_model(TrainConfig(table="t", model="linear"), spec).model
        'linear'
    """
    if config.model != AUTO:
        return config
    mixed, alone = (registry.load("models", name).Config.model_fields.keys() for name in (MIXED, ALONE))
    only = {name.split(".")[0] for name in flatten(config.set)} & (alone - mixed)
    mixes = config.online and spec.lags > 0 and config.init is None and not only
    return config.model_copy(update={"model": MIXED if mixes else ALONE})
