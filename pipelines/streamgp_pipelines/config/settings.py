"""Settings: frozen values from flags, environment, a TOML file and defaults, and what a field may be.

Precedence: flag > environment `STREAMGP_*` > file > default. A misspelt key is an error. A field is declared once: its
type, default, limits and description are also those of the flag on the command line; `Flag` adds what only a help page
needs.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streamgp import registry
from streamgp.errors import UsageError
from streamgp_data.intervals import nanoseconds
from streamgp_data.remote import mirror
from streamgp_pipelines.options import unknown

PREFIX = "STREAMGP_"


class Settings(BaseSettings):
    """Base of every command's settings; `read` is the one way in."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)
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
        """Flags, then the environment, then the file; an environment that says nothing is not asked for each field."""
        given = {name.upper() for name in os.environ}
        named = any(PREFIX + field.upper() in given for field in settings_cls.model_fields)
        found = (init_settings, env_settings) if named else (init_settings,)
        return found if cls._file is None else (*found, TomlConfigSettingsSource(settings_cls, toml_file=cls._file))

    @classmethod
    def read(cls, flags: Mapping[str, Any], file: Path | None = None) -> Self:
        """Settings from the flags that were given (None and empty lists are not given) over environment and file.

        Raises:
            UsageError: a value is wrong or a key is unknown; the message names each.
        """
        if file is not None and not file.is_file():
            raise UsageError(f"there is no configuration file {file}", hint="--config names a TOML file")
        given = {key: value for key, value in flags.items() if value is not None and value != []}
        reader = cls if file is None else type(cls.__name__, (cls,), {"_file": file, "__module__": cls.__module__})
        try:
            found: Self = reader(**given)
            return found
        except ValidationError as error:
            raise UsageError(_explain(error, cls), hint=f"see: streamgp {_command(cls)} --help") from None
        except ValueError as error:  # tomllib.TOMLDecodeError
            raise UsageError(f"{file}: {error}", hint="the file must be TOML") from None
        except RecursionError:
            raise UsageError(f"{file}: it is nested too deeply", hint="the file must be TOML of options") from None

    def check_there(self) -> None:
        """See, before the libraries are imported that read them, that the files and directories to read are there.

        Raises:
            UsageError, DataError, TableError, CheckpointError: one is not.
        """


def _command(settings: type[Settings]) -> str:
    return settings.__name__.removesuffix("Config").lower()


