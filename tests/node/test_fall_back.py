"""Where gRPC is not answered, consensus goes over the Kafka listener, under its rules, ClusterAction included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.node.core import NodeCore
from migrator.node.endpoint import ControllerEndpoint
from migrator.node.quorum.transports import EitherTransport
from migrator.parts.processes import free_port
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochOffset,
    FetchRequest,
    FetchSnapshotRequest,
    RaftRequest,
    VoteRequest,
)
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport, RaftService
from migrator.wire.security import ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener
from tests.node.support.cluster import CLUSTER_ID, Cluster, running, until
from tests.rpc.support.identities import AUTHORITY, properties_of, voter

NODE = 1
SUPER = "CN=controller"
KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{SUPER}",
    "migrator.grpc.listener": "127.0.0.1:1",
    "migrator.grpc.voters": f"{NODE}@127.0.0.1:1",
    "migrator.grpc.voter.principals": f"{NODE}@User:CN=voter-{NODE}",
    **properties_of(voter(NODE)),
}
REQUESTS: tuple[RaftRequest, ...] = (
    VoteRequest(CLUSTER_ID, NODE, 99, 2, 98, 1000),
    BeginQuorumEpochRequest(CLUSTER_ID, NODE, 2, 99),
    EndQuorumEpochRequest(CLUSTER_ID, 2, 99, ()),
    FetchRequest(CLUSTER_ID, 2, 99, 0, 0, 0, 1000),
    FetchSnapshotRequest(CLUSTER_ID, 2, 99, EpochOffset(1, 1), 0, 1000),
)


def mutual_tls(directory: Path, name: str) -> ListenerSecurity:
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(AUTHORITY.store(directory / f"{name}.pem", name)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.trust(directory / "trust.pem")),
        "listener.name.controller.ssl.client.auth": "required",
    }
    return listener_security(keys, "CONTROLLER", "SSL")


@asynccontextmanager
async def listening(cluster: Cluster, leader: NodeCore, directory: Path) -> AsyncIterator[int]:
    """The node's Kafka listener, over mutual TLS; gives its port."""
    unused: Any = None
    endpoint = ControllerEndpoint(
        cluster.settings(NODE),
        leader.metadata,
        leader.controller,
        RaftService(leader.quorum.handle, lambda _: None),
        quorum_answers={},
        read_context=unused,
        on_failure=cluster.failures.append,
    )
    listener = KafkaListener("CONTROLLER", endpoint, security=mutual_tls(directory, "server"))
    port = await listener.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.close(grace=0)


@asynccontextmanager
async def falling_back(port: int, security: ListenerSecurity) -> AsyncIterator[EitherTransport]:
    """To a node that listens on that port, and nowhere for gRPC."""
    nowhere = PeerAddress(f"127.0.0.1:{free_port()}", frozenset({f"User:CN=voter-{NODE}"}))
    transport = EitherTransport(
        GrpcRaftTransport(CLUSTER_ID, {NODE: nowhere}.get, voter(2)),
        KafkaRaftTransport(2, {NODE: ListenerEndpoint("CONTROLLER", "127.0.0.1", port)}.get, security=security),
    )
    try:
        yield transport
    finally:
        await transport.close()


@pytest.mark.parametrize(("name", "may"), [("voter-2", False), (SUPER.removeprefix("CN="), True)])
async def test_who_has_no_cluster_action_gets_nothing_there(tmp_path: Path, name: str, may: bool) -> None:
    """A name that gRPC knows as a voter's is of no weight there."""
    async with running(tmp_path, 1, **KEYS) as cluster:
        leader = await cluster.leader()
        await until(lambda: leader.metadata.has_reached_high_watermark, "the high watermark")
        epoch = leader.quorum.epoch
        async with (
            listening(cluster, leader, tmp_path) as port,
            falling_back(port, mutual_tls(tmp_path, name)) as transport,
        ):
            for request in REQUESTS:
                response = await transport.send(NODE, request, 20)
                refused = response.top_error is ErrorCode.cluster_authorization_failed
                assert refused is not may, request
        assert may or leader.quorum.epoch == epoch
