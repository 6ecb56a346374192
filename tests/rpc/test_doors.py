"""Identities at the gRPC doors, and the rule behind them. Every call by every caller: tests/doors."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.migration.machine.states import State
from migrator.observe.certificates import CertificateBook
from migrator.parts.certificates import Authority, write_private
from migrator.raft.messages import RaftRequest, RaftResponse, VoteRequest
from migrator.raft.transport import TransportError, UnreachableError, WrongVoterError
from migrator.rpc import doorkeeper, raft_transport
from migrator.rpc.channel import CLUSTER_KEY, MAX_REQUEST_BYTES
from migrator.rpc.identity import DOORS, NOBODY, CallerRole, read_certificate
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.rpc.quorum_service import QuorumService
from migrator.rpc.server import GrpcServer
from migrator.rpc.stubs import operator_pb2, quorum_pb2, voters_pb2
from migrator.rpc.tls import OWN_USE, TRUST_USE, TlsFiles
from migrator.values import value
from tests.patience import PATIENCE_SECONDS
from tests.rpc.support.identities import AUTHORITY, IDENTITIES, files_of, voter
from tests.rpc.support.operator_node import PlayedNode
from tests.rpc.support.transports import CLUSTER, PEER, VOTE, VOTED, View, grpc_transport
from tests.rpc.support.voters import VotersOfTest

STRANGERS = Authority("strangers")
SERVICES = {
    "/" + descriptor.full_name + "/": descriptor
    for module in (quorum_pb2, operator_pb2, voters_pb2)
    for descriptor in module.DESCRIPTOR.services_by_name.values()
}


def request_of(method: str, speaker: int) -> Any:
    """A request that says it comes from that voter; otherwise empty."""
    service, _, name = method.rpartition("/")
    message = SERVICES[service + "/"].methods_by_name[name].input_type._concrete_class()
    if DOORS[method].speaks_as:
        setattr(message, DOORS[method].speaks_as, speaker)
    if name == "FetchSnapshot":
        message.snapshot_id.SetInParent()
    return message


def with_certificate(key: str, certificate: str) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(AUTHORITY.pem.encode(), key.encode(), certificate.encode())


def with_files(files: TlsFiles) -> grpc.ChannelCredentials:
    return with_certificate(files.key.read_text(), files.certificate.read_text())


@value
class Served:
    """All services of voter 2, on TCP and on the socket; ``seen`` is what came through to consensus."""

    port: int
    directory: Path
    node: PlayedNode
    seen: list[RaftRequest]


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    node, seen = PlayedNode(State.DUAL_WRITING, node_id=PEER), []

    async def answer(request: RaftRequest) -> RaftResponse:
        seen.append(request)
        return VOTED

    server = GrpcServer(
        [QuorumService(CLUSTER, answer, View()), OperatorService(node), VotersService(VotersOfTest())], IDENTITIES
    )
    server.listen_unix(directory)
    port = server.listen("127.0.0.1", 0, voter(PEER))
    await server.start()
    try:
        yield Served(port, directory, node, seen)
    finally:
        await server.close(grace=0)


async def call(channel: grpc.aio.Channel, method: str, message: bytes) -> tuple[grpc.StatusCode, str]:
    """How it ends, or begins to be answered."""
    stream = channel.unary_stream(method)(message, timeout=PATIENCE_SECONDS, metadata=((CLUSTER_KEY, CLUSTER),))
    try:
        await stream.read()
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    finally:
        stream.cancel()
    return grpc.StatusCode.OK, ""


def test_every_call_of_every_service_has_a_door_and_every_door_a_call() -> None:
    calls = {service + name for service, descriptor in SERVICES.items() for name in descriptor.methods_by_name}
    assert calls == DOORS.keys()


def test_a_request_that_names_a_speaker_is_checked_for_it() -> None:
    for method, door in DOORS.items():
        fields = {field.name for field in request_of(method, 1).DESCRIPTOR.fields}
        speakers = fields & {"candidate_id", "leader_id", "replica_id", "node_id"}
        assert speakers == ({door.speaks_as} if door.speaks_as else set()), method


def test_the_rule_behind_the_table() -> None:
    for method, door in DOORS.items():
        is_quorum = ".Quorum/" in method
        assert (CallerRole.VOTER in door.roles) is (
            is_quorum or method.rpartition("/")[2] in {"Watch", "Journal", "Gates", "Describe"}
        )
        assert ({CallerRole.OPERATOR, CallerRole.OWNER} <= door.roles) is not is_quorum


async def test_a_chain_of_certificates_names_its_first_and_no_other(tmp_path: Path) -> None:
    """Between the root and a node there is often a CA of a department; its own name is nobody's."""
    department = Authority("voter-3", above=AUTHORITY)
    ours, theirs = (TlsFiles(*department.files(tmp_path / name, name)) for name in ("voter-1", "voter-2"))
    seen: list[RaftRequest] = []

    async def answer(request: RaftRequest) -> RaftResponse:
        seen.append(request)
        return VOTED

    server = GrpcServer([QuorumService(CLUSTER, answer, View())], IDENTITIES)
    port = server.listen("127.0.0.1", 0, theirs)
    await server.start()
    transport = grpc_transport(port, ours)
    try:
        assert await transport.send(PEER, VOTE, 20) == VOTED
        with pytest.raises(TransportError, match="the request says candidate_id 3, but the certificate is of voter 1"):
            await transport.send(PEER, VoteRequest(CLUSTER, PEER, 7, 3, 6, 1234), 20)
    finally:
        await transport.close()
        await server.close(grace=0)
    assert seen == [VOTE]


