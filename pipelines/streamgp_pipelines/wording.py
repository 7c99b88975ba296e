"""Errors and warnings in the words of Python: messages are written once, with flags; a program has arguments.

`checked` is on every public function of the Python API. What it raises says `season=[48, 336]` where the command line
says `--season 48,336`, and the hint stands below the traceback.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, signature
from operator import index
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from streamgp import registry
from streamgp import sklearn as estimators
from streamgp.errors import StreamgpError, StreamgpWarning, UsageError
from streamgp_pipelines.options import instead, unknown


class UnknownArgument(UsageError, TypeError):
    """An argument that a function has not: Python's own kind of error, which names the right one."""


_MATRIX = (
    "a frame has its target as a column; of a matrix of inputs and a vector of targets there are the estimators of "
    "streamgp.sklearn: SVDGPRegressor().fit(X, y)"
)

Given = ParamSpec("Given")
Made = TypeVar("Made")


def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, with errors in the words of Python; an option that it has not is one that names the closest."""
    given = signature(function).parameters
    known = [name for name in given if name not in ("self", "cls")]
    names_all = all(one.kind is not Parameter.VAR_KEYWORD for one in given.values())
    interface = function.__qualname__.partition(".")[0]
    places_of = [one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for one in given.values()]
    whole = [
        (place, name) for place, (name, one) in enumerate(given.items()) if one.annotation in ("int", "int | None")
    ]
    whole = [] if function.__name__ == "__init__" else whole  # whose options are checked together
    most = sum(places_of) if all(one.kind is not Parameter.VAR_POSITIONAL for one in given.values()) else sys.maxsize

    @wraps(function)
    def call(*places: Given.args, **options: Given.kwargs) -> Made:
        try:
            if names_all and (wrong := [name for name in options if name not in known]):
                typed = [text for name in wrong if (text := instead(name, options[name], known))]
                hint = (f"write {', '.join(typed)}; " if typed else "") + f"it has: {', '.join(known)}"
                raise UnknownArgument("; ".join(unknown(name, known) for name in wrong), hint=hint)
            if len(places) > most:
                own = "self" in given or "cls" in given
                text = f"{function.__name__} takes {most - own} arguments by their places, not {len(places) - own}"
                hint = _MATRIX if "df" in given or "frame" in given else f"it has: {', '.join(known)}"
                raise UnknownArgument(text, hint=hint)
            for place, name in whole:
                if name in options:
                    options[name] = _whole(name, options[name])
                elif place < len(places):
                    places = (*places[:place], _whole(name, places[place]), *places[place + 1 :])  # type: ignore[assignment]
            return function(*places, **options)
        except StreamgpError as error:
            _say(error, interface)
            raise

    return call


def _whole(name: str, value: Any) -> int | None:
    """An argument that is a whole number, or left out.

    Raises:
        UsageError: it is neither.

    Example:
        >>> _whole("h", 2.0), _whole("h", None)
        (2, None)
    """
    if value is None or isinstance(value, int):
        return value
    try:
        if isinstance(value, float) and value == int(value):
            return int(value)
        return index(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name}={value!r}: {name} is a whole number", hint=f"such as {name}=2") from None


class Told:
    """Issues each warning once, in the words of Python.

    Warnings that differ in numbers only are the same. One that begins with a count of rows is issued again when the
    count has one more digit.

    Example:
        >>> import warnings
        >>> told = Told()
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     for count in range(1, 101):
        ...         told([f"{count} rows were not learned"])
        >>> [str(one.message) for one in found]
        ['1 rows were not learned', '10 rows were not learned', '100 rows were not learned']
    """

    def __init__(self) -> None:
        self._before = set[str]()

    def __call__(self, texts: Iterable[str]) -> None:
        fresh = {_key(text): text for text in texts}
        warn(in_python(text) for key, text in fresh.items() if key not in self._before)
        self._before |= fresh.keys()


def _key(text: str) -> str:
    """The key of a warning: those with equal keys are issued once."""
    rows = re.match(r"\d+(?= rows )", text)
    return f"{len(rows[0]) if rows else ''} {re.sub(r'[0-9][0-9,.]*', '#', text)}"


def warn(texts: Iterable[str]) -> None:
    """Issue warnings, at the line outside of streamgp that called."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("streamgp"):
        level, frame = level + 1, frame.f_back
    for text in texts:
        warnings.warn(text, StreamgpWarning, stacklevel=level)


