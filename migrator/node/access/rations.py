"""Bounds the log lines that each principal can cause. Lines beyond the bound are counted and reported once a minute."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, Final

from migrator.observe.logins import LineRate
from migrator.observe.printable import json_text

PRINCIPALS_MAX: Final = 256
"""The most principals whose lines are counted separately."""
LINE_BYTES: Final = 1024
"""A longer line counts as several, because the sender chooses the length of names, and the files have a bounded
size."""
OTHERS: Final = "(others)"
"""The common name of all further principals. No real principal has it: each has a kind and a colon."""


class Rations:
    """For any thread.

    :param rate: makes the bucket of one principal's lines.
    """

    def __init__(self, rate: Callable[[], LineRate] = LineRate) -> None:
        self._rate = rate
        self._rates: OrderedDict[str, LineRate] = OrderedDict()
        self._left_out: dict[str, Counter[tuple[str, str]]] = {}
        self._lock = Lock()

    def take(self, content: dict[str, Any]) -> bool:
        """Whether this line may be written; if not, it is counted."""
        principal = str(content["principal"])
        with self._lock:
            rate = self._rates.pop(principal, None) or self._rate()
            self._rates[principal] = rate
            if len(self._rates) > PRINCIPALS_MAX:
                self._rates.popitem(last=False)
            if rate.take() is not None:
                rate.spend(max(0.0, len(json_text(content).encode()) / LINE_BYTES - 1))
                return True
            if principal not in self._left_out and len(self._left_out) >= PRINCIPALS_MAX:
                principal = OTHERS
            counts = self._left_out.setdefault(principal, Counter())
            counts[str(content["api"]), str(content["outcome"])] += content["count"]
            return False

    def left_out(self) -> Iterator[dict[str, Any]]:
        """The lines that were left out since the last call: one summary for each principal and outcome."""
        with self._lock:
            found, self._left_out = self._left_out, {}
        for principal, counts in found.items():
            for outcome in sorted({outcome for _, outcome in counts}):
                by_api = {api: count for (api, its), count in sorted(counts.items()) if its == outcome}
                text = f"{sum(by_api.values())} more were {outcome}, and have no lines of their own"
                yield {"principal": principal, "outcome": outcome, "more": by_api, "text": text}
