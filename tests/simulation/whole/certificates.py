"""Certificates of gRPC, the same in every world: one authority, and one certificate for each name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from migrator.rpc.tls import TlsFiles
from tests.simulation.whole.disk import Directory, File, SimulatedDisk

HOME = Path("/tls")
FILES = TlsFiles(HOME / "cert.pem", HOME / "key.pem", HOME / "ca.pem")
OPERATOR = "operator"
FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def voter(node_id: int) -> str:
    """The common name of its certificate."""
    return f"voter-{node_id}"


def principal(name: str) -> str:
    return f"User:CN={name}"


def install(disk: SimulatedDisk, name: str) -> None:
    """Written durably, as an operator sets up a machine."""
    home = Directory()
    disk.root.change((HOME.name, home))
    for path, content in zip(FILES.paths, _pem(name), strict=True):
        file = File()
        file.write(content, 0)
        file.sync()
        home.change((path.name, file))
    home.sync()
    disk.root.sync()


def keys_of_files() -> Mapping[str, str]:
    return {
        "migrator.grpc.tls.certificate.file": str(FILES.certificate),
        "migrator.grpc.tls.key.file": str(FILES.key),
        "migrator.grpc.tls.ca.file": str(FILES.authority),
    }


@cache
def _pem(name: str) -> tuple[bytes, bytes, bytes]:
    """Certificate, key and authority; Ed25519 signs the same thing in the same way each time."""
    key, authority = _key(name), _key("authority")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _signed(name, key, authority), private, _signed("authority", authority, authority)


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def _signed(name: str, key: Ed25519PrivateKey, authority: Ed25519PrivateKey) -> bytes:
    builder = x509.CertificateBuilder(
        _name("authority"), _name(name), key.public_key(), int.from_bytes(name.encode(), "big"), FROM, TO
    )
    return builder.sign(authority, None).public_bytes(Encoding.PEM)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
