"""The lock of `migrator rollout` in the quorum, for operators who reach the leader.

`status_source` calls it. Comparing and writing is one decision, so of two rollouts one wins. The lock is a record: it
survives changes of the leader.
"""

from __future__ import annotations

from migrator.clock import wall_ms
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.controller.rollout_lock import move_lock, read_lock
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.node.core import NodeCore
from migrator.observe.journal import Journal
from migrator.observe.leaders import whom_to_ask
from migrator.observe.status import LockAnswer, Orderer

JOURNAL_KIND = "rollout lock"


class RolloutLockKeeper:
    """Keeps the lock of a rollout in the log; one object per node. Only the leader's object accepts calls.

    :param journal: receives each change of the lock.
    """

    def __init__(self, node_id: int, core: NodeCore, journal: Journal | None) -> None:
        self._node_id = node_id
        self._core = core
        self._journal = journal

    async def read(self) -> LockAnswer:
        """See `StatusSource`."""
        try:
            return await self._core.controller.write(Operation.ROLLOUT_LOCK, lambda image, _context: read_lock(image))
        except RefusedError as refusal:
            raise self._refused(refusal) from refusal

    async def move(self, before: str, after: str, by: Orderer) -> LockAnswer:
        """See `StatusSource`."""
        try:
            answer = await self._core.controller.write(
                Operation.ROLLOUT_LOCK, lambda image, _context: self._decide(image, before, after, by)
            )
        except RefusedError as refusal:
            raise self._refused(refusal) from refusal
        return answer

    def _decide(self, image: MetadataImage, before: str, after: str, by: Orderer) -> Decision[LockAnswer]:
        """Decide, and put the order into the journal before it is carried out: its caller may disconnect."""
        decision = move_lock(image, before, after)
        if decision.response.moved and after != before and self._journal is not None:
            what = "has been taken" if after else "has been given back"
            self._journal.append(wall_ms(), JOURNAL_KIND, f"the lock of the rollout {what}", **by.details)
        return decision

    def _refused(self, refusal: RefusedError) -> OperatorError:
        status, leads = self._core.quorum.status(), self._core.controller.epoch is not None
        remedy = "" if leads else whom_to_ask(status.present_leader_id, is_stock=status.led_by_stock)
        return OperatorError(str(refusal).rstrip("."), where=f"controller {self._node_id}", remedy=remedy)
