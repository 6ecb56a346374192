"""Asks the controllers over the Kafka protocol: which run, which one leads, how far each is, and the committed
metadata.

Rollout, hand-over and commands use one `QuorumEyes` for a quorum of ours or of Kafka. A look never raises: a fact that
could not be seen is None, with the reason. It reads only, except `unregister`. Data of earlier looks make the next one
cheaper.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.controller.quorum_target import target_of, target_text
from migrator.errors import MigratorError, PeerError
from migrator.image.model import MetadataImage
from migrator.raft.transport import TransportError
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from migrator.seeing.stock_leader import CommittedBefore
from migrator.values import value
from migrator.verify.kraft.observed import by_address
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import controller_security, voter_endpoints
from migrator.wire.observer import Observer
from migrator.wire.raft_codec import METADATA_TOPIC, ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.remote_image import RemoteImage
from migrator.wire.schemas import (
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    UNREGISTER_BROKER,
    VersionRange,
    build,
    request_type,
)
from migrator.wire.voters import VoterAnswer, VoterSignals

ASK_SECONDS = 3.0
PATIENCE_SECONDS = 2.0
"""Seconds that the reader of the log waits for a leader."""
IMAGE_SECONDS = 20.0
"""Time to read the records that are new since the look before. A longer reading continues at the next look."""
FETCH_SECONDS = 15.0
"""Time for one fetch, shorter than `IMAGE_SECONDS`. A stock leader sends 8 MiB at once, so 5 Mbit/s are enough."""
CATCH_UP_SECONDS = 600.0
"""Time to read everything that is committed: as long as a gate waits by default."""
DESCRIBE_VERSIONS = VersionRange(0, 2)
CLIENT_ID = "migrator-rollout"
CONTROLLERS = 2
"""DescribeCluster's endpoint type (KIP-919)."""
NODE_ID = -1
"""The id of a caller that is no node of the cluster."""


@value
class QuorumLook:
    """``seen`` is None while no controller answers. ``image`` is None while no controller leads, nothing is committed,
    or the log could not be read to its end. ``unknown`` says why something is not known.
    ``committed_before``: the high watermark of the look before; ``committed_earlier``: of a look at least
    `stock_leader.BEHIND_SECONDS` ago; -1 unknown.
    ``described``: the one partition of the leader's DescribeQuorum response. ``addresses``: the known addresses of the
    voters. ``leader_epoch``: -1 while no controller leads."""

    seen: QuorumSeen | None
    image: MetadataImage | None
    committed_before: int
    unknown: tuple[str, ...] = ()
    described: Any = None
    addresses: Mapping[int, ListenerEndpoint] = field(default_factory=dict)
    committed_earlier: int = -1
    leader_epoch: int = -1


