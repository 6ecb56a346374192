"""The four messages of SCRAM (RFC 5802), read and written.

They accept what Kafka accepts (``ScramMessages``): names and nonces of ASCII. Stricter than Kafka, they refuse a
mandatory extension (``m=``) and a repeated attribute, and bound lengths.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from migrator.values import value
from migrator.wire.sasl.exchange import AuthenticationError

MAX_MESSAGE_BYTES = 8192
"""A bound far above real messages: names, nonces and proofs take some hundred bytes."""
MAX_NONCE = 1024
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000
"""A bound for the client, so that a server cannot make it hash for ever."""
MAX_SALT = 1024

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[a-zA-Z0-9/+]*={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,7}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}")


@value
class ClientFirst:
    """``header``: the GS2 header, which the final message repeats; ``bare``: the rest."""

    header: str
    bare: str
    user: str
    authorization: str
    nonce: str
    extensions: Mapping[str, str]

    @property
    def is_token(self) -> bool:
        """Whether this is a login by delegation token: the user is its id, the password its HMAC."""
        return self.extensions.get("tokenauth", "").lower() == "true"


@value
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


@value
class ClientFinal:
    """``unproved`` is the message without its proof."""

    unproved: str
    binding: bytes
    nonce: str
    proof: bytes


def client_first(token: bytes) -> ClientFirst:
    """The client's first message.

    :raises AuthenticationError: malformed, with channel binding, or with a mandatory extension.
    """
    match = _match(_CLIENT_FIRST, token)
    if len(match["nonce"]) > MAX_NONCE:
        raise AuthenticationError("the nonce is too long")
    extensions: dict[str, str] = {}
    for part in filter(None, match["extensions"].split(",")):
        name, _, content = part.partition("=")
        if name in extensions or name in ("n", "r", "m"):
            raise AuthenticationError("a SCRAM attribute is there twice")
        extensions[name] = content
    return ClientFirst(
        match["header"],
        match["bare"],
        unescape(match["user"]),
        unescape(match["authorization"] or ""),
        match["nonce"],
        extensions,
    )


def server_first(token: bytes) -> ServerFirst:
    """The server's first message.

    :raises AuthenticationError: malformed, or with numbers out of bounds.
    """
    match = _match(_SERVER_FIRST, token)
    salt, iterations = unbase64(match["salt"]), int(match["iterations"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS or not 0 < len(salt) <= MAX_SALT:
        raise AuthenticationError("the salt or the number of iterations is out of bounds")
    return ServerFirst(match["nonce"], salt, iterations)


def client_final(token: bytes) -> ClientFinal:
    """The client's final message.

    :raises AuthenticationError: malformed.
    """
    match = _match(_CLIENT_FINAL, token)
    return ClientFinal(match["unproved"], unbase64(match["binding"]), match["nonce"], unbase64(match["proof"]))


def server_final(token: bytes) -> bytes:
    """The signature in the server's final message.

    :raises AuthenticationError: malformed, or the server's own error.
    """
    return unbase64(_match(_SERVER_FINAL, token)["signature"])


def escape(name: str) -> str:
    """A name, escaped for a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """The counterpart of `escape`, for names that the patterns above accept."""
    return name.replace("=2C", ",").replace("=3D", "=")


def base64_text(raw: bytes) -> str:
    """Base 64 with padding."""
    return base64.b64encode(raw).decode("ascii")


def unbase64(text: str) -> bytes:
    """The counterpart of `base64_text`.

    :raises AuthenticationError: malformed.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # `binascii.Error` among them
        raise AuthenticationError("malformed base 64 in a SCRAM message") from error


def _match(pattern: re.Pattern[str], token: bytes) -> re.Match[str]:
    if len(token) > MAX_MESSAGE_BYTES:
        raise AuthenticationError("the SCRAM message is too long")
    try:
        match = pattern.fullmatch(token.decode("ascii"))
    except UnicodeDecodeError as error:
        raise AuthenticationError("the SCRAM message is not ASCII") from error
    if match is None:
        raise AuthenticationError("malformed SCRAM message")
    return match
