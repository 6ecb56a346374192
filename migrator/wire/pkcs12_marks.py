"""Finds the certificates of a PKCS12 store that Java trusts: those with the attribute trustedKeyUsage (RFC 7292).

OpenSSL checks and opens such stores, but does not return attributes. So the store is read a second time here.
Source: ``sun.security.pkcs12.PKCS12KeyStore``. Old stores encrypt certificates with RC2 (RFC 2268) and keys of 40 bits,
which no library of this program has. Its weakness does no harm here: certificates are not secret.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from migrator.values import value

ITERATIONS_MAX: Final = 5_000_000
"""Java's limit. More iterations would block this process for long."""
DEPTH_MAX: Final = 20
_SEQUENCE, _INTEGER = 0x30, 0x02
_BITS: Final = 0x20
"""The bit of a tag whose content is elements ("constructed")."""
_PKCS7_DATA: Final = bytes.fromhex("2a864886f70d010701")
_PKCS7_ENCRYPTED: Final = bytes.fromhex("2a864886f70d010706")
_CERTIFICATE_BAG: Final = bytes.fromhex("2a864886f70d010c0a0103")
_NESTED_BAG: Final = bytes.fromhex("2a864886f70d010c0a0106")
_X509: Final = bytes.fromhex("2a864886f70d01091601")
_FRIENDLY_NAME: Final = bytes.fromhex("2a864886f70d010914")
_TRUSTED_KEY_USAGE: Final = bytes.fromhex("6086480186f966adca7b0101")
"""2.16.840.1.113894.746875.1.1"""
_PBES2: Final = bytes.fromhex("2a864886f70d01050d")
_PBKDF2: Final = bytes.fromhex("2a864886f70d01050c")
_HMACS: Final = {
    bytes.fromhex("2a864886f70d0207"): "sha1",
    bytes.fromhex("2a864886f70d0208"): "sha224",
    bytes.fromhex("2a864886f70d0209"): "sha256",
    bytes.fromhex("2a864886f70d020a"): "sha384",
    bytes.fromhex("2a864886f70d020b"): "sha512",
}
_AES_BYTES: Final = {
    bytes.fromhex("60864801650304012a"): 32,
    bytes.fromhex("608648016503040116"): 24,
    bytes.fromhex("608648016503040102"): 16,
}
_OLD_KEY_BYTES: Final = {
    bytes.fromhex("2a864886f70d010c0103"): ("3DES", 24),
    bytes.fromhex("2a864886f70d010c0105"): ("RC2", 16),
    bytes.fromhex("2a864886f70d010c0106"): ("RC2", 5),
}
"""PKCS12's own encryptions, as Java 8 and OpenSSL 1 wrote them."""


class MarksError(ValueError):
    """The store has a form that this program does not read. The message quotes nothing of its content."""


@value
class _Element:
    """One element of BER. A primitive element has no ``parts``."""

    tag: int
    content: bytes
    parts: tuple[_Element, ...]


def marked_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """The certificates in DER that the store marks as trusted. When several have one alias, the last counts, as in
    Java.

    :param data: a store whose integrity has been checked with this password.
    :raises MarksError: the store is encrypted in an unknown way, or malformed.
    """
    try:
        _, authenticated, *_ = _whole(data).parts
        found: dict[str, bytes] = {}
        for info in _whole(_data_of(authenticated)).parts:
            for alias, certificate in _marked_in(_whole(_opened(info, password or "")), 0):
                found[f"{len(found)}" if alias is None else f"alias {alias.lower()}"] = certificate
    except MarksError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        raise MarksError("it is malformed, or encrypted in a way that this program does not know") from error
    return tuple(found.values())


def _marked_in(bags: _Element, depth: int) -> Iterator[tuple[str | None, bytes]]:
    if depth > DEPTH_MAX:
        raise MarksError("its contents are nested too deep")
    for bag in bags.parts:
        kind, wrapped, *rest = bag.parts
        if kind.content == _NESTED_BAG:
            yield from _marked_in(wrapped.parts[0], depth + 1)
        if kind.content != _CERTIFICATE_BAG or not rest:
            continue
        attributes = {name.content: values for name, values in (each.parts for each in rest[0].parts)}
        if _TRUSTED_KEY_USAGE not in attributes:
            continue
        format_, certificate = wrapped.parts[0].parts
        if format_.content == _X509:
            named = attributes.get(_FRIENDLY_NAME)
            alias = named.parts[0].content.decode("utf-16-be", "replace") if named is not None else None
            yield alias, _octets(certificate.parts[0])


