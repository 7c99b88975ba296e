"""Ensemble options."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from streamgp.models.deep.config import GpLstmConfig, LstmConfig
from streamgp.models.finite_rkhs import Config as FiniteRkhsConfig
from streamgp.models.iterated import Config as IteratedConfig
from streamgp.models.linear import Config as LinearConfig
from streamgp.models.persistence import Config as PersistenceConfig
from streamgp.models.qsgp import Config as QsgpConfig
from streamgp.models.rvm import Config as RvmConfig
from streamgp.models.seasonal_naive import Config as SeasonalNaiveConfig
from streamgp.models.svdgp import Config as SvdgpConfig


def _names(value: Any) -> Any:
    """'a, b' -> ('a', 'b')"""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class Config(BaseModel):
    """Experts, mixed online by their errors; the options of each stand under its name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    few: ClassVar[tuple[str, ...]] = ("experts", "on_top", "memory")
    """The options that matter first."""

    experts: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        ("linear", "iterated", "svdgp", "persistence", "seasonal_naive"),
        min_length=1,
        description="models to mix: linear, iterated, svdgp, qsgp, finite_rkhs, rvm, gp_lstm, lstm, persistence, "
        "seasonal_naive; the options of each stand under its name, such as svdgp.basis",
    )
    on_top: bool = Field(False, description="GPs beside linear learn what it leaves, with its forecast as an input")
    memory: float | None = Field(
        None,
        gt=0,
        description="rows after which an error counts 1/e in the weights; none: three long seasons, at least 300",
    )
    linear: LinearConfig = Field(LinearConfig(), description="options of the expert")
    iterated: IteratedConfig = Field(IteratedConfig(), description="options of the expert")
    svdgp: SvdgpConfig = Field(SvdgpConfig(), description="options of the expert")
    qsgp: QsgpConfig = Field(QsgpConfig(), description="options of the expert")
    finite_rkhs: FiniteRkhsConfig = Field(FiniteRkhsConfig(), description="options of the expert")
    rvm: RvmConfig = Field(RvmConfig(), description="options of the expert")
    gp_lstm: GpLstmConfig = Field(GpLstmConfig(), description="options of the expert")
    lstm: LstmConfig = Field(LstmConfig(), description="options of the expert")
    persistence: PersistenceConfig = Field(PersistenceConfig(), description="options of the expert")
    seasonal_naive: SeasonalNaiveConfig = Field(SeasonalNaiveConfig(), description="options of the expert")

    @field_validator("experts")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = [name for name, field in cls.model_fields.items() if _is_config(field.annotation)]
        for name in names:
            if name not in known:
                raise ValueError(f"{name!r} is none of {', '.join(known)}")
        if len(set(names)) < len(names):
            raise ValueError("each is named once")
        return names


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
