"""Stock Kafka 3.9.1 as the other side: a controller that leads us and follows us, in clear and over SASL on TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.parts.certificates import Authority
from migrator.parts.kafka import KafkaRelease
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    RaftRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.transport import RaftHandler, UnreachableError
from migrator.records import control
from migrator.records.batch import build_batch
from migrator.wire.api_versions import Features
from migrator.wire.raft_codec import RAFT_APIS, ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport, RaftService
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import CONTROLLER_APIS, VersionRange
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS

CLUSTER = "qYoMEZXcS_SKP2PzAl8-WA"
STOCK, OURS = 1, 2
NO_OP = bytes.fromhex("01140000")
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="controller" password="let \\"me\\", in" user_controller="let \\"me\\", in";'
)


class Follower:
    """Votes for the stock controller, and follows it."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.requests: list[RaftRequest] = []
        self.leader_epoch: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __call__(self, request: RaftRequest) -> RaftResponse:
        self.heard.set()
        self.requests.append(request)
        if isinstance(request, VoteRequest):
            return VoteResponse(ErrorCode.none, ErrorCode.none, -1, request.candidate_epoch, vote_granted=True)
        if isinstance(request, BeginQuorumEpochRequest):
            if not self.leader_epoch.done():
                self.leader_epoch.set_result(request.leader_epoch)
            return BeginQuorumEpochResponse(ErrorCode.none, ErrorCode.none, request.leader_id, request.leader_epoch)
        assert isinstance(request, EndQuorumEpochRequest)
        return EndQuorumEpochResponse(ErrorCode.none, ErrorCode.none, -1, request.leader_epoch)


