"""Says what a command waits for that prints nothing for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

LONG_SECONDS = 5.0


class Meanwhile:
    """An asynchronous context manager.

    :param tell: hears it every `LONG_SECONDS`.
    :param what: is done now; to be set anew when something else is.
    """

    def __init__(self, tell: Callable[[str], None], what: str) -> None:
        self._tell = tell
        self.what = what

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._say_so())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)  # a line that nobody can read ends no look

    async def _say_so(self) -> None:
        while True:
            await asyncio.sleep(LONG_SECONDS)
            self._tell(f"still {self.what}")
