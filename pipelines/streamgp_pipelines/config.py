"""What a run is asked to do: frozen settings, filled from flags, environment, a TOML file and defaults.

Precedence: flag > environment `STREAMGP_*` > file > default. A misspelt key is an error.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
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
            raise UsageError(_explain(error, cls), hint=f"see: streamgp {_command(cls)} --help") from None
        except ValueError as error:  # tomllib.TOMLDecodeError
            raise UsageError(f"{file}: {error}", hint="the file must be TOML") from None


def _command(settings: type[Settings]) -> str:
    return settings.__name__.removesuffix("Config").lower()


def _explain(error: ValidationError, settings: type[Settings]) -> str:
    """One line per wrong value: its name as a flag, and what is wrong with it."""
    lines = []
    for item in error.errors():
        if item["type"] == "extra_forbidden":
            unknown = str(item["loc"][0])
            near = get_close_matches(unknown, settings.model_fields, n=1)
            lines.append(f"there is no option {unknown!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            continue
        name = "--" + ".".join(str(part) for part in item["loc"]).replace("_", "-") if item["loc"] else ""
        lines.append(f"{name}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": "))
    return "; ".join(lines)


TableUri = Annotated[str, BeforeValidator(str)]
"""A directory, or a URL such as s3://bucket/table: no Path, which would lose a slash of the URL."""

Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(lambda value: _split(value))]
"""Column names or patterns: 'a,b*' or a list."""

Levels = Annotated[
    tuple[float, ...],
    NoDecode,
    BeforeValidator(lambda value: _split(value)),
    AfterValidator(lambda value: _levels(value)),
]
"""Widths of bands in percent."""


def split_names(text: str) -> tuple[str, ...]:
    """'a, b' -> ('a', 'b'); what is empty is left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


Bytes = Annotated[int, BeforeValidator(lambda value: _bytes(value))]
"""An amount of memory."""


def _bytes(value: Any) -> Any:
    """'4GB', '500 MiB' or a number in bytes.

    Raises:
        ValueError: it is none.

    Example:
        >>> _bytes("4GB"), _bytes("1.5 KiB"), _bytes(10)
        (4000000000, 1536, 10)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*)\s*", str(value).lower())
    if found is None or found[2] not in _MEMORY or not float(found[1]):
        raise ValueError(f"{value!r} is no amount of memory: such as 4GB")
    return round(float(found[1]) * _MEMORY[found[2]])


def _split(value: Any) -> Any:
    """'a, b' -> ('a', 'b'); lists and single numbers pass."""
    if isinstance(value, str):
        return split_names(value)
    if isinstance(value, list | tuple):
        return tuple(part for item in value for part in (_split(item) if isinstance(item, str) else (item,)))
    return (value,)


def _levels(value: tuple[float, ...]) -> tuple[float, ...]:
    if not value or not all(1.0 <= level < 100.0 for level in value):
        raise ValueError("levels are percentages from 1 to below 100, such as 80 and 95")
    return tuple(sorted(set(value)))


LARGEST = 2**31 - 1
"""Of every count: more rows or steps than that fit into no memory; what does fit is estimated from the data."""

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class DataConfig(Settings):
    """What windows of a table are made of, and which of its rows are held out; in `train` and in `tune`."""

    table: TableUri
    target: Names = ()
    inputs: Names = ()
    known: Names = ()
    calendar: bool = False
    lags: int | None = Field(None, ge=0, le=LARGEST)
    horizon: int = Field(1, ge=1, le=LARGEST)
    season: int = Field(1, ge=1, le=LARGEST)
    gaps: Literal["reset", "mask"] = "reset"
    test_column: str | None = None
    test_tail: float | None = Field(None, gt=0, lt=1)

    @model_validator(mode="after")
    def _windows_are_possible(self) -> Self:
        if self.test_column is not None and self.test_tail is not None:
            raise ValueError("give --test-column or --test-tail, not both")
        if self.lags == 0 and (self.horizon != 1 or self.season != 1):
            raise ValueError("--lags 0 is regression: it takes --horizon 1 and no --season")
        return self


