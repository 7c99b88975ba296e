"""Write what the pages and the types say of options from where each is declared once: the settings, and the Configs.

    python docs/make_options.py

rewrites the end of pipelines/streamgp_pipelines/options.py, and the tables of options in docs/guides, which stand
between `<!-- options: MODEL -->` and `<!-- end of options -->`. The tests fail where they are not as this would write
them.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator

from streamgp import registry
from streamgp_cli.models import few_of, once, options_of
from streamgp_pipelines.config import CompareConfig, TrainConfig
from streamgp_pipelines.config.runs import RunConfig

FILE = Path(__file__).parents[1] / "pipelines" / "streamgp_pipelines" / "options.py"
MARK = "# What follows is written by docs/make_options.py from the settings.\n"
GUIDES = Path(__file__).parent / "guides"
TABLE = re.compile(r"(<!-- options: (\w+) -->)\n.*?(<!-- end of options -->)", re.DOTALL)
POSITIONAL = {"table", "target", "models"}
"""Options that the functions have as arguments of their own."""
WIDER = {
    "season": "str | int | Sequence[int | str]",
    "lags": "int | None",
    "horizon": "int",
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


def guides() -> list[Path]:
    """The pages that have tables of options."""
    return [path for path in sorted(GUIDES.glob("*.md")) if TABLE.search(path.read_text("utf-8"))]


def with_tables(text: str) -> str:
    """A page with its tables of options written again."""
    return TABLE.sub(lambda found: f"{found[1]}\n{options(found[2])}\n{found[3]}", text)


def options(model: str) -> str:
    """The options of a model: the main ones, and the rest folded away. Those of parts are named, not listed."""
    config = registry.load("models", model).Config
    few, rows = few_of(config), once(options_of(config, parts=False))
    main = [row for row in rows if row["option"] in few]
    rest = [row for row in rows if row["option"] not in few]
    parts = [f"`--set OPTION=VALUE` sets one; `streamgp models {model}` lists them too.", _table(main)]
    if rest:
        what = f"<summary>{len(rest)} more options of {model}</summary>"
        parts.append(f'<details markdown="1">\n{what}\n\n{_table(rest)}\n\n</details>')
    return "\n\n".join(parts)


def _table(rows: list[dict[str, Any]]) -> str:
    """Option, type, default and meaning as a Markdown table."""
    lines = [[f"`{row['option']}`", row["type"], _default(row["default"]), row["meaning"]] for row in rows]
    cells = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in line] for line in lines]
    return "\n".join(f"|{'|'.join(line)}|" for line in [["option", "type", "default", "meaning"], ["-"] * 4, *cells])


def _default(value: Any) -> str:
    """A default as it would be typed.

    Example:
        >>> [_default(value) for value in (True, None, (1, 2), 4000, "auto")]
        ['yes', 'none', '1,2', '4000', 'auto']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(_default, value))
    return "none" if value is None else str(value)


if __name__ == "__main__":
    FILE.write_text(render(), "utf-8")
    for page in guides():
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
