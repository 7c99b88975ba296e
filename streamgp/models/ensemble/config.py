"""Ensemble options."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from streamgp import registry
from streamgp.base import Shape
from streamgp.choice import Its
from streamgp.model_config import NUMBER, ModelConfig

FREQUENCIES = 150
"""Of the random Fourier features of `interactions`, which are twice as many."""
DEFAULT = ("linear", "linear_short", "iterated", "svdgp", "persistence", "seasonal_naive")


def _names(value: Any) -> Any:
    """'a, b' -> ('a', 'b')"""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class Mix(ModelConfig):
    """What is mixed, without the options of the experts."""

    few: ClassVar[tuple[str, ...]] = ("experts", "on_top", "interactions", "memory")

    experts: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        DEFAULT,
        min_length=1,
        description="models to mix: any but the ensemble; the options of each stand under its name, such as "
        "svdgp.basis",
    )
    on_top: bool = Field(False, description="GPs beside linear learn what it leaves, with its forecast as an input")
    interactions: bool = Field(
        True,
        description="with seasons, what the mix leaves is learned from continuous known inputs, as they meet the "
        "forecast, the hour and the weekend",
    )
    memory: float | None = Field(
        None,
        gt=0,
        description="rows after which an error counts 1/e in the weights; none: three long seasons, at least 300",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_experts(cls, given: Any) -> Any:
        """Every expert has its options; those of other models stay None, and these models are not imported."""
        if not isinstance(given, dict):
            return given
        names = _names(given.get("experts", DEFAULT))
        if not isinstance(names, list | tuple):
            return given
        known = [name for name in names if name in EXPERTS]
        return {name: {} for name in known} | {key: value for key, value in given.items() if value is not None}

    @field_validator("experts")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in EXPERTS:
                raise ValueError(f"{name!r} is none of {', '.join(EXPERTS)}")
        if len(set(names)) < len(names):
            raise ValueError("each is named once")
        return names

    def of(self, name: str) -> ModelConfig:
        """The options of an expert."""
        found: ModelConfig = getattr(self, name)
        return found

    def own_units(self, shape: Shape) -> bool:
        """With seasons, and no known input."""
        return shape.context is not None and not shape.context.known

    def steady_units(self, shape: Shape) -> bool:
        """With seasons and known inputs."""
        return shape.context is not None and bool(shape.context.known)

    def functions(self, shape: Shape) -> int:
        """Those of the largest expert."""
        return self.of(self._largest(shape)).functions(shape)

    def bytes_of(self, shape: Shape) -> int:
        """Those of all experts, and of `interactions` four matrices of its features a target, where it applies."""
        applies = self.interactions and shape.context is not None and bool(shape.context.known)
        stage = 4 * (2 * FREQUENCIES + 8) ** 2 * shape.outputs * NUMBER if applies else 0
        return stage + sum(self.of(name).bytes_of(shape) for name in self.experts)

    def levers(self, shape: Shape) -> dict[str, int]:
        """Those of the largest expert."""
        largest = self._largest(shape)
        return {f"{largest}.{name}": value for name, value in self.of(largest).levers(shape).items()}

    def _largest(self, shape: Shape) -> str:
        return max(self.experts, key=lambda name: self.of(name).bytes_of(shape))


EXPERTS = tuple(name for name in registry.names("models") if name != "ensemble")
"""Models that may be mixed."""
_FIELDS: dict[str, Any] = {
    name: (Annotated[ModelConfig | None, Its("models", name)], Field(None, description="options of the expert"))
    for name in EXPERTS
}
Config: type[Mix] = create_model("Config", __base__=Mix, __module__=__name__, **_FIELDS)
"""Experts, mixed online by their errors; the options of each stand under its name."""
