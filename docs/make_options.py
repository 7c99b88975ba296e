"""Write the types of the options in Python from the settings of the commands, where each is declared once.

    python docs/make_options.py

rewrites the end of pipelines/streamgp_pipelines/options.py; the tests fail where it is not as this would write it.
"""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator

from streamgp_pipelines.config import CompareConfig, TrainConfig
from streamgp_pipelines.config.runs import RunConfig

FILE = Path(__file__).parents[1] / "pipelines" / "streamgp_pipelines" / "options.py"
MARK = "# What follows is written by docs/make_options.py from the settings.\n"
POSITIONAL = {"table", "target", "models"}
"""Options that the functions have as arguments of their own."""
WIDER = {
    "season": "str | int | Sequence[int]",
    "sentinel": "str | float | Sequence[str | float]",
    "score_from": "str | int | None",
    "TrainConfig.set": "Mapping[str, OptionValue]",
    "CompareConfig.set": "Mapping[str, OptionValue] | Sequence[str]",
}
"""What Python takes beside what its type says."""


def python_type(annotation: Any, text: bool = False) -> str:
    """How a type is written; text: whether it is also read from text.

    Example:
        >>> python_type(Path | None), python_type(tuple[str, ...]), python_type(Literal["a", "b"])
        ('str | Path | None', 'Names', 'Literal["a", "b"]')
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return python_type(inner[0], text or any(isinstance(one, BeforeValidator) for one in inner[1:]))
    if origin in (Union, UnionType):
        return " | ".join(python_type(one, text) for one in inner)
    if origin is Literal:
        return f"Literal[{', '.join(f'{chr(34)}{one}{chr(34)}' for one in inner)}]"
    if origin is tuple:
        return "Names" if inner[0] is str else "Numbers"
    if annotation is NoneType:
        return "None"
    name: str = annotation.__name__
    return f"str | {name}" if (text and name != "str") or annotation is Path else name


def typed(title: str, doc: str, config: type[RunConfig], base: str, without: set[str]) -> str:
    """The class of the options of a command."""
    hints = get_type_hints(config, include_extras=True)
    lines = [f"class {title}({base}, total=False):", f'    """{doc}"""', ""]
    for name in config.model_fields:
        if name not in POSITIONAL | without:
            kind = WIDER.get(f"{config.__name__}.{name}") or WIDER.get(name) or python_type(hints[name])
            lines.append(f"    {name}: {kind}")
    return "\n".join(lines)


def render() -> str:
    """The whole file."""
    kept = FILE.read_text("utf-8").partition(MARK)[0]
    shared = (TrainConfig.model_fields.keys() & CompareConfig.model_fields.keys()) - {"set"}
    parts = [
        typed("RunOptions", "What `train` and `compare` share.", RunConfig, "TypedDict", set()),
        typed("TrainOptions", "Of `fit_stream`.", TrainConfig, "RunOptions", shared),
        typed("CompareOptions", "Of `compare`; `set` has NAME.KEY.", CompareConfig, "RunOptions", shared),
    ]
    return kept + MARK + "\n\n" + "\n\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(render(), "utf-8")
