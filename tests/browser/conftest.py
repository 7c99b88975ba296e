"""A headless chromium for the tests of the pages that people open; they are marked `needs("chromium", "test-slow")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from docs.browser import browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def open_page() -> Iterator[Callable[..., Page]]:
    """Opens the one page of a test; keywords are those of `browser_page`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(browser_page(**options))
