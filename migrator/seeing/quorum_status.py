"""The status of a quorum from the Kafka protocol alone, for Kafka's own controllers.

It lacks the facts that only a leader of ours reports: its next condition, how far ZooKeeper is behind, when it last
heard from each broker.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.migration.machine.states import PublicState, State, public_state
from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    MigrationStatus,
    NodeRole,
    Problem,
    QuorumStatus,
    Status,
    VoterStatus,
)
from migrator.records.metadata import ZkMigrationState
from migrator.records.versions import version_at
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from migrator.values import value

INTERNAL = {
    ZkMigrationState.NONE: State.NOTHING_TO_MIGRATE,
    ZkMigrationState.PRE_MIGRATION: State.WAITING_FOR_BROKERS,
    ZkMigrationState.MIGRATION: State.DUAL_WRITING,
    ZkMigrationState.POST_MIGRATION: State.FINISHED,
}
"""The state in which a leader stays longest during each migration state of the log."""


@value
class LeaderTerm:
    """A leader's epoch, and when it was first seen, in milliseconds of this machine's monotonic clock."""

    epoch: int
    since_ms: int


class SeenQuorum:
    """A quorum, looked at again and again.

    :param settings: name the voters or bootstrap servers, and how to log in.
    :raises OperatorError: the settings cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._where = str(settings.source)
        self._eyes = QuorumEyes(settings)
        self._term = LeaderTerm(-1, 0)

    async def catch_up(self, tell: Callable[[str], None]) -> None:
        """Like `QuorumEyes.catch_up`, for a caller that looks only once."""
        await self._eyes.catch_up(tell)

    async def status(self) -> Status:
        """The quorum's status now.

        :raises OperatorError: no controller answers.
        """
        look = await self._eyes.look()
        if look.seen is None:
            raise OperatorError(
                look.unknown[0], where=self._where,
                remedy="Start the controllers, or look at the addresses and the login in this file",
            )  # fmt: skip
        if look.described is not None and look.described.leader_epoch != self._term.epoch:
            self._term = LeaderTerm(look.described.leader_epoch, monotonic_ms())
        return status_of(look, monotonic_ms() - self._term.since_ms, wall_ms())

    async def close(self) -> None:
        await self._eyes.close()


def status_of(look: QuorumLook, known_ms: int, time_ms: int) -> Status:
    """:param known_ms: the time since this leader was first seen."""
    described, image = look.described, look.image
    leader = -1 if described is None else int(described.leader_id)
    end = next((int(row.log_end_offset) for row in described.current_voters if row.replica_id == leader), -1) \
        if described is not None else -1  # fmt: skip
    return Status(
        cluster_id="",
        node_id=leader,
        version=importlib.metadata.version("kraft-migrator"),
        time_ms=time_ms,
        quorum=QuorumStatus(
            NodeRole.UNATTACHED if described is None else NodeRole.LEADER,
            leader,
            -1 if described is None else int(described.leader_epoch),
            -1,
            end,
            -1 if described is None else int(described.high_watermark),
            tuple(_voters(look, known_ms)),
        ),
        migration=_migration(image, leads=described is not None),
        brokers=() if image is None else tuple(_broker(each) for _, each in sorted(image.cluster.brokers.items())),
        problems=tuple(Problem("quorum", why, "Look at the controllers", warning=True) for why in look.unknown),
        metadata_version="" if image is None else version_at(image.features.metadata_version).name,
        is_blank=image is None,
    )


def _voters(look: QuorumLook, known_ms: int) -> Iterator[VoterStatus]:
    """Each age is the difference of two times of the leader's clock, so other clocks do not matter."""
    rows = {} if look.described is None else {row.replica_id: row for row in look.described.current_voters}
    own = None if look.described is None else rows.get(look.described.leader_id)
    now = -1 if own is None else max(own.last_fetch_timestamp, own.last_caught_up_timestamp)
    for voter, seen in sorted((look.seen.voters if look.seen else {}).items()):
        row, at = rows.get(voter), look.addresses.get(voter)
        fetched = -1 if row is None else row.last_fetch_timestamp
        age_ms = now - fetched if min(now, fetched) >= 0 else -1
        answers = None if look.described is not None else seen.program is not None
        yield VoterStatus(
            voter,
            "" if at is None else at.host,
            0 if at is None else at.port,
            -1 if row is None else int(row.log_end_offset),
            seen.migration_on,
            max(-1, age_ms),
            answers,
            age_ms if age_ms >= 0 else known_ms if row is not None else -1,
        )


def _migration(image: MetadataImage | None, *, leads: bool) -> MigrationStatus:
    if image is None:
        return MigrationStatus(PublicState.MIGRATION_INELIGIBLE.label, State.INACTIVE.value, -1, active=False)
    features, record = image.features, image.features.zk_migration_state
    state, doing = public_state(record).label, INTERNAL[record].value
    return MigrationStatus(state, doing, -1, active=leads, reopened=features.reopened)


def _broker(registration: BrokerRegistration) -> BrokerStatus:
    if registration.fenced:
        state = BrokerState.FENCED
    else:
        state = BrokerState.STOPPING if registration.in_controlled_shutdown else BrokerState.RUNNING
    return BrokerStatus(registration.broker_id, state, registration.epoch, registration.is_migrating_zk_broker)