def _explain(error: ValidationError, settings: type[Settings]) -> str:
    """One line per wrong value: its name as a flag, and what is wrong with it."""
    lines = []
    for item in error.errors():
        if item["type"] == "default_factory_not_called":  # follows from another one
            continue
        if item["type"] == "extra_forbidden":
            lines.append(unknown(str(item["loc"][0]), settings.model_fields))
            continue
        name = "--" + ".".join(str(part) for part in item["loc"]).replace("_", "-") if item["loc"] else ""
        lines.append(f"{name}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": "))
    return "; ".join(lines)


class HelpPanel(StrEnum):
    """Headings of the help pages, in the order in which they are listed."""

    TABLE = "Table"
    DATA = "Data"
    TEXT = "Text files"
    RECORDINGS = "Recordings"
    PROCESSING = "Processing"
    MODEL = "Model"
    FORECAST = "Forecast"
    DISTRIBUTION = "Distribution"
    ONLINE = "Online"
    BATCH = "Batch"
    ROWS = "Rows"
    METHOD = "Method"
    TEST = "Test rows"
    SIMULATION = "Simulation"
    ALARMS = "Alarms"
    REPORT = "Report"
    OUTPUT = "Output"
    RUN = "Run"
    LIMITS = "Limits"
    MESSAGES = "Messages of a broker"
    CLUSTER = "Cluster"


LEADING = (
    *("source", "checkpoint", "comparison", "table", "target", "time", "series", "every", "time_format", "timezone"),
    *(
        "melt",
        "horizon",
        "season",
        "inputs",
        "known",
        "lags",
        "level",
        "future",
        "model",
        "models",
        "against",
        "method",
    ),
    *("set", "init", "simulate", "online", "output", "plot", "predictions", "follow", "fleet", "fresh", "as_name"),
    *("dry_run", "auth", "token_file", "format", "separator", "decimal", "topic"),
)
"""Fields that are listed first under their heading, those that users need most; the others follow as declared."""


@dataclass(frozen=True)
class Flag:
    """How a field appears on the help page of its command.

    Of several in one `Annotated`, the last that says something counts: a shared type can name its value, and the class
    that uses it the panel.

    Attributes:
        panel: heading that it is listed under; default: that of the page.
        metavar: name of its value; default: its type.
        name: its flag, where that differs from the field's name.
        argument: whether it is given by position, without a flag.
        first: whether the short help page shows it; where none of a command is, that page shows all.
    """

    panel: HelpPanel | None = None
    metavar: str | None = None
    name: str | None = None
    argument: bool = False
    first: bool = False

    def place(self, name: str) -> tuple[int, int]:
        """Where its panel is on the page, and where the field of this name is in it."""
        if self.panel is None:
            return -1, 0
        return list(HelpPanel).index(self.panel), LEADING.index(name) if name in LEADING else len(LEADING)


def split_names(text: str) -> tuple[str, ...]:
    """'a, b' -> ('a', 'b'); what is empty is left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _split(value: Any) -> Any:
    """'a, b' -> ('a', 'b'); lists and single numbers pass."""
    if isinstance(value, str):
        return split_names(value)
    if isinstance(value, list | tuple):
        return tuple(part for item in value for part in (_split(item) if isinstance(item, str) else (item,)))
    return (value,)


def _split_parts(value: Any) -> Any:
    """'linear svdgp' -> ('linear', 'svdgp'), as with commas: a name has no spaces."""
    found = _split(value)
    return tuple(name for part in found for name in (part.split() if isinstance(part, str) else (part,)))


def _quantiles(value: tuple[float, ...]) -> tuple[float, ...]:
    if not all(0.0 < p < 1.0 for p in value):
        raise ValueError("quantiles are probabilities between 0 and 1, such as 0.1 and 0.9")
    return tuple(sorted(set(value)))


def _levels(value: tuple[float, ...]) -> tuple[float, ...]:
    if not value or not all(1.0 <= level < 100.0 for level in value):
        raise ValueError("levels are percentages from 1 to below 100, such as 80 and 95")
    return tuple(sorted(set(value)))


_NO_SEASON = (
    "seasons are counts of rows from 1 on, such as 48,336, lengths of time such as 1d,7d, or clock, auto or none"
)


def _split_seasons(value: Any) -> Any:
    """'48,336' -> (48, 336); '1d, 7d', which the table makes rows of, -> '1d,7d'; clock and auto stay; none -> ().

    Raises:
        ValueError: a part is neither a number nor a length of time.
    """
    found = _split(value)
    if found in (("clock",), ("auto",)):
        return found[0]
    if found == ("none",):
        return ()
    if any(isinstance(part, str) and nanoseconds(part) is not None for part in found):
        if all(str(part).isdecimal() or nanoseconds(str(part)) is not None for part in found):
            return ",".join(map(str, found))
        raise ValueError(_NO_SEASON)
    try:
        return tuple(int(part) for part in found)
    except (TypeError, ValueError):
        raise ValueError(_NO_SEASON) from None


def _seasons(value: tuple[int, ...] | str) -> tuple[int, ...] | str:
    if isinstance(value, str):
        return value
    if any(season < 1 for season in value):
        raise ValueError(_NO_SEASON)
    return tuple(sorted({season for season in value if season > 1}))


def _steps(value: Any) -> Any:
    """A number of rows.

    Raises:
        ValueError: it is a length of time.

    Example:
        >>> _steps("48"), _steps(3)
        ('48', 3)
    """
    length = nanoseconds(value) if isinstance(value, str) else None
    if length is None:
        return value
    parts = [(name, *divmod(length, every)) for name, every in _USUAL.items()]
    known = ", of rows every ".join(f"{name} {rows:,}" for name, rows, rest in parts if rows and not rest)
    example = f": of rows every {known}" if known else ""
    raise ValueError(f"{value} is a length of time, and steps are rows of the table{example}")


_USUAL = {name: minutes * 60 * 10**9 for name, minutes in (("1h", 60), ("30m", 30), ("15m", 15))}


def _bytes(value: Any) -> Any:
    """'4GB', '500 MiB' or a number in bytes.

    Raises:
        ValueError: it is none.

    Example:
        >>> _bytes("4GB"), _bytes("1.5 KiB"), _bytes(10)
        (4000000000, 1536, 10)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*)\s*", str(value).lower())
    unit = _UNITS.get(found[2].removesuffix("b")) if found is not None else None
    if found is None or unit is None or not float(found[1]):
        raise ValueError(f"{value!r} is no amount of memory: such as 4GB")
    return round(float(found[1]) * unit)


