"""Restores lost partition states from the brokers' knowledge, while a ZooKeeper broker is the controller.

`migrator repair` shows `PartitionStates.plan` and then calls `write`. It refuses while a KRaft quorum controls the
cluster, and when a broker does not answer, because that broker may know a newer epoch. Each write is conditional on
what the plan has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.migration.translate.source import names_below
from migrator.preflight.evidence import BrokerAnswer
from migrator.preflight.host import ask_brokers
from migrator.preflight.lost_states import SETS_AHEAD, Lost, Partition, Reported, Restored, restore, writes
from migrator.preflight.reading import read_brokers
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.leadership import ClaimView, release_ops
from migrator.zookeeper.ops import Applied, Check, MultiOutcome
from migrator.zookeeper.request_size import op_bytes
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.topics import decode_topic


@value
class RepairPlan:
    """The states to write, those that cannot be restored and why, and the active controller at that time."""

    restored: tuple[Restored, ...]
    left: tuple[tuple[Lost, str], ...]
    view: ClaimView


class PartitionStates:
    """The partition states of one cluster.

    :param settings: of a future controller; they say how to reach the brokers.
    """

    def __init__(self, session: ZooKeeperSession, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._reader = BulkReader(session)
        self._writer = ConditionalWriter(session)
        self._claimer = Claimer(session)

    def plan(self) -> RepairPlan:
        """Read all states, and ask every broker for those that are lost. Writes nothing.

        :raises OperatorError: no ZooKeeper broker is the controller, or a broker does not answer.
        """
        view = self._under_a_broker()
        lost, highest = self._lost()
        reports = self._reports({it.topic for it in lost}) if lost else {}
        restored, left = restore(lost, reports, controller_epoch=view.epoch or 0, least_version=highest + SETS_AHEAD)
        return RepairPlan(tuple(restored), tuple(left), view)

    def write(self, plan: RepairPlan) -> ControllerClaim:
        """Write the plan, on the condition that nothing has changed since. Then make the brokers elect a controller,
        because a controller reads the states only when it is elected. Returns the new controller.

        :raises OperatorError: something has changed meanwhile. A state that was not completely written still counts as
            lost.
        """
        guard = Check(paths.CONTROLLER_EPOCH, plan.view.epoch_version)
        parents = {
            parent
            for it in plan.restored
            for parent in (paths.partitions(it.lost.topic), paths.partition(it.lost.topic, it.lost.partition))
        }
        existing = {znode.path for znode in self._reader.read(sorted(parents)) if znode is not None}
        for each in plan.restored:
            for part in split_ops(writes(each, frozenset(existing)), reserved_bytes=op_bytes(guard)):
                _check(self._writer.write([guard, *part]), each.lost.path)
            existing.add(paths.partitions(each.lost.topic))
        _check(self._writer.write(release_ops(plan.view.epoch_version, plan.view.controller_version)), paths.CONTROLLER)
        elected = self._claimer.wait_for_zookeeper_controller()
        if elected is None and self._claimer.wake_brokers():
            elected = self._claimer.wait_for_zookeeper_controller()
        if elected is None:
            raise OperatorError(
                "the states are written, but no broker has taken the controllership, so none has read them",
                where=paths.CONTROLLER,
                remedy="Restart a broker: it stands for election at its start",
            )
        return elected

    def _under_a_broker(self) -> ClaimView:
        view = self._claimer.view()
        if view.controller is None or view.controller.is_kraft or view.epoch is None:
            holder = "nobody" if view.controller is None else f"KRaft controller {view.controller.broker_id}"
            raise OperatorError(
                f"partition states are restored only under a ZooKeeper broker as controller, and {holder} holds it",
                where=paths.CONTROLLER,
                remedy="Before a migration: start the brokers. During one, the log is the source: take the migration "
                "back first ('migrator rollback')",
            )
        return view

    def _lost(self) -> tuple[list[Lost], int]:
        """Every state that is missing or does not decode, and the highest data version of the others."""
        doomed = set(names_below(self._reader, paths.DELETE_TOPICS))
        names = [name for name in names_below(self._reader, paths.TOPICS) if name not in doomed]
        partitions = list(self._partitions(names))
        lost, highest = [], 0
        states = self._reader.read(it.path for it in partitions)
        for each, znode in zip(partitions, states, strict=True):
            if znode is None:
                lost.append(each)
                continue
            try:
                decode_partition_state(znode.path, znode.data)
                highest = max(highest, znode.stat.version)
            except ZnodeError:
                lost.append(Lost(each.topic, each.partition, each.replicas, znode.stat.version))
        return lost, highest

    def _partitions(self, names: list[str]) -> Iterator[Lost]:
        """The partitions of topics whose assignment decodes; preflight reports the other topics."""
        for name, znode in zip(names, self._reader.read(map(paths.topic, names)), strict=True):
            if znode is None:
                continue
            try:
                assigned = decode_topic(znode.path, znode.data).partitions
            except ZnodeError:
                continue
            yield from (Lost(name, partition, replicas) for partition, replicas in sorted(assigned.items()))

    def _reports(self, topics: set[str]) -> Mapping[Partition, list[Reported]]:
        brokers = read_brokers(self._reader, _refuse)
        answers = asyncio.run(ask_brokers(self._settings, brokers, topics))
        _all_answered(brokers, answers)
        reports: dict[Partition, list[Reported]] = {}
        for answer in answers.values():
            for key, report in answer.partitions.items():
                reports.setdefault(key, []).append(report)
        return reports


def _all_answered(brokers: Iterable[int], answers: Mapping[int, BrokerAnswer]) -> None:
    """Refuse the repair if a broker did not answer: that broker may know the newest epoch."""
    for broker_id in brokers:
        answer = answers.get(broker_id)
        if answer is None or answer.apis is None:
            why = "it has not the listener that the controllers use" if answer is None else answer.fault
            raise OperatorError(
                f"broker {broker_id} does not say how it knows the partitions: {why}",
                where=f"broker {broker_id}" if answer is None else answer.address,
                remedy="Every registered broker has to answer, or an older state could be restored than one of them "
                "holds. See inter.broker.listener.name and the security settings of the file",
            )


def _check(outcome: MultiOutcome, where: str) -> None:
    if not isinstance(outcome, Applied):
        raise OperatorError(
            f"ZooKeeper changed meanwhile: {outcome}", where=where, remedy="Run it again: it looks at everything anew"
        )


def _refuse(fault: ZnodeError) -> None:
    raise fault
