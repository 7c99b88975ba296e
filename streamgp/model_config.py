"""The options of a model, and what a run knows of the model by them alone, before it is built.

A model's `Config` derives from `ModelConfig`. What is particular to a model stands there, as class variables and
methods; no other room has a list of models.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from streamgp import registry
from streamgp.base import Shape
from streamgp.errors import UsageError

NUMBER = 8
"""Bytes of a float64."""
FUNCTIONS = 512
"""Functions that stand for the layers of a net, or a block of very many features, where a model names no number."""
LARGEST_LAGS = 96
"""Lags by default at most, where a season is longer."""

Simulated: TypeAlias = Literal["no", "calibrated", "trained"]
"""What --simulate does for a model: nothing, as it draws no functions; its bands are calibrated; it is also trained
for its own output."""


class ModelConfig(BaseModel):
    """Options that every model has: none. Facts about it, with what holds for most."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    few: ClassVar[tuple[str, ...]] = ()
    """The options that matter first; none: the first ten."""
    most_lags: ClassVar[int] = LARGEST_LAGS
    """Lags by default at most."""
    simulates: ClassVar[Simulated] = "no"
    """Whether it can be run on its own output."""
    process: ClassVar[bool] = False
    """Whether it is a process with a kernel of windows: as an expert it can learn what `linear` leaves."""
    baseline: ClassVar[bool] = False
    """Whether it only stands beside others: as an expert it has no weight but what its errors earn."""

    @property
    def untuned(self) -> str:
        """Why it cannot start from the hyper-parameters of `streamgp tune`; "" where it can."""
        return "has no kernel, and so no hyper-parameters to start from"

    def functions(self, shape: Shape) -> int:
        """M, functions whose covariance it holds."""
        return FUNCTIONS

    def bytes_of(self, shape: Shape) -> int:
        """Bytes of its state and of what it factorises, within a factor of a few: four M × M matrices, and M · (W + T)
        numbers twice."""
        functions = self.functions(shape)
        return NUMBER * (4 * functions**2 + 2 * functions * (shape.width + 1 + shape.columns))

    def levers(self, shape: Shape) -> dict[str, int]:
        """The dotted options that decide how large it is, with their values; none where only its windows do."""
        return {}

    def knows_calendar(self, shape: Shape) -> bool:
        """Whether it has hour, weekday and time of the year of the steps ahead already, and looks at no other."""
        return False

    def own_units(self, shape: Shape) -> bool:
        """Whether it learns each window of a panel in units of its own variation."""
        return False

    def steady_units(self, shape: Shape) -> bool:
        """Whether it takes each series of a panel in units of its own, as it has none for windows with known inputs."""
        return False

    def idle(self, shape: Shape, others: Collection[str]) -> bool:
        """Whether, among these experts, it is another one's equal or never better."""
        return False


def models_with(fact: str) -> list[str]:
    """The models of which a fact holds with their defaults, in alphabetical order; every model is imported.

    Args:
        fact: "tuned", start from hyper-parameters; or one of `Simulated`.

    Example:
        >>> "svdgp" in models_with("tuned"), "linear" in models_with("trained"), "persistence" in models_with("tuned")
        (True, True, False)
    """
    found = []
    for name in registry.names("models"):
        try:
            config = registry.load("models", name).Config()
        except UsageError:  # of another package, which cannot be imported
            continue
        if not config.untuned if fact == "tuned" else config.simulates == fact:
            found.append(name)
    return found
