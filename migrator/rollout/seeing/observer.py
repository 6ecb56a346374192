"""Looks at ZooKeeper, controllers and brokers at the same time, and makes one `Observation`. Changes nothing.

Gates and commands call `ClusterObserver.observe`. A part that could not be seen is None or unknown, with a reason; it
never counts as healthy. Each part has a time limit, so a look ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.config.keys import FLAG, ROLES
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.migration.machine.states import PublicState, State, public_state
from migrator.records.metadata import Endpoint
from migrator.records.versions import version_at
from migrator.rollout.ports import BrokerMode, BrokerSeen, MigrationSeen, Observation, PartitionsSeen
from migrator.rollout.seeing.brokers import MIN_ISR, BrokerEyes, PartitionList, SettingsAnswer, of_image
from migrator.rollout.seeing.leader_says import LeaderSays, by_asker
from migrator.rollout.seeing.zookeeper import RegisteredBroker, ZooKeeperEyes, ZooKeeperLook
from migrator.rpc.ask_quorum import QuorumAsker
from migrator.seeing.controllers import QuorumSeen
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from migrator.seeing.stock_leader import StockLeader

QUORUM_RULES = (PublicState.DUAL_WRITE, PublicState.FINISHED)
WRITES = (State.DUAL_WRITING.value, State.FINISHING.value, State.COMPLETING.value, State.FINISHED.value)
"""Internal states in which ZooKeeper follows the log, or does not have to any more."""
NO_STATUS = "the leader's status is not available: writes of others to ZooKeeper are not seen"
PARTITIONS_SECONDS = 120.0
"""Time for the names and states of all partitions: 100 MiB on a large cluster, perhaps over a slow line."""
Ask = Callable[[int], Awaitable[LeaderSays | None]]
"""Asks the leader with this id on its own host."""


class ClusterObserver:
    """The observer of one cluster (`migrator.rollout.ports.ClusterProbe`).

    :param status_files: property files through which our controllers' status is asked; empty for Kafka's controllers.
    :param zookeeper: None: the cluster has no ZooKeeper any more.
    :param ask_there: asks the leader on its host, when the files reach none; None for Kafka's controllers.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperEyes | None,
        quorum: QuorumEyes,
        brokers: BrokerEyes,
        status_files: Sequence[Path],
        ask_there: Ask | None,
    ) -> None:
        self._zookeeper = zookeeper
        self._quorum = quorum
        self._brokers = brokers
        self._askers = [QuorumAsker(path, None, None) for path in status_files]
        self._ask_there = ask_there
        self._stock = StockLeader() if ask_there is None else None
        self.is_finished = False
        """Whether the migration was over when its state was seen last. Then ZooKeeper need not answer."""
        self.quorum: QuorumSeen | None = None
        """The quorum of the last look."""

    async def observe(self, *, partitions: bool = True) -> Observation:
        zookeeper, quorum, status = await asyncio.gather(self._look_at_zookeeper(), self._quorum.look(), self._status())
        leader = None if quorum.seen is None else quorum.seen.leader_id
        self.quorum = quorum.seen
        if status is None and leader is not None and self._ask_there is not None and not self.is_finished:
            status = await self._ask_there(leader)
        state = _state(quorum.image, status)
        self.is_finished = state is PublicState.FINISHED or (self.is_finished and state is None)
        registered = _registered(zookeeper, quorum)
        known = dict(registered or {})
        asked = dict(
            zip(
                known,
                await asyncio.gather(*(self._brokers.ask(broker, ends) for broker, ends in known.items())),
                strict=True,
            )
        )
        answers = {broker: answer for broker, answer in asked.items() if isinstance(answer, SettingsAnswer)}
        found = await self._partitions(zookeeper, quorum.image, state, known, answers) if partitions else None
        return Observation(
            cluster_id=zookeeper.cluster_id or ("" if status is None else status.cluster_id),
            brokers=brokers_seen(zookeeper, quorum, answers, is_finished=self.is_finished),
            partitions=found if isinstance(found, PartitionsSeen) else None,
            quorum=quorum.seen,
            migration=migration_seen(zookeeper, quorum, status, state, stock=self._stock),
            controller_broker=zookeeper.controller_broker,
            quorum_claims=zookeeper.quorum_rules,
            zookeeper_answers=zookeeper.brokers is not None,
            metadata_version="" if quorum.image is None else version_at(quorum.image.features.metadata_version).name,
            unknown=(
                *zookeeper.unknown,
                *quorum.unknown,
                *(answer for answer in asked.values() if isinstance(answer, str)),
                *([found] if isinstance(found, str) else []),
                *([NO_STATUS] if self._ask_there and status is None and state is PublicState.DUAL_WRITE else []),
            ),
        )

    async def close(self) -> None:
        await self._quorum.close()

    async def _look_at_zookeeper(self) -> ZooKeeperLook:
        return ZooKeeperLook() if self._zookeeper is None else await asyncio.to_thread(self._zookeeper.look)

    async def _status(self) -> LeaderSays | None:
        """Over gRPC; None when no leader is reached."""
        found = [each for each in await asyncio.gather(*map(by_asker, self._askers)) if each is not None]
        return max(found, key=lambda says: says.leader_epoch, default=None)

    async def _partitions(
        self,
        zookeeper: ZooKeeperLook,
        image: MetadataImage | None,
        state: PublicState | None,
        known: Mapping[int, Sequence[Endpoint]],
        answers: Mapping[int, SettingsAnswer],
    ) -> PartitionsSeen | str:
        """Read the partitions from the quorum's log, when the quorum is the controller; else from brokers, and first
        from the ZooKeeper controller."""
        least = min_isr_of(answers)
        if image is not None and state in QUORUM_RULES:
            return await asyncio.to_thread(of_image, image, least, placed=self._brokers.placed)
        if zookeeper.quorum_rules:
            return "the quorum rules, and does not say how partitions are"
        found: PartitionList | str = "no broker says how partitions are"
        try:
            async with asyncio.timeout(PARTITIONS_SECONDS):
                for broker in sorted(answers, key=lambda broker: broker != zookeeper.controller_broker):
                    found = await self._brokers.partitions(known[broker])
                    if isinstance(found, PartitionList):
                        break
        except TimeoutError:
            return f"no broker says how partitions are: not within {PARTITIONS_SECONDS:g} s"
        if isinstance(found, str):
            return found
        minima = await asyncio.to_thread(self._zookeeper.min_isr_of, found.topics) if self._zookeeper else {}
        if isinstance(minima, str):
            return minima
        return whole(await asyncio.to_thread(found.seen, minima, least), zookeeper.topics)


