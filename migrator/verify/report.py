"""Reports a verdict to the active controller, which may require one before the end of the migration.

`job` calls `begin` before a comparison and `report` after it. The controller accepts a verdict only if it led all the
time: otherwise the comparison may be of another leader's time.
"""

from __future__ import annotations

from migrator.errors import ExitCode
from migrator.migration.machine.states import State
from migrator.observe.status import VerdictAnswer, VerdictReport
from migrator.values import value
from migrator.verify.repair import OpenActive
from migrator.verify.verdict import Verdict


@value
class Beginning:
    """The state of the active controller before the comparison. ``finishing``: no controller writes to ZooKeeper any
    more."""

    cluster_id: str
    leader_epoch: int
    finishing: bool


async def begin(open_active: OpenActive) -> Beginning:
    """Read it, before a comparison that will be reported.

    :raises OperatorError: no active controller answers.
    """
    async with open_active() as client:
        status = await client.status()
    finishing = status.migration.internal_state in {state.value for state in State if state.properties.takes_verdicts}
    return Beginning(status.cluster_id, status.quorum.leader_epoch, finishing)


async def report(open_active: OpenActive, beginning: Beginning, verdict: Verdict) -> VerdictAnswer:
    """Report a verdict that is equal or different; return the controller's answer.

    :raises OperatorError: no active controller answers.
    """
    found = VerdictReport(
        cluster_id=beginning.cluster_id,
        leader_epoch=beginning.leader_epoch,
        offset=verdict.at.offset,
        offset_epoch=verdict.at.epoch,
        zxid=verdict.at.zxid,
        equal=verdict.exit_code is ExitCode.OK,
        differences=verdict.comparison.differences,
    )
    async with open_active() as client:
        return await client.report_verdict(found)
