"""How many examples a property is tried on: those given here in `make test`, five times as many when exploring."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

EXPLORED = 5


def examples(count: int, **options: Any) -> settings:
    """A decorator beside `given`; the seed, the deadline and the rest come from the profile (`tests/conftest.py`)."""
    return settings(max_examples=count if settings.default.derandomize else EXPLORED * count, **options)
