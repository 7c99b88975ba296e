"""A headless chromium for the scripts beside this file. Needs chromium (apt-get install chromium), the `test` extra."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = {"desk": 1280, "phone": 390}


@contextmanager
def browser_page(**options: Any) -> Iterator[Any]:
    """A page of a fresh browser; options are those of playwright's `launch_persistent_context`."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play, TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(profile, executable_path=chromium, args=FLAGS, **options)
        context.set_default_timeout(120_000)
        yield context.new_page()
        context.close()


def widths(page: Any) -> Iterator[str]:
    """The names of `WIDTHS`, the page having each when it is given."""
    for device, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(1500)  # charts are drawn again
        yield device


def photograph(page: Any, stem: Path, device: str) -> None:
    """`STEM-DEVICE.png` of the whole of what the page shows."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=stem.with_name(f"{stem.name}-{device}.png"), full_page=True)
