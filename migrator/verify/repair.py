"""Repairs ZooKeeper: orders the active controller to reconcile, and waits for the result.

`verify --repair` calls `repair` after a verdict. This program's own session writes nothing: only the controller that
holds the claim may write. The wait is bounded, and survives a change of the leader, because a takeover reconciles as
well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Force, Status
from migrator.rpc.operator_client import OperatorClient

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