class TrainConfig(DataConfig):
    """`streamgp train`, online or in batch. Rows and steps are table rows; levels are percentages.

    Example:
        >>> config = TrainConfig.read({"table": "t", "target": "y", "level": ["80", "95"], "set": {"basis": "64"}})
        >>> config.target, config.level, config.horizon
        (('y',), (80.0, 95.0), 1)
    """

    online: bool = False
    model: str = "svdgp"
    set: dict[str, Any] = {}
    init: Path | None = None
    warmup: int | None = Field(None, ge=0, le=LARGEST)
    batch: int = Field(256, ge=1, le=LARGEST)
    level: Levels = (80.0, 90.0, 95.0)
    checkpoint: Path = Path("checkpoint")
    checkpoint_every: int = Field(10_000, ge=1, le=2**63 - 1)
    fresh: bool = False
    follow: bool = False
    score_from: str | None = None
    max_rows: int | None = Field(None, ge=1, le=2**63 - 1)
    predictions: Path | None = None
    experiment: str = "streamgp"
    tracking_uri: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_memory: Bytes | None = None
    seed: Seed = 0
    epochs: int | None = Field(None, ge=1, le=LARGEST)
    time_budget: float | None = Field(None, gt=0, allow_inf_nan=False)

    @field_validator("time_budget", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        """'60s', '5m' or '1h' in seconds."""
        if isinstance(value, str) and value[-1:] in _SECONDS:
            return float(value[:-1]) * _SECONDS[value[-1]]
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = self.model_fields_set
        other = _BATCH_ONLY if self.online else _ONLINE_ONLY
        wrong = [name for name in other if name in given and getattr(self, name) not in (None, False)]
        if wrong:
            there = "batch training: leave out --online" if self.online else "--online"
            raise ValueError(f"--{wrong[0].replace('_', '-')} belongs to {there}")
        return self


class TuneConfig(DataConfig):
    """`streamgp tune`. `start` and `end` are rows of the table, counted from 0, or times.

    Example:
        >>> config = TuneConfig.read({"table": "t", "method": "cv-admm", "start": "2014-03-01", "rows": 500})
        >>> config.method, config.rows, str(config.output)
        ('cv-admm', 500, 'tuned.json')
    """

    method: Literal["ml", "cv-admm", "cv-implicit"] = "ml"
    set: dict[str, Any] = {}
    init: Path | None = None
    rows: int = Field(1000, ge=10, le=LARGEST)
    start: str | None = None
    end: str | None = None
    output: Path = Path("tuned.json")
    experiment: str = "streamgp"
    tracking_uri: str | None = None
    max_memory: Bytes | None = None
    seed: Seed = 0


class ForecastConfig(Settings):
    """`streamgp forecast`; a simulation where `paths` or `plug_in` is given."""

    checkpoint: Path
    table: TableUri | None = None
    horizon: int | None = Field(None, ge=1, le=LARGEST)
    level: Levels = (80.0, 90.0, 95.0)
    future: Path | None = None
    paths: int | None = Field(None, ge=2, le=LARGEST)
    plug_in: bool = False
    seed: Seed = 0
    samples: Path | None = None
    output: Path | None = None
    plot: Path | None = None
    strict: bool = False
    max_memory: Bytes | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @property
    def simulates(self) -> bool:
        """Whether the model is to be run on its own output."""
        return self.paths is not None or self.plug_in

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.paths is not None and self.plug_in:
            raise ValueError("give --paths or --plug-in, not both: plug-in has one path")
        if self.samples is not None and not self.simulates:
            raise ValueError("--samples belongs to a simulation: give --paths too")
        return self


_BATCH_ONLY = ("test_column", "test_tail", "time_budget", "epochs")
_ONLINE_ONLY = ("follow", "score_from", "warmup", "checkpoint_every")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MEMORY = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_MEMORY |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
