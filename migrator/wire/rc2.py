"""RC2 (RFC 2268), decryption only. Old PKCS12 stores encrypt certificates with it, with keys of 40 bits, and no library
of this program has it. Its weakness does no harm here: certificates are not secret."""

from __future__ import annotations

import struct
from typing import Final

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
