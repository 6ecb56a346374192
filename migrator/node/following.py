"""Passes the changes of the image at the log's end to a follower, such as the index, one after the other.

`metadata` calls it for each applied batch. A large change takes several turns of the event loop, and later changes wait
for it. While it lags, the follower is not of the same image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from migrator.image.model import Changes, MetadataImage

Follow = Callable[[MetadataImage, MetadataImage, Changes], Iterator[None] | None]
"""(image before, image after, the entities that may differ). If the work is more than one turn's, it gives the rest,
which yields where a turn is over.
"""
_DONE: Final = object()


class Following:
    """Passes changes to `follow` in their order. A change waits until the work for the change before it is done."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._waiting: deque[tuple[MetadataImage, MetadataImage, Changes]] = deque()
        self._rest: Iterator[None] | None = None

    @property
    def lags(self) -> bool:
        """Whether `go_on` has work left."""
        return self._rest is not None

    def step(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        """Pass a change on: at once, or after the changes that still have work left."""
        if self._rest is None:
            self._rest = self._follow(before, after, changes)
        else:
            self._waiting.append((before, after, changes))

    def go_on(self) -> None:
        """Do one turn's work for the waiting changes."""
        if self._rest is not None and next(self._rest, _DONE) is _DONE:
            self._rest = None
        while self._waiting and self._rest is None:
            self._rest = self._follow(*self._waiting.popleft())

    def drop(self) -> None:
        """Forget everything that waits."""
        self._waiting.clear()
        self._rest = None
