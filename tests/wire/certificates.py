"""Throw-away certificates."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """A CA that signs for 127.0.0.1 and localhost."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name(name)
        self._certificate = self._sign(self._name, self._key.public_key(), authority=True)

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, subject: x509.Name | str, password: str | None = None) -> tuple[str, str]:
        """A private key and a certificate, in PEM; the key encrypted if there is a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = common_name(subject) if isinstance(subject, str) else subject
        certificate = self._sign(name, key.public_key(), authority=False)
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        return (
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode(),
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
        )

    def files(self, directory: Path, subject: str) -> tuple[Path, Path, Path]:
        """Certificate, key and this CA's certificate as files."""
        directory.mkdir()
        key, certificate = self.issue(subject)
        paths = directory / "cert.pem", directory / "key.pem", directory / "ca.pem"
        for path, text in zip(paths, (certificate, key, self.pem), strict=True):
            path.write_text(text)
        return paths

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - dt.timedelta(days=1))
            .not_valid_after(NOW + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
