"""The accounts for SCRAM logins: credentials and delegation tokens of the published image (KIP-48, KIP-554).

A client cannot see whether a user exists. For an unknown name every controller answers each time with the same salt, of
the length and with the iterations that most credentials have.
Source: Kafka's ``CredentialProvider``, ``DelegationTokenManager``, ``ScramServerCallbackHandler``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from migrator.clock import wall_seconds
from migrator.config.settings import Settings
from migrator.controller.delegation_tokens import USER_PREFIX, is_expired, secret_key
from migrator.controller.token_index import token_hmac
from migrator.image.model import MetadataImage, ScramCredential, ScramKey
from migrator.records.metadata import DelegationTokenRecord, ScramMechanism
from migrator.values import value
from migrator.wire.principal import Principal
from migrator.wire.sasl import SCRAM_HASHES, Authenticated, NotReadyError, ScramAccount, scram_credential
from migrator.wire.sasl.scram_messages import MIN_ITERATIONS

_CODES: Final[Mapping[str, int]] = {
    "SCRAM-SHA-256": ScramMechanism.SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SHA_512,
}
KAFKA_SALT_BITS: Final = 130
"""Kafka writes a random number of so many bits in base 36, and uses the digits as the salt."""
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class PublishedImages(Protocol):
    """The part of `migrator.node.metadata.MetadataRuntime` that this file reads, also on other threads than its own."""

    @property
    def published(self) -> MetadataImage: ...

    @property
    def has_reached_high_watermark(self) -> bool: ...


@value
class _Look:
    """The most common length of a salt in bytes (0: a salt in Kafka's form, digits) and the most common iterations."""

    salt_bytes: int
    iterations: int


USUAL: Final = _Look(0, MIN_ITERATIONS)


class PublishedAccounts:
    """A `migrator.wire.sasl.ScramAccounts`.

    No user is known until this node knows what the quorum has committed: a user may have been deleted or added since
    this node was stopped.
    """

    def __init__(
        self, settings: Settings, cluster_id: str, metadata: PublishedImages, wall: Callable[[], float] = wall_seconds
    ) -> None:
        self._metadata = metadata
        self._wall = wall
        self._secret = secret_key(settings)
        shared = settings.password_encoder_secret.reveal().encode() if settings.password_encoder_secret else b""
        self._seed = hashlib.sha256(b"\0".join((cluster_id.encode(), self._secret or b"", shared))).digest()
        self._is_seeded = bool(self._secret or shared)
        self._seen: tuple[object, Mapping[str, _Look], bytes] | None = None

    def user(self, mechanism: str, name: str) -> ScramAccount:
        """See `ScramAccounts`."""
        image = self._image()
        nobody = self._nobody(image, mechanism, name)
        found = image.scram.get(ScramKey(_CODES[mechanism], name))
        if found is None:
            return ScramAccount(nobody, None, "unknown user")
        if found.iterations < MIN_ITERATIONS:
            return ScramAccount(found, None, f"a credential of fewer than {MIN_ITERATIONS} iterations")
        return ScramAccount(found, Authenticated(Principal("User", name)))

    def token(self, mechanism: str, token_id: str) -> ScramAccount:
        """The account of a delegation token, computed for each login, also when the token is unknown."""
        image = self._image()
        if self._secret is None:
            return ScramAccount(self._nobody(image, mechanism, token_id), None, "delegation tokens are off")
        password = base64.b64encode(token_hmac(self._secret, token_id)).decode()
        salt = _kafka_salt(self._draw(b"token", mechanism, token_id, self._seed))
        credential = scram_credential(mechanism, password, salt)
        token = image.tokens.get(token_id)
        if token is None:
            return ScramAccount(credential, None, "unknown delegation token")
        if is_expired(token, int(self._wall() * 1000)):
            return ScramAccount(credential, None, "an expired delegation token")
        return ScramAccount(credential, _owner(token))

    def _image(self) -> MetadataImage:
        if not self._metadata.has_reached_high_watermark:
            raise NotReadyError("this node does not know yet what the quorum has committed")
        return self._metadata.published

    def _nobody(self, image: MetadataImage, mechanism: str, name: str) -> ScramCredential:
        """The made-up credential of an unknown user."""
        looks, seed = self._looks(image)
        look, size = looks.get(mechanism, USUAL), hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        drawn = self._draw(b"user", mechanism, name, seed)
        salt = _kafka_salt(drawn) if look.salt_bytes == 0 else hashlib.shake_256(drawn).digest(look.salt_bytes)
        return ScramCredential(salt, bytes(size), bytes(size), look.iterations)

    def _draw(self, kind: bytes, mechanism: str, name: str, seed: bytes) -> bytes:
        return hmac.digest(seed, b"\0".join((kind, mechanism.encode(), name.encode())), "sha512")

    def _looks(self, image: MetadataImage) -> tuple[Mapping[str, _Look], bytes]:
        """The form of most credentials of each mechanism, and the seed of made-up credentials. Computed again only when
        a credential has changed."""
        seen = self._seen
        if seen is None or seen[0] is not image.scram:
            by_mechanism: dict[str, Counter[_Look]] = {name: Counter() for name in _CODES}
            names = {code: name for name, code in _CODES.items()}
            for key, credential in image.scram.items():
                if key.mechanism in names:
                    by_mechanism[names[key.mechanism]][_look(credential)] += 1
            looks = {name: _most(counter) for name, counter in by_mechanism.items() if counter}
            self._seen = seen = (image.scram, looks, self._seed_of(image))
        return seen[1], seen[2]

    def _seed_of(self, image: MetadataImage) -> bytes:
        """A secret that all controllers share: from the settings, otherwise from the credential that is first in
        order."""
        if self._is_seeded or not image.scram:
            return self._seed
        first = image.scram[min(image.scram, key=lambda key: (key.user, key.mechanism))]
        return hmac.digest(self._seed, first.stored_key + first.server_key, "sha256")


def _owner(token: DelegationTokenRecord) -> Authenticated:
    name = token.owner.removeprefix(USER_PREFIX)
    until = min(token.expiration_timestamp, token.max_timestamp)
    return Authenticated(Principal("User", name, token_authenticated=True), until)


def _look(credential: ScramCredential) -> _Look:
    is_kafkas = 20 <= len(credential.salt) <= 26 and all(byte in _DIGITS for byte in credential.salt)
    return _Look(0 if is_kafkas else len(credential.salt), credential.iterations)


def _most(counter: Counter[_Look]) -> _Look:
    return max(counter, key=lambda look: (counter[look], look.salt_bytes, look.iterations))


def _kafka_salt(drawn: bytes) -> bytes:
    number = int.from_bytes(drawn, "big") >> (len(drawn) * 8 - KAFKA_SALT_BITS)
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits)) or b"0"
