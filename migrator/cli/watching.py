"""Follows a quorum for commands that show it continuously: the status of the present leader.

`status --watch` and `top` call `every_status`. When the leader changes or goes away, all controllers are asked again.
It ends only with its task.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from migrator.errors import OperatorError
from migrator.observe.status_page import Answers
from migrator.rpc.ask_quorum import Address, QuorumAnswers, QuorumAsker

RETRY_SECONDS = 1.0
"""The time between two questions while no controller answers."""


async def every_status(
    asker: QuorumAsker,
    found: QuorumAnswers | None,
    show: Callable[[Answers], None],
    fail: Callable[[OperatorError], None],
) -> None:
    """Show each status of the best-informed controller, for ever. Ask all controllers again when that may have changed.

    :param found: the first answers, if the caller has them already.
    :param fail: called with the reason when no controller answers.
    """
    while True:
        try:
            found = found or await asker.ask()
            show(found.answers)
            if found.best_at is not None:
                await _while_it_knows_most(asker, found.best_at, found.answers, show)
            found = None
        except OperatorError as error:
            found = None
            fail(error)
        await asyncio.sleep(RETRY_SECONDS)


async def _while_it_knows_most(
    asker: QuorumAsker, at: Address, answers: Answers, show: Callable[[Answers], None]
) -> None:
    """Show the statuses of one controller, until the leader changes or the stream ends."""
    async with asker.client(at) as client:
        async for status in client.watch():
            if status.quorum.leader_id != answers.best.quorum.leader_id:
                return
            show(dataclasses.replace(answers, best=status))
