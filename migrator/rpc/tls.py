"""Mutual TLS of gRPC, from the files of ``migrator.grpc.tls.*``, on both sides.

gRPC checks only that a server's certificate is of the CA and has the host's name. A broker on a controller's machine
has such a certificate, too, and could grant votes in the controller's name. So a client first makes a handshake with
Python's TLS and checks the name in the certificate. Then it lets gRPC trust that one certificate and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from migrator.clock import wall_time
from migrator.config.endpoints import parse_host_port
from migrator.config.names import reading_certificates
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.machine import FileState, machine
from migrator.observe.certificates import CertificateBook, chain_ends, trust_ends
from migrator.observe.printable import printable
from migrator.rpc.channel import ATTEMPT_MS, client_options
from migrator.rpc.identity import RENEW, Certificate, read_certificate
from migrator.values import value

log = logging.getLogger(__name__)

OWN_USE = "gRPC: own certificate"
TRUST_USE = "gRPC: CA"
"""The name of this use in the metrics of certificates."""

Stamp = tuple[FileState, ...]


class WrongPeerError(Exception):
    """The server is not the expected one, or does not prove it."""


class WrongNameError(WrongPeerError):
    """The server has proved another name."""


@value
class PinnedChannel:
    """``until``: when the first of the two certificates ends, which gRPC looks at only once."""

    channel: grpc.aio.Channel
    until: datetime


@value
class Material:
    """The contents of the three files, in PEM."""

    certificate: bytes
    key: bytes
    authority: bytes

    def __repr__(self) -> str:
        return "Material([hidden])"


@value
class TlsFiles:
    """PEM files of ``migrator.grpc.tls.*``: ours, and the CA whose peers we accept.

    ``principals``: our certificate must name one of these, also when it is replaced; empty: any name will do.
    """

    certificate: Path
    key: Path
    authority: Path
    principals: frozenset[str] = frozenset()

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        return self.certificate, self.key, self.authority

    def read(self) -> Material:
        """
        :raises OperatorError: a file cannot be read or used, the key belongs to another certificate, or the certificate
            names none of ``principals``.
        """
        found = Material(_read(self.certificate, "certificate"), _read(self.key, "key"), _read(self.authority, "ca"))
        try:
            with reading_certificates():
                certificate = x509.load_pem_x509_certificate(found.certificate)
            principal = read_certificate(found.certificate).principal
        except ValueError as error:
            raise _useless(self.certificate, "certificate", "holds no certificate in PEM that can be read") from error
        try:
            key = load_pem_private_key(found.key, None)
        except (ValueError, TypeError) as error:
            raise _useless(self.key, "key", "holds no private key in PEM without a password") from error
        if key.public_key() != certificate.public_key():
            raise _useless(self.key, "key", f"is not the key of {self.certificate}")
        try:
            trust_ends(found.authority)
        except ValueError as error:
            raise _useless(self.authority, "ca", "holds no certificate in PEM that can be read") from error
        if self.principals and principal not in self.principals:
            why = f"is of {principal}, and migrator.grpc.voter.principals names {' or '.join(sorted(self.principals))}"
            raise _useless(self.certificate, "certificate", why)
        return found

    def renewed(self) -> Material:
        """The new content of the files.

        :raises OperatorError: as `read`, or the new certificate is not valid now: the old one may still be.
        """
        found = self.read()
        own = read_certificate(found.certificate)
        if why_not := own.why_not(wall_time()):
            raise OperatorError(
                f"{self.certificate} of {printable(own.principal or 'nobody')} cannot be used now: {why_not}",
                where="migrator.grpc.tls.certificate.file",
                remedy=RENEW,
            )
        return found

    def own(self) -> Certificate:
        """The names in our certificate.

        :raises OperatorError: as `read`.
        """
        return read_certificate(self.read().certificate)

    def stamp(self) -> Stamp | None:
        """Changes when a file changes; None while a file is missing."""
        states = tuple(machine().file_state(path) for path in self.paths)
        return None if None in states else states

    def server(self) -> grpc.ServerCredentials:
        """Our side: a client needs a certificate of our CA. Files that change are read again.

        :raises OperatorError: as `read`.
        """
        renewal = _Renewal(self)
        return grpc.dynamic_ssl_server_credentials(renewal.first, renewal, require_client_authentication=True)


class _Renewal:
    """Gives gRPC the newest certificates. gRPC calls it at each handshake, on its own threads."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._certificates = machine().own(CertificateBook)
        self._lock = threading.Lock()
        self._stamp = files.stamp()
        material = files.read()
        self.first = _configuration(material)
        self._note(material)

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            try:
                material = self._files.renewed()
            except OperatorError as error:
                self._certificates.note_reload_failure(OWN_USE)
                log.warning("gRPC goes on with its previous certificate: %s", error)
                return None
        self._note(material)
        log.info("Read %s again", self._files.certificate)
        return _configuration(material)

    def _note(self, material: Material) -> None:
        self._certificates.note(OWN_USE, chain_ends(material.certificate))
        self._certificates.note(TRUST_USE, trust_ends(material.authority))


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.authority)


