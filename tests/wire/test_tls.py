"""Whom a TLS listener lets in, whom we connect to, and what happens when the files of certificates change."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.observe.certificates import CertificateBook
from migrator.observe.logins import LoginBook
from migrator.raft.transport import TransportError
from migrator.wire.acceptor import LAST_TESTED, TLS_BUFFER_BYTES, use_in_asyncio
from migrator.wire.book import Part, Stage
from migrator.wire.client import KafkaClient
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.quotas import ConnectionQuotas, ProcessLimits
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, request_type, response_type
from migrator.wire.security import ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener, ListenerLimits
from migrator.wire.stores import PemStore, load_key
from migrator.wire.tls import CHECK_SECONDS, TlsStores
from tests.patience import eventually
from tests.wire.support.odd_certificates import Signed, make

HEARTBEAT = 63
CA = make("a CA", ca=True)
MIDDLE = make("an intermediate CA", CA, ca=True)
SERVER = make("controller", CA)
BROKER = make("broker", CA)
NO_CA = make("no CA", CA)
UNKNOWN_CA = make("another CA", ca=True)


def keys(own: Signed | None, trusted: Signed | None, more: Mapping[str, str]) -> dict[str, str]:
    found = dict(more)
    if own is not None:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": own.key, "ssl.keystore.certificate.chain": own.pem}
    if trusted is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted.pem}
    return found


def security(
    own: Signed | None, trusted: Signed | None = CA, more: Mapping[str, str] | None = None, *, serves: bool = True
) -> ListenerSecurity:
    return listener_security(keys(own, trusted, more or {}), "CONTROLLER", "SSL", serves=serves)


class WhoAmI:
    def __init__(self) -> None:
        self.principals: list[str] = []

    async def handle(self, context: RequestContext, body: Any) -> Any:
        self.principals.append(str(context.principal))
        return build(response_type(HEARTBEAT, context.api_version))


@contextlib.asynccontextmanager
async def serving(
    server: ListenerSecurity, limits: ListenerLimits | None = None, quotas: ConnectionQuotas | None = None
) -> AsyncIterator[tuple[KafkaListener, WhoAmI, int]]:
    handler = WhoAmI()
    listener = KafkaListener("CONTROLLER", handler, security=server, limits=limits, quotas=quotas, logins=LoginBook())
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, handler, port
    finally:
        await listener.close(grace=0)


async def ask(port: int, client: ListenerSecurity, host: str = "127.0.0.1") -> None:
    peer = KafkaClient(host, port, "tester", security=client)
    try:
        await peer.request(build(request_type(HEARTBEAT, 1)), 30)
    finally:
        await peer.close()


async def everything_from(port: int, client: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    try:
        return await reader.read()
    finally:
        writer.close()


NOT_LET_IN = {
    "none": (None, "showed no certificate"),
    "of an unknown CA": (make("broker", UNKNOWN_CA), "unable to get local issuer certificate"),
    "self-signed": (make("broker"), "self-signed certificate"),
    "ended": (make("broker", CA, days=-1), "certificate has expired"),
    "for servers only": (
        make("broker", CA, usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
        "unsuitable certificate purpose",
    ),
    "signed by a certificate that is no CA": (make("broker", NO_CA), "issuer certificate"),
    "with a key that is too weak": (make("broker", CA, rsa_bits=1024), "key too weak"),
}


@pytest.mark.parametrize("case", NOT_LET_IN)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_certificate_that_proves_nothing_is_not_let_in(
    case: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, reason = NOT_LET_IN[case]
    server = security(SERVER, CA, {"ssl.client.auth": "required", "ssl.enabled.protocols": version})
    async with serving(server) as (listener, handler, port):
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.set_ciphers("DEFAULT:@SECLEVEL=0")  # what the peer's own library would not send is sent, too
        client.load_verify_locations(cadata=CA.pem)
        if certificate is not None:
            load_key(client, PemStore(certificate.key + certificate.pem), None, "")
        with pytest.raises(ssl.SSLError, match="ALERT"):  # Kafka's clients give up then, else they try for ever
            await everything_from(port, client)
        await eventually(lambda: listener.counters.failed_logins == 1)
        assert handler.principals == []
        assert listener.counters.accepted == 0
    (line,) = [message for message in caplog.messages if "login from" in message]
    assert line.startswith("listener CONTROLLER: login from 127.0.0.1 failed:")
    assert reason in line


async def test_who_does_not_speak_tls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(security(SERVER)) as (listener, _, port):
        for data in (b"\x00\x00\x00\x0a\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
        await eventually(lambda: listener.counters.failed_logins == 2)
        # A probe that only connects is no failed login.
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: len(listener.quotas.logins) == 1)
        writer.close()
        await eventually(lambda: len(listener.quotas.logins) == 0)
        assert listener.counters.failed_logins == 2
    assert "does not speak TLS" in caplog.text
    assert "speaks HTTP" in caplog.text


async def test_a_handshake_has_little_time(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(security(SERVER), ListenerLimits(login_timeout_ms=50)) as (listener, _, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: listener.counters.failed_logins == 1)
        assert "did not finish the TLS handshake in time" in caplog.text
        await eventually(lambda: listener.quotas.total == 0)
        writer.close()


async def test_a_handshake_holds_little() -> None:
    """Strangers may have a thousand at once."""
    async with serving(security(SERVER)) as (listener, _, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        await eventually(lambda: len(listener.quotas.logins) == 20)
        held = [each for each in gc.get_objects() if isinstance(each, SSLProtocol)]
        assert len(held) >= 20
        assert {len(each._ssl_buffer) for each in held} == {TLS_BUFFER_BYTES}  # type: ignore[attr-defined]
        for _, writer in opened:
            writer.close()
        await eventually(lambda: listener.quotas.total == 0)


async def test_a_handshake_that_has_failed_holds_nothing() -> None:
    """Its error held all its objects, until the collector of cycles came: 1,500 silent strangers took
    398 MiB, of which 1,000 may be there at once."""
    gc.collect()
    gc.disable()
    try:
        quotas = ConnectionQuotas(ProcessLimits(max_logins=3))
        async with serving(security(SERVER), ListenerLimits(login_timeout_ms=200), quotas) as (listener, _, port):
            before = {id(each) for each in gc.get_objects() if isinstance(each, SSLProtocol)}
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
            await eventually(lambda: listener.counters.failed_logins == 10 and listener.quotas.total == 0)
            held = [each for each in gc.get_objects() if isinstance(each, SSLProtocol) and id(each) not in before]
            assert held == []
            for _, writer in opened:
                writer.close()
    finally:
        gc.enable()


async def test_a_handshake_that_gives_its_place_is_closed() -> None:
    quotas = ConnectionQuotas(ProcessLimits(max_logins=3))
    async with serving(security(SERVER), quotas=quotas) as (listener, handler, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        assert [await reader.read() for reader, _ in opened[:7]] == [b""] * 7
        await ask(port, security(None, serves=False))
        assert len(handler.principals) == 1
        for _, writer in opened:
            writer.close()
        await eventually(lambda: listener.quotas.total == 0)


async def test_an_intermediate_ca_may_be_all_that_is_trusted() -> None:
    """As in Java; other CAs under the same root are not trusted."""
    server = security(SERVER, MIDDLE, {"ssl.client.auth": "required"})
    async with serving(server) as (_, handler, port):
        await ask(port, security(make("broker", MIDDLE)))
        assert handler.principals == ["User:CN=broker"]
        with pytest.raises(TransportError):
            await ask(port, security(BROKER))


async def test_the_systems_authorities_are_nobody_where_a_trust_store_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "public.pem").write_text(UNKNOWN_CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    public = make("broker", UNKNOWN_CA)
    async with serving(security(SERVER, CA, {"ssl.client.auth": "required"})) as (listener, _, port):
        with pytest.raises(TransportError):
            await ask(port, security(public))
        assert listener.counters.accepted == 0
    async with serving(security(public)) as (listener, _, port):
        with pytest.raises(TransportError, match="TLS"):
            await ask(port, security(None, serves=False))
        # Without one they count, for connections that go out and check names.
        await ask(port, security(None, None, serves=False))
        assert listener.counters.accepted == 1


@pytest.mark.parametrize("wanted", ["required", "requested"])
def test_asking_for_certificates_without_saying_whose_is_refused(wanted: str) -> None:
    with pytest.raises(OperatorError, match="public CA") as caught:
        security(SERVER, None, {"ssl.client.auth": wanted})
    assert caught.value.where == "ssl.truststore.location"
    security(SERVER, None, {"ssl.client.auth": "none"})
    security(None, None, {"ssl.client.auth": wanted}, serves=False)


NAMES = {
    "an address of the certificate": (("127.0.0.1",), "controller", "127.0.0.1", True),
    "another address": (("127.0.0.9",), "127.0.0.1", "127.0.0.1", False),
    "a name of the certificate": (("localhost",), "controller", "localhost", True),
    "a wildcard for another domain": (("*.example.org",), "controller", "localhost", False),
    "the common name where there is no other": ((), "localhost", "localhost", True),
    "the common name where there are others": (("example.org",), "localhost", "localhost", False),
    "an address as common name": ((), "127.0.0.1", "127.0.0.1", False),
}


@pytest.mark.parametrize("case", NAMES)
async def test_a_server_is_who_its_certificate_says_by_javas_rules(case: str) -> None:
    names, subject, host, right = NAMES[case]
    async with serving(security(make(subject, CA, names=names))) as (_, handler, port):
        if right:
            await ask(port, security(None, serves=False), host)
        else:
            with pytest.raises(TransportError, match="TLS"):
                await ask(port, security(None, serves=False), host)
        assert len(handler.principals) == right


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_gets_around_his_certificate_by_an_old_session(version: ssl.TLSVersion) -> None:
    """No ticket is given; a session of TLS 1.2 that the same context resumes still knows its certificate."""

    client = security(BROKER).client_context
    assert client is not None

    def connect(server: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLObject, ssl.SSLObject]:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        theirs = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(6):
            for side in (ours, theirs):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        theirs.write(b"x")
        assert ours.read() == b"x"
        return ours, theirs

    wanting = {"ssl.client.auth": "required"}
    first, second = (security(SERVER, CA, wanting).server_context for _ in range(2))
    assert first is not None
    assert second is not None
    client.minimum_version = client.maximum_version = version
    ours, theirs = connect(first, None)
    session = ours.session
    assert session is None or not session.has_ticket
    for server in (first, second):
        again, their_side = connect(server, session)
        assert their_side.getpeercert() == theirs.getpeercert() != {}
        assert not (server is second and again.session_reused), "a session is of no use to another listener"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Files:
    """A key store and a trust store behind symbolic links that are swapped at once, as Kubernetes mounts secrets."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.versions = 0
        self.clock = Clock()
        self.name = name
        self.stores: TlsStores | None = None

    def put(self, own: str, trusted: str) -> None:
        self.versions += 1
        version = self.directory / f"..version-{self.versions}"
        version.mkdir()
        (version / "own.pem").write_text(own)
        (version / "trusted.pem").write_text(trusted)
        link = self.directory / "..new"
        link.symlink_to(version.name)
        link.rename(self.directory / "..data")
        for file in ("own.pem", "trusted.pem"):
            if not (self.directory / file).is_symlink():
                (self.directory / file).symlink_to(f"..data/{file}")
        self.clock.now += CHECK_SECONDS

    def open(self, **more: str) -> ListenerSecurity:
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.client.auth": "required",
            "ssl.keystore.location": str(self.directory / "own.pem"),
            "listener.name.controller.ssl.truststore.location": str(self.directory / "trusted.pem"),
            **more,
        }
        self.stores = TlsStores(ListenerKeys(properties, self.name), "SSL", clock=self.clock)
        return ListenerSecurity(tls=self.stores)

    @property
    def failures(self) -> int:
        return machine().own(CertificateBook).reload_failures()[f"listener {self.name}: key store"]

    @property
    def ends(self) -> int:
        return machine().own(CertificateBook).ends()[f"listener {self.name}: key store"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path, "CONTROLLER")
    found.put(SERVER.key + SERVER.pem, CA.pem)
    return found