def test_a_certificate_ends_also_for_connections_from_before() -> None:
    pem = AUTHORITY.issue("voter-1")[1].encode()
    end = read_certificate(pem).not_after
    moment = dt.timedelta(seconds=1)
    assert IDENTITIES.known((pem,), "ipv4:127.0.0.1:1", end - moment).node_id == 1
    late = IDENTITIES.known((pem,), "ipv4:127.0.0.1:1", end + moment)
    assert (late.roles, late.name) == (frozenset(), "User:CN=voter-1")
    assert "the certificate holds until" in late.why_not
    assert "migrator.grpc.tls.certificate.file" in late.why_not
    early = IDENTITIES.known((pem,), "ipv4:127.0.0.1:1", read_certificate(pem).not_before - moment)
    assert (early.roles, early.name) == (frozenset(), "User:CN=voter-1")
    assert "the certificate holds from" in early.why_not


async def test_whoever_is_refused_reads_why_in_his_own_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On his machine, once for each call, however often he tries."""
    async with served(tmp_path) as node:
        transport = grpc_transport(node.port, files_of("broker-7"))
        try:
            for _ in range(3):
                with pytest.raises(TransportError, match="may not call Vote"):
                    await transport.send(PEER, VOTE, 20)
        finally:
            await transport.close()
    (said,) = [record.message for record in caplog.records if record.name == raft_transport.__name__]
    assert said.startswith(f"No gRPC with node {PEER}: 'User:CN=broker-7' may not call Vote")
    assert "migrator.grpc.voter.principals" in said


async def test_a_certificate_that_is_not_valid_takes_no_valid_ones_place(tmp_path: Path) -> None:
    """An operator copied last year's file: the connection stays."""
    ours = TlsFiles(*AUTHORITY.files(tmp_path / "ours", "voter-1"))
    async with served(tmp_path) as node:
        transport = grpc_transport(node.port, ours)
        try:
            assert await transport.send(PEER, VOTE, 20) == VOTED
            ended = AUTHORITY.issue("voter-1", valid_for=dt.timedelta(seconds=-1))
            not_begun = AUTHORITY.issue("voter-1", valid_after=dt.timedelta(days=1))
            for key, certificate in (ended, not_begun):
                write_private(ours.key, key)
                write_private(ours.certificate, certificate)
                assert await transport.send(PEER, VOTE, 20) == VOTED
        finally:
            await transport.close()


def test_what_proves_nothing_is_nobody() -> None:
    pem, now = AUTHORITY.issue("voter-1")[1].encode(), dt.datetime.now(dt.UTC)
    for pems in ((), (b"no certificate",), (pem, pem)):
        caller = IDENTITIES.known(pems, "ipv4:127.0.0.1:1", now)
        assert (caller.roles, caller.node_id, caller.name) == (frozenset(), None, NOBODY)
        assert caller.why_not
    assert IDENTITIES.known((), "unix:", now).roles == {CallerRole.OWNER}


async def test_the_log_names_who_was_refused_and_does_not_fill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, doorkeeper.__name__)
    async with served(tmp_path) as node:
        address = f"127.0.0.1:{node.port}"
        async with grpc.aio.secure_channel(address, with_files(files_of("broker-7"))) as channel:
            for _ in range(20):
                _, why = await call(channel, "/migrator.operator.v1.Operator/Force", b"")
    assert "migrator.grpc.operator.principals" in why
    (record,) = [record for record in caplog.records if record.name == doorkeeper.__name__]
    assert "'User:CN=broker-7' may not call Force" in record.message
    assert "127.0.0.1" in record.message


