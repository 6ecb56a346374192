"""Bugs on purpose in the real controller: each has to be found by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

Patches = list[tuple[object, str, object]]
BUGS: dict[str, Callable[[], Patches]] = {}


def bug(plant: Callable[[], Patches]) -> Callable[[], Patches]:
    """Register a bug under its function's name; the function returns (object, attribute, replacement)."""
    BUGS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Have a bug while the context lasts; None: none."""
    with ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]() if name else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield
