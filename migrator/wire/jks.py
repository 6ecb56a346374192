"""JKS, Java's own format of key and trust stores. Keytool wrote it by default up to Java 8.

Layout: magic, version, number of entries, the entries, a digest. An entry is a private key with its chain, or a
certificate that is trusted. The digest proves the store's password; each private key has a separate password. Source:
``sun.security.provider.JavaKeyStore``, ``KeyProtector``.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import struct
from collections.abc import Iterator

from migrator.values import value

MAGIC = b"\xfe\xed\xfe\xed"
ENTRIES_MAX = 10_000
"""A bound far above the number of all public certificate authorities."""
CHAIN_MAX = 100
KEY_BYTES_MAX = 1 << 16
_KEY, _TRUSTED = 1, 2
_DIGEST_BYTES = _SALT_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
"""A constant that Java includes in the digest."""
_PROTECTION = bytes.fromhex("060a2b060104012a02110101")
"""1.3.6.1.4.1.42.2.17.1.1 in DER: the one way in which JKS encrypts a key."""
_SEQUENCE, _OCTETS = 0x30, 0x04


class JksError(ValueError):
    """A fault of a store. The message quotes nothing of its content."""


class WrongPasswordError(JksError):
    """The password of the store or of the private key is wrong, or the file is damaged."""


@value
class JksKey:
    """A private key, still encrypted, and its chain in DER, its own certificate first."""

    protected: bytes
    chain: tuple[bytes, ...]


@value
class JksStore:
    """The content of a file; certificates in DER."""

    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]

    @property
    def anchors(self) -> tuple[bytes, ...]:
        """The certificates that Java trusts (``TrustStoreUtil``): trusted entries, and the first certificate of each
        private key's chain."""
        return (*self.trusted, *(key.chain[0] for key in self.keys if key.chain))


def parse_jks(data: bytes, password: str | None) -> JksStore:
    """
    Parse a store.

    :param password: the store's; with None the digest is not checked, as in Java.
    :raises WrongPasswordError: the digest does not fit the password.
    :raises JksError: the data is not such a store.
    """
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise JksError("it does not begin as a JKS file")
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise JksError(f"its version is {version}")
    if count > ENTRIES_MAX:
        raise JksError(f"it says that it has {count:,} entries, and {ENTRIES_MAX:,} are read at most")
    keys: list[JksKey] = []
    trusted: list[bytes] = []
    for _ in range(count):
        kind = reader.number()
        reader.text()  # its alias
        reader.take(8)  # its date
        if kind == _KEY:
            protected, links = reader.block(KEY_BYTES_MAX), reader.number()
            if links > CHAIN_MAX:
                raise JksError(f"a chain has {links:,} certificates")
            keys.append(JksKey(protected, tuple(_certificate(reader, version) for _ in range(links))))
        elif kind == _TRUSTED:
            trusted.append(_certificate(reader, version))
        else:
            raise JksError(f"an entry is of kind {kind}")
    body, digest = data[: reader.at], reader.take(_DIGEST_BYTES)
    if password is not None:
        found = hashlib.sha1(_secret(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(found, digest):
            raise WrongPasswordError("the password of the store is wrong, or the file is damaged")
    return JksStore(tuple(keys), tuple(trusted))


def open_key(key: JksKey, password: str) -> bytes:
    """The private key in DER (PKCS8).

    :raises WrongPasswordError: the password is not the key's.
    :raises JksError: the key is encrypted in another way, or damaged.
    """
    outer = _der(key.protected, _SEQUENCE)[0]
    algorithm, rest = _der(outer, _SEQUENCE)
    if not algorithm.startswith(_PROTECTION):
        raise JksError("its private key is encrypted in a way that is not Java's for JKS")
    sealed = _der(rest, _OCTETS)[0]
    if len(sealed) <= _SALT_BYTES + _DIGEST_BYTES:
        raise JksError("its private key is cut off")
    salt, hidden, check = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    secret = _secret(password)
    stream = b"".join(_stream(secret, salt, len(hidden)))[: len(hidden)]
    plain = (int.from_bytes(hidden, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(hidden), "big")
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise WrongPasswordError("the password of the private key is wrong")
    return plain


def pem_of(certificates: tuple[bytes, ...]) -> str:
    """Encodes certificates as PEM blocks."""
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates))


def _stream(secret: bytes, salt: bytes, length: int) -> Iterator[bytes]:
    """The bytes with which the key is XORed: each part is the digest of the secret and the part before."""
    last = salt
    for _ in range(0, length, _DIGEST_BYTES):
        last = hashlib.sha1(secret + last, usedforsecurity=False).digest()
        yield last


def _secret(password: str) -> bytes:
    """A password as bytes of Java's characters (UTF-16)."""
    return password.encode("utf-16-be", "surrogatepass")


def _certificate(reader: _Reader, version: int) -> bytes:
    if version > 1 and (kind := reader.text()) != b"X.509":
        raise JksError(f"a certificate is of kind {kind[:20]!r}")
    return reader.block()


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first DER element, and the bytes after it."""
    if len(data) < 2 or data[0] != tag:
        raise JksError("its private key is damaged")
    length, begin = data[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[2:begin], "big")
    if begin + length > len(data):
        raise JksError("its private key is damaged")
    return data[begin : begin + length], data[begin + length :]


class _Reader:
    """Reads numbers and texts as Java's ``DataOutput`` writes them: big endian."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise JksError("it ends too early")
        return self._data[begin : self.at]

    def number(self) -> int:
        (found,) = struct.unpack(">I", self.take(4))
        return int(found)

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def block(self, size_max: int = 1 << 20) -> bytes:
        size = self.number()
        if size > size_max:
            raise JksError(f"a part has {size:,} bytes")
        return self.take(size)
