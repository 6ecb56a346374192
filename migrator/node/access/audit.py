"""The authorizer's log of a node: the decision about each request, in a separate file (ADR 43), with a bound for each
principal.

The endpoint notes each decision before the answer is sent. Lines beyond the bound are counted and reported once a
minute, so nobody can fill the disk with refused requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

from migrator.apis.audit import AuditedRequest, Sender, audit_lines
from migrator.apis.authorization import Trail
from migrator.config.settings import Settings
from migrator.observe.authorizer_log import FILE_NAME, AuthorizerLog
from migrator.observe.logins import LineRate
from migrator.observe.printable import json_text
from migrator.records.acl_codes import AclOperation
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.wire.requests import RequestContext

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


RATIONS: Final = TaskKind("authorizer-log", OnError.RESTART)
INTERVAL_SECONDS: Final = 60.0
EVERYTHING: Final = "all"


class Audit:
    """Writes the log of the authorizer; one object per node.

    :param settings: the file's place and size, and which allowed requests it gets.
    """

    def __init__(
        self,
        settings: Settings,
        on_failure: OnFailure,
        open_log: Callable[[Path, int], AuthorizerLog] = AuthorizerLog,
    ) -> None:
        """
        :raises OperatorError: the file cannot be opened.
        """
        path = settings.migrator_authorizer_log_file
        self.log = open_log(
            Path(path) if path else settings.metadata_directory / FILE_NAME, settings.migrator_authorizer_log_max_bytes
        )
        self._everything = settings.migrator_authorizer_log_allowed == EVERYTHING
        self._rations = Rations()
        self._supervisor = Supervisor(on_failure)

    def start(self) -> None:
        """Begin to report regularly how many lines were left out."""
        self._supervisor.keep(RATIONS, self._say_left_out)

    async def close(self) -> None:
        """Write the lines that wait, and close the file."""
        await self._supervisor.close()
        self.log.put(self._rations.left_out())
        await asyncio.to_thread(self.log.close)

    def tell(self, context: RequestContext, by: RequestContext | None, body: Any, answer: Any, trail: Trail) -> None:
        """Log the decision about a request. ``answer`` is None when the request gets no answer.

        :param by: the principal of the Envelope that the request came in.
        """
        acts = any(operation is AclOperation.CLUSTER_ACTION for operation, _, _ in trail.allowed)
        is_first_action = acts and (context.session is None or not context.session.has_acted)
        if is_first_action and context.session is not None:
            context.session.has_acted = True
        sender = Sender(
            str(context.principal),
            context.peer_host,
            context.listener,
            "" if by is None else str(by.principal),
            "" if by is None else by.peer_host,
        )
        lines = audit_lines(
            sender,
            AuditedRequest(context.api_key, context.api_version, body, answer),
            trail,
            everything=self._everything,
            is_first_action=is_first_action,
        )
        said = [line.content for line in lines if not line.is_rationed or self._rations.take(line.content)]
        if said:
            self.log.put(said)

    async def _say_left_out(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            self.log.put(self._rations.left_out())
