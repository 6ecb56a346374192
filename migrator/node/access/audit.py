"""The authorizer's log of a node: the decision about each request, in a separate file (ADR 43)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from migrator.apis.audit import Exchange, Sender, audit_lines
from migrator.apis.authorization import Trail
from migrator.config.settings import Settings
from migrator.node.access.rations import Rations
from migrator.observe.authorizer_log import FILE_NAME, AuthorizerLog
from migrator.records.acl_codes import AclOperation
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.wire.requests import RequestContext

RATIONS: Final = TaskKind("authorizer-log", OnError.RESTART)
INTERVAL_SECONDS: Final = 60.0
EVERYTHING: Final = "all"


class Audit:
    """One per node.

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
            Exchange(context.api_key, context.api_version, body, answer),
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