async def test_changed_files_serve_the_connections_that_come(files: Files) -> None:
    old, new = security(BROKER), security(make("broker", UNKNOWN_CA), UNKNOWN_CA)
    async with serving(files.open()) as (_, handler, port):
        standing = KafkaClient("127.0.0.1", port, "standing", security=old)
        await standing.request(build(request_type(HEARTBEAT, 1)), 30)
        with pytest.raises(TransportError):
            await ask(port, new)
        successor = make("controller", UNKNOWN_CA, days=200)
        files.put(successor.key + successor.pem, UNKNOWN_CA.pem)
        await ask(port, new)
        assert files.ends == successor.ends
        with pytest.raises(TransportError):
            await ask(port, old)
        await standing.request(build(request_type(HEARTBEAT, 1)), 30)
        await standing.close()
        assert handler.principals == ["User:CN=broker"] * 3


ENDED, FEWER = make("controller", CA, days=-1), make("controller", CA, names=["localhost"])
BROKEN = {
    "half a file": SERVER.pem[: len(SERVER.pem) // 2],
    "a key that is another's": BROKER.key + SERVER.pem,
    "another subject": BROKER.key + BROKER.pem,
    "fewer names": FEWER.key + FEWER.pem,
    "a certificate that has expired": ENDED.key + ENDED.pem,
}


def test_trust_that_is_being_written_is_not_taken_for_less_trust(files: Files) -> None:
    files.put(SERVER.key + SERVER.pem, CA.pem + UNKNOWN_CA.pem)
    opened = files.open()
    before = opened.server_context
    files.put(SERVER.key + SERVER.pem, CA.pem + UNKNOWN_CA.pem[: len(UNKNOWN_CA.pem) // 2])
    assert opened.server_context is before


@pytest.mark.parametrize("case", BROKEN)
def test_a_change_that_cannot_be_used_leaves_what_was(
    case: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    opened = files.open()
    before, failures = opened.server_context, files.failures
    files.put(BROKEN[case], CA.pem)
    for _ in range(3):
        assert opened.server_context is before
        files.clock.now += CHECK_SECONDS
    assert files.failures == failures + 1, "it is tried once"
    assert len([record for record in caplog.records if "are not used" in record.getMessage()]) == 1
    assert "BEGIN" not in caplog.text
    files.put(SERVER.key + SERVER.pem, CA.pem)
    assert opened.server_context is not before


def test_other_names_are_taken_where_the_file_says_so(files: Files) -> None:
    opened = files.open(**{"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})
    before = opened.server_context
    other = make("another", CA, names=["example.org"])
    files.put(other.key + other.pem, CA.pem)
    assert opened.server_context is not before


def test_files_are_looked_at_now_and_then_and_read_only_when_they_change(files: Files) -> None:
    opened = files.open()
    before = opened.server_context
    files.put(SERVER.key + SERVER.pem, CA.pem)
    files.clock.now -= CHECK_SECONDS / 2
    assert opened.server_context is before
    files.clock.now += CHECK_SECONDS / 2
    after = opened.server_context
    assert after is not before
    files.clock.now += CHECK_SECONDS
    assert opened.server_context is after
    shutil.rmtree(files.directory / f"..version-{files.versions}")
    files.clock.now += CHECK_SECONDS
    assert opened.server_context is after


def test_a_bundle_may_name_its_authorities_in_any_language(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    changes = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(bundle)}
    bundle.write_text(f"# Főtanúsítvány\n{CA.pem}", encoding="utf-8")
    assert security(SERVER, None, changes).server_context is not None
    bundle.write_text(CA.pem.replace("M", "Ő", 1), encoding="utf-8")
    with pytest.raises(OperatorError, match="no usable certificate"):
        security(SERVER, None, changes)


def test_a_key_is_never_in_a_file_of_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert security(SERVER).server_context is not None


def test_a_python_that_nobody_has_tried_is_refused_at_the_start() -> None:
    """Its asyncio may do other things with the names that this program replaces."""
    with pytest.raises(OperatorError, match="was not tested") as refused:
        use_in_asyncio((LAST_TESTED[0], LAST_TESTED[1] + 1))
    assert "Python 3.11 to 3.13" in refused.value.remedy
    use_in_asyncio()


async def at_once(port: int, client: ssl.SSLContext, data: bytes) -> asyncio.StreamWriter:
    """A connection whose first bytes come with the last ones of its handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))
    tls.write(data)
    writer.write(outgoing.read())
    return writer


async def test_a_frame_that_comes_with_its_handshake_is_not_in_the_room_of_logins() -> None:
    """Otherwise such frames of one address, or of many, fill the room, and no client can log in at any listener."""
    quotas = ConnectionQuotas()
    async with serving(security(SERVER), quotas=quotas) as (_, _, port):
        context = security(BROKER, serves=False).client_context
        assert context is not None
        writer = await at_once(port, context, struct.pack(">i", 900_000) + b"half")
        await eventually(lambda: any(room.charges for room in quotas.book.rooms.values()))
        assert not quotas.book.rooms[Part.LOGINS, Stage.READING].charges
        writer.transport.abort()
