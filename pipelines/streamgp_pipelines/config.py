"""What a run is asked to do: frozen settings, filled from flags, environment, a TOML file and defaults.

Precedence: flag > environment `STREAMGP_*` > file > default. A misspelt key is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streamgp.errors import UsageError


class Settings(BaseSettings):
    """Base of every command's settings; `read` is the one way in."""

    model_config = SettingsConfigDict(env_prefix="STREAMGP_", extra="forbid", frozen=True)
    _file: ClassVar[Path | None] = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        if cls._file is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=cls._file)

    @classmethod
    def read(cls, flags: dict[str, Any], file: Path | None = None) -> Any:
        """Settings from the flags that were given (None means not given) over environment and file.

        Raises:
            UsageError: a value is wrong or a key is unknown; the message names each.
        """
        if file is not None and not file.is_file():
            raise UsageError(f"there is no configuration file {file}", hint="--config names a TOML file")
        given = {key: value for key, value in flags.items() if value is not None and value != []}
        reader = type(cls.__name__, (cls,), {"_file": file, "__module__": cls.__module__})
        try:
            return reader(**given)
        except ValidationError as error:
            raise UsageError(_explain(error), hint=f"see: streamgp {_command(cls)} --help") from None
        except ValueError as error:  # tomllib.TOMLDecodeError
            raise UsageError(f"{file}: {error}", hint="the file must be TOML") from None


def _command(settings: type[Settings]) -> str:
    return settings.__name__.removesuffix("Config").lower()


def _explain(error: ValidationError) -> str:
    """One line per wrong value: its name as a flag, and what is wrong with it."""
    lines = []
    for item in error.errors():
        name = "--" + ".".join(str(part) for part in item["loc"]).replace("_", "-") if item["loc"] else ""
        lines.append(f"{name}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": "))
    return "; ".join(lines)


class TrainConfig(Settings):
    """`streamgp train`, online or in batch."""

    table: Path
    online: bool = False
    target: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    calendar: bool = False
    lags: int = Field(24, ge=0)
    horizon: int = Field(1, ge=1)
    season: int = Field(1, ge=1)
    gaps: Literal["reset", "mask"] = "reset"
    model: str = "svdgp"
    set: dict[str, str] = {}
    warmup: int | None = Field(None, ge=0)
    batch: int = Field(256, ge=1)
    level: tuple[float, ...] = (80.0, 90.0, 95.0)
    checkpoint: Path = Path("checkpoint")
    checkpoint_every: int = Field(5000, ge=1)
    fresh: bool = False
    follow: bool = False
    score_from: str | None = None
    max_rows: int | None = Field(None, ge=1)
    predictions: Path | None = None
    experiment: str = "streamgp"
    tracking_uri: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 0
    test_column: str | None = None
    test_tail: float | None = Field(None, gt=0, lt=1)
    epochs: int | None = Field(None, ge=1)
    time_budget: float | None = Field(None, gt=0)
