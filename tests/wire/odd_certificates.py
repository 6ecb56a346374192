"""Certificates with one thing unusual about them, each made by `make`."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
THIS_MACHINE = ("localhost", "127.0.0.1")


class Signed(NamedTuple):
    """A certificate with its key."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key(self) -> str:
        return self.private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def ends(self) -> int:
        return int(self.certificate.not_valid_after_utc.timestamp())


def make(
    subject: str,
    issuer: Signed | None = None,
    *,
    days: float = 100,
    ca: bool = False,
    rsa_bits: int = 0,
    usages: Sequence[x509.ObjectIdentifier] = (),
    names: Sequence[str] = THIS_MACHINE,
) -> Signed:
    """A certificate.

    :param issuer: who signs; None: it signs itself.
    :param days: until it ends; below zero it has ended.
    :param rsa_bits: of an RSA key; 0: an elliptic curve.
    :param usages: extended key usages; none: no such extension.
    :param names: subject alternative names.
    """
    key = rsa.generate_private_key(65537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1000))
        .not_valid_after(NOW + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return Signed(builder.sign(issuer.private_key if issuer else key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
