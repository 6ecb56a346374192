"""The operator's order to reopen a finished migration (ADR 58). The gates are checked again, the journal has the order
before it is carried out, and the operator gets an answer when the order is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from migrator.clock import monotonic_ms, wall_ms
from migrator.errors import OperatorError
from migrator.migration.executor import MigrationExecutor
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State
from migrator.node.core import NodeCore
from migrator.node.migration.behind import Note
from migrator.node.migration.pause import REASON_MAX
from migrator.observe.status import Gate, Orderer
from migrator.records.metadata import MigrationReopening, ZkMigrationState

Gates = Callable[[], Awaitable[tuple[Gate, ...]]]


class ReopenOrder:
    """Gives the order on the active controller.

    :param note: puts something into the journal.
    """

    def __init__(self, node_id: int, core: NodeCore, executor: MigrationExecutor, note: Note) -> None:
        self._node_id = node_id
        self._core = core
        self._executor = executor
        self._note = note
        self._turn = asyncio.Lock()
        self._stored: asyncio.Future[None] | None = None

    async def give(self, reason: str, by: Orderer, gates: Gates) -> None:
        """Reopen the migration. The order is committed when this returns.

        :param gates: the gates, as they are now.
        :raises OperatorError: the order has no reason; a gate is closed; or the leadership is lost, and it is unknown
            whether the next leader has the order.
        """
        if not reason.strip():
            raise OperatorError("the journal needs a reason", where="reopen", remedy="Give --reason")
        async with self._turn:
            epoch = self._core.controller.epoch
            closed = [gate for gate in await gates() if not gate.open]
            if closed:
                raise OperatorError(
                    "the migration was not reopened: " + "; ".join(f"{gate.name}: {gate.what}" for gate in closed),
                    where="reopen",
                    remedy="'migrator gates reopen' says what to do about each",
                )
            state = self._executor.coordinator.status(monotonic_ms()).state
            if state is not State.FINISHED or self._core.controller.epoch != epoch:
                raise OperatorError(
                    "the migration was not reopened: it has changed while the order was checked",
                    where="reopen",
                    remedy="Look at 'migrator status'. If the migration is still finished, give the order again",
                )
            self._note("reopen", reason, **by.details)
            stored = self._stored = asyncio.get_running_loop().create_future()
            self._executor.feed(ev.OperatorReopen(MigrationReopening(self._node_id, wall_ms(), reason[:REASON_MAX])))
            try:
                await stored
            finally:
                self._stored = None

    def published(self, state: ZkMigrationState) -> None:
        """The committed state of the migration has changed."""
        if self._stored is not None and not self._stored.done() and state is ZkMigrationState.MIGRATION:
            self._stored.set_result(None)

    def lost_leadership(self) -> None:
        if self._stored is not None and not self._stored.done():
            error = OperatorError(
                "this controller lost the leadership before a majority had stored the order",
                where=f"controller {self._node_id}",
                remedy="Look at 'migrator status'. If the migration is still finished, give the order again",
            )
            self._stored.set_exception(error)