def whole(seen: PartitionsSeen, topics: int) -> PartitionsSeen | str:
    """The partitions, or why they are not all: a broker shows only topics that the login may describe, and the
    partitions of other topics may be in any state.

    :param topics: how many topics there are.
    """
    if 0 <= seen.topics < topics:
        return (
            f"the login of 'access' sees {seen.topics} of {topics} topics. Give it the right Describe of all topics, "
            "or wait until brokers know a new topic"
        )
    return seen


def _state(image: MetadataImage | None, status: LeaderSays | None) -> PublicState | None:
    """The state by the log; before the copy is committed, the leader's status is more exact."""
    labels = {state.label: state for state in PublicState}
    if status is not None and status.public_state in labels:
        told = labels[status.public_state]
        if image is None or told is PublicState.MIGRATE_ZK_DATA:
            return told
    return None if image is None else public_state(image.features.zk_migration_state)


def _registered(zookeeper: ZooKeeperLook, quorum: QuorumLook) -> dict[int, Sequence[Endpoint]]:
    """Brokers that may serve, and their endpoints."""
    live = {} if quorum.image is None else quorum.image.cluster.brokers
    found: dict[int, Sequence[Endpoint]] = {
        broker: registration.listeners for broker, registration in live.items() if not registration.fenced
    }
    return found | {broker: znode.endpoints for broker, znode in (zookeeper.brokers or {}).items()}


def brokers_seen(
    zookeeper: ZooKeeperLook, quorum: QuorumLook, answers: Mapping[int, SettingsAnswer], *, is_finished: bool
) -> dict[int, BrokerSeen] | None:
    """None when a broker may be registered that was not seen: it would pass for a broker that is down, and so for one
    whose restart harms nothing."""
    quorum_is_known = quorum.image is not None or (
        quorum.seen is None and zookeeper.brokers is not None and not zookeeper.quorum_rules
    )
    if quorum.seen is not None and quorum.image is None and not quorum.unknown:
        quorum_is_known = True  # it leads, and has no metadata yet
    if not quorum_is_known or (zookeeper.brokers is None and not is_finished):
        return None
    znodes = zookeeper.brokers or {}
    registrations = {} if quorum.image is None else dict(quorum.image.cluster.brokers)
    return {
        broker: _broker(
            broker,
            znodes.get(broker),
            registrations.get(broker),
            answers.get(broker),
            has_quorum=quorum.seen is not None,
        )
        for broker in sorted({*znodes, *registrations})
    }