def _data_of(info: _Element) -> bytes:
    kind, explicit = info.parts
    if kind.content != _PKCS7_DATA:
        raise MarksError("it is signed, and not protected by a password")
    return _octets(explicit.parts[0])


def _opened(info: _Element, password: str) -> bytes:
    """The bags of one part of the store, decrypted if necessary."""
    kind, explicit = info.parts
    if kind.content == _PKCS7_DATA:
        return _octets(explicit.parts[0])
    if kind.content != _PKCS7_ENCRYPTED:
        raise MarksError("a part of it is for the owner of a private key")
    _, algorithm, hidden = explicit.parts[0].parts[1].parts
    name, parameters = algorithm.parts
    sealed = b"".join(_octets(part) for part in hidden.parts) or hidden.content
    plain = _decrypted(name.content, parameters, sealed, password)
    return plain[: -plain[-1]]


def _decrypted(name: bytes, parameters: _Element, sealed: bytes, password: str) -> bytes:
    if name == _PBES2:
        return _pbes2(parameters, sealed, password)
    if name not in _OLD_KEY_BYTES:
        raise MarksError("it is encrypted in a way that this program does not know")
    cipher, size = _OLD_KEY_BYTES[name]
    salt, rounds = parameters.parts[0].content, _rounds(parameters.parts[1])
    secret = (password + "\0").encode("utf-16-be")
    key, vector = _derived(secret, salt, rounds, 1, size), _derived(secret, salt, rounds, 2, 8)
    if cipher == "RC2":
        return rc2_cbc(key, vector, sealed)
    return _plain(TripleDES(key), vector, sealed)


def _pbes2(parameters: _Element, sealed: bytes, password: str) -> bytes:
    derivation, scheme = parameters.parts
    if derivation.parts[0].content != _PBKDF2:
        raise MarksError("it is encrypted in a way that this program does not know")
    salt, rounds, *more = derivation.parts[1].parts
    digest = next((_HMACS[part.parts[0].content] for part in more if part.tag == _SEQUENCE), "sha1")
    name, vector = scheme.parts[0].content, scheme.parts[1].content
    key = hashlib.pbkdf2_hmac(digest, password.encode(), salt.content, _rounds(rounds), _AES_BYTES[name])
    return _plain(AES(key), vector, sealed)


def _plain(cipher: AES | TripleDES, vector: bytes, sealed: bytes) -> bytes:
    decryptor = Cipher(cipher, CBC(vector)).decryptor()
    return decryptor.update(sealed) + decryptor.finalize()


def _rounds(number: _Element) -> int:
    rounds = int.from_bytes(number.content, "big")
    if number.tag != _INTEGER or not 0 < rounds <= ITERATIONS_MAX:
        raise MarksError(f"its password is to be hashed {rounds:,} times")
    return rounds


def _derived(secret: bytes, salt: bytes, rounds: int, purpose: int, size: int) -> bytes:
    """A key (purpose 1) or an initial vector (2): RFC 7292, appendix B.2, with SHA-1."""
    block = 64
    mixed = _repeated(salt, block) + _repeated(secret, block)
    made = b""
    while len(made) < size:
        digest = bytes([purpose]) * block + mixed
        for _ in range(rounds):
            digest = hashlib.sha1(digest, usedforsecurity=False).digest()
        made += digest
        added = int.from_bytes(_repeated(digest, block)[:block], "big") + 1
        mixed = b"".join(
            ((int.from_bytes(mixed[at : at + block], "big") + added) % (1 << 8 * block)).to_bytes(block, "big")
            for at in range(0, len(mixed), block)
        )
    return made[:size]


