"""`migrator force finish --without ID`: checks that the nodes are gone, writes the order to the journal, and carries it
out.

The operator's gRPC service calls `LeavingOut.order` on the active controller; one order runs at a time. All of the
nodes are checked before the first one is left out. A node that answers or sends heartbeats cannot be left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.controller.brokers import unregister_vanished
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.errors import MigratorError, OperatorError
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.migration.machine import events as ev
from migrator.migration.machine.left_out import BrokerToLeaveOut, VoterToLeaveOut, kept, unknown
from migrator.migration.machine.states import State
from migrator.node.core import NodeCore
from migrator.node.migration.runtime import MigrationRuntime, fetching
from migrator.observe.status import Force, Orderer
from migrator.wire.voters import VoterSignals

CHANGED = "See in 'migrator status' what has changed. Give the order again if it still applies"


class LeavingOut:
    """Carries out orders to leave a lost node out of the migration, on the active controller, one at a time."""

    def __init__(self, core: NodeCore, runtime: MigrationRuntime, signals: VoterSignals) -> None:
        self._core = core
        self._runtime = runtime
        self._signals = signals
        self._turn = asyncio.Lock()

    def is_silent(self, broker_id: int) -> bool:
        """Whether a registered broker is fenced, and this leader has had no heartbeat of it for a session time-out."""
        registration = self._core.metadata.published.cluster.brokers.get(broker_id)
        lost = self._core.keeper.sessions.is_lost(broker_id, monotonic_ms())
        return registration is not None and registration.fenced and lost

    async def order(self, node_ids: Sequence[int], reason: str, by: Orderer) -> None:
        """Finish without these nodes: all of them, or nothing happens.

        This leader no longer waits for the answer of such a voter; a broker is unregistered, and this is committed when
        the method returns.

        :raises OperatorError: a node is unknown, is not gone, or does not delay the end; ZooKeeper cannot be read; or,
            before the order was carried out, a broker has come back or the leadership was lost.
        """
        if not node_ids:
            raise kept("the order names no node", "Name it: --without ID.")
        async with self._turn:
            epoch, state = self._core.controller.epoch, self._state
            voters = self._core.addresses.voter_ids.intersection(node_ids)
            brokers = self._registrations(set(node_ids) - voters)
            await self._check_voters(voters, state)
            await self._check_brokers(brokers, state)
            if epoch is None or (self._core.controller.epoch, self._state) != (epoch, state):
                raise kept("the migration has changed while the order was checked", CHANGED)
            named = ", ".join(map(str, sorted(set(node_ids))))
            self._runtime.note("force", reason, what=Force.FINISH.value, without=named, **by.details)
            if voters:
                self._runtime.executor.feed(ev.OperatorForce(Force.FINISH, voters))
            for registration in brokers:
                await self._unregister(registration, epoch)

    @property
    def _state(self) -> State:
        return self._runtime.executor.coordinator.status(monotonic_ms()).state

    def _registrations(self, broker_ids: Iterable[int]) -> list[BrokerRegistration]:
        registered = self._core.metadata.published.cluster.brokers
        for broker_id in sorted(broker_ids):
            if broker_id not in registered:
                raise unknown(broker_id)
        return [registered[broker_id] for broker_id in sorted(broker_ids)]

    async def _check_voters(self, voters: frozenset[int], state: State) -> None:
        own = self._runtime.node_id
        others = sorted(voters - {own})
        answers = dict(zip(others, await asyncio.gather(*map(self._signals.ask_one, others)), strict=True))
        fetch = fetching(self._core)
        for voter in sorted(voters):
            answered = voter == own or answers[voter] is not None
            VoterToLeaveOut(voter, answered, voter in fetch).check(state)

    async def _check_brokers(self, brokers: Sequence[BrokerRegistration], state: State) -> None:
        running: frozenset[int] = frozenset()
        if brokers and state is State.DUAL_WRITING:
            try:
                running = await self._runtime.in_zookeeper()
            except MigratorError as error:
                raise kept(
                    f"ZooKeeper cannot be asked whether these brokers run: {error}",
                    "Bring ZooKeeper back, and give the order again.",
                ) from error
        for registration in brokers:
            node_id = registration.broker_id
            zookeeper_mode = registration.is_migrating_zk_broker
            BrokerToLeaveOut(node_id, zookeeper_mode, self.is_silent(node_id), node_id in running).check(state)

    async def _unregister(self, registration: BrokerRegistration, epoch: int) -> None:
        broker_id = registration.broker_id

        def decide(image: MetadataImage, context: Context) -> Decision[None]:
            return unregister_vanished(image, broker_id, registration.epoch, context)

        try:
            await self._core.controller.write(Operation.UNREGISTER_BROKER, decide, epoch=epoch)
        except RefusedError as error:
            said = kept(f"broker {broker_id} was not unregistered: {error}", CHANGED)
            if error.error.code is ErrorCode.not_controller:
                said = OperatorError(
                    f"this controller lost the leadership before a majority knew that broker {broker_id} is gone",
                    where="force finish",
                    remedy=CHANGED,
                )
            self._runtime.note_news("force", said.what, what=Force.FINISH.value, without=str(broker_id))
            raise said from error
