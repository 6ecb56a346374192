"""Two controllers under attack: a sole voter, which leads, at the doors of brokers, clients and operators; and one of
three voters, whose two peers are the attacker, also in its answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.migration.machine.states import State
from migrator.raft import messages as m
from migrator.raft.messages import EpochOffset, RaftRequest, RaftResponse
from migrator.raft.transport import TransportError, UnreachableError
from migrator.rpc.codec import from_proto, to_proto
from migrator.rpc.identity import CALLER, GrpcCaller
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.wire.decode import decode_exactly
from migrator.wire.encode import encode_entity
from migrator.wire.principal import Principal
from migrator.wire.raft_codec import RAFT_APIS, decode_raft_response, encode_raft_response
from migrator.wire.schemas import (
    ENVELOPE,
    build,
    request_type,
    response_type,
)
from tests.hostile.asking import (
    RAFT_KEYS,
    about_the_log,
    check_harmless,
    describes_its_quorum,
    through_bytes,
    to_quorum,
)
from tests.hostile.batches import batch_of, spoilt_batch
from tests.hostile.doors import BY_DOOR, Door, Knock, rounds
from tests.hostile.hints import DIRECTORIES, INCARNATIONS, hints_of
from tests.hostile.logins import log_in
from tests.hostile.node import AbortedError, GrpcContext, Node, Silence, frame_of
from tests.hostile.values import Hostile
from tests.node.support.cluster import CLUSTER_ID
from tests.rpc.support.operator_node import PlayedNode
from tests.rpc.support.voters import VotersOfTest
from tests.wire.support.principals import encode_principal

LEADERS_ROUND: Final = rounds(
    {Door.LISTENER: 2, Door.ENVELOPE: 2, Door.SASL: 4, Door.OPERATOR: 6, Door.VOTERS: 6, Door.QUORUM: 2}
)
VOTERS_ROUND: Final = rounds({Door.LISTENER: 2, Door.QUORUM: 5}, RAFT_KEYS | {-1})
PATIENCE_SECONDS: Final = 60 * 24 * 3600.0
"""Of the virtual clock: a Fetch may ask to wait for 24 days."""
BROKERS: Final = (1, 2, 3)


class BrokerSeat:
    """Knocks at the doors of a leader."""

    def __init__(self, directory: Path, seed: int, turn: int) -> None:
        self.node = Node(directory, 1, Silence(), seed)
        self.coverage: Counter[str] = Counter()
        self.ends: set[tuple[str, int]] = set()
        self._turn = turn
        self._services = {
            Door.OPERATOR: OperatorService(PlayedNode(State.DUAL_WRITING)),
            Door.VOTERS: VotersService(VotersOfTest()),
        }

    async def start(self) -> None:
        self.node.start()
        await self.ready()

    async def stop(self) -> None:
        """Stop it, unless it has ended by itself."""
        if not self.node.cluster.failures:
            await self.node.stop()

    async def ready(self) -> None:
        """Until the node leads, with brokers that run and a topic."""
        while self.node.core.controller.epoch is None:
            await asyncio.sleep(0.1)
        await self.work()

    async def work(self) -> None:
        """The requests of a correct broker, and their answers.

        :raises AssertionError: it does not get it.
        """
        for broker in BROKERS:
            await asyncio.sleep(20)  # whoever has taken its id is silent by now
            epoch = await self._register(broker)
            beat = {"broker_id": broker, "broker_epoch": epoch, "current_metadata_offset": epoch}
            answer = await self._good(63, **beat, want_fence=False, want_shut_down=False)
            assert answer.error_code is ErrorCode.none, answer
            ids = await self._good(67, broker_id=broker, broker_epoch=epoch)
            assert ids.error_code is ErrorCode.none, ids
        topics = ({"name": "topic-0", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()},)
        answer = await self._good(19, topics=topics)
        assert answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists), answer

    async def _register(self, broker: int) -> int:
        registered = self.node.core.metadata.image.cluster.brokers.get(broker)
        if registered is not None and registered.in_controlled_shutdown:  # it was asked for in its name
            await self._good(64, broker_id=broker)
        levels = self.node.core.metadata.image.features.levels
        features = [{"name": name, "min_supported_version": 0, "max_supported_version": 100} for name in levels]
        answer = await self._good(
            62,
            broker_id=broker,
            cluster_id=CLUSTER_ID,
            incarnation_id=INCARNATIONS[broker],
            log_dirs=(DIRECTORIES[broker],),
            listeners=({"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0},),
            features=features,
        )
        if answer.error_code is ErrorCode.invalid_registration:  # the attacker has registered this directory
            for other in list(self.node.core.metadata.image.cluster.brokers):
                await self._good(64, broker_id=other)
            return await self._register(broker)
        assert answer.error_code is ErrorCode.none, answer
        return int(answer.broker_epoch)

    async def _good(self, key: int, **fields: Any) -> Any:
        version = 0 if key in (64, 67) else 4 if key == 62 else 1
        return await self.node.ask(key, version, build(request_type(key, version), **fields))

    async def knock(self, index: int, random: Random) -> str:
        """One message, and then an honest one; what it was. Errors are those that a door has declared, or defects."""
        knock = LEADERS_ROUND[(self._turn + index) % len(LEADERS_ROUND)]
        door = knock.door
        name = f"{door.name} {knock.name}"
        self.coverage[name] += 1
        hostile = Hostile(random, hints_of(self.node.core), self.ends)
        answer = {
            Door.LISTENER: self._listener,
            Door.ENVELOPE: self._envelope,
            Door.SASL: self._sasl,
            Door.OPERATOR: self._operate,
            Door.VOTERS: self._operate,
            Door.QUORUM: to_quorum(self.node),
        }[door]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await answer(random, hostile, knock)
        await describes_its_quorum(self.node)
        return name

    async def _listener(self, random: Random, hostile: Hostile, knock: Knock) -> None:
        client_id = random.choice((None, "", "c", "x" * 32_000))
        message = hostile.entity(knock.schema)
        if knock.key in RAFT_KEYS and random.random() < 0.7:
            message = about_the_log(message, hostile)
        with contextlib.suppress(PeerError):
            check_harmless(knock, message, await self.node.ask(knock.key, knock.version, message, client_id))

    async def _envelope(self, random: Random, hostile: Hostile, knock: Knock) -> None:
        inner = frame_of(knock.key, knock.version, hostile.entity(knock.schema), "inner")
        if random.random() < 0.05:
            inner = inner[: random.randrange(len(inner))]
        names = (("User", "admin"), ("User", ""), ("", "\0"), ("Type", "x" * 40_000))
        principal = encode_principal(Principal(*random.choices(names, (9, 1, 1, 1))[0], random.random() < 0.1))
        address = random.choices((bytes((127, 0, 0, 1)), bytes(16), b"", b"\xff" * 5), (9, 2, 1, 1))[0]
        if random.random() < 0.05:
            principal = hostile.raw("principal")
        envelope = build(
            request_type(ENVELOPE, 0), request_data=inner, request_principal=principal, client_host_address=address
        )
        with contextlib.suppress(PeerError):
            await self.node.ask(ENVELOPE, 0, envelope)

    async def _sasl(self, random: Random, hostile: Hostile, knock: Knock) -> None:
        log_in(random, hostile, knock)

    async def _operate(self, random: Random, hostile: Hostile, knock: Knock) -> None:
        request = through_bytes(hostile.proto(knock.schema))
        CALLER.set(GrpcCaller("an operator", "an address"))
        called = getattr(self._services[knock.door], knock.name)(request, GrpcContext())
        with contextlib.suppress(AbortedError):
            if hasattr(called, "__aiter__"):
                async for answer in called:
                    answer.SerializeToString()
                    break
            else:
                (await called).SerializeToString()


class VoterSeat:
    """Knocks at the doors of one voter of three, and answers what it asks."""

    def __init__(self, directory: Path, seed: int, turn: int) -> None:
        self.node = Node(directory, 3, self, seed)
        self.coverage: Counter[str] = Counter()
        self.ends: set[tuple[str, int]] = set()
        self.answers = 0
        self._turn = turn
        self._random = Random(seed)
        self._sent: list[Any] = []

    async def start(self) -> None:
        self.node.start()
        await self.ready()

    async def stop(self) -> None:
        """Stop it, unless it has ended by itself."""
        if not self.node.cluster.failures:
            await self.node.stop()

    async def ready(self) -> None:
        """Nothing has to be prepared: two of three voters are the attacker."""
        await asyncio.sleep(0)

    async def work(self) -> None:
        """The answer to a correct voter's Vote names the node's own epoch or a later one."""
        quorum = self.node.core.quorum
        vote = m.VoteRequest(CLUSTER_ID, 1, quorum.epoch, 2, 0, 0)
        answer = await quorum.handle(vote)
        assert isinstance(answer, m.VoteResponse)
        assert answer.leader_epoch >= vote.candidate_epoch, answer

    async def knock(self, index: int, random: Random) -> str:
        """One message, an honest one, and then some time, in which the node asks its peers."""
        knock = VOTERS_ROUND[(self._turn + index) % len(VOTERS_ROUND)]
        name = f"{knock.door.name} {knock.name}"
        self.coverage[name] += 1
        hostile = Hostile(random, hints_of(self.node.core), self.ends)
        async with asyncio.timeout(PATIENCE_SECONDS):
            if knock.door is Door.QUORUM:
                await to_quorum(self.node)(random, hostile, knock)
            else:
                message = hostile.entity(knock.schema)
                if random.random() < 0.7:
                    message = about_the_log(message, hostile)
                if self._sent and random.random() < 0.1:
                    knock, message = random.choice(self._sent)  # again, later, out of order
                self._sent = [*self._sent[-20:], (knock, message)]
                with contextlib.suppress(PeerError):
                    check_harmless(knock, message, await self.node.ask(knock.key, knock.version, message))
        await describes_its_quorum(self.node)
        await asyncio.sleep(random.choice((0, 0.02, 0.3, 2.0)))
        return name

    # The transport of the attacked node

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        """See `RaftTransport`: honest, hostile, or silent."""
        random, self.answers = Random(self._random.random()), self.answers + 1
        await asyncio.sleep(random.choice((0, 0.001, 0.2)))
        kind = random.random()
        if kind < 0.15:
            raise UnreachableError("silent")
        try:
            if kind < 0.5:
                return self._through_codec(random, self._honest(random, peer, request))
            return self._hostile(random, request)
        except PeerError as error:
            raise TransportError(str(error)) from error

    async def close(self) -> None:
        """See `RaftTransport`."""

    def _honest(self, random: Random, peer: int, request: RaftRequest) -> RaftResponse:
        core, none = self.node.core, ErrorCode.none
        epoch, leader = core.quorum.epoch, core.quorum.leader_id
        known = -1 if leader is None else leader
        if isinstance(request, m.VoteRequest):
            return m.VoteResponse(none, none, -1, request.candidate_epoch, vote_granted=random.random() < 0.7)
        if isinstance(request, m.BeginQuorumEpochRequest):
            return m.BeginQuorumEpochResponse(none, none, request.leader_id, request.leader_epoch)
        if isinstance(request, m.EndQuorumEpochRequest):
            return m.EndQuorumEpochResponse(none, none, known, epoch)
        if isinstance(request, m.FetchSnapshotRequest):
            error = random.choice((ErrorCode.snapshot_not_found, none))
            data = self._batch(random, 0, request.snapshot_id.epoch)
            size = random.choice((len(data), 2 * len(data), 2**62))
            return m.FetchSnapshotResponse(none, error, peer, epoch, request.snapshot_id, size, request.position, data)
        return self._fetched(random, peer, request)

    def _fetched(self, random: Random, peer: int, request: m.FetchRequest) -> RaftResponse:
        none, offset, epoch = ErrorCode.none, request.fetch_offset, request.leader_epoch
        kind = random.random()
        if kind < 0.15:
            return m.FetchResponse(none, none, peer, epoch, offset, 0, diverging=EpochOffset(epoch, max(0, offset - 1)))
        if kind < 0.25:
            return m.FetchResponse(none, none, peer, epoch, offset, 0, snapshot_id=EpochOffset(epoch, offset + 9))
        data = self._batch(random, offset, epoch)
        if random.random() < 0.3:
            data += self._batch(random, offset + 1, epoch)[: random.choice((5, 40, 10_000))]
        mark = random.choice((offset, offset - 1, offset - 9, 2**63 - 1, -(2**63)))
        return m.FetchResponse(none, none, peer, epoch, mark, 0, records=data)

    def _batch(self, random: Random, offset: int, epoch: int) -> bytes:
        """The record types take turns."""
        if random.random() < 0.5:
            return batch_of(random, offset, epoch)[0]
        knock = min(BY_DOOR[Door.LEADERS_LOG], key=lambda each: self.coverage[f"LEADERS_LOG {each.name}"])
        self.coverage[f"LEADERS_LOG {knock.name}"] += 1
        return spoilt_batch(random, knock.name, offset, epoch)

    def _through_codec(self, random: Random, response: RaftResponse) -> RaftResponse:
        """As it arrives over one of the two transports."""
        if random.random() < 0.5:
            arrived: RaftResponse = from_proto(through_bytes(to_proto(response)))
            return arrived
        versions = _ranges()[type(response)]
        version = random.randint(versions.min, versions.max)
        body = encode_raft_response(response, version)
        return decode_raft_response(decode_exactly(type(body), b"".join(encode_entity(body))))

    def _hostile(self, random: Random, request: RaftRequest) -> RaftResponse:
        hostile = Hostile(random, hints_of(self.node.core), self.ends)
        name = type(request).__name__.replace("Request", "Response")
        if random.random() < 0.5:
            (knock,) = (k for k in BY_DOOR[Door.QUORUM_ANSWER] if k.schema.DESCRIPTOR.name == name)
            self.coverage[f"QUORUM_ANSWER {knock.name}"] += 1
            message = hostile.proto(knock.schema)
            if random.random() < 0.8:
                message.top_error = 0
            if random.random() < 0.7:
                message.error = 0
            found: RaftResponse = from_proto(through_bytes(message))
            return found
        key, versions = RAFT_APIS[type(request)]
        name = f"KAFKA_ANSWER API {key} version"
        version = min(range(versions.min, versions.max + 1), key=lambda each: self.coverage[f"{name} {each}"])
        self.coverage[f"{name} {version}"] += 1
        body = hostile.entity(response_type(key, version))
        if random.random() < 0.8:
            body = about_the_log(body, hostile)
        return decode_raft_response(decode_exactly(type(body), b"".join(encode_entity(body))))


def _ranges() -> dict[type, Any]:
    pairs: dict[type, type] = {
        m.VoteRequest: m.VoteResponse,
        m.BeginQuorumEpochRequest: m.BeginQuorumEpochResponse,
        m.EndQuorumEpochRequest: m.EndQuorumEpochResponse,
        m.FetchRequest: m.FetchResponse,
        m.FetchSnapshotRequest: m.FetchSnapshotResponse,
    }
    return {pairs[request]: versions for request, (_, versions) in RAFT_APIS.items()}
