"""One comparison with its consequences: the report to the active controller, the repair, and a second comparison.

`verify` runs a `VerifyJob` once or again and again. The controller, which may require a verdict before the end of the
migration, accepts one only if it led all the time: so its epoch is asked for before the comparison (`beginning_of`). A
repair happens only if ``repair`` agrees, and then everything is compared anew. This program's own session writes
nothing: `repair` orders the active controller to reconcile, because only the holder of the claim may write. The wait
for it is bounded, and survives a change of the leader, because a takeover reconciles as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from pyspark.sql import SparkSession

from migrator.errors import ExitCode, OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Force, Status, VerdictAnswer, VerdictReport
from migrator.rpc.operator_client import OperatorClient
from migrator.values import value
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.verify import Begin, unheard, verify_in


@value
class Beginning:
    """The state of the active controller before the comparison. ``finishing``: no controller writes to ZooKeeper any
    more."""

    cluster_id: str
    leader_epoch: int
    finishing: bool


async def beginning_of(open_active: OpenActive) -> Beginning:
    """Read it, before a comparison that will be reported.

    :raises OperatorError: no active controller answers.
    """
    async with open_active() as client:
        status = await client.status()
    finishing = status.migration.internal_state in {state.value for state in State if state.properties.takes_verdicts}
    return Beginning(status.cluster_id, status.quorum.leader_epoch, finishing)


async def report_verdict(open_active: OpenActive, beginning: Beginning, verdict: Verdict) -> VerdictAnswer:
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


POLL_SECONDS = 0.2
WAIT_SECONDS = 600.0
"""How long to wait. A reconcile compares everything, about a second per 100,000 partitions, and then writes."""

OpenActive = Callable[[], AbstractAsyncContextManager[OperatorClient]]
"""Finds the active controller, each time anew, because another one may lead by then."""

_STUCK = frozenset(state.value for state in State if state.properties.waits_for_person or state.properties.turned_off)
"""States that the driver does not leave for dual-writing by itself."""


async def repair(
    open_active: OpenActive, reason: str, tell: Callable[[str], None], wait_seconds: float = WAIT_SECONDS
) -> str:
    """Make ZooKeeper equal to the log; return the journal's sentence about what was written.

    :param tell: called with each step.
    :raises OperatorError: no active controller answers, it does not dual-write, or the reconcile did not end in time.
    """
    try:
        async with asyncio.timeout(wait_seconds):
            await _dual_writing(open_active, tell)
            async with open_active() as client:
                await client.force(Force.RECONCILE, reason)
            tell("ordered to reconcile")
            status = await _dual_writing(open_active, tell, patient=True)
    except TimeoutError as error:
        raise OperatorError(
            f"the repair did not end within {wait_seconds:.0f} s",
            where="verify --repair",
            remedy="The repair continues. See 'migrator status', and run verify again when the controller dual-writes",
        ) from error
    return _written(status)


async def _dual_writing(open_active: OpenActive, tell: Callable[[str], None], *, patient: bool = False) -> Status:
    """Wait until the active controller dual-writes.

    :param patient: whether to wait also while no active controller answers: another one may be taking over, and a
        takeover reconciles too.
    """
    said = ""
    while True:
        try:
            async with open_active() as client:
                status = await client.status()
        except OperatorError as error:
            if not patient:
                raise
            sentence = str(error)
        else:
            if status.migration.internal_state == State.DUAL_WRITING.value:
                return status
            sentence = _situation(status)
            if (
                status.migration.public_state != PublicState.DUAL_WRITE.label
                or status.migration.internal_state in _STUCK
            ):
                raise OperatorError(
                    f"ZooKeeper cannot be repaired now: {sentence}",
                    where=f"controller {status.node_id}",
                    remedy="Only a controller that dual-writes can repair ZooKeeper. See 'migrator status'",
                )
        if sentence != said:
            tell(sentence)
            said = sentence
        await asyncio.sleep(POLL_SECONDS)


def _situation(status: Status) -> str:
    problems = "; ".join(f"{problem.what}. {problem.remedy}".removesuffix(". ") for problem in status.problems)
    state = f"{status.migration.public_state}, {status.migration.internal_state}"
    return f"{state}: {problems}" if problems else state


def _written(status: Status) -> str:
    """The journal's sentence about the reconcile that led to this state."""
    for event in reversed(status.recent_events):
        if dict(event.details).get("before") == State.RECONCILING.value:
            return event.text
    return "the journal does not say what was written"


@value
class VerifyJob:
    """``report_to``: finds the active controller, to which each verdict is reported. ``repair``: may repair the
    differences; when it returns that it did, everything is compared again."""

    request: VerifyRequest
    report_to: OpenActive | None = None
    repair: Callable[[Verdict], bool] | None = None

    def run(self, spark: SparkSession, tell: Callable[[str], None], begin: Begin = unheard) -> Verdict:
        """Compare, and return the last verdict.

        :param tell: called with the answer of the controller.
        :param begin: called with each phase.
        :raises OperatorError: as in `verify_in`; as in ``repair``; or no controller accepts the report.
        """
        verdict = self._compared(spark, tell, begin)
        if verdict.comparison.differences and self.repair is not None and self.repair(verdict):
            verdict = self._compared(spark, tell, begin)
        return verdict

    def _compared(self, spark: SparkSession, tell: Callable[[str], None], begin: Begin) -> Verdict:
        if self.report_to is None:
            return verify_in(spark, self.request, begin=begin)
        beginning = asyncio.run(beginning_of(self.report_to))
        verdict = verify_in(spark, self.request, frozen=beginning.finishing, begin=begin)
        if verdict.exit_code is not ExitCode.REFUSED:
            tell(asyncio.run(report_verdict(self.report_to, beginning, verdict)).sentence)
        return verdict
