"""A session over mutual TLS, with PEM files as an operator would name them."""

from __future__ import annotations

import datetime as dt
import gc
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, ZooKeeperUnavailableError


def self_signed(directory: Path, name: str) -> Path:
    """A PEM file with a key and its own certificate, good for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, trust = directory / f"{name}.pem", directory / f"{name}-trust.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    trust.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return pem


@pytest.mark.filterwarnings("ignore:.*SSLSocket")  # kazoo leaves the sockets of failed handshakes to the collector
def test_mutual_tls(tmp_path: Path) -> None:
    server, client = self_signed(tmp_path, "server"), self_signed(tmp_path, "client")
    port = free_port()
    options = ZooKeeperOptions(
        properties={
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(server),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(tmp_path / "client-trust.pem"),
            "ssl.trustStore.type": "PEM",
        }
    )
    with EmbeddedZooKeeper(tmp_path / "zookeeper", options=options):
        trusted = SessionOptions(
            hosts=f"127.0.0.1:{port}",
            use_tls=True,
            key_file=str(client),
            ca_file=str(tmp_path / "server-trust.pem"),
        )
        with ZooKeeperSession(trusted) as session:
            assert list(BulkReader(session).children(["/"])) == [("zookeeper",)]
        stranger = SessionOptions(
            hosts=trusted.hosts,
            connection_timeout_ms=1000,
            use_tls=True,
            key_file=str(client),
            ca_file=str(tmp_path / "client-trust.pem"),
        )
        with pytest.raises(ZooKeeperUnavailableError):
            ZooKeeperSession(stranger).start()
    gc.collect()
