"""What a format of recordings gives: blocks of samples of named signals. Everything after that is shared."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from streamgp.errors import UsageError

Times: TypeAlias = "NDArray[np.int64]"
Values: TypeAlias = "NDArray[np.float64]"
Wanted: TypeAlias = Callable[[str], bool]
"""Whether a signal, by its name, is to be read."""

BLOCK = 1 << 16
"""Samples of a block."""
NEVER = 1 << 62
"""Nanoseconds that are no time."""
WIDEST = 64
"""Elements of an array that become a signal each; a longer one (an image, a scan) is left out."""


class RecordingOptions(BaseModel):
    """How signals become rows; the options of every format of recordings.

    Attributes:
        signals: patterns of the signals that become columns; none: all.
        clock: the signal whose samples are the rows, or an interval such as 10ms; None: the signal of most samples.
        join: the value of a row is the last one, the nearest one, or between both neighbours.
        max_age: nanoseconds that a sample may be away from the row that it is used for; None: any.
        salvage: whether a damaged recording gives what comes before the damage.
        look: whether it is only described: nothing is joined.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    signals: tuple[str, ...] = ()
    clock: str | None = None
    join: Literal["last", "nearest", "interpolate"] = "last"
    max_age: int | None = None
    salvage: bool = False
    look: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """Patterns of the signals that are read, the clock among them; none: all."""
        return (*self.signals, self.clock) if self.signals and self.clock else self.signals


class SignalBlock(NamedTuple):
    """Samples of signals that share their times. times: (N,) nanoseconds, of 1970 or of a start of their own.
    values: signal -> (N,)."""

    times: Times
    values: Mapping[str, Values]


class Lost(NamedTuple):
    """A sample that cannot be read: reason and detail for the quarantine, and what it was."""

    reason: str
    signal: str
    detail: str
    text: str = ""


class Recording(Protocol):
    """A file of signals, read once, front to back.

    Attributes:
        units: of signals; complete after the last block.
        left_out: what is in the file and not among the signals -> why.
        place: where reading is, for the message of an error.
    """

    units: dict[str, str]
    left_out: dict[str, str]
    place: str

    def blocks(self, wanted: Wanted) -> Iterator[SignalBlock | Lost]:
        """The samples of the wanted signals; the times of one signal mostly ascend."""


def needs(module: str, extra: str) -> Any:
    """A module of an extra.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(error.name or module, extra) from None


def missing(module: str, extra: str) -> UsageError:
    """The error of a module that is not installed."""
    return UsageError(f"this format needs {module}", hint=f"pip install 'streamgp[{extra}]'")


def tidy(name: str) -> str:
    """A signal's name as a column: the parts of its path joined by dots, without what a list of names cannot have.

    Example:
        >>> tidy("/imu/data.x"), tidy("Speed, left"), tidy("")
        ('imu.data.x', 'Speed_ left', 'signal')
    """
    return re.sub(r"[\x00-\x1f,;]", "_", name.strip().strip("/").replace("/", ".")) or "signal"


def leaves(value: Any, name: str, out: dict[str, str] | None = None) -> Iterator[tuple[str, float]]:
    """The numbers in a decoded message, with their paths; arrays that are too long go into `out`.

    Arrays of up to WIDEST elements are numbered; beside an array of names as long as they are (as in ROS's
    JointState) they have these names.

    Example:
        >>> dict(leaves({"name": ["a", "b"], "x": [1, 2.5], "ok": True, "text": "t"}, "arm"))
        {'arm.x.a': 1.0, 'arm.x.b': 2.5, 'arm.ok': 1.0}
        >>> dict(leaves({"x": [1, 2]}, "arm"))
        {'arm.x.0': 1.0, 'arm.x.1': 2.0}
    """
    if isinstance(value, bool | int | float | np.number | np.bool_):
        yield name, float(value)
    elif isinstance(value, dict):
        labels: Any = value.get("name") or value.get("names")
        texts = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
        for key, inner in value.items():
            if texts and isinstance(inner, list | np.ndarray) and len(inner) == len(labels) == len(set(labels)):
                inner = dict(zip(labels, inner, strict=True)) if inner is not labels else ""
            yield from leaves(inner, f"{name}.{key}", out)
    elif isinstance(value, list | tuple | np.ndarray) and len(value) <= WIDEST:
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{name}.{at}", out)
    elif isinstance(value, list | tuple | np.ndarray) and out is not None:
        out[name] = f"an array of more than {WIDEST} elements"


class TopicSample(NamedTuple):
    """What a topic says at a time (ns): signals with the names of columns."""

    topic: str
    time: int
    signals: Mapping[str, float]


def decoded(topic: str, time: int, decode: Callable[[], Any], recording: Recording) -> TopicSample | Lost:
    """The message of `topic` at `time` (ns) whose fields `decode` gives; or that it cannot be read.

    Example:
        >>> from types import SimpleNamespace
        >>> decoded("/imu", 5, lambda: {"x": 1}, SimpleNamespace(left_out={}, place="message 1"))
        TopicSample(topic='/imu', time=5, signals={'imu.x': 1.0})
    """
    name = tidy(topic)
    try:
        signals = {tidy(key): value for key, value in leaves(decode(), name, recording.left_out)}
    except Exception as error:  # RecursionError, and whatever the decoders raise
        return Lost("unparsable", name, f"{recording.place}: {type(error).__name__} {error}"[:300])
    return TopicSample(topic, time, signals)


def gathered(messages: Iterator[TopicSample | Lost], wanted: Wanted) -> Iterator[SignalBlock | Lost]:
    """Messages as blocks: those of a topic wait until there are about BLOCK samples, or its signals change. What came
    before an error is given before it is raised.

    Example:
        >>> said = [TopicSample("a", 1, {"x": 1.0}), TopicSample("b", 2, {"y": 0.0}), TopicSample("a", 3, {"x": 2.0})]
        >>> [(block.times.tolist(), [*block.values]) for block in gathered(iter(said), lambda name: True)]
        [([1, 3], ['x']), ([2], ['y'])]
    """
    waiting: dict[str, tuple[tuple[str, ...], list[int], list[list[float]]]] = {}

    def block(topic: str) -> Iterator[SignalBlock]:
        names, times, values = waiting.pop(topic, ((), [], []))
        kept = [at for at, name in enumerate(names) if wanted(name)]
        if kept:
            table = np.array(values, np.float64)
            yield SignalBlock(np.array(times, np.int64), {names[at]: table[:, at] for at in kept})

    try:
        for message in messages:
            if isinstance(message, Lost):
                yield message
                continue
            topic, names = message.topic, tuple(message.signals)
            found = waiting.get(topic)
            if found is None or found[0] != names or len(found[1]) * len(names) >= BLOCK:
                yield from block(topic)
                found = waiting[topic] = (names, [], [])
            found[1].append(min(message.time, NEVER))
            found[2].append(list(message.signals.values()))
    except Exception:
        for topic in list(waiting):
            yield from block(topic)
        raise
    for topic in list(waiting):
        yield from block(topic)
