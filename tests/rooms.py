"""Which tests are those of a room: `make test ROOM=kernels` runs what `python tests/rooms.py kernels` prints.

A room is a folder or a file of a package, named with its package or without; a package is a room, too. Its tests are
those in a folder of its name and those whose file begins with its name. Where there are none, they are those that
import more from it than from any other room; else those that name it (a command, in quotes); else the fewest of a room
that imports it. The room itself comes last, for its doctests. A file inside a room, given by its path, has the tests
that import from it, or else those of its room.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamgp", "pipelines/streamgp_data", "pipelines/streamgp_pipelines", "cli/streamgp_cli")
HOMES = {
    "streamgp_data": ("data", "contracts", "live", "pipelines"),
    "streamgp_pipelines": ("pipelines", "adapters", "serving", "live"),
    "streamgp_cli": ("cli",),
}
"""Package -> folders of its tests; those of `streamgp` are all that none of these has, and the contracts."""
EVERYWHERE = ("streamgp.base", "streamgp.errors")
"""Rooms that most tests import from, whatever they test."""
IMPORT = re.compile(r"^\s*(?:from|import) (streamgp\w*)(?:\.| import )(\w+)", re.MULTILINE)


@cache
def rooms() -> dict[str, Path]:
    """`streamgp.kernels` -> its folder or file."""
    return {
        f"{package.rpartition('/')[2]}.{path.stem}": path
        for package in PACKAGES
        for path in sorted((ROOT / package).iterdir())
        if not path.name.startswith("_") and (path.suffix == ".py" or any(path.glob("*.py")))
    }


@cache
def tests(package: str) -> dict[Path, str]:
    """The files of tests of a package, with their text."""
    others = {name for names in HOMES.values() for name in names} - {"contracts"} | {"benchmarks", "faults", "browser"}
    tops = HOMES.get(package) or sorted({path.name for path in (ROOT / "tests").iterdir()} - others)
    paths = [path for top in tops for path in ((ROOT / "tests" / top).rglob("test_*.py") if "." not in top else ())]
    loose = [] if package in HOMES else (ROOT / "tests").glob("test_*.py")
    return {path: path.read_text("utf-8") for path in sorted([*paths, *loose])}


def named(room: str, path: Path) -> bool:
    """Whether a file of tests has the name of a room, or is in a folder of it: test_ingest_units.py, of `ingestion`."""
    word = path.stem.removeprefix("test_").partition("_")[0]
    if (len(word) > 5 and room.startswith(word)) or re.fullmatch(rf"test_{room}(_\w+)?", path.stem):
        return True
    return room in path.relative_to(ROOT / "tests").parts[:-1]


@cache
def imported(text: str) -> Counter[str]:
    """Room -> how often a file of tests imports from it."""
    return Counter(f"{package}.{name}" for package, name in IMPORT.findall(text))


def mainly(room: str, text: str) -> bool:
    """Whether a file of tests imports more from this room than from any other."""
    found = imported(text)
    return found[room] > max((found[name] for name in found if name not in (room, *EVERYWHERE)), default=0)


@cache
def of(room: str) -> list[Path]:
    """A room, as `rooms` names it -> its tests."""
    package, _, name = room.partition(".")
    files = tests(package)
    shown = re.compile(rf'"{name}"' if package == "streamgp_cli" else rf"\b{package}\.{name}\b")
    return (
        [path for path in files if named(name, path)]
        or [path for path, text in files.items() if mainly(room, text)]
        or [path for path, text in files.items() if shown.search(text)]
        or min(filter(None, (of(one) for one in importers(room) if one != room)), key=len, default=[])
    )


@cache
def sources() -> dict[str, str]:
    """Room -> the text of all its files."""
    files = {room: path.rglob("*.py") if path.is_dir() else [path] for room, path in rooms().items()}
    return {room: "\n".join(path.read_text("utf-8") for path in paths) for room, paths in files.items()}


def importers(room: str) -> list[str]:
    """Rooms of the same package that import this one."""
    package, _, name = room.partition(".")
    imports = re.compile(rf"^\s*from {package}(\.{name}\b| import .*\b{name}\b)", re.MULTILINE)
    return [one for one, text in sources().items() if one.startswith(f"{package}.") and imports.search(text)]


def inside(file: Path) -> list[Path]:
    """A file inside a room -> the tests that import from it and the contracts, or else the tests of the room."""
    home = next(ROOT / one for one in PACKAGES if file.is_relative_to(ROOT / one))
    *above, name = file.relative_to(home.parent).with_suffix("").parts
    imports = re.compile(rf"^\s*from {re.escape('.'.join(above))}(\.{name}\b| import .*\b{name}\b)", re.MULTILINE)
    room = of(".".join([*above, name][:2]))
    found = [path for path, text in tests(home.name).items() if imports.search(text)]
    laws = [path for path in room if path.parent.name == "contracts" and path not in found]
    return [*found, *laws] if found else room


def asked(text: str) -> list[Path]:
    """What is typed -> its tests, and itself for its doctests. Raises: ValueError, with the rooms that there are."""
    file = (ROOT / text).resolve()
    if file.is_file() and any(ROOT / one in file.parents[1:] for one in PACKAGES):
        return [*inside(file), file]
    typed = re.sub(r"^(pipelines|cli)\.(?=streamgp)|\.py$", "", text.strip("/").replace("/", "."))
    package = {"pipelines": "streamgp_pipelines", "data": "streamgp_data", "cli": "streamgp_cli"}.get(typed, typed)
    if package in HOMES:
        place = next(ROOT / one for one in PACKAGES if one.endswith(package))
        return [*tests(package), place]
    found = [room for room in rooms() if typed in (room, room.partition(".")[2])]
    if not found:
        lines = [
            f"  {one}: {', '.join(room.partition('.')[2] for room in rooms() if room.startswith(one + '.'))}"
            for one in ("streamgp", *HOMES)
        ]
        raise ValueError(f"there is no room {text!r}; there are data, pipelines, cli, and\n" + "\n".join(lines))
    return list(dict.fromkeys(path for room in found for path in [*of(room), rooms()[room]]))


if __name__ == "__main__":
    try:
        print(*(path.relative_to(ROOT) for text in sys.argv[1:] for path in asked(text)))
    except ValueError as error:
        sys.exit(str(error))
