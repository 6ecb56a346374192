"""Claims and releases ZooKeeper's controllership on a session. `leadership` makes the decisions.

The migration's executor, `migrator rollback` and `repair` call a `Claimer`. Each claim is one conditional multi on
``/controller``, ``/controller_epoch`` and ``/migration``, each release one on the first two: all of it happens, or
nothing. When the answer is lost, the outcome is `LostRace`, and the caller looks again. It repeats no write.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from migrator.clock import wall_ms
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.leadership import (
    Claim,
    ClaimPlan,
    ClaimView,
    LostRace,
    Released,
    Superseded,
    conclude_claim,
    conclude_release,
    plan_claim,
    plan_release,
    plan_wake,
    read_view,
    release_ops,
)
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes.controller import ControllerClaim

WAKE_SECONDS = 1.0
"""The time for brokers to set their watches again after they saw a new ``/controller``. They need milliseconds."""
ELECTION_SECONDS = 5.0
_POLL_SECONDS = 0.05


class Claimer:
    """Reads, decides and writes, once for each call. The caller decides when to try again."""

    def __init__(self, session: ZooKeeperSession, sleep: Callable[[float], None] = time.sleep) -> None:
        self._session = session
        self._sleep = sleep
        self._reader = BulkReader(session)
        self._writer = ConditionalWriter(session)

    def view(self) -> ClaimView:
        """The three znodes, not older than this call.

        :raises ZnodeError: a znode does not decode.
        :raises ZooKeeperUnavailableError: ZooKeeper does not answer.
        """
        self._session.sync()
        return read_view(self._reader.read)

    def claim(
        self,
        *,
        controller_id: int,
        kraft_epoch: int,
        view: ClaimView | None = None,
        heal_to: EpochOffset | None = None,
    ) -> Claim | Superseded | LostRace:
        """Take over controllership; errors as `plan_claim`, `conclude_claim` and `view`.

        :param view: the view on which the caller decided to claim. If it is outdated, the race is lost.
        """
        now_ms = wall_ms()
        view = view or self.view()
        plan = plan_claim(view, controller_id=controller_id, kraft_epoch=kraft_epoch, now_ms=now_ms, heal_to=heal_to)
        return conclude_claim(plan, self._writer.write(plan.ops)) if isinstance(plan, ClaimPlan) else plan

    def release(self, *, kraft_epoch: int) -> Released | Superseded | LostRace:
        """Give controllership back to the brokers; errors as `conclude_release` and `view`."""
        plan = plan_release(self.view(), kraft_epoch=kraft_epoch)
        return conclude_release(plan, self._writer.write(plan)) if isinstance(plan, tuple) else plan

    def wait_for_zookeeper_controller(self, seconds: float = ELECTION_SECONDS) -> ControllerClaim | None:
        """The broker that was elected after a release; None if none was within ``seconds``; errors as `view`."""
        retrying = Retrying(
            retry=retry_if_result(lambda claim: claim is None),
            stop=stop_after_delay(seconds),
            wait=wait_fixed(_POLL_SECONDS),
        )
        try:
            return retrying(self._elected)
        except RetryError:
            return None

    def wake_brokers(self) -> bool:
        """Create ``/controller`` without a controller and delete it later, so that brokers that missed the release get
        another event and elect a controller.

        One multi does not work: a broker elects at a deletion, but its only watch fires at the creation. If the
        deletion follows at once, the broker often has not set its watch again, and this side cannot see that. The znode
        is ephemeral, so a crash between the two leaves no znode.

        :return: False when a controller was elected meanwhile, or the outcome is unknown: look again.
        :raises ZooKeeperUnavailableError: ZooKeeper does not answer.
        :raises OperatorError: ZooKeeper does not allow the write.
        """
        view = self.view()
        ops = plan_wake(view, wall_ms())
        if ops is None:
            return False
        if ops:
            if not isinstance(conclude_release(ops, self._writer.write(ops)), Released):
                return False
            self._sleep(WAKE_SECONDS)
        version = view.controller_version if view.controller is not None else 0
        ops = release_ops(view.epoch_version, version)
        return isinstance(conclude_release(ops, self._writer.write(ops)), Released)

    def _elected(self) -> ControllerClaim | None:
        held = self.view().controller
        return held if held is not None and held.is_broker else None
