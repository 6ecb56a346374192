"""Something looked at again and again, while something else goes on."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Sampler(ABC):
    """Looks in a thread of its own, for as long as the context lasts.

    :param seconds: between two looks.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Take one sample."""

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
