"""Makes throw-away certificates, with which the processes of a drill authenticate to each other.

They are for one machine, 127.0.0.1 and localhost. The authority's own key is in memory only and ends with it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

THIS_MACHINE: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
)
SKEW = dt.timedelta(days=1)
"""How long before now a certificate is valid already, because clocks differ."""


class PemFiles(NamedTuple):
    """The files for gRPC: a certificate, its private key, and the certificate of the peers' authority."""

    certificate: Path
    key: Path
    authority: Path


def common_name(name: str) -> x509.Name:
    """A subject that is only ``CN=name``."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """A CA that signs for 127.0.0.1 and localhost.

    :param above: the CA that signs this one; issued certificates then have the chain up to it.
    """

    def __init__(self, name: str, above: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name(name)
        self._above = above
        self._certificate = (above or self).sign(self._name, self._key.public_key(), ca=True)

    @property
    def pem(self) -> str:
        """The certificate to trust: its own, or that of the CA at the top."""
        return self._own_pem if self._above is None else self._above.pem

    @property
    def _own_pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def chain(self) -> str:
        """The certificates between an issued one and the trusted one."""
        return "" if self._above is None else self._own_pem + self._above.chain

    def issue(
        self,
        subject: x509.Name | str,
        password: str | None = None,
        *,
        names: tuple[x509.GeneralName, ...] = THIS_MACHINE,
        valid_for: dt.timedelta = dt.timedelta(days=30),
        valid_after: dt.timedelta = -SKEW,
        purposes: tuple[x509.ObjectIdentifier, ...] = (),
    ) -> tuple[str, str]:
        """Issue a private key and a certificate, in PEM.

        :param subject: a whole name, or the common name.
        :param password: encrypts the key.
        :param valid_for: counted from now; a negative one makes an expired certificate.
        :param valid_after: counted from now; a positive one makes a certificate that is not valid yet.
        :param purposes: the extended key usage; by default any use.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = common_name(subject) if isinstance(subject, str) else subject
        certificate = self.sign(
            name, key.public_key(), names=names, valid_for=valid_for, valid_after=valid_after, purposes=purposes
        )
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        return (
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode(),
            certificate.public_bytes(serialization.Encoding.PEM).decode() + self.chain,
        )

    def files(
        self, directory: Path, subject: x509.Name | str, *, valid_for: dt.timedelta = dt.timedelta(days=30)
    ) -> PemFiles:
        """Write a new certificate to ``directory``, each part to its own file; older files are replaced."""
        key, certificate = self.issue(subject, valid_for=valid_for)
        directory.mkdir(parents=True, exist_ok=True)
        files = PemFiles(directory / "cert.pem", directory / "key.pem", directory / "ca.pem")
        for path, text in zip(files, (certificate, key, self.pem), strict=True):
            write_private(path, text)
        return files

    def store(self, path: Path, subject: x509.Name | str) -> Path:
        """A new key and certificate in one file: a key store in PEM, as Kafka and ZooKeeper read it."""
        write_private(path, "".join(self.issue(subject)))
        return path

    def trust(self, path: Path) -> Path:
        """A trust store in PEM, with only this authority."""
        write_private(path, self.pem)
        return path

    def sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        ca: bool = False,
        names: tuple[x509.GeneralName, ...] = THIS_MACHINE,
        valid_for: dt.timedelta = dt.timedelta(days=365),
        valid_after: dt.timedelta = -SKEW,
        purposes: tuple[x509.ObjectIdentifier, ...] = (),
    ) -> x509.Certificate:
        """Sign a certificate for that key; with ``ca``, it may sign others."""
        now = dt.datetime.now(dt.UTC)
        ours = self._key.public_key()
        unsigned = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now + valid_after, now + valid_for - SKEW))
            .not_valid_after(now + valid_for)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(_usage(ca=ca), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
        )
        if purposes:
            unsigned = unsigned.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        return unsigned.sign(self._key, hashes.SHA256())


def _usage(*, ca: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "encipher_only", "decipher_only"), False
    )
    return x509.KeyUsage(digital_signature=not ca, key_agreement=not ca, key_cert_sign=ca, crl_sign=ca, **unused)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read. It is replaced in one step, so no reader sees half of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    unfinished.replace(path)
