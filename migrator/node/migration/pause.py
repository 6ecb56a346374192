"""The operator's order not to begin the migration. It is kept in the log, so every later leader has it (ADR 12).

It is a field of the ZkMigrationStateRecord that says PRE_MIGRATION, and is gone with the record that says MIGRATION.
"""

from __future__ import annotations

import asyncio

from migrator.clock import monotonic_ms, wall_ms
from migrator.errors import OperatorError
from migrator.migration.executor import MigrationExecutor
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import PublicState, State
from migrator.node.core import NodeCore
from migrator.node.metadata import NotLeadingError
from migrator.node.migration.behind import Note
from migrator.observe.status import Orderer
from migrator.records.metadata import MigrationHold, ZkMigrationState, ZkMigrationStateRecord

REASON_MAX = 1_000
"""The most characters of a reason that the log keeps."""


class PauseOrder:
    """Gives and withdraws the order on the active controller.

    :param note: puts something into the journal.
    """

    def __init__(self, node_id: int, core: NodeCore, executor: MigrationExecutor, note: Note) -> None:
        self._node_id = node_id
        self._core = core
        self._executor = executor
        self._note = note
        self._turn = asyncio.Lock()

    async def give(self, reason: str, by: Orderer) -> None:
        """Hold the migration. The order is committed when this returns.

        :raises OperatorError: the order has no reason; the migration has begun, or there is none; or the leadership is
            lost, and it is unknown whether the next leader has the order.
        """
        if not reason.strip():
            raise OperatorError("the journal needs a reason", where="pause", remedy="Give --reason")
        async with self._turn:
            self._check()
            self._note("pause", reason, **by.details)
            hold = MigrationHold(self._node_id, wall_ms(), reason[:REASON_MAX])
            self._executor.feed(ev.OperatorPause(hold))  # so no claim is made while the order is being appended
            await self._append(hold)

    def _check(self) -> None:
        """Check that the migration can be held. The driver obeys the event that follows at once for the whole
        leadership."""
        status = self._executor.coordinator.status(monotonic_ms())
        if status.public is not PublicState.MIGRATION_INELIGIBLE:
            raise OperatorError(
                f"the migration is in {status.public.label} and can no longer be paused",
                where="pause",
                remedy="To roll back, see docs/migration.md. To stay in this state, leave the migration flag on",
            )
        if self._core.metadata.published.features.zk_migration_state is not ZkMigrationState.PRE_MIGRATION:
            raise OperatorError(
                "this cluster has nothing to migrate",
                where="pause",
                remedy="There is nothing to pause: leave it as it is",
            )
        if status.state is State.INACTIVE:
            raise OperatorError("this controller has only just been elected", where="pause", remedy="Try again")

    async def take_back(self, by: Orderer) -> None:
        """Let the migration begin; committed when this returns.

        :raises OperatorError: nothing is held; or as in `give`.
        """
        async with self._turn:
            if self._core.metadata.published.features.migration_hold is None:
                raise OperatorError(
                    "the migration is not paused",
                    where="resume",
                    remedy="'migrator status' shows what the migration waits for",
                )
            self._note("resume", "the operator has resumed the migration", **by.details)
            await self._append(None)

    async def _append(self, hold: MigrationHold | None) -> None:
        """Append the order; returns once it is committed and published."""
        record = ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION, hold)
        epoch = self._core.controller.epoch
        try:
            offset = await self._core.controller.append(-1 if epoch is None else epoch, [record])
            await self._core.metadata.stable(offset)
        except NotLeadingError as error:
            raise OperatorError(
                f"this controller lost the leadership before a majority had stored the order: {error}",
                where=f"controller {self._node_id}",
                remedy="Check 'migrator status', and give the order again",
            ) from error
