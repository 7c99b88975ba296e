"""Look at the built site: screenshots of its pages at the widths of a desk and of a phone, and what axe-core finds.

    python docs/look.py [DIRECTORY]    # after `make docs`; pictures go to build/look

Exits with 1 if a page has an accessibility error or is wider than the phone. Needs chromium and the `test` extra.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from make_pictures import FLAGS

ROOT = Path(__file__).parents[1]
PAGES = (
    "index", "tutorials/energy", "tutorials/wind", "guides/online", "guides/svdgp", "results/models", "decisions/index",
    "reference/python-api", "reference/kernels", "notation", "changelog",
)  # fmt: skip
THEMES = {"landmark-unique", "scrollable-region-focusable"}  # of Material's own script and templates
WIDTHS = {"desk": 1280, "phone": 390}


@contextmanager
def browser_page() -> Iterator[Any]:
    """A page of a fresh headless chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play, TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(profile, executable_path=chromium, args=FLAGS)
        context.set_default_timeout(120_000)
        yield context.new_page()
        context.close()


def faults(page: Any, site: Path, name: str, pictures: Path | None = None) -> list[str]:
    """What is wrong with a page of the site; with a directory also its screenshots, `NAME-desk.png` and so on."""
    from axe_playwright_python.sync_playwright import Axe

    found: list[str] = []
    for device, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 1000})
        page.goto((site / f"{name}.html").as_uri())
        too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        found += [f"{too_wide} pixels too wide on a {device}"] if too_wide > 0 else []
        for one in Axe().run(page).response["violations"]:
            if one["id"] in THEMES:
                continue
            places = sorted({" ".join(node["target"][0].split()) for node in one["nodes"]})
            found.append(f"{device}: {one['id']} ({one['impact']}): {', '.join(places[:3])}")
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=pictures / f"{name.replace('/', '-')}-{device}.png", full_page=True)
    return found


def main(pictures: Path) -> int:
    """Look at every page of `PAGES`."""
    with browser_page() as page:
        wrong = {name: faults(page, ROOT / "site", name, pictures) for name in PAGES}
    for name, found in wrong.items():
        print(f"{name}: {'; '.join(found) or 'nothing found'}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "look")))
