"""Certificates that the CA has signed, OpenSSL takes and our library cannot read: their owners are nobody."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from migrator.config.names import distinguished_name
from migrator.errors import OperatorError
from migrator.observe.logins import LoginBook
from migrator.raft.messages import EpochOffset, FetchSnapshotRequest
from migrator.raft.transport import UnreachableError
from migrator.rpc.identity import NOBODY, Identities, read_certificate
from migrator.rpc.raft_transport import GrpcRaftTransport, PeerAddress
from migrator.rpc.tls import TlsFiles
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.odd_certificates import UNREADABLE, make, unreadable
from tests.wire.test_tls import WhoAmI, everything_from, security

CA = make("a CA", ca=True)
OURS = make("us", CA)
SERVER = make("controller", CA)
ALL = pytest.mark.parametrize("kind", UNREADABLE)


def files(directory: Path, certificate: str, key: str) -> TlsFiles:
    found = TlsFiles(directory / "certificate.pem", directory / "key.pem", directory / "ca.pem")
    for path, text in zip(found.paths, (certificate, key, CA.pem), strict=True):
        path.write_text(text)
    return found


@ALL
def test_whoever_reads_it_is_told_in_one_way(kind: str, tmp_path: Path) -> None:
    pem, key = unreadable(CA, kind)
    with pytest.raises(ValueError, match="cannot be read"):
        distinguished_name(ssl.PEM_cert_to_DER_cert(pem))
    with pytest.raises(ValueError, match="cannot be read"):
        read_certificate(pem.encode())
    caller = Identities({"User:CN=node": 1}).known([pem.encode()], "ipv4:127.0.0.1:1", datetime.now(UTC))
    assert (caller.name, caller.roles, caller.why_not) == (NOBODY, frozenset(), "the certificate cannot be read")
    with pytest.raises(OperatorError, match="can be read"):
        files(tmp_path, pem, key).read()


@ALL
async def test_a_peer_that_shows_it_over_grpc_is_not_reached_and_ends_nothing(kind: str, tmp_path: Path) -> None:
    pem, key = unreadable(CA, kind)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "theirs.pem").write_text(pem + key)
    context.load_cert_chain(tmp_path / "theirs.pem")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = GrpcRaftTransport(
        "cluster",
        {1: PeerAddress(address, frozenset({"User:CN=node"}))}.get,
        files(tmp_path, OURS.pem, OURS.key),
    )
    request = FetchSnapshotRequest("cluster", 2, 1, EpochOffset(1, 1), 0, 1)
    try:
        with pytest.raises(UnreachableError, match="cannot be read"):
            await transport.send(1, request, 30)
    finally:
        await transport.close()
        server.close()


@ALL
async def test_a_client_that_shows_it_is_a_failed_login(kind: str, tmp_path: Path) -> None:
    pem, key = unreadable(CA, kind)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    (tmp_path / "client.pem").write_text(pem + key)
    client.load_cert_chain(tmp_path / "client.pem")
    handler = WhoAmI()
    server = security(SERVER, CA, {"ssl.client.auth": "required"})
    listener = KafkaListener("CONTROLLER", handler, security=server, logins=LoginBook())
    port = await listener.start("127.0.0.1", 0)
    try:
        with contextlib.suppress(ConnectionError):
            assert await everything_from(port, client) == b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while listener.counters.failed_logins == 0:
                await asyncio.sleep(0.001)
        assert (listener.counters.failed, handler.principals) == (0, [])
    finally:
        await listener.close(grace=0)
