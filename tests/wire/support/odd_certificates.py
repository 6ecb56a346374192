"""Certificates that each differ from a usual one in a single thing.

Tests try them at TLS, in principals and in the metrics of their end.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
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


UNREADABLE = {
    "its version is 2": (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"),
    "its name is a bit string": (b"\x0c\x04node", b"\x03\x04\x00ode"),
    "its name is no printable string": (b"\x0c\x04node", b"\x13\x04\xffode"),
}
"""Certificates that OpenSSL takes and `cryptography` does not, in three different exceptions: the bytes for "node"
to change, and their successors."""


def unreadable(issuer: Signed, kind: str) -> tuple[str, str]:
    """A certificate with a valid signature, of one of `UNREADABLE`, and its key; both in PEM."""
    sound = make("node", issuer)
    old, new = UNREADABLE[kind]
    body = new.join(sound.certificate.tbs_certificate_bytes.rsplit(old, 1))
    if not isinstance(issuer.private_key, ec.EllipticCurvePrivateKey):
        raise TypeError("an authority with an elliptic curve signs these")
    signature = issuer.private_key.sign(body, ec.ECDSA(hashes.SHA256()))
    parts = body + _der(0x30, _ECDSA_WITH_SHA256) + _der(0x03, b"\0" + signature)
    return ssl.DER_cert_to_PEM_cert(_der(0x30, parts)), sound.key


_ECDSA_WITH_SHA256 = bytes.fromhex("06082a8648ce3d040302")


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    wide = b"" if size < 0x80 else size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(wide) if wide else size]) + wide + content
