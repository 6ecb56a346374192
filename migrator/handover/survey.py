"""Looks at the quorum from outside, over the Kafka protocol: ours and stock controllers answer alike."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.observations import ObservedQuorum, ObservedVoter, Program
from migrator.raft.transport import TransportError
from migrator.records.versions import FEATURE_NAME
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import controller_security, voter_endpoints
from migrator.wire.observer import NoAnswerError, Observer
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.remote_image import RemoteImage
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from migrator.wire.voters import VoterAnswer, VoterSignals

ASK_SECONDS = 3.0
PATIENCE_SECONDS = 10.0
"""With a quorum that has no leader."""
DESCRIBE_CLUSTER = 60
LIST_PARTITION_REASSIGNMENTS = 46
CONTROLLERS = 2
"""DescribeCluster's endpoint type (KIP-919)."""


class Survey:
    """One hand-over's eyes. A fresh connection for each question to a voter: what ran there may be another process.

    :param settings: of any voter; names the others, and how to log in.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoints = voter_endpoints(settings)
        self._security = controller_security(settings)
        self._voters = VoterSignals(settings, lambda: self._endpoints, self._security)
        self._finished: bool | None = None
        self._level = 0
        self._committed = -1
        self._metadata = RemoteImage()

    async def look(self) -> ObservedQuorum:
        """The quorum as it is now. Who has caught up is measured by what was committed at the look before: in a quorum
        that works, somebody always is a record behind."""
        ids = sorted(self._endpoints)
        answers = dict(zip(ids, await asyncio.gather(*map(self._voters.ask_one, ids)), strict=True))
        await self._voters.close()
        described = await self._describe([voter for voter, answer in answers.items() if answer is not None])
        if described is not None and not self._finished:
            await self._read_metadata()
        ends = {} if described is None else {row.replica_id: row.log_end_offset for row in described.current_voters}
        now = -1 if described is None else described.high_watermark
        before, self._committed = self._committed, now
        target = "" if described is None else await self._target(described.leader_id)
        return ObservedQuorum(
            target=target,
            voters={
                voter: ObservedVoter(voter, _program(answer), ends.get(voter, -1)) for voter, answer in answers.items()
            },
            leader_id=None if described is None else described.leader_id,
            high_watermark=min(before, now) if before >= 0 else now,
            finished=self._finished,
            level=self._level,
        )

    async def cluster_id(self) -> str:
        """:raises OperatorError: nobody says."""
        for voter in self._endpoints:
            fields = {"include_cluster_authorized_operations": False, "endpoint_type": CONTROLLERS}
            answer = await self._ask(voter, build(request_type(DESCRIBE_CLUSTER, 1), **fields))
            if answer is not None and answer.error_code is ErrorCode.none:
                return str(answer.cluster_id)
        raise OperatorError(
            "no controller answers with the cluster id",
            where="controller.quorum.voters",
            remedy="See 'migrator status'",
        )

    async def _describe(self, voters: list[int]) -> Any:
        """The leader's DescribeQuorum; None without a leader."""
        partition = {"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)}
        request = build(request_type(DESCRIBE_QUORUM, 1), topics=(partition,))
        for answer in await asyncio.gather(*(self._ask(voter, request) for voter in voters)):
            if answer is None or answer.error_code is not ErrorCode.none or not answer.topics:
                continue
            found = answer.topics[0].partitions[0]
            if found.error_code is ErrorCode.none and found.high_watermark >= 0:
                return found
        return None

    async def _target(self, leader: int) -> str:
        """Of a reassignment of the voters that is set; a stock leader knows of none."""
        fields = {"timeout": dt.timedelta(seconds=ASK_SECONDS), "topics": None}
        answer = await self._ask(leader, build(request_type(LIST_PARTITION_REASSIGNMENTS, 0), **fields))
        topics = () if answer is None or answer.error_code is not ErrorCode.none else answer.topics
        rows = [row for topic in topics if topic.name == METADATA_TOPIC for row in topic.partitions]
        return ",".join(
            str(voter)
            for row in rows
            for voter in sorted({*row.replicas, *row.adding_replicas} - {*row.removing_replicas})
        )

    async def _ask(self, voter: int, request: Any) -> Any:
        at = self._endpoints.get(voter)
        if at is None:
            return None
        client = KafkaClient(at.host, at.port, "handover", security=self._security)
        try:
            return await client.request(request, ASK_SECONDS)
        except TransportError:
            return None
        finally:
            await client.close()

    async def _read_metadata(self) -> None:
        """Once the migration is over it stays so, and nothing has to be read again."""
        transport = KafkaRaftTransport(self._settings.node_id, self._endpoints.get, security=self._security)
        try:
            observer = Observer(transport, self._endpoints, None, patience_seconds=PATIENCE_SECONDS, gives_up=True)
            image = await self._metadata.advance(observer)
        except NoAnswerError:
            return
        finally:
            await transport.close()
        if image.provenance.offset >= 0:
            self._finished = not image.features.zk_migration_state.is_under_way
            self._level = image.features.levels.get(FEATURE_NAME, 0)


def _program(answer: VoterAnswer | None) -> Program | None:
    if answer is None:
        return None
    return Program.OURS if answer.is_ours else Program.STOCK
