"""Reports when every broker has answered the requests of one plan."""

from __future__ import annotations

from collections.abc import Callable


class Receipt:
    """Counts the answers to the requests of one plan.

    :param done: called once all requests are answered; never if one was dropped, or there is none.
    """

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._open = 1
        self._any = False

    def expect(self) -> None:
        """One more request was queued."""
        self._open += 1
        self._any = True

    def answered(self) -> None:
        self._open -= 1
        if not self._open and self._any:
            self._done()

    def complete(self) -> None:
        """No more requests follow."""
        self.answered()