class Leader:
    """Refuses its vote, wins the election of ``epoch`` and leads with a log of two batches."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.candidate_epoch = 0
        self.epoch = -1
        self.batches: list[bytes] = []
        self.fetches: list[FetchRequest] = []
        self.followed = asyncio.Event()
        # Records of no effect, a whole MiB and more of them: made before there is an election to be late for.
        self._noise = build_batch([NO_OP] * 150_000, timestamp_ms=2, base_offset=1, leader_epoch=0)

    def lead(self, epoch: int) -> None:
        """Make the log of a leader."""
        voters = (control.Voter(STOCK), control.Voter(OURS))
        opening = control.build_control_batch(
            [control.LeaderChange(OURS, voters, voters)], timestamp_ms=1, leader_epoch=epoch
        )
        noise = self._noise[:12] + epoch.to_bytes(4, "big") + self._noise[16:]  # the checksum leaves the epoch out
        self.epoch, self.batches = epoch, [opening, noise]

    async def __call__(self, request: RaftRequest) -> RaftResponse:
        self.heard.set()
        if isinstance(request, VoteRequest):
            self.candidate_epoch = request.candidate_epoch
            epoch = max(self.epoch, request.candidate_epoch)
            return VoteResponse(ErrorCode.none, ErrorCode.none, -1, epoch, vote_granted=False)
        assert isinstance(request, FetchRequest)
        if not self.batches:
            # It looks for a leader already.
            return FetchResponse(ErrorCode.none, ErrorCode.not_leader_or_follower, -1, request.leader_epoch, -1, -1)
        self.fetches.append(request)
        ends = [0, 1, 150_001]
        records = self.batches[ends.index(request.fetch_offset)] if request.fetch_offset < ends[-1] else b""
        if not records:
            self.followed.set()
            await asyncio.sleep(0.1)
        # Two voters: what the follower asks for next is committed.
        return FetchResponse(
            ErrorCode.none, ErrorCode.none, OURS, self.epoch, request.fetch_offset or -1, 0, records=records
        )


class Listening:
    """The handler of our listener: consensus only, and who asked."""

    def __init__(self, core: RaftHandler) -> None:
        self._service = RaftService(core, lambda _: ListenerEndpoint("CONTROLLER", "localhost", self.port))
        self.port = 0
        self.principals: set[str] = set()

    async def handle(self, context: RequestContext, body: Any) -> Any:
        assert context.api_key in {key for key, _ in RAFT_APIS.values()}
        self.principals.add(str(context.principal))
        return await self._service.handle(context, body)


@contextlib.asynccontextmanager
async def quorum(
    tmp_path: Path,
    port: int,
    core: Follower | Leader,
    protocol: str = "PLAINTEXT",
    extra: dict[str, str] | None = None,
    security: ListenerSecurity = PLAINTEXT,
) -> AsyncIterator[tuple[Listening, KafkaRaftTransport]]:
    """A stock controller and us, two voters; it has spoken to us."""
    features = Features({"metadata.version": VersionRange(1, 21), "kraft.version": VersionRange(0, 1)}, {})
    handler = Listening(core)
    listener = KafkaListener("CONTROLLER", handler, features=lambda: features, security=security)
    handler.port = await listener.start("127.0.0.1", 0)
    node = (
        KafkaRelease("3.9.1")
        .fetch()
        .node(
            "stock",
            tmp_path / "stock",
            {
                "process.roles": "controller",
                "node.id": str(STOCK),
                "controller.quorum.voters": f"{STOCK}@localhost:{port},{OURS}@localhost:{handler.port}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://localhost:{port}",
                "listener.security.protocol.map": f"CONTROLLER:{protocol}",
                "controller.quorum.fetch.timeout.ms": "10000",
                **(extra or {}),
            },
        )
    )
    transport = KafkaRaftTransport(
        OURS,
        {STOCK: ListenerEndpoint("CONTROLLER", "localhost", port)}.get,
        own_endpoints=(ListenerEndpoint("CONTROLLER", "localhost", handler.port),),
        security=security,
    )
    try:
        await asyncio.to_thread(node.format, CLUSTER, release_version="3.9-IV0")
        node.launch()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await core.heard.wait()
        yield handler, transport
    finally:
        await asyncio.to_thread(node.kill)
        await transport.close()
        await listener.close(grace=0)


async def follow(transport: KafkaRaftTransport, epoch: int) -> FetchResponse:
    """Fetch like a follower until something is committed."""
    offset = last_epoch = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            request = FetchRequest(CLUSTER, OURS, epoch, offset, last_epoch, 500, 8 << 20)
            response = await transport.send(STOCK, request, 10)
            assert isinstance(response, FetchResponse)
            assert (response.top_error, response.error) == (ErrorCode.none, ErrorCode.none)
            assert (response.leader_id, response.leader_epoch) == (STOCK, epoch)
            if response.records:
                offset = last_offset(response.records) + 1
                last_epoch = epoch
            if 0 < response.high_watermark <= offset:
                return response


def last_offset(batches: bytes) -> int:
    """Offset of the last record of some batches: base offset and length stand at 0 and 8, the delta at 23."""
    position = last = 0
    while position < len(batches):
        base = int.from_bytes(batches[position : position + 8], "big")
        last = base + int.from_bytes(batches[position + 23 : position + 27], "big")
        position += 12 + int.from_bytes(batches[position + 8 : position + 12], "big")
    return last


async def test_a_stock_controller_leads_a_quorum_with_us(tmp_path: Path, unused_tcp_port: int) -> None:
    voter = Follower()
    async with quorum(tmp_path, unused_tcp_port, voter) as (_, transport):
        epoch = await asyncio.wait_for(voter.leader_epoch, PATIENCE_SECONDS)
        vote = next(request for request in voter.requests if isinstance(request, VoteRequest))
        assert (vote.cluster_id, vote.candidate_id, vote.voter_id) == (CLUSTER, STOCK, OURS)
        await follow(transport, epoch)
        # A later vote for us is refused: it leads, and says so.
        refused = await transport.send(STOCK, VoteRequest(CLUSTER, STOCK, epoch, OURS, epoch - 1, 0), 10)
        assert isinstance(refused, VoteResponse)
        assert (refused.vote_granted, refused.leader_id, refused.leader_epoch) == (False, STOCK, epoch)
        foreign = await transport.send(STOCK, VoteRequest("AAAAAAAAAAAAAAAAAAAAAA", STOCK, 9, OURS, 0, 0), 10)
        assert foreign.top_error == ErrorCode.inconsistent_cluster_id
        # What a stock controller says of itself is what we say.
        client = transport.client(STOCK)
        assert client is not None
        connection = await client.connect(10)
        assert connection.apis == CONTROLLER_APIS
        assert connection.features.zk_migration_ready is False
        assert connection.features.supported == {
            "metadata.version": VersionRange(1, 21),
            "kraft.version": VersionRange(0, 1),
        }


async def is_elected(leader: Leader, transport: KafkaRaftTransport) -> bool:
    """One election: whether the stock voter follows, or has gone on to an epoch of its own meanwhile."""
    epoch = leader.candidate_epoch + 1
    with contextlib.suppress(UnreachableError):  # it speaks before it listens
        vote = await transport.send(STOCK, VoteRequest(CLUSTER, STOCK, epoch, OURS, 0, 0), 10)
        assert isinstance(vote, VoteResponse)
        leader.candidate_epoch = max(leader.candidate_epoch, vote.leader_epoch)
        if not vote.vote_granted:
            return False
        leader.lead(epoch)
        begun = await transport.send(STOCK, BeginQuorumEpochRequest(CLUSTER, STOCK, OURS, epoch), 10)
        if begun == BeginQuorumEpochResponse(ErrorCode.none, ErrorCode.none, OURS, epoch):
            return True
        assert isinstance(begun, BeginQuorumEpochResponse)
        assert (begun.error, begun.leader_id) == (ErrorCode.fenced_leader_epoch, -1), begun
        assert begun.leader_epoch > epoch, begun
        leader.candidate_epoch = max(leader.candidate_epoch, begun.leader_epoch)
    return False


@pytest.mark.lane("test-all")
async def test_a_stock_controller_follows_us(tmp_path: Path, unused_tcp_port: int) -> None:
    leader = Leader()
    async with quorum(tmp_path, unused_tcp_port, leader) as (_, transport):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await is_elected(leader, transport):
                pass
            await leader.followed.wait()
    asked = dict.fromkeys((fetch.fetch_offset, fetch.last_fetched_epoch) for fetch in leader.fetches)
    assert list(asked) == [(0, 0), (1, leader.epoch), (150_001, leader.epoch)]
    assert {(fetch.cluster_id, fetch.replica_id) for fetch in leader.fetches} == {(CLUSTER, STOCK)}
    assert leader.fetches[-1].leader_epoch == leader.epoch


@pytest.mark.lane("test-all")
async def test_the_same_over_sasl_on_mutual_tls(tmp_path: Path, unused_tcp_port: int) -> None:
    authority = Authority("quorum")
    key, certificate = authority.issue("stock-controller")
    (tmp_path / "key-and-chain.pem").write_text(key + certificate)
    (tmp_path / "ca.pem").write_text(authority.pem)
    prefix = "listener.name.controller."
    security = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": JAAS,
        f"{prefix}ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "key-and-chain.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    ours = listener_security(security, "CONTROLLER", "SASL_SSL", client_mechanism="PLAIN")
    voter = Follower()
    async with quorum(tmp_path, unused_tcp_port, voter, "SASL_SSL", security, ours) as (handler, transport):
        await follow(transport, await asyncio.wait_for(voter.leader_epoch, PATIENCE_SECONDS))
        assert handler.principals == {"User:controller"}