def _seconds(value: Any) -> Any:
    """'60s', '5m' or '1h' in seconds; numbers pass.

    Raises:
        ValueError: it is no length of time.

    Example:
        >>> _seconds("1.5h"), _seconds(3)
        (5400.0, 3)
    """
    if not isinstance(value, str):
        return value
    try:
        return float(value[:-1]) * _TIMES[value[-1]] if value[-1:] in _TIMES else float(value)
    except ValueError:
        raise ValueError(f"{value!r} is no length of time: such as 90s, 5m, 2h or 1d") from None


def _ahead(value: Any) -> Any:
    """A length of time, or none, which is infinity.

    Example:
        >>> _ahead("1d"), _ahead("none")
        (86400.0, inf)
    """
    return math.inf if value == "none" else _seconds(value)


def _assignments(value: Any) -> Any:
    """'key=value' words as a mapping; the last of a key counts. A mapping passes.

    Raises:
        ValueError: a word has no '='.

    Example:
        >>> _assignments(["basis=64", "encoder.hidden=32"])
        {'basis': '64', 'encoder.hidden': '32'}
    """
    if not isinstance(value, list | tuple):
        return value
    found: dict[str, str] = {}
    for word in value:
        key, separator, text = str(word).partition("=")
        if not separator or not key.strip():
            raise ValueError(f"{word!r} is not key=value, such as basis=512")
        found[key.strip()] = text.strip()
    return found


def _on_alarm(value: str) -> str:
    """A command that is there, or an http(s) URL. The message does not repeat it: it may hold a secret.

    Raises:
        ValueError: it is neither.
    """
    try:
        words = shlex.split(value)
        if words and "://" in words[0]:
            found = urlsplit(words[0])
            there = len(words) == 1 and found.scheme in ("http", "https") and bool(found.hostname)
        else:
            there = bool(words) and shutil.which(words[0]) is not None
    except ValueError:  # a quote without its end, or no URL
        there = False
    if not there:
        raise ValueError("must be a command that can be started, or an http or https URL")
    return value


_TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS = {"": 1} | {f"{name}": 1000**power for power, name in enumerate("kmgt", 1)}
_UNITS |= {f"{name}i": 1024**power for power, name in enumerate("kmgt", 1)}

LARGEST = 2**31 - 1
"""Of every count: more rows or steps than that fit into no memory; what does fit is estimated from the data."""

Directory = Annotated[Path, Flag(metavar="DIR")]


def _mirrored(value: Any) -> Any:
    return mirror(value) if isinstance(value, str | Path) else value


Checkpoint = Annotated[Path, BeforeValidator(_mirrored), Flag(metavar="DIR")]
"""A directory, or a URL such as s3://bucket/run: then the directory that mirrors it."""

File = Annotated[Path, Flag(metavar="FILE")]


def _past(value: Any) -> Any:
    """'48' rows, or '2d'."""
    text = str(value)
    if (not (text.isdecimal() and int(text) <= LARGEST) and nanoseconds(text) is None) or text.strip("0") == "":
        raise ValueError(f"{value!r} is neither a number of rows nor a length of time: such as 48 or 2d")
    return text


Past = Annotated[str, BeforeValidator(_past)]
"""A number of rows, or a length of time."""

TableUri = Annotated[str, BeforeValidator(str), Flag(metavar="DIR")]
"""A directory, or a URL such as s3://bucket/table: no Path, which would lose a slash of the URL."""

Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), Flag(metavar="COL")]
"""Column names or patterns: 'a,b*' or a list."""

Levels = Annotated[
    tuple[float, ...],
    NoDecode,
    BeforeValidator(_split),
    AfterValidator(_levels),
    Flag(metavar="PERCENT"),
    Field(description="Levels of the bands in percent, 80,95 or repeated"),
]
"""Widths of bands."""

Seasons = Annotated[
    tuple[Annotated[int, Field(le=LARGEST)], ...] | str,
    NoDecode,
    BeforeValidator(_split_seasons),
    AfterValidator(_seasons),
    Flag(metavar="ROWS|TIME|clock|auto|none"),
]
"""Rows in each season, shortest first; () without a season. Text is turned into rows by the table."""

Steps = Annotated[int, BeforeValidator(_steps), Flag(metavar="STEPS")]
"""A number of rows, which are steps."""


def _sentinels(value: tuple[float | Literal["none"], ...]) -> tuple[float | Literal["none"], ...]:
    if any(one != "none" and not math.isfinite(one) for one in value):
        raise ValueError("sentinels are numbers, such as -999 or -999,9999, or none")
    return value


Sentinels = Annotated[
    tuple[float | Literal["none"], ...],
    NoDecode,
    BeforeValidator(_split),
    AfterValidator(_sentinels),
    Flag(metavar="VALUE|none"),
]
"""Values that stand for a missing one; with none, no others are looked for."""

