"""Messages are asserted by what they name, a column, a number, a flag, and never by their sentences."""

from __future__ import annotations

import re


def naming(words: str) -> str:
    """A regular expression for a text that has all of these words, which spaces separate, in any order.

    Example:
        >>> bool(re.search(naming("--lags 3"), "--horizon needs --lags: 3 or more")), re.search(naming("3"), "30")
        (True, None)
    """
    return "(?s)" + "".join(rf"(?=.*(?<![\w]){re.escape(word)}(?!\w))" for word in words.split())


def names(text: str, words: str) -> bool:
    """Whether the text has all of these words."""
    return re.search(naming(words), text) is not None
