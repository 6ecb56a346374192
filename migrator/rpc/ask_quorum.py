"""Asks every controller that can be reached for its status: the one that was named, and those of its property file.

`migrator status`, `top` and `rollout` use a `QuorumAsker` and show its best answer: that of the leader with the highest
epoch. All controllers are asked at the same time, each within a bound, so a dead one delays nothing. It changes
nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.observe.status import Status
from migrator.observe.status_page import Answers, Unreached
from migrator.rpc.find_controller import addresses, connect
from migrator.rpc.leader_over_kafka import leaders_status
from migrator.rpc.operator_client import OperatorClient, no_answer
from migrator.values import value

OTHERS_SECONDS = 2.0
"""The time for each controller except the named one. All are asked at the same time."""
NAMED_SECONDS = 5.0

Address = tuple[str | None, int | None]
"""``host:port``, None for the socket, and which voter should be there."""


@value
class QuorumAnswers:
    """The answers of the controllers. ``best_at``: the address of the best one; None when it was asked over Kafka's
    protocol, and cannot be watched."""

    answers: Answers
    best_at: Address | None


class QuorumAsker:
    """Asks repeatedly, with the parameters of `connect`."""

    def __init__(self, config: Path | None, server: str | None, command_config: Path | None) -> None:
        self._config = config
        self._server = server
        self._command_config = command_config

    async def ask(self) -> QuorumAnswers:
        """The answers. The best one is the leader's, or that of the named controller if the leader does not answer. A
        leader that gRPC does not reach is asked over the Kafka listener, with the login of the property file.

        :raises OperatorError: no controller answers; the message says why the named one does not.
        """
        named, *others = addresses(self._config, self._server)
        found = await asyncio.gather(
            self._status(named, NAMED_SECONDS), *(self._status(other, OTHERS_SECONDS) for other in others)
        )
        first = found[0]
        answered: dict[int, tuple[Status, Address | None]] = {
            status.node_id: (status, at)
            for at, status in reversed(list(zip([named, *others], found, strict=True)))
            if isinstance(status, Status)
        }
        if (leader := await self._over_kafka([status for status, _ in answered.values()])) is not None:
            answered[leader.node_id] = leader, None
        if not answered and isinstance(first, OperatorError):
            raise first
        asked = first if isinstance(first, Status) else None
        best, at = answered[_best([status for status, _ in answered.values()], asked).node_id]
        return QuorumAnswers(
            Answers(
                best=best,
                asked=asked,
                others=tuple(status for status, _ in answered.values() if status is not best),
                unreached=(Unreached(first.where or str(self._server), first.what),)
                if isinstance(first, OperatorError)
                else (),
            ),
            at,
        )

    def client(self, at: Address) -> OperatorClient:
        """The controller there.

        :raises OperatorError: as `connect`.
        """
        address, voter = at
        return connect(self._config, address, self._command_config, voter=voter)

    async def _over_kafka(self, answered: list[Status]) -> Status | None:
        """The leader's status over the Kafka listener, if none of these is the leader's; None without an answer."""
        if self._config is None or any(_leads(status) for status in answered):
            return None
        cluster_id = next((status.cluster_id for status in answered if status.cluster_id), "")
        try:
            status = await leaders_status(load_settings(self._config)[0], cluster_id)
        except OperatorError:  # those that did answer are shown
            return None
        known = max((each.quorum.leader_epoch for each in answered), default=-1)
        return status if status is not None and _leads(status) and status.quorum.leader_epoch >= known else None

    async def _status(self, at: Address, seconds: float) -> Status | OperatorError:
        try:
            async with asyncio.timeout(seconds), self.client(at) as client:
                return await client.status(timeout=seconds)
        except OperatorError as error:
            return error
        except TimeoutError:
            return no_answer(at[0] or "the socket of this controller")


def _leads(status: Status) -> bool:
    return status.quorum.leader_id == status.node_id


def _best(answered: list[Status], asked: Status | None) -> Status:
    """The answer of the leader of the highest epoch, or of the named controller, or the one with the highest epoch."""
    leading = list(filter(_leads, answered))
    if leading:
        return max(leading, key=lambda status: status.quorum.leader_epoch)
    return asked or max(answered, key=lambda status: (status.quorum.leader_id >= 0, status.quorum.leader_epoch))