async def test_a_big_request_is_refused_before_it_is_received(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        address = f"127.0.0.1:{node.port}"
        async with grpc.aio.secure_channel(address, with_files(files_of("operator"))) as channel:
            code, _ = await call(channel, "/migrator.operator.v1.Operator/Pause", bytes(MAX_REQUEST_BYTES + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.node.orders == []


async def test_somebody_elses_certificate_at_a_voters_address_gets_no_vote_request(tmp_path: Path) -> None:
    """A broker on the voter's machine has a certificate of the CA, for the same host."""
    seen: list[RaftRequest] = []

    async def answer(request: RaftRequest) -> RaftResponse:
        seen.append(request)
        return VOTED

    for name in ("broker-7", "voter-3"):
        server = GrpcServer([QuorumService(CLUSTER, answer, View())], IDENTITIES)
        port = server.listen("127.0.0.1", 0, files_of(name))
        await server.start()
        transport = grpc_transport(port)
        try:
            with pytest.raises(WrongVoterError, match=f"User:CN={name}; expected User:CN=voter-{PEER}"):
                await transport.send(PEER, VOTE, 20)
            with pytest.raises(OperatorError, match="expected User:CN=voter-2"):
                async with OperatorClient.at(f"127.0.0.1:{port}", voter(1), frozenset({"User:CN=voter-2"})):
                    pass
        finally:
            await transport.close()
            await server.close(grace=0)
    assert seen == []


async def test_a_server_for_another_host_or_of_another_ca_is_not_spoken_to(tmp_path: Path) -> None:
    def elsewhere() -> TlsFiles:
        files = TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
        key, certificate = AUTHORITY.issue("voter-2", names=())
        for path, text in zip(files.paths, (certificate, key, AUTHORITY.pem), strict=True):
            write_private(path, text)
        return files

    forged = TlsFiles(*STRANGERS.files(tmp_path / "forged", "voter-2"))
    for files in (elsewhere(), forged):
        server = GrpcServer([QuorumService(CLUSTER, lambda _: None, View())], IDENTITIES)  # type: ignore[arg-type,return-value]
        port = server.listen("127.0.0.1", 0, files)
        await server.start()
        transport = grpc_transport(port)
        try:
            with pytest.raises(UnreachableError, match="no TLS with"):
                await transport.send(PEER, VOTE, 20)
        finally:
            await transport.close()
            await server.close(grace=0)


async def test_new_certificates_are_used_as_soon_as_they_lie_there(tmp_path: Path) -> None:
    """Both sides change their CA; neither is restarted."""
    old, new = Authority("old"), Authority("new")
    ours, theirs = (
        TlsFiles(*old.files(tmp_path / name, name), frozenset({f"User:CN={name}"})) for name in ("voter-1", "voter-2")
    )

    async def answer(_: RaftRequest) -> RaftResponse:
        return VOTED

    server = GrpcServer([QuorumService(CLUSTER, answer, View())], IDENTITIES)
    port = server.listen("127.0.0.1", 0, theirs)
    await server.start()
    transport = grpc_transport(port, ours)
    try:
        assert await transport.send(PEER, VOTE, 20) == VOTED
        new.files(tmp_path / "voter-1", "voter-1")
        with pytest.raises(UnreachableError):
            await transport.send(PEER, VOTE, 20)
        write_private(theirs.key, "no key at all")
        new.files(tmp_path / "voter-2", "voter-2")
        assert await transport.send(PEER, VOTE, 20) == VOTED
        write_private(theirs.key, "no key at all")
        await transport.close()
        transport = grpc_transport(port, ours)
        assert await transport.send(PEER, VOTE, 20) == VOTED, "what cannot be used changes nothing"
        new.files(tmp_path / "voter-1", "voter-3")
        new.files(tmp_path / "voter-2", "voter-3")
        assert await transport.send(PEER, VOTE, 20) == VOTED, "neither does a certificate of somebody else"
        new.files(tmp_path / "voter-1", "voter-1")
        assert await transport.send(PEER, VOTE, 20) == VOTED
        assert machine().own(CertificateBook).reload_failures()[OWN_USE] >= 2
        assert machine().own(CertificateBook).ends().keys() >= {OWN_USE, TRUST_USE}
    finally:
        await transport.close()
        await server.close(grace=0)


def test_files_that_do_not_go_together_are_refused_at_the_start(tmp_path: Path) -> None:
    one, other = (TlsFiles(*AUTHORITY.files(tmp_path / name, name)) for name in ("one", "other"))
    for files, why in (
        (TlsFiles(one.certificate, other.key, one.authority), "is not the key of"),
        (TlsFiles(one.key, one.key, one.authority), "no certificate"),
        (TlsFiles(one.certificate, one.certificate, one.authority), "no private key"),
        (TlsFiles(one.certificate, one.key, one.key), "no certificate"),
        (TlsFiles(tmp_path / "absent", one.key, one.authority), "cannot be read"),
    ):
        with pytest.raises(OperatorError, match=why):
            files.server()