class QuorumEyes:
    """Looks at one quorum, again and again. It keeps data that make the next look cheaper.

    :param settings: name the voters or bootstrap servers, and how to log in.
    :raises OperatorError: the settings cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._security = controller_security(settings)
        self._named = voter_endpoints(settings)
        self._bootstrap = {
            node_id: ListenerEndpoint("", host, port)
            for node_id, (host, port) in by_address(settings.bootstrap_servers).items()
        }
        self._endpoints: Mapping[int, ListenerEndpoint] = self._named
        self._signals = VoterSignals(settings, lambda: self._endpoints, self._security)
        self._image = RemoteImage()
        self._was_cut_off = False
        """Whether the time was over before the last reading had reached the end of the log."""
        self._committed = -1
        self._earlier = CommittedBefore()
        self._why = ""
        """Why the last request without an answer failed, as the end of a sentence."""

    async def look(self) -> QuorumLook:
        """The quorum as it is now; raises nothing. The lag of a voter is measured against the high watermark of the
        look before, because in a healthy quorum some voter is nearly always one record behind the newest one."""
        described, somebody = await self._leader()
        voters = {row.replica_id: row for row in described.current_voters} if described is not None else {}
        ids = sorted(voters or self._endpoints)
        answers = dict(zip(ids, await asyncio.gather(*map(self._signals.ask_one, ids)), strict=True))
        if not any(answers.values()) and not somebody:
            self._image, self._committed = RemoteImage(), -1  # the next look may find another quorum
            self._earlier = CommittedBefore()
            return QuorumLook(None, None, -1, (f"no controller answers{self._why}",))
        now = -1 if described is None else int(described.high_watermark)
        before, self._committed = self._committed, max(now, self._committed)
        earlier = self._earlier.look(time.monotonic(), self._committed)
        measure = before if before >= 0 else now
        seen = QuorumSeen(
            None if described is None else int(described.leader_id),
            {
                voter: _seen(voter, answer, int(voters[voter].log_end_offset) if voter in voters else -1, measure)
                for voter, answer in answers.items()
            },
        )
        if described is None:
            return QuorumLook(seen, None, before, ("no controller leads the quorum",), addresses=self._endpoints)
        image, why = await self._read(int(described.leader_id))
        whys, epoch = (why,) if why else (), int(described.leader_epoch)
        seen = replace(seen, target=_target(seen, image))
        return QuorumLook(seen, image, before, whys, described, self._endpoints, earlier, epoch)

    async def look_and_close(self) -> QuorumLook:
        """Like `look`, and closes the connections: another event loop may make the next look."""
        look = await self.look()
        await self.close()
        return look

    async def catch_up(self, tell: Callable[[str], None]) -> None:
        """Read everything that is committed, so that each look has little to read. Raises nothing; ends after
        `CATCH_UP_SECONDS` at the latest.

        :param tell: is called with the progress, as a sentence, when the reading takes long.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                described, _ = await self._leader()
                while described is not None:
                    _, why = await self._read(int(described.leader_id))
                    if not self._was_cut_off:
                        return
                    tell(why)

    async def cluster_id(self) -> str | None:
        """The cluster id that the first answering controller gives; None without an answer."""
        request = build(
            request_type(DESCRIBE_CLUSTER, 1), include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS
        )
        for at in {**self._bootstrap, **self._endpoints}.values():
            answer = await self.ask(at, request)
            if answer is not None and answer.error_code is ErrorCode.none:
                return str(answer.cluster_id)
        return None

    async def unregister(self, broker_id: int) -> str:
        """Remove a broker's registration. Returns why that failed, or ""."""
        described, _ = await self._describe()
        at = None if described is None else self._endpoints.get(int(described.leader_id))
        if at is None:
            return f"no controller leads{self._why}"
        answer = await self.ask(at, build(request_type(UNREGISTER_BROKER, 0), broker_id=broker_id))
        if answer is None:
            return self._why.removeprefix(": ")
        gone = answer.error_code in (ErrorCode.none, ErrorCode.broker_id_not_registered)
        return "" if gone else f"the leader answers {answer.error_code.name}"

    async def ask(self, at: ListenerEndpoint, request: Any, seconds: float = ASK_SECONDS) -> Any:
        """A controller's response; None without one. Each request has its own connection, because another process may
        listen at this address by now.

        :param seconds: the longest time to wait.
        """
        async with self._connected(at) as client:
            return await client.request(request, seconds)

    async def close(self) -> None:
        await self._signals.close()

    async def _leader(self) -> tuple[Any, bool]:
        """Like `_describe`, after the leader was found if no voter is known yet."""
        if not self._endpoints:
            await self._find_leader()
        return await self._describe()

    async def _find_leader(self) -> None:
        """Find the leader when only bootstrap servers are known. DescribeQuorum is answered by the leader alone, but
        every voter names the leader in its answer to a Fetch."""
        known = dict(self._bootstrap)
        with suppress(MigratorError, TimeoutError):
            async with self._observer(known) as observer, asyncio.timeout(IMAGE_SECONDS):
                await observer.end_offset()
                self._endpoints = {observer.leader: known[observer.leader]}

    async def _describe(self) -> tuple[Any, bool]:
        """The leader's answer to DescribeQuorum, or None; and whether any controller answered. A deposed leader may
        still answer, so the answer with the highest epoch counts."""
        peers = {**self._bootstrap, **self._endpoints}
        latest, best = None, None
        answers = await asyncio.gather(*map(self._describe_one, peers.values()))
        for answer in answers:
            if answer is None or answer.error_code is not ErrorCode.none or not answer.topics:
                continue
            found = answer.topics[0].partitions[0]
            if found.error_code is not ErrorCode.none or found.high_watermark < 0:
                continue
            if latest is None or found.leader_epoch > latest.leader_epoch:
                latest, best = found, answer
        if best is not None:
            self._learn(best)
        return latest, any(answer is not None for answer in answers)

    def _learn(self, answer: Any) -> None:
        """Take the addresses of voters from an answer. Where the settings have an address, that one counts."""
        told = {
            node.node_id: self._own_listener(node.listeners) for node in getattr(answer, "nodes", ()) if node.listeners
        }
        self._endpoints = {**told, **self._named}

    def _own_listener(self, listeners: Any) -> ListenerEndpoint:
        """The listener with our controller listener's name, for which the settings have a login; else the first."""
        name = self._settings.controller_listeners[0]
        at = next((at for at in listeners if at.name == name), listeners[0])
        return ListenerEndpoint(at.name, at.host, at.port)

    async def _describe_one(self, at: ListenerEndpoint) -> Any:
        async with self._connected(at) as client:
            version = await client.highest_version(DESCRIBE_QUORUM, DESCRIBE_VERSIONS, ASK_SECONDS)
            partition = {"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)}
            return await client.request(build(request_type(DESCRIBE_QUORUM, version), topics=(partition,)), ASK_SECONDS)

    @asynccontextmanager
    async def _connected(self, at: ListenerEndpoint) -> AsyncIterator[KafkaClient]:
        """A client. An error of transport or peer ends the caller's block, and is kept in ``_why``."""
        client = KafkaClient(at.host, at.port, CLIENT_ID, security=self._security)
        try:
            yield client
        except (TransportError, PeerError) as error:
            self._why = f": {error}"
        finally:
            await client.close()

    async def _read(self, leader: int) -> tuple[MetadataImage | None, str]:
        """The committed image; or None, and why it could not be read ("" when nothing is committed).

        :param leader: is asked first: it has just answered, and unreachable voters would use up the time.
        """
        known = dict(sorted(self._endpoints.items(), key=lambda found: found[0] != leader))
        self._was_cut_off = False
        try:
            async with self._observer(known, FETCH_SECONDS) as observer, asyncio.timeout(IMAGE_SECONDS):
                image = await self._image.advance(observer)
        except TimeoutError:
            self._was_cut_off = True
            return None, f"the metadata log is still being read: {self._image.progress}"
        except MigratorError as error:
            return None, f"the metadata log cannot be read: {error}"
        return (image, "") if image.provenance.offset >= 0 else (None, "")

    @asynccontextmanager
    async def _observer(
        self, known: dict[int, ListenerEndpoint], fetch_seconds: float | None = None
    ) -> AsyncIterator[Observer]:
        """A reader of the log.

        :param known: the controllers to ask, in this order. Controllers that an answer names are added.
        :param fetch_seconds: see `Observer`.
        """

        def told(node_id: int, _epoch: int, host: str, port: int) -> None:
            known.setdefault(node_id, ListenerEndpoint("", host, port))

        transport = KafkaRaftTransport(NODE_ID, known.get, told=told, security=self._security)
        try:
            yield Observer(
                transport,
                tuple(known),
                None,
                patience_seconds=PATIENCE_SECONDS,
                gives_up=True,
                fetch_seconds=fetch_seconds,
            )
        finally:
            await transport.close()


def _target(seen: QuorumSeen, image: MetadataImage | None) -> str | None:
    leader = None if seen.leader_id is None else seen.voters.get(seen.leader_id)
    if leader is not None and leader.program is ControllerProgram.STOCK:
        return ""
    target = None if image is None else target_of(image)
    return (None if image is None else "") if target is None else target_text(target)


def _seen(voter: int, answer: VoterAnswer | None, end: int, committed: int) -> ControllerSeen:
    if answer is None:
        return ControllerSeen(voter, None)
    program = ControllerProgram.MIGRATOR if answer.is_ours else ControllerProgram.STOCK
    lag = max(0, committed - end) if end >= 0 and committed >= 0 else -1
    return ControllerSeen(voter, program, answer.migrating, lag)