def _repeated(text: bytes, block: int) -> bytes:
    """Repeat a text up to the next multiple of the block size."""
    size = -(-len(text) // block) * block
    return (text * (size // max(1, len(text)) + 1))[:size]


def _octets(element: _Element) -> bytes:
    """The bytes of an octet string, which may be in several parts."""
    return b"".join(map(_octets, element.parts)) if element.parts else element.content


def _whole(data: bytes) -> _Element:
    return _element(data, 0, 0)[0]


def _element(data: bytes, at: int, depth: int) -> tuple[_Element, int]:
    """The element at an offset, and the offset after it. Its length may be indefinite, with an end mark (BER)."""
    if depth > DEPTH_MAX:
        raise MarksError("its contents are nested too deep")
    tag, length, at = data[at], data[at + 1], at + 2
    if length & 0x80 and length != 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
        endless = False
    else:
        endless = length == 0x80
    end = len(data) if endless else at + length
    if end > len(data):
        raise MarksError("it ends too early")
    if not tag & _BITS:
        return _Element(tag, data[at:end], ()), end
    begin = at
    parts: list[_Element] = []
    while at < end:
        if endless and data[at : at + 2] == b"\0\0":
            return _Element(tag, data[begin:at], tuple(parts)), at + 2
        part, at = _element(data, at, depth + 1)
        parts.append(part)
    return _Element(tag, data[begin:end], tuple(parts)), end


_PI: Final = bytes.fromhex(
    "d978f9c419ddb5ed28e9fd794aa0d89dc67e37832b76538e624c6488448bfba2"
    "179a59f587b34f1361456d8d09817d32bd8f40eb86b77b0bf09521225c6b4e82"
    "54d66593ce60b21c7356c014a78cf1dc1275ca1f3bbee4d1423dd430a33cb626"
    "6fbf0eda4669075727f21d9bbc944303f811c7f690ef3ee706c3d52fc8661ed7"
    "08e8eade8052eef784aa72ac354d6a2a961ad2715a1549744b9fd05e0418a4ec"
    "c2e0416e0f51cbcc2491af50a1f47039997c3a8523b8b47afc02365b25559731"
    "2d5dfa98e38a92ae05df2910676cbac9d300e6cfe19ea82c6316013f58e289a9"
    "0d38341bab33ffb0bb480c5fb9b1cd2ec5f3db47e5a59c770aa62068fe7fc1ad"
)
_ROTATIONS: Final = (1, 2, 3, 5)
_MASHED: Final = (11, 5)
"""The mixing rounds before which a mashing round came in encryption."""


def rc2_cbc(key: bytes, vector: bytes, sealed: bytes) -> bytes:
    """Decrypt in CBC mode. The effective key bits are the bits of the key.

    :raises ValueError: the data is not a whole number of blocks.
    """
    if len(sealed) % 8:
        raise ValueError("no whole number of blocks")
    words = _expanded(key)
    plain, before = bytearray(), vector
    for at in range(0, len(sealed), 8):
        block = sealed[at : at + 8]
        plain += bytes(a ^ b for a, b in zip(_block(words, block), before, strict=True))
        before = block
    return bytes(plain)


def _expanded(key: bytes) -> tuple[int, ...]:
    size = len(key)
    made = bytearray(key)
    for at in range(size, 128):
        made.append(_PI[(made[at - 1] + made[at - size]) & 0xFF])
    made[128 - size] = _PI[made[128 - size]]
    for at in range(127 - size, -1, -1):
        made[at] = _PI[made[at + 1] ^ made[at + size]]
    return struct.unpack("<64H", made)


def _block(words: tuple[int, ...], block: bytes) -> bytes:
    r = list(struct.unpack("<4H", block))
    at = 63
    for round_ in range(15, -1, -1):
        for i in (3, 2, 1, 0):
            turn = _ROTATIONS[i]
            turned = (r[i] >> turn | r[i] << (16 - turn)) & 0xFFFF
            mixed = words[at] + (r[i - 1] & r[i - 2]) + (~r[i - 1] & r[i - 3])
            r[i] = (turned - mixed) & 0xFFFF
            at -= 1
        if round_ in _MASHED:
            for i in (3, 2, 1, 0):
                r[i] = (r[i] - words[r[i - 1] & 63]) & 0xFFFF
    return struct.pack("<4H", *r)
