"""The client's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's servers speak it. Without I/O.

ZooKeeper uses one fixed realm and ``digest-uri`` (``SecurityUtils``, ``SaslServerFactory``), offers only ``qop``
``auth``, and answers with ``rspauth``, which proves that the server knows the password, too.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from migrator.zookeeper.login_errors import LoginRefusedError

HOST = "zk-sasl-md5"
"""The server's name in the ``digest-uri``. All servers use this name."""

_DIRECTIVE = re.compile(rb'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,"\s]*))\s*(?:,|$)')
_NC = b"00000001"
_QOP = b"auth"
_CHALLENGE_BYTES_MAX = 2048


class DigestMd5:
    """One login.

    :param nonce: the client's nonce: unpredictable, never used twice, ASCII text without quotes.
    :param uri: the ``digest-uri``: service and host.
    """

    def __init__(self, user: str, password: str, nonce: str, uri: str) -> None:
        self._user = user
        self._password = password
        self._cnonce = nonce.encode("ascii")
        self._uri = uri.encode()
        self._rspauth: bytes | None = None

    def first(self) -> bytes:
        """The first token: empty, because the server begins."""
        return b""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The answer to the server's token; None when both sides are authenticated.

        :raises LoginRefusedError: the token is not a challenge that this client can answer, or the server does not know
            the password.
        """
        directives = parse(challenge or b"")
        if self._rspauth is not None:
            if not hmac.compare_digest(directives.get("rspauth", b""), self._rspauth):
                raise LoginRefusedError("the server did not prove that it knows our password")
            return None
        nonce = directives.get("nonce")
        if not nonce or directives.get("algorithm") != b"md5-sess":
            raise LoginRefusedError("the server does not offer DIGEST-MD5: no section Server in its own JAAS file?")
        if _QOP not in [offered.strip() for offered in directives.get("qop", _QOP).split(b",")]:
            raise LoginRefusedError("the server demands integrity or encryption of SASL (a qop other than auth)")
        utf8 = directives.get("charset", b"").lower() == b"utf-8"
        return self._response(nonce, directives.get("realm", b""), utf8=utf8)

    def _response(self, nonce: bytes, realm: bytes, *, utf8: bool) -> bytes:
        secret = b":".join((_bytes(self._user, utf8=utf8), realm, _bytes(self._password, utf8=utf8)))
        key = _md5(b":".join((_md5(secret).digest(), nonce, self._cnonce))).hexdigest().encode()

        def proof(a2: bytes) -> bytes:
            parts = (key, nonce, _NC, self._cnonce, _QOP, _md5(a2).hexdigest().encode())
            return _md5(b":".join(parts)).hexdigest().encode()

        self._rspauth = proof(b":" + self._uri)
        user = self._user.encode("utf-8" if utf8 else "latin-1", "replace")
        directives = [
            *([b"charset=utf-8"] if utf8 else []),
            b"username=" + _quoted(user),
            b"realm=" + _quoted(realm),
            b"nonce=" + _quoted(nonce),
            b"nc=" + _NC,
            b"cnonce=" + _quoted(self._cnonce),
            b"digest-uri=" + _quoted(self._uri),
            b"response=" + proof(b"AUTHENTICATE:" + self._uri),
            b"qop=" + _QOP,
        ]
        return b",".join(directives)


def parse(challenge: bytes) -> dict[str, bytes]:
    """The directives of a token by their name in lower case. A repeated one counts once.

    :raises LoginRefusedError: the token is not a list of directives, or is longer than the RFC allows.
    """
    found: dict[str, bytes] = {}
    position = 0
    while position < len(challenge):
        match = _DIRECTIVE.match(challenge, position) if len(challenge) <= _CHALLENGE_BYTES_MAX else None
        if match is None:
            raise LoginRefusedError("the server's token is not a challenge of DIGEST-MD5")
        name, quoted, plain = match.groups()
        text = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(name.decode("ascii").lower(), text)
        position = match.end()
    return found


def _bytes(text: str, *, utf8: bool) -> bytes:
    """The bytes to hash: in ISO 8859-1 if the text allows that, otherwise in UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8") if utf8 else text.encode("latin-1", "replace")


def _quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)  # the mechanism prescribes MD5
