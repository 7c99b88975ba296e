"""Draw docs/pictures/architecture.svg: the rooms of the four packages, by floors, and which room imports which.

    python docs/make_architecture.py [--count]

A room is a folder of `streamgp`, `streamgp_data` or `streamgp_pipelines`, or one of their files that stands alone. It
stands one floor above the highest room that it imports, so that every arrow points down. With --count, the number of
rooms, arrows and floors is printed, and of the rooms inside streamgp/models alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from functools import cache
from html import escape
from pathlib import Path

import grimp

PACKAGES = ("streamgp", "streamgp_data", "streamgp_pipelines", "streamgp_cli")
PICTURE = Path(__file__).parent / "pictures" / "architecture.svg"
WIDTH, HEIGHT, GAP, FLOOR = 132, 30, 14, 74
COLOURS = {
    "streamgp": "#dcebf7",
    "streamgp_data": "#f3e3ee",
    "streamgp_pipelines": "#e4f2dc",
    "streamgp_cli": "#fbeccd",
}


def room_of(module: str, depth: int) -> str:
    """The room that a module belongs to: `depth` levels below its package."""
    return ".".join(module.split(".")[: depth + 1])


def arrows(graph: grimp.ImportGraph, inside: str = "", depth: int = 1) -> dict[str, set[str]]:
    """Room -> rooms that it imports. inside: only modules below this one."""
    found: dict[str, set[str]] = defaultdict(set)
    modules = [name for name in graph.modules if name.startswith(inside) and name not in PACKAGES]
    for module in modules:
        room = room_of(module, depth)
        found[room]  # a room that imports nothing is a room
        for other in graph.find_modules_directly_imported_by(module):
            target = room_of(other, depth)
            if other in modules and target != room:
                found[room].add(target)
    return dict(found)


def floors(imports: dict[str, set[str]]) -> dict[str, int]:
    """Room -> its floor; the ground floor is 0."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(other) for other in imports[room]), default=-1)

    return {room: floor(room) for room in imports}


def reduced(imports: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows that no longer path stands for."""

    @cache
    def reach(room: str) -> frozenset[str]:
        return frozenset().union(*({other} | reach(other) for other in imports[room]), frozenset())

    return {
        (room, other)
        for room, others in imports.items()
        for other in others
        if not any(other in reach(third) for third in others - {other})
    }


def draw(imports: dict[str, set[str]]) -> str:
    """The picture as SVG."""
    levels: dict[int, list[str]] = defaultdict(list)
    for room, floor in floors(imports).items():
        levels[floor].append(room)
    top, widest = max(levels), max(map(len, levels.values()))
    width, height = widest * (WIDTH + GAP) + GAP, (top + 1) * FLOOR + GAP
    place: dict[str, tuple[float, float]] = {}
    for floor, rooms in levels.items():
        left = (width - len(rooms) * (WIDTH + GAP) + GAP) / 2
        for number, room in enumerate(sorted(rooms)):
            place[room] = (left + number * (WIDTH + GAP), (top - floor) * FLOOR + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        '<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z" fill="#9aa5ad"/></marker></defs>',
    ]
    for room, other in sorted(reduced(imports)):
        (x, y), (u, v) = place[room], place[other]
        lines.append(
            f'<line x1="{x + WIDTH / 2:.0f}" y1="{y + HEIGHT:.0f}" x2="{u + WIDTH / 2:.0f}" y2="{v:.0f}" '
            'stroke="#9aa5ad" marker-end="url(#a)"/>'
        )
    for room, (x, y) in sorted(place.items()):
        package, _, name = room.partition(".")
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="{COLOURS[package]}" '
            f'stroke="#5b6870"/><text x="{x + WIDTH / 2:.0f}" y="{y + 20:.0f}" text-anchor="middle">'
            f"{escape(name or package)}</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Draw, and count if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="print rooms, arrows and floors")
    asked = parser.parse_args()
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    whole = {room: others for room, others in arrows(graph).items() if not room.startswith("streamgp_cli.")}
    whole["streamgp_cli"] = {
        target
        for room, others in arrows(graph).items()
        if room.startswith("streamgp_cli.")
        for target in others
        if not target.startswith("streamgp_cli")
    }
    PICTURE.write_text(draw(whole), encoding="utf-8")
    if asked.count:
        for name, imports in (
            ("the house", whole),
            ("streamgp/models, by folders", arrows(graph, "streamgp.models.", 2)),
            ("streamgp/models, by files", arrows(graph, "streamgp.models.", 9)),
        ):
            count = sum(map(len, imports.values()))
            print(f"{name}: {len(imports)} rooms, {count} arrows, {max(floors(imports).values()) + 1} floors")


if __name__ == "__main__":
    main()
