"""A headless chromium for the tests of the pages that people open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from docs.browser import browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of chromium; without one the test is skipped, but not where CI has promised it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "no chromium here: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    return found


@pytest.fixture
def open_page(chromium: str) -> Iterator[Callable[..., Page]]:
    """Opens the one page of a test; keywords are those of `browser_page`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(browser_page(**options))
