"""Asks every voter whether it is ready to migrate: ZkMigrationReady in a new ApiVersions answer each time.

The migration, the ballot and the gates ask `VoterSignals`. An answer is always from the running process: registrations
in the log outlive a restart, so they are no proof. A voter that does not answer in time counts as unknown, never as
ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from migrator.config.settings import Settings
from migrator.errors import PeerError
from migrator.raft.transport import TransportError
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.api_versions import Features
from migrator.wire.client import KafkaConnection
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.security import ListenerSecurity

ASK_SECONDS = 2.0
QUESTION_SECONDS = 10.0
"""A question continues for this long, even after its caller has given up: the next one then finds an open
connection."""
MAX_RESPONSE_BYTES = 1 << 20
VOTER_QUESTION = TaskKind("voter-question", OnError.DROP)


@value
class VoterAnswer:
    """A voter's answer: whether its migration flag is on, whether it is a controller of this program, and whether its
    release knows a reopened migration."""

    migrating: bool
    is_ours: bool
    knows_reopening: bool = False

    @classmethod
    def of(cls, features: Features) -> VoterAnswer:
        """The answer that a voter's ApiVersions give."""
        return cls(features.zk_migration_ready, features.is_ours, features.knows_reopening)

    @property
    def may_lead(self) -> bool:
        """Whether the migration would go on with this voter as the leader. A controller of this program may lead
        without the flag: it ends the migration only when every voter has the flag off."""
        return self.migrating or self.is_ours


class VoterLink:
    """A kept connection to one voter: a new connection takes up to seven round trips with TLS and SASL, a question one.
    A restart of the voter ends the connection, so an answer is always from the running process.

    :param tasks: owns the running question.
    """

    def __init__(self, at: ListenerEndpoint, client_id: str, security: ListenerSecurity, tasks: Supervisor) -> None:
        self._at = at
        self._client_id = client_id
        self._security = security
        self._tasks = tasks
        self._connection: KafkaConnection | None = None
        self._question: asyncio.Task[VoterAnswer | None] | None = None
        self._is_closed = False

    async def ask(self, seconds: float) -> VoterAnswer | None:
        """The voter's answer now; None without an answer in time. The question then continues without its caller."""
        try:
            async with asyncio.timeout(seconds):
                while self._question is not None and not self._question.done():
                    await asyncio.wait({self._question})  # an earlier question: its answer could be too old
                if self._is_closed:
                    return None
                question = self._question = self._tasks.spawn(VOTER_QUESTION, self._ask())
                await asyncio.wait({question})
        except TimeoutError:
            return None
        return None if question.cancelled() else question.result()

    async def close(self) -> None:
        """End the running question without an answer, and close the connection permanently."""
        self._is_closed = True
        if self._question is not None:
            self._question.cancel()
            await asyncio.wait({self._question})
        await self._drop()

    async def _ask(self) -> VoterAnswer | None:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                features = await self._on_what_stands() or await self._on_a_new_one()
        except (TransportError, PeerError, TimeoutError):
            await self._drop()
            return None
        return VoterAnswer.of(features)

    async def _on_what_stands(self) -> Features | None:
        connection = self._connection
        if connection is None or not connection.alive:
            return None
        try:
            return await connection.ask_features()
        except (TransportError, PeerError):  # the voter was restarted, or has closed an idle connection
            return None

    async def _on_a_new_one(self) -> Features:
        await self._drop()
        at = self._at
        self._connection = await KafkaConnection.open(
            at.host, at.port, self._client_id, self._security, MAX_RESPONSE_BYTES
        )
        return self._connection.features

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


Endpoints = Callable[[], Mapping[int, ListenerEndpoint]]


class VoterSignals:
    """Asks the running processes of the voters. Registrations in the log would not do: they outlive a restart.

    :param endpoints: the present voters and their addresses.
    :param registered: other registered controllers: future voters, or voters that this node does not know yet.
    """

    def __init__(
        self,
        settings: Settings,
        endpoints: Endpoints,
        security: ListenerSecurity,
        registered: Endpoints = dict,
    ) -> None:
        self._node_id = settings.node_id
        self._own = VoterAnswer(settings.zookeeper_metadata_migration_enable, is_ours=True, knows_reopening=True)
        self._endpoints = endpoints
        self._registered = registered
        self._security = security
        self._links: dict[ListenerEndpoint, VoterLink] = {}
        self._tasks = Supervisor()
        self.last: dict[int, VoterAnswer | None] = dict.fromkeys(endpoints()) | {self._node_id: self._own}
        """The last answer of each voter."""

    async def ask(self) -> dict[int, VoterAnswer | None]:
        """The answer of each voter; None when it did not answer."""
        others = [node_id for node_id in self._endpoints() if node_id != self._node_id]
        answers = await asyncio.gather(*map(self.ask_one, others))
        self.last = {self._node_id: self._own, **dict(zip(others, answers, strict=True))}
        return dict(self.last)

    async def ask_one(self, node_id: int, seconds: float = ASK_SECONDS) -> VoterAnswer | None:
        """The answer of one controller; None without an answer in time, or for an unknown id."""
        endpoints = {**self._registered(), **self._endpoints()}
        at = endpoints.get(node_id)
        # Remove all old links before the first await: other calls run at the same time.
        moved = [self._links.pop(gone) for gone in tuple(self._links) if gone not in endpoints.values()]
        for link in moved:
            await link.close()
        if at is None:
            return None
        if at not in self._links:
            self._links[at] = VoterLink(at, f"controller-{self._node_id}", self._security, self._tasks)
        return await self._links[at].ask(seconds)

    async def close(self) -> None:
        """Close every connection. A later question makes new ones."""
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links))


def ready(answers: Mapping[int, VoterAnswer | None]) -> dict[int, bool | None]:
    """Whether each voter's migration flag is on; None for a voter without an answer."""
    return {voter: None if answer is None else answer.migrating for voter, answer in answers.items()}


def stock(answers: Mapping[int, VoterAnswer | None]) -> frozenset[int]:
    """The voters that answered and are not controllers of this program."""
    return frozenset(voter for voter, answer in answers.items() if answer is not None and not answer.is_ours)


def outdated(answers: Mapping[int, VoterAnswer | None]) -> frozenset[int]:
    """The controllers of this program whose release does not know a reopened migration."""
    found = ((voter, answer) for voter, answer in answers.items() if answer is not None)
    return frozenset(voter for voter, answer in found if answer.is_ours and not answer.knows_reopening)
