"""Files of key and trust stores: PEM (KIP-651), PKCS12 (RFC 7292) with a password, and JKS of Java 8 and before.

Java also reads PKCS12 under the type JKS, and keytool writes PKCS12 by default since Java 9. So the content of the file
decides between the two. Source: ``DefaultSslEngineFactory.FileBasedStore``.

A `PemStore` is a store as PEM text (KIP-651), the one kind that Python's TLS reads.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    pkcs12,
)

from migrator.errors import OperatorError
from migrator.observe.printable import number_of
from migrator.values import value
from migrator.wire import jks
from migrator.wire.pkcs12_marks import MarksError, marked_certificates

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]+-----")
_HEADER = re.compile(r"^[A-Za-z-]+:.*$", re.MULTILINE)


@value
class PemStore:
    """The text of a store: certificates, and in a key store the private key.

    Property files may fold lines, so the base 64 blocks are wrapped anew.
    """

    text: str

    def __repr__(self) -> str:
        return "PemStore([hidden])"

    @property
    def certificates(self) -> str:
        return "".join(_wrap(kind, body) for kind, body in _BLOCK.findall(self.text) if kind == "CERTIFICATE")

    @property
    def private_key(self) -> str:
        return "".join(_wrap(kind, body) for kind, body in _BLOCK.findall(self.text) if kind.endswith("PRIVATE KEY"))


def load_key(context: ssl.SSLContext, store: PemStore, password: str | None, key: str) -> None:
    """Give ``context`` its certificate and private key.

    :raises OperatorError: they are missing, do not belong together, or the password is wrong.
    """
    _check_whole(store, key)
    if not store.certificates or not store.private_key:
        raise OperatorError(
            "the file holds no certificate or no private key", where=key, remedy="Put both into this file"
        )
    # ssl reads keys from files only. This file is in memory, so that no crash leaves a key on a disk.
    with os.fdopen(os.memfd_create("key store"), "w", encoding="latin-1") as file:
        file.write(store.private_key + store.certificates)
        file.flush()
        try:
            # Without a password ssl would ask for one on the terminal.
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=password or "")
        except ssl.SSLError as error:
            raise OperatorError(
                f"the key in this file cannot be used ({error.reason or error})",
                where=key,
                remedy="Check that key and certificate belong together and that ssl.key.password is right",
            ) from error


def load_trust(context: ssl.SSLContext, store: PemStore, key: str) -> None:
    """Load the trusted certificates into ``context``.

    :raises OperatorError: there is no usable certificate.
    """
    _check_whole(store, key)
    try:
        context.load_verify_locations(cadata=store.certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: a block that is not ASCII
        raise OperatorError(
            "the file holds no usable certificate", where=key, remedy="Put the certificates to trust into this file"
        ) from error


def _check_whole(store: PemStore, key: str) -> None:
    """Refuse a store with an incomplete block: its file may be only half written."""
    if len(_BEGIN.findall(store.text)) != len(_BLOCK.findall(store.text)):
        raise OperatorError(
            "the file holds a PEM block without its end",
            where=key,
            remedy="Write the whole file, and then rename it into place",
        )


def _wrap(kind: str, body: str) -> str:
    headers = _HEADER.findall(body)
    base64 = "".join(_HEADER.sub("", body).split())
    lines = [base64[start : start + 64] for start in range(0, len(base64), 64)]
    folded = [*headers, "", *lines] if headers else lines
    return "\n".join([f"-----BEGIN {kind}-----", *folded, f"-----END {kind}-----", ""])


_BYTES_MAX = 16 << 20
_JCEKS = b"\xce\xce\xce\xce"
_PEM_MARK = b"-----BEGIN "


def read_store(
    path: str, key: str, kind: str = "", password: str | None = None, key_password: str | None = None
) -> PemStore:
    """Read a store's file.

    Any text may be between the blocks of a PEM file: bundles name their authorities there.

    :param path: the path of the file.
    :param key: the property that names it, for errors.
    :param kind: PEM, PKCS12 or JKS in any case, "" to decide by the file's content.
    :param password: that of a PKCS12 or JKS file; PEM files have none.
    :param key_password: that of the private key in a JKS file, if it is not the store's.
    :raises OperatorError: the file cannot be read, or is of another kind.
    """
    data = _read(path, key)
    looks_like_pem = _PEM_MARK in data
    if kind.upper() == "PEM" or (not kind and looks_like_pem):
        return PemStore(data.decode("latin-1"))
    if looks_like_pem:
        raise OperatorError(
            f"{path} is a PEM file, and its type is {kind}", where=key, remedy=f"Set {_type_key(key)}=PEM"
        )
    if data.startswith(jks.MAGIC):
        return _jks(data, path, key, password, key_password)
    return _pkcs12(data, path, key, password)


def _read(path: str, key: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"{path} cannot be read: {error}", where=key, remedy="Name a file that this process can read"
        ) from error
    if len(data) > _BYTES_MAX:
        raise OperatorError(f"{path} has more than {_BYTES_MAX >> 20} MiB", where=key, remedy="Name a key store")
    return data


def _jks(data: bytes, path: str, key: str, password: str | None, key_password: str | None) -> PemStore:
    """Read a JKS store. Without the store's password its digest is not checked, as in Java."""
    try:
        store = jks.parse_jks(data, password or None)
        if "truststore" in key:
            return PemStore(jks.pem_of(store.anchors))
        if len(store.keys) > 1:
            raise OperatorError(
                f"{path} holds {len(store.keys)} private keys, and which one to show cannot be told",
                where=key,
                remedy="Name a key store that holds only the key of this node",
            )
        if not store.keys:
            return PemStore(jks.pem_of(store.trusted))
        (own,) = store.keys
        private = load_der_private_key(jks.open_key(own, key_password or password or ""), None)
    except jks.WrongPasswordError as error:
        raise OperatorError(
            f"{path} cannot be read as JKS: {error}",
            where=key,
            remedy=f"Set {_password_key(key)}{_or_key_password(key)}",
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = error if isinstance(error, jks.JksError) else "its private key cannot be used"
        raise OperatorError(
            f"{path} cannot be read as JKS: {what}", where=key, remedy="Restore the file, or make it again with keytool"
        ) from error
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
    return PemStore(text + jks.pem_of(own.chain))


def _pkcs12(data: bytes, path: str, key: str, password: str | None) -> PemStore:
    if data.startswith(_JCEKS):
        raise OperatorError(
            f"{path} has Java's old format JCEKS, which only Java can read",
            where=key,
            remedy=f"Convert it: keytool -importkeystore -srckeystore {path} -destkeystore NEW -deststoretype PKCS12, "
            f"and set this key to NEW; {_type_key(key)} may stay JKS. Stock Kafka reads that file, too",
        )
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        hint = (
            "the password is wrong, or the file is not PKCS12"
            if password
            else "the file has a password, or is not PKCS12"
        )
        raise OperatorError(
            f"{path} cannot be read as PKCS12: {hint}",
            where=key,
            remedy=f"Set {_password_key(key)}, which has to open both the store and the key in it",
        ) from error
    if "truststore" in key:
        return PemStore(jks.pem_of(_anchors(data, found, path, key, password)))
    certificates = [entry.certificate for entry in (found.cert, *found.additional_certs) if entry is not None]
    text = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    if found.key is not None:
        text = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + text
    return PemStore(text.decode("ascii"))


def _anchors(
    data: bytes, found: pkcs12.PKCS12KeyAndCertificates, path: str, key: str, password: str | None
) -> tuple[bytes, ...]:
    """The certificates that Java would trust: those with a mark, and the certificate of a private key."""
    try:
        marked = marked_certificates(data, password)
    except MarksError as error:
        raise OperatorError(
            f"{path}: which certificates it marks as trusted cannot be read: {error}",
            where=key,
            remedy=f"Name a PEM file with the certificates to trust, and set {_type_key(key)}=PEM",
        ) from error
    own = [found.cert.certificate.public_bytes(Encoding.DER)] if found.key is not None and found.cert else []
    if not marked and not own:
        count = len(found.additional_certs) + (found.cert is not None)
        raise OperatorError(
            f"{path} marks none of its {number_of(count, 'certificate')} as trusted, so Java trusts none of them",
            where=key,
            remedy="Make the store with 'keytool -importcert', or name a PEM file with the certificates to trust, and "
            f"set {_type_key(key)}=PEM",
        )
    return (*marked, *own)


def _type_key(key: str) -> str:
    return key.removesuffix("location") + "type"


def _or_key_password(key: str) -> str:
    """The hint at a separate key password. ZooKeeper's clients have only one password, and trust stores have no
    keys."""
    if key.startswith("zookeeper.") or "truststore" in key:
        return ""
    own = key.replace("ssl.keystore.location", "ssl.key.password")
    return f". If the private key in the store has a password of its own, set {own}"


def _password_key(key: str) -> str:
    return key.removesuffix("location") + "password"
