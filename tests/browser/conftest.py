"""A headless chromium for the tests of the pages that people open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
WAIT_MS = 120_000


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of chromium; without one the test is skipped, but not where CI has promised it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "no chromium here: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return found


@pytest.fixture
def open_page(chromium: str, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """An empty page of a browser without a past; keywords are those of playwright's `launch_persistent_context`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        contexts = []

        def open_page(**options: Any) -> Page:
            profile = str(tmp_path / f"profile{len(contexts)}")
            context = play.chromium.launch_persistent_context(profile, executable_path=chromium, args=FLAGS, **options)
            contexts.append(context)
            context.set_default_timeout(WAIT_MS)
            return context.new_page()

        yield open_page
        for context in contexts:
            context.close()