def in_python(text: str, interface: str = "Forecaster") -> str:
    """A message as a program reads it.

    Args:
        text: the message, with flags.
        interface: the function or the class that is called.

    Example:
        >>> in_python("use --lags 2 or more, --season 48,336, --set basis=64 or --model svgp")
        'use lags=2 or more, season=[48, 336], options={"basis": 64} or model="svgp"'
        >>> in_python("add --timezone Europe/Berlin or the like, and --every 1h")
        'add timezone="Europe/Berlin" or the like, and every="1h"'
        >>> in_python("it looks like --time 'Zeit' --time-format '%d.%m.%Y'")
        "it looks like time='Zeit', time_format='%d.%m.%Y'"
        >>> in_python("leave --calendar out; see: streamgp train --help")
        'leave calendar= out; see: help(streamgp.Forecaster)'
        >>> in_python("train again: streamgp train --fresh", "fit_stream"), in_python("add --fleet")
        ('train again: fit_stream(fresh=True)', 'add fleet=True of fit_stream')
        >>> in_python("--set basis: it is 0, and --set growth=0.1", "SVDGPRegressor")
        'basis: it is 0, and options={"growth": 0.1}'
    """
    caller = _caller(interface)
    text = re.sub(r"streamgp (train|compare|ingest) --help", f"help(streamgp.{interface})", text)
    for pattern, ours in caller.phrases:
        text = re.sub(pattern, ours, text)
    text = _COMMAND.sub(caller.command, text)
    text = _ARGUMENTS.sub(r"\1, ", _FLAG.sub(caller.argument, text))
    return _TWICE.sub(r"\1", text)


_ARGUMENTS = re.compile(r"""(\b\w+=(?:"[^"]*"|'[^']*')) (?=\w+=["'])""")
"""One argument after another, without a comma."""
_TWICE = re.compile(r"(streamgp ingest with \S+) of streamgp ingest")
"""An argument of a command that the sentence names already."""
_WORD = r"'[^']*'|\"[^\"]*\"|[^\s,;()]+(?:,[^\s,;()]+)*"
_FLAG = re.compile(rf"(?<![\w-])--(?P<flag>[a-z]+(?:-[a-z]+)*)(?:\.\w+)*(?P<colon>:)?(?: (?P<value>{_WORD}))?")
_COMMAND = re.compile(
    r"(?P<whole>streamgp (?P<name>[a-z]+)(?P<rest>(?: [A-Z][A-Z.]+| --(?:table|checkpoint|comparison) \S+"
    r"| --[a-z-]+(?: [A-Z0-9]\S*)?)*))"
)
_FRAMES = (
    (r"ingest it into another table", "give it to another Forecaster"),
    (r"ingest the source into a new table with --sort to interleave them by time", "sort the frame by time"),
    (r"streamgp ingest with (--every \S+ makes (them gaps|it a gap)), also of this table", r"\1"),
    (r"say so in a new table", "make a new Forecaster that says so"),
    (r"ingest the source into a new table|ingest( again)? into a new table|in a new table", "make a new Forecaster"),
    (r"does not fit the table", "does not fit the first frame"),
    (r"(\w+), (\w+) in the table", r"\1, \2 in the first frame"),
    (r"is not in the table", "is not in the first frame"),
    (r"\b(the|this) table\b", "the frame"),
    (r"\btrain on more rows", "learn more rows"),
    (r" and --fresh|, or begin again with --fresh", ""),
    (r"start with --fresh|train again with --fresh", "make a new Forecaster"),
)

_MATRICES = (
    (r"use --model svgp, qsgp or svdgp, which", "use SVGPRegressor, QSGPRegressor or SVDGPRegressor, which"),
    (r"use --model exact, svgp or qsgp, which", "use ExactGPRegressor, SVGPRegressor or QSGPRegressor, which"),
    (r" \(--warmup on a stream\)", ""),
    (r"give --lags, and columns to look back on, or a perceptron \(.*?\)", "use encoder mlp"),
    (r"see: streamgp models (\w+)", r"the command streamgp models \1 lists the options"),
)
"""Of an estimator, which has a matrix and no stream."""


