"""The operator's order to close the way back from a finished migration (ADR 63).

`status_source` calls it on the leader. The order is in the journal before it is carried out, and committed when the
call returns.
"""

from __future__ import annotations

from migrator.clock import wall_ms
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.controller.way_back import close
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.node.core import NodeCore
from migrator.observe.journal import Journal
from migrator.observe.leaders import whom_to_ask
from migrator.observe.printable import utc
from migrator.observe.status import Orderer

JOURNAL_KIND = "close-way-back"


class WayBackKeeper:
    """Takes the order to close the way back; one object per node. Only the leader's object accepts the order.

    :param journal: receives the order.
    """

    def __init__(self, core: NodeCore, journal: Journal | None) -> None:
        self._core = core
        self._journal = journal

    async def close(self, reason: str, by: Orderer) -> None:
        """Close the way back. The order is committed when this returns.

        :raises OperatorError: the order has no reason; the migration is not finished; or another controller leads.
        """
        if not reason.strip():
            raise OperatorError("the journal needs a reason", where=JOURNAL_KIND, remedy="Give --reason")
        try:
            await self._core.controller.write(
                Operation.CLOSE_WAY_BACK, lambda image, _context: self._decide(image, reason, by)
            )
        except RefusedError as refusal:
            status, leads = self._core.quorum.status(), self._core.controller.epoch is not None
            remedy = "" if leads else whom_to_ask(status.present_leader_id, is_stock=status.led_by_stock)
            raise OperatorError(str(refusal).rstrip("."), where=JOURNAL_KIND, remedy=remedy) from refusal

    def _decide(self, image: MetadataImage, reason: str, by: Orderer) -> Decision[None]:
        """Decide, and put the order into the journal before it is carried out: its caller may disconnect."""
        now_ms = wall_ms()
        decision = close(image, f"{utc(now_ms)}: {reason}")
        if self._journal is not None:
            self._journal.append(now_ms, JOURNAL_KIND, reason, **by.details)
        return decision
