"""Decides which candidates may get this controller's vote during a migration.

A stock leader without ``zookeeper.metadata.migration.enable`` finishes the migration the moment it is elected
(`ActivationRecordsGenerator` of Kafka 3.9), so it must not be elected. Its registration may be from before its restart;
the answer of its process is of now. So each Vote waits, for a bounded time, until the candidate's ApiVersions have been
asked, and without an answer there is no vote. A candidate may be no voter in this node's log, which can be older than
the candidate's: then it is asked at the address with which it has registered (`migrator.migration.machine.voters`
requires that address). `keep_asking` keeps connections open for these questions: on a link of 100 ms, a new one with
TLS and SASL takes longer than a vote may wait. Our own controllers may be elected without the flag, because they wait
for all other voters.

Until a reopened migration is in dual-write again, only controllers of a release that knows reopened migrations may
lead: any other leader would admit brokers in ZooKeeper mode before ZooKeeper holds everything. Two nodes cannot say
that their migration was not reopened: one that has not read its disk yet; and one whose flag is on, and whose log says
that the migration is finished. Every voter has the flag on when a migration is reopened, and this log may lag behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from migrator.config.keys import FLAG
from migrator.config.settings import Settings
from migrator.image.model import MetadataImage
from migrator.records.metadata import ZkMigrationState
from migrator.wire.voters import ASK_SECONDS, VoterAnswer

log = logging.getLogger(__name__)

KEEP_SECONDS = 30.0
"""The time between two questions that keep a connection open; Kafka closes a connection that is idle for 10 min
(connections.max.idle.ms)."""

AskVoter = Callable[[int, float], Awaitable[VoterAnswer | None]]
"""Asks a voter what it says of itself, within so many seconds; None when it does not answer."""


class Ballot:
    """The rule behind ``RaftConfig.may_grant_vote``.

    :param image: the metadata at the end of this node's log.
    :param voters: the ids of the voters in force.
    :param knows_image: whether ``image`` has what this node's disk held at its start, so that the migration may be
        turned off here. Before that, a migration may be under way.
    """

    def __init__(
        self,
        settings: Settings,
        image: Callable[[], MetadataImage],
        ask: AskVoter,
        voters: Callable[[], Collection[int]],
        *,
        knows_image: Callable[[], bool] = lambda: True,
    ) -> None:
        self._node_id = settings.node_id
        self._is_on = settings.zookeeper_metadata_migration_enable
        self.patience_seconds = settings.controller_quorum_election_timeout_ms / 2000
        self._image = image
        self._ask = ask
        self._voters = voters
        self._knows_image = knows_image
        self._allowed: dict[int, bool] = {}
        """The decision about the last Vote of each voter. A voter that never stood for election may be a leader's
        successor."""

    async def consult(self, candidate_id: int) -> None:
        """Ask a candidate whether it may lead the migration, before the core gets the candidate's Vote."""
        if not self._asks():
            return
        answer = await self._ask(candidate_id, self.patience_seconds)
        reopened = self._why_perhaps_reopened()
        allowed = answer is not None and (answer.knows_reopening if reopened else answer.may_lead)
        if not allowed and self._allowed.get(candidate_id, True):
            stock = f"it is a stock controller without {FLAG}=true, which would end the migration"
            silent = "its controller listener does not answer whether the migration is on, or nobody knows its address"
            unaware = f"it is Kafka's own, or of a release that does not know a reopened migration; and {reopened}"
            why = silent if answer is None else unaware if reopened else stock
            log.warning("This controller refuses its vote to controller %d: %s", candidate_id, why)
        known = {candidate_id, *self._known()}
        self._allowed = {node_id: before for node_id, before in self._allowed.items() if node_id in known}
        self._allowed[candidate_id] = allowed

    async def keep_asking(self) -> None:
        """Ask every other controller from time to time, until cancelled, so that a connection exists when one stands
        for election."""
        while True:
            if self._asks():
                others = self._known() - {self._node_id}
                await asyncio.gather(*(self._ask(node_id, ASK_SECONDS) for node_id in others))
            await asyncio.sleep(KEEP_SECONDS)

    def may_grant(self, candidate_id: int) -> bool:
        """Whether the last `consult` allows a vote. True for a voter not asked yet: it may be a leader's successor."""
        return not self._asks() or self._allowed.get(candidate_id, candidate_id in self._voters())

    def _known(self) -> frozenset[int]:
        """The voters, and controllers that may have become voters without this node's knowledge."""
        return frozenset([*self._voters(), *self._image().cluster.controllers])

    def _asks(self) -> bool:
        """Whether candidates are asked. They are asked also on an empty log: its first leader decides whether there
        will be a migration."""
        image = self._image()
        is_empty = image.provenance.offset < 0
        is_under_way = is_empty or image.features.zk_migration_state.is_under_way
        return (self._is_on and is_under_way) or bool(self._why_perhaps_reopened())

    def _why_perhaps_reopened(self) -> str:
        """Why this node must take the migration for reopened, as a clause; "" if it need not."""
        features = self._image().features
        if not self._knows_image():
            return "this controller has not read its disk yet, so the migration may be reopened"
        if features.migration_reopening is not None:
            return "the migration is reopened"
        if self._is_on and features.zk_migration_state is ZkMigrationState.POST_MIGRATION:
            return (
                f"this controller has {FLAG}=true, and a log in which the migration is finished: in a newer log it may "
                "be reopened. If nobody leads, start the other voters; only if nobody has ordered 'migrator reopen' "
                "since the end, turn the flag off on this controller instead"
            )
        return ""