Quantiles = Annotated[
    tuple[float, ...],
    NoDecode,
    BeforeValidator(_split),
    AfterValidator(_quantiles),
    Flag(metavar="P"),
    Field(description="Quantiles to write beside the bands, such as 0.1,0.5,0.9; default: none"),
]
"""Probabilities."""

Bytes = Annotated[int, BeforeValidator(_bytes), Flag(metavar="SIZE")]
"""An amount of memory, such as 4GB."""

Seconds = Annotated[float, BeforeValidator(_seconds), Flag(metavar="TIME")]
"""A length of time, such as 60s, 5m or 1h."""

Ahead = Annotated[float, BeforeValidator(_ahead), Field(ge=0), Flag(metavar="TIME")]
"""How far the time of a row may be ahead, in seconds; infinity: any."""

AHEAD = 86_400.0
"""Of rows that come live, on a clock with dates."""


def _named(value: Any) -> Any:
    """As it is; modules of other packages that stand in it are the user's choice, and may be imported."""
    registry.trust(str(value))
    return value


Part = Annotated[str, AfterValidator(_named), Flag(metavar="NAME")]
"""The name of a part, or the dotted path of a module."""

Parts = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_split_parts), AfterValidator(_named), Flag(metavar="NAME")
]
"""Names of parts."""

Late = Annotated[
    Literal["skip", "use"],
    Field(
        description="Late rows, older than one already read of their series (with --lateness: later than it allows): "
        "skip drops them; use takes them as past values of later forecasts and as truths of open ones, and needs a "
        "table with --every"
    ),
]
AlarmRate = Annotated[
    float | None,
    Flag(metavar="SHARE"),
    Field(
        gt=0,
        le=0.1,
        description="Raise alarms at this nominal false-alarm rate, such as 0.001: at rows that are improbable under "
        "their forecast, and, together at most as often, at changes and stuck values; also where a target has had no "
        "value for longer than its gaps explain; default: none",
    ),
]
"""The nominal share of rows that are flagged."""

Ratio = Annotated[float | None, Flag(metavar="RATIO"), Field(gt=0, allow_inf_nan=False)]
"""How many times another number a number is."""

AlarmFile = Annotated[
    Path | None,
    Flag(metavar="FILE.parquet"),
    Field(description="Write the scored rows that raised an alarm, and silences; default: nowhere"),
]
"""The rows of `--predictions` that raised one."""

OnAlarm = Annotated[
    Annotated[str, AfterValidator(_on_alarm)] | None,
    Flag(metavar="COMMAND|URL"),
    Field(
        description="Where alarms go, as JSON: the standard input of a command, started without a shell, or a POST "
        "request to an http(s) URL; a failure is reported and stops nothing; default: nowhere",
    ),
]
"""What alarms are passed on to."""

Assignments = Annotated[
    dict[str, Any], BeforeValidator(_assignments), AfterValidator(_named), Flag(metavar="KEY=VALUE")
]
"""Options of a part: a mapping, or words key=value."""

Seed = Annotated[int, Flag(metavar="SEED"), Field(ge=0, le=2**63 - 1, description="Random seed")]

TrackingUri = Annotated[
    str | None,
    Flag(metavar="URI|none"),
    Field(description="MLflow store, or none; default: MLFLOW_TRACKING_URI, else ./mlflow.db"),
]
MaxMemory = Annotated[
    Bytes | None,
    Field(
        description="Refuse a run that is estimated to need more memory, such as 4GB; "
        "default: half of what is available"
    ),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], Field(description="Device to compute on")]
Engine = Annotated[
    Literal["local", "ray"],
    Flag(HelpPanel.CLUSTER),
    Field(description="Where the work is done: in this process, or by workers (extra ray), with the same numbers"),
]
"""Where the work is done."""

Sample = Annotated[
    int | None,
    Flag(HelpPanel.BATCH, "WINDOWS"),
    Field(
        ge=20,
        le=LARGEST,
        description="Hold at most this many windows in memory, from which hyper-parameters and basis are chosen, and "
        "read the others again from the table whenever they are summed; default: hold all",
    ),
]
"""How many windows training in batch holds."""

Workers = Annotated[
    int | None,
    Flag(HelpPanel.CLUSTER, "COUNT"),
    Field(ge=1, le=64, description="Worker processes of --engine ray; default: one a CPU"),
]
"""How many processes share the work."""

Address = Annotated[
    str | None,
    Flag(HelpPanel.CLUSTER, "HOST:PORT|auto"),
    Field(description="Ray cluster to use, as RAY_ADDRESS; default: workers on this machine, which no other can reach"),
]
"""Of a Ray cluster."""
