"""Passwords in broker and topic configs, encrypted under ``password.encoder.secret``.

The text form is a comma list of ``name:value`` with every parameter, so decoding needs only the secret. Messages quote
neither secret nor password. Source: ``org.apache.kafka.security.EncryptingPasswordEncoder`` (KIP-226).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.decrepit.ciphers.modes import CFB, OFB
from cryptography.hazmat.primitives.ciphers import BlockCipherAlgorithm, Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, CTR, ModeWithInitializationVector, ModeWithNonce
from cryptography.hazmat.primitives.padding import PKCS7

from migrator.records.java_base64 import decode_base64
from migrator.values import value
from migrator.zookeeper.znodes.errors import ZnodeError

PASSWORD_CONFIGS = (
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
)
"""Keys that end with one of these hold passwords (``DynamicBrokerConfig.isPasswordConfig``)."""

_SALT_BYTES = 256
_GCM_NONCE_BYTES = 12
_GCM_TAG_BITS = 128
_MAX_ITERATIONS = 10_000_000
_KEY_FACTORY = re.compile(r"PBKDF2WithHmacSHA(1|224|256|384|512)")
_CIPHER = re.compile(r"(AES|DES|DESede)/(CBC|CFB|OFB|CTR|GCM)/(PKCS5Padding|NoPadding)")
_KEY_BITS = {"AES": (128, 192, 256), "DES": (64,), "DESede": (128, 192)}
_MODES: Mapping[str, Callable[[bytes], ModeWithInitializationVector | ModeWithNonce]] = {
    "CBC": CBC,
    "CFB": CFB,
    "OFB": OFB,
    "CTR": CTR,
}
_SECRET_REMEDY = "Set password.encoder.secret (and its algorithms) as on the brokers"  # noqa: S105
_VALUE_REMEDY = "Check password.encoder.secret, or set the config again with kafka-configs"


def is_password_config(key: str) -> bool:
    """Whether brokers encrypt the values of this key in ZooKeeper."""
    return key.endswith(PASSWORD_CONFIGS)


def looks_encrypted(text: str) -> bool:
    """Whether an encoder has encrypted the value. Stock controllers without a secret copy such values unchanged."""
    return "encryptedPassword:" in text


@value
class _Parameters:
    """The parameters of one encrypted value. ``iv`` is the nonce in GCM."""

    key_factory: str
    cipher: str
    key_bits: int
    salt: bytes
    iterations: int
    iv: bytes = b""
    tag_bits: int = _GCM_TAG_BITS


class PasswordEncoder:
    """Encrypts with the configured parameters, decrypts with those of the value.

    :param secret: None when the controller has no ``password.encoder.secret``.
    :param random_bytes: returns that many secret random bytes, as ``os.urandom`` does.
    :raises ZnodeError: the configured algorithms are unknown.
    """

    def __init__(
        self,
        secret: str | None,
        random_bytes: Callable[[int], bytes],
        *,
        key_factory: str | None = None,
        cipher: str = "AES/CBC/PKCS5Padding",
        key_bits: int = 128,
        iterations: int = 4096,
    ) -> None:
        self._secret = None if secret is None else secret.encode("utf-8")
        self._random_bytes = random_bytes
        self._key_factory = key_factory or "PBKDF2WithHmacSHA512"
        self._cipher = cipher
        self._key_bits = key_bits
        self._iterations = iterations
        if secret is not None:
            fault = _unsupported(_Parameters(self._key_factory, cipher, key_bits, b"", iterations))
            if fault:
                raise ZnodeError("password.encoder", fault, "Use AES/CBC/PKCS5Padding with 128 bits")

    @property
    def has_secret(self) -> bool:
        """Whether values can be encrypted at all."""
        return self._secret is not None

    def decode(self, path: str, key: str, text: str) -> str:
        """The password.

        :param path: the znode, for messages; ``key`` likewise.
        :raises ZnodeError: there is no secret, or the value does not decrypt to a password of the length in it.
        """
        if self._secret is None:
            raise ZnodeError(path, f"config {key!r} is encrypted and there is no secret to decrypt it", _SECRET_REMEDY)
        try:
            parameters, encrypted, length = _parse(text)
        except (LookupError, ValueError):
            raise ZnodeError(path, f"config {key!r} is not an encrypted value", _VALUE_REMEDY) from None
        fault = _unsupported(parameters)
        if fault:
            raise ZnodeError(path, f"config {key!r}: {fault}", _VALUE_REMEDY)
        try:
            password = _decrypt(self._key(self._secret, parameters), parameters, encrypted).decode("utf-8")
        except (ValueError, InvalidTag):
            raise ZnodeError(path, f"config {key!r} does not decrypt", _VALUE_REMEDY) from None
        if _java_length(password) != length:
            raise ZnodeError(path, f"config {key!r} does not decrypt to a password of its length", _VALUE_REMEDY)
        return password

    def encode(self, password: str) -> str:
        """The text form with a new salt.

        :raises ZnodeError: there is no secret.
        """
        if self._secret is None:
            raise ZnodeError("password.encoder.secret", "there is no secret to encrypt passwords with", _SECRET_REMEDY)
        algorithm, mode, _ = self._cipher.split("/")
        iv_bytes = _GCM_NONCE_BYTES if mode == "GCM" else 16 if algorithm == "AES" else 8
        parameters = _Parameters(
            key_factory=self._key_factory,
            cipher=self._cipher,
            key_bits=self._key_bits,
            salt=self._random_bytes(_SALT_BYTES),
            iterations=self._iterations,
            iv=self._random_bytes(iv_bytes),
        )
        encrypted = _encrypt(self._key(self._secret, parameters), parameters, password.encode("utf-8"))
        fields = {
            "keyFactoryAlgorithm": parameters.key_factory,
            "cipherAlgorithm": parameters.cipher,
            "keyLength": str(parameters.key_bits),
            "salt": _base64(parameters.salt),
            "iterations": str(parameters.iterations),
            "encryptedPassword": _base64(encrypted),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _base64(parameters.iv),
        }
        if mode == "GCM":
            fields["authenticationTagLength"] = str(parameters.tag_bits)
        return ",".join(f"{name}:{content}" for name, content in fields.items())

    def _key(self, secret: bytes, parameters: _Parameters) -> bytes:
        digest = "sha" + parameters.key_factory.removeprefix("PBKDF2WithHmacSHA")
        return hashlib.pbkdf2_hmac(
            digest, secret, parameters.salt, parameters.iterations, dklen=parameters.key_bits // 8
        )


def _parse(text: str) -> tuple[_Parameters, bytes, int]:
    """Parameters, encrypted password and its length; LookupError or ValueError when something is missing or wrong."""
    fields = {name.strip(): content.strip() for name, _, content in (part.partition(":") for part in text.split(","))}
    parameters = _Parameters(
        key_factory=fields.get("keyFactoryAlgorithm", "PBKDF2WithHmacSHA512"),
        cipher=fields["cipherAlgorithm"],
        key_bits=_number(fields["keyLength"]),
        salt=decode_base64(fields["salt"]),
        iterations=_number(fields["iterations"]),
        iv=decode_base64(fields["initializationVector"]),
        tag_bits=_number(fields.get("authenticationTagLength", str(_GCM_TAG_BITS))),
    )
    return parameters, decode_base64(fields["encryptedPassword"]), _number(fields["passwordLength"])


def _unsupported(parameters: _Parameters) -> str:
    """The parameter that this encoder does not support, or "". The bound of iterations keeps a hostile value from
    taking hours."""
    if not _KEY_FACTORY.fullmatch(parameters.key_factory):
        return "its key factory algorithm is unknown"
    match = _CIPHER.fullmatch(parameters.cipher)
    if match is None or (match[1] != "AES" and match[2] in {"CTR", "GCM"}):
        return "its cipher algorithm is unknown"
    if (match[2], match[3]) in {("CTR", "PKCS5Padding"), ("GCM", "PKCS5Padding"), ("CBC", "NoPadding")}:
        return "its cipher algorithm and its padding do not go together"
    if parameters.key_bits not in _KEY_BITS[match[1]]:
        return f"its key length of {parameters.key_bits} bits does not fit its cipher"
    if not 0 < parameters.iterations <= _MAX_ITERATIONS:
        return "its iteration count is out of range"
    return "" if parameters.tag_bits == _GCM_TAG_BITS else "its authentication tag is not of 128 bits"


def _encrypt(key: bytes, parameters: _Parameters, plain: bytes) -> bytes:
    algorithm, mode, padding = parameters.cipher.split("/")
    if mode == "GCM":
        return AESGCM(key).encrypt(parameters.iv, plain, None)
    block = _algorithm(algorithm, key)
    if padding == "PKCS5Padding":
        padder = PKCS7(block.block_size).padder()
        plain = padder.update(plain) + padder.finalize()
    encryptor = Cipher(block, _MODES[mode](parameters.iv)).encryptor()
    return encryptor.update(plain) + encryptor.finalize()


def _decrypt(key: bytes, parameters: _Parameters, encrypted: bytes) -> bytes:
    """Decrypt a password. ValueError or InvalidTag for a wrong key or damaged data."""
    algorithm, mode, padding = parameters.cipher.split("/")
    if mode == "GCM":
        return AESGCM(key).decrypt(parameters.iv, encrypted, None)
    block = _algorithm(algorithm, key)
    decryptor = Cipher(block, _MODES[mode](parameters.iv)).decryptor()
    plain = decryptor.update(encrypted) + decryptor.finalize()
    if padding == "PKCS5Padding":
        unpadder = PKCS7(block.block_size).unpadder()
        plain = unpadder.update(plain) + unpadder.finalize()
    return plain


def _algorithm(name: str, key: bytes) -> BlockCipherAlgorithm:
    """The cipher by its name. DES is Triple DES with the same key three times; two-key Triple DES repeats the first
    key."""
    if name == "AES":
        return AES(key)
    return TripleDES(key * 3 if name == "DES" else key + key[:8] if len(key) == 16 else key)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("not a number")
    return int(text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _java_length(text: str) -> int:
    """The length of a text in Java, which counts UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2
