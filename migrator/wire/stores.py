"""Files of key and trust stores: PEM (KIP-651), and PKCS12 (RFC 7292) with a password.

Java reads PKCS12 under the type JKS, too, and since Java 9 its keytool writes nothing else unless it is told to. The
format of that time before cannot be read here. Source: ``DefaultSslEngineFactory.FileBasedStore``.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from migrator.errors import OperatorError
from migrator.wire.pem import PemStore

_BYTES_MAX = 16 << 20
_OLD_JAVA = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_PEM_MARK = b"-----BEGIN "


def read_store(path: str, key: str, kind: str = "", password: str | None = None) -> PemStore:
    """Read a store's file.

    Between the blocks of a PEM file may stand anything: bundles of authorities name them in their languages.

    :param path: of the file.
    :param key: the property that names it, for errors.
    :param kind: PEM, PKCS12 or JKS in any case, "" for what the file's content says.
    :param password: of a PKCS12 file; PEM files have none of their own.
    :raises OperatorError: it cannot be read, or is of another kind.
    """
    data = _read(path, key)
    looks_like_pem = _PEM_MARK in data
    if kind.upper() == "PEM" or (not kind and looks_like_pem):
        return PemStore(data.decode("latin-1"))
    if looks_like_pem:
        raise OperatorError(
            f"{path} is a PEM file, and its type is {kind}", where=key, remedy=f"Set {_type_key(key)}=PEM"
        )
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


def _pkcs12(data: bytes, path: str, key: str, password: str | None) -> PemStore:
    if data[:4] in _OLD_JAVA:
        raise OperatorError(
            f"{path} has Java's old format {_OLD_JAVA[data[:4]]}, which only Java can read",
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
    certificates = [entry.certificate for entry in (found.cert, *found.additional_certs) if entry is not None]
    text = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    if found.key is not None:
        if "truststore" in key:
            raise OperatorError(
                f"{path} holds a private key: which certificates it trusts, and which are the chain of its own, cannot "
                "be told apart",
                where=key,
                remedy="Name a trust store that holds only the certificates to trust",
            )
        text = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + text
    return PemStore(text.decode("ascii"))


def _type_key(key: str) -> str:
    return key.removesuffix("location") + "type"


def _password_key(key: str) -> str:
    return key.removesuffix("location") + "password"