def tls_files(settings: Settings) -> TlsFiles:
    """The three files that the settings name.

    :raises OperatorError: one of them is not set.
    """
    files = {
        "migrator.grpc.tls.certificate.file": settings.migrator_grpc_tls_certificate_file,
        "migrator.grpc.tls.key.file": settings.migrator_grpc_tls_key_file,
        "migrator.grpc.tls.ca.file": settings.migrator_grpc_tls_ca_file,
    }
    for key, file in files.items():
        if not file:
            raise OperatorError(
                "the key is not set, and gRPC needs mutual TLS on every address",
                where=f"{settings.source}: {key}",
                remedy=f"Set {', '.join(files)}",
            )
    certificate, private_key, authority = map(Path, files.values())
    return TlsFiles(certificate, private_key, authority)


Connect = Callable[[str, TlsFiles, frozenset[str]], Awaitable[PinnedChannel]]
"""The type of `connect` below."""


async def connect(
    address: str, files: TlsFiles, accepted: frozenset[str], options: Sequence[tuple[str, int]] | None = None
) -> PinnedChannel:
    """A channel to the server at ``host:port`` if it proves to be one of these principals. The channel trusts only the
    certificate of that moment; when the server replaces it, a new channel is needed.

    :param options: of the channel; by default an attempt to connect may take as long as this server needs for it.
    :raises OperatorError: this node's files cannot be used, or its certificate is not valid now.
    :raises WrongNameError: the server has proved another name.
    :raises WrongPeerError: the TLS handshake failed.
    :raises OSError: no server listens there.
    """
    material = files.renewed()
    host, port = parse_host_port(address)
    expected = f"expected {' or '.join(sorted(accepted))}"
    began = asyncio.get_running_loop().time()
    try:
        leaf = await _leaf(host, port, files)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise WrongPeerError(f"no TLS with {host}:{port}, {expected}: {reason}") from error
    try:
        theirs = read_certificate(leaf)
    except ValueError as error:
        raise WrongPeerError(f"the certificate at {address} cannot be read, {expected}: {error}") from error
    if theirs.principal not in accepted:
        who = "nobody: its subject is empty" if theirs.principal is None else printable(theirs.principal)
        raise WrongNameError(f"the certificate at {address} is {who}; {expected}")
    credentials = grpc.ssl_channel_credentials(leaf, material.key, material.certificate)
    if options is None:
        # The proof took TCP and TLS; gRPC needs one more round trip. A fixed bound would never let a far peer connect.
        proof_ms = round(1_000 * (asyncio.get_running_loop().time() - began))
        options = client_options(max(ATTEMPT_MS, 2 * proof_ms))
    channel = grpc.aio.secure_channel(address, credentials, options=options)
    return PinnedChannel(channel, min(theirs.not_after, read_certificate(material.certificate).not_after))


async def _leaf(host: str, port: int, files: TlsFiles) -> bytes:
    """The certificate of the server at this address, in PEM; our CA has issued it for this host.

    :raises ssl.SSLError: there is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key, password="")
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(der).encode()


def _read(path: Path, what: str) -> bytes:
    try:
        return machine().content(path)
    except OSError as error:
        raise _useless(path, what, f"cannot be read: {error.strerror}") from error


def _useless(path: Path, what: str, why: str) -> OperatorError:
    return OperatorError(f"{path} {why}", where=f"migrator.grpc.tls.{what}.file", remedy="Name a PEM file")