@dataclass(frozen=True)
class _Caller:
    """What is called.

    Attributes:
        name: of the function or class. commands: those of the command line that it is the same as.
        arguments: what it takes.
        phrases: pattern -> what to say instead, before flags are read.
        estimator: whether it takes no table, and some options of its model as arguments.
    """

    name: str
    commands: tuple[str, ...]
    arguments: frozenset[str]
    phrases: tuple[tuple[str, str], ...] = ()
    estimator: bool = False

    def command(self, found: re.Match[str]) -> str:
        """A command line: a call where it is this function, else the command alone."""
        flags = found["rest"]
        if "--" not in flags:
            return found["whole"]
        if found["name"] not in self.commands or self.name == "Forecaster":
            return f"streamgp {found['name']}"
        return f"{self.name}({_FLAG.sub(self.argument, flags).strip()})"

    def argument(self, found: re.Match[str]) -> str:
        """A flag, and its value where one follows."""
        flag, word = found["flag"], found["value"]
        name = flag.replace("-", "_")
        if name not in _fields():
            return found[0]
        name = next((own for own in _RENAMED.get(name, ()) if own in self.arguments), name)
        rest = "" if word is None else f" {word}"
        if found["colon"]:
            return f"{name}:{rest}"
        bare = "" if word is None else word.rstrip(".:")
        if self.estimator and name == "options" and bare and bare.partition("=")[0] in self.arguments:
            return word or ""
        value = _value(name, bare) if bare else None
        if value is not None:
            said, rest = f"{name}={value}", (word or "")[len(bare) :]
        else:
            kind = _fields().get(name.removeprefix("no_"), _fields()[name])
            said = f"{name}=" + ("True" if kind is bool and word != "out" else "")
        if name not in self.arguments and name not in _caller("fit_stream").arguments:
            said = said.removesuffix("=True").removesuffix("=")  # of a command, which is no call
        return said + self._of(name) + rest

    def _of(self, name: str) -> str:
        """Where an argument is that this has not."""
        if name in self.arguments or self.estimator:
            return ""
        if self.name != "fit_stream" and name in _caller("fit_stream").arguments:
            return " of fit_stream"
        return " of streamgp ingest" if name in _config().IngestConfig.model_fields else ""


_RENAMED = {"set": ("options",), "level": ("levels",), "as": ("as_name",), "schema": ("message_schema",)}


@cache
def _caller(name: str) -> _Caller:
    import streamgp

    config = _config()
    if name == "Forecaster":
        known = [*signature(streamgp.Forecaster).parameters, "future", "paths", "path"]
        return _Caller(name, ("train",), frozenset(known), _FRAMES)
    if name in estimators.__all__:
        known = [*signature(getattr(estimators, name)).parameters]
        return _Caller(name, (), frozenset(known), _MATRICES, estimator=True)
    settings = config.CompareConfig if name == "compare" else config.TrainConfig
    own = signature(getattr(streamgp, name, streamgp.fit_stream)).parameters
    return _Caller(name, ("compare",) if name == "compare" else ("train",), frozenset({*own, *settings.model_fields}))


def _config() -> Any:
    from streamgp_pipelines import config  # which reads options, and so what is here, itself

    return config


@cache
def _fields() -> dict[str, Any]:
    """Kind of every option, by the name of its argument."""
    config = _config()
    commands = (config.IngestConfig, config.ForecastConfig, config.CompareConfig, config.TrainConfig, config.TuneConfig)
    found = {name: field.annotation for one in commands for name, field in one.model_fields.items()}
    more = dict.fromkeys(("as", "schema", "levels", "options", "strict", "sort", "mend"), str)
    return found | {name: kind for name, kind in more.items() if name not in found}


def _value(name: str, word: str) -> str | None:
    """A word after a flag as Python has it; None where it is no value, but a part of the sentence."""
    if word[0] in "'\"" or re.fullmatch(r"-?\d+(\.\d+)?", word):
        return word
    if re.fullmatch(r"\d+(,\d+)+", word):
        return f"[{', '.join(word.split(','))}]"
    if name in ("options", "set"):
        key, given, value = word.partition("=")
        plain = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
        return f'{{"{key}": {value if plain else repr(value) if given else "..."}}}'.replace("'", '"')
    if re.fullmatch(r"[A-Z][A-Z|:]+(\.[a-z]+)?|[A-Z]", word):
        return word
    named = word in _choices(_fields().get(name)) or word in ("row", "auto") or word[0].isdigit()
    named = named or (name in ("model", "models") and word in registry.names("models"))
    named = named or (name == "transform" and "=" in word) or (name == "timezone" and "/" in word)
    named = named or (name == "time_format" and re.fullmatch(r"elapsed-\w+|excel|step|unix\S*", word) is not None)
    return f'"{word}"' if named else None


def _choices(kind: Any) -> set[str]:
    """Words that a type allows."""
    if get_origin(kind) is Literal:
        return {str(one) for one in get_args(kind)}
    return {word for one in get_args(kind) for word in _choices(one)}


def _say(error: StreamgpError, interface: str) -> None:
    """The error in the words of Python, once."""
    if "__notes__" in vars(error):
        return
    error.message = in_python(error.message, interface)
    error.hint = in_python(error.python or error.hint, interface)
    error.args = (error.message,)
    error.add_note(f"hint: {error.hint}" if error.hint else "")