def _broker(
    broker_id: int,
    znode: RegisteredBroker | None,
    registration: BrokerRegistration | None,
    answer: SettingsAnswer | None,
    *,
    has_quorum: bool,
) -> BrokerSeen:
    live = registration if registration is not None and not registration.fenced else None
    settings = None if answer is None else answer.settings
    kraft_in_log = registration is not None and not registration.is_migrating_zk_broker
    if znode is None and live is None:
        return BrokerSeen(broker_id, None, kraft_in_log=kraft_in_log)
    mode = _mode(settings, znode, live)
    stops = live is not None and live.in_controlled_shutdown
    serves = answer is not None and not stops
    if mode is BrokerMode.KRAFT:
        serves = serves and live is not None and not live.is_migrating_zk_broker
    else:
        serves = serves and znode is not None
        if mode is BrokerMode.MIGRATING and has_quorum:
            serves = serves and live is not None and live.is_migrating_zk_broker
    stamp = f"zookeeper:{znode.czxid}" if znode is not None else f"quorum:{live.epoch if live is not None else -1}"
    rack = znode.rack if znode is not None else (live.rack or "") if live is not None else ""
    age_ms = 0 if znode is None else znode.age_ms
    found = BrokerSeen(broker_id, mode, stamp, serves, rack=rack, kraft_in_log=kraft_in_log, age_ms=age_ms)
    if answer is None:
        return found
    return replace(
        found,
        release=answer.release,
        settings=settings,
        file=answer.file,
        hidden=answer.hidden,
        dynamic_map=answer.dynamic_map,
    )


def _mode(
    settings: Mapping[str, str] | None, znode: RegisteredBroker | None, live: BrokerRegistration | None
) -> BrokerMode:
    """The mode by the broker's own answer; without one, by its registration."""
    if settings is not None:
        if settings.get(ROLES):
            return BrokerMode.KRAFT
        return BrokerMode.MIGRATING if settings.get(FLAG) == "true" else BrokerMode.ZOOKEEPER
    if live is not None and not live.is_migrating_zk_broker and znode is None:
        return BrokerMode.KRAFT
    return BrokerMode.MIGRATING if live is not None and live.is_migrating_zk_broker else BrokerMode.ZOOKEEPER


def migration_seen(
    zookeeper: ZooKeeperLook,
    quorum: QuorumLook,
    status: LeaderSays | None,
    state: PublicState | None,
    *,
    stock: StockLeader | None = None,
) -> MigrationSeen | None:
    """The migration; None while no controller leads. Without our leader's status, the lag is the number of records that
    were committed at the look before and are not in ``/migration`` yet.

    :param stock: with Kafka's controllers, what was seen of their leader so far. Its lag is not 0 before it writes.
    """
    if state is None:
        return None
    lag = _behind(zookeeper, quorum.committed_before)
    reopened = "" if quorum.image is None else quorum.image.features.reopened
    if stock is not None:
        at = zookeeper.written_offset, zookeeper.written_epoch
        writes = stock.writes(state, quorum.leader_epoch, *at)
        keeps_up = writes and _behind(zookeeper, quorum.committed_earlier) == 0
        return MigrationSeen(
            state.label, lag if writes or lag else -1, keeps_up=keeps_up, behind_ms=0 if keeps_up else -1
        )
    if status is None:
        return MigrationSeen(state.label, lag, keeps_up=lag >= 0, reopened=reopened, versions_left=-1)
    if status.lag_records is not None:
        lag = status.lag_records
    keeps_up = status.internal_state in WRITES  # our leader sends changes to the brokers even while ZooKeeper is behind
    finishing = status.internal_state == State.FINISHING.value
    return MigrationSeen(
        state.label,
        lag if keeps_up else -1,
        status.foreign_writes,
        status.problems,
        finishing,
        keeps_up,
        status.images,
        status.lag_ms,
        reopened or status.reopened,
        status.versions,
        status.versions_left,
    )


def _behind(zookeeper: ZooKeeperLook, committed: int) -> int:
    """How many of the records that were committed then are not in ZooKeeper yet; -1 unknown."""
    if zookeeper.brokers is None or zookeeper.written_offset < 0 or committed < 0:
        return -1
    return max(0, committed - 1 - zookeeper.written_offset)


def min_isr_of(answers: Mapping[int, SettingsAnswer]) -> int:
    """The brokers' default; the highest where they differ."""
    found = [answer.settings.get(MIN_ISR, "") for answer in answers.values() if answer.settings is not None]
    return max((int(text) for text in found if text.isdecimal()), default=1)
