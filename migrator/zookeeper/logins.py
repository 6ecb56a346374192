"""SASL logins to ZooKeeper, from a JAAS file.

``DigestLoginModule`` means DIGEST-MD5, ``Krb5LoginModule`` GSSAPI (Kerberos), which needs the package ``gssapi``. The
file is read again at each connect, so that a new password needs no restart.

DIGEST-MD5 is RFC 2831 as ZooKeeper's servers speak it: one fixed realm and ``digest-uri`` (``SecurityUtils``,
``SaslServerFactory``), only ``qop`` ``auth``, and an answer with ``rspauth``, which proves that the server knows the
password, too.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import os
import pwd
import re
import secrets
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Protocol

from migrator.config.jaas import JaasSyntaxError, LoginModule, parse_sections
from migrator.config.properties import read_text
from migrator.config.types import Secret
from migrator.errors import OperatorError
from migrator.values import value
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


SERVICE = "zookeeper"
"""ZooKeeper's name as a service (the default of ``zookeeper.sasl.client.username``)."""
DIGEST_MODULE = "DigestLoginModule"
KERBEROS_MODULE = "Krb5LoginModule"


class Exchange(Protocol):
    """The exchange of tokens in one login; raises `LoginRefusedError`."""

    def first(self) -> bytes: ...
    def respond(self, challenge: bytes | None) -> bytes | None: ...


class ZooKeeperLogin(Protocol):
    """A way to log in. ``name``: the identity in access control lists; ``who``: the same with the mechanism, for
    messages."""

    @property
    def name(self) -> str: ...
    @property
    def who(self) -> str: ...
    def exchange(self, host: str) -> Exchange: ...


@value
class DigestLogin:
    """DIGEST-MD5 with a name and a password."""

    user: str
    password: Secret = field(repr=False)

    @property
    def name(self) -> str:
        """The user that logs in (see `ZooKeeperLogin`)."""
        return self.user

    @property
    def who(self) -> str:
        """The name of the identity for messages."""
        return f"{self.user} (DIGEST-MD5)"

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002 - the mechanism's host is a constant
        """A DIGEST-MD5 login for one connection (see `ZooKeeperLogin`)."""
        return DigestMd5(self.user, self.password.reveal(), secrets.token_urlsafe(32), f"{SERVICE}/{HOST}")


@value
class KerberosLogin:
    """GSSAPI. With ``principal`` and ``key_tab`` None it uses the process's ticket cache."""

    principal: str | None
    key_tab: str | None

    @property
    def name(self) -> str:
        """The principal that logs in (see `ZooKeeperLogin`)."""
        return self.principal or "the owner of the ticket cache"

    @property
    def who(self) -> str:
        """The name of the identity for messages."""
        return f"{self.name} (GSSAPI)"

    def exchange(self, host: str) -> Exchange:
        """A GSSAPI login for one connection to that host (see `ZooKeeperLogin`)."""
        from migrator.zookeeper.kerberos import Gssapi  # noqa: PLC0415 - the package is optional

        return Gssapi(self.principal, self.key_tab, SERVICE, host)


@value
class JaasEntry:
    """The section of a JAAS file with this client's login."""

    file: str
    section: str = "Client"

    def read(self) -> ZooKeeperLogin:
        """The login that the file has now.

        :raises OperatorError: the file cannot be read, or has no login that this program supports.
        """
        return _login(_module(self), self)


def _module(entry: JaasEntry) -> LoginModule:
    try:
        text = read_text(Path(entry.file))
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"the JAAS file cannot be read: {getattr(error, 'strerror', None) or 'the file is not UTF-8'}",
            where=entry.file,
            remedy="Correct migrator.zookeeper.jaas.file, and let this process read the file",
        ) from error
    try:
        sections = parse_jaas(text)
    except JaasSyntaxError as error:
        raise OperatorError(
            f"the file is not a JAAS file: {error}",
            where=entry.file,
            remedy='Write Section { module required key="value"; }; as Java reads it',
        ) from error
    modules = sections.get(entry.section)
    if not modules:
        raise OperatorError(
            f"the JAAS file has no login module in a section {entry.section}",
            where=entry.file,
            remedy=f"It has {', '.join(sections) or 'no section'}. Add the section, or name the right one in "
            "migrator.zookeeper.jaas.section",
        )
    return modules[0]


def _login(module: LoginModule, entry: JaasEntry) -> ZooKeeperLogin:
    where, kind = f"{entry.file}: {entry.section}", module.name.rpartition(".")[2]
    if kind == DIGEST_MODULE:
        return DigestLogin(_option(module, "username", where), Secret(_option(module, "password", where)))
    if kind != KERBEROS_MODULE:
        raise OperatorError(
            f"the login module {module.name} is a Java class, which cannot run here",
            where=where,
            remedy=f"ZooKeeper knows {DIGEST_MODULE} (a name and a password) and {KERBEROS_MODULE}; use one of them",
        )
    if importlib.util.find_spec("gssapi") is None:
        raise OperatorError(
            "Kerberos needs the Python package gssapi, which is not installed",
            where=where,
            remedy="Install it beside this program (it needs the system's MIT Kerberos library), or use DIGEST-MD5 or "
            "TLS client certificates towards ZooKeeper",
        )
    wants_key_tab = module.options.get("useKeyTab", "").lower() == "true"
    key_tab = _option(module, "keyTab", where) if wants_key_tab else None
    return KerberosLogin(module.options.get("principal"), key_tab)


def _option(module: LoginModule, name: str, where: str) -> str:
    text = module.options.get(name)
    if not text:
        raise OperatorError(f"the option {name} is missing", where=where, remedy=f'Write {name}="..." in the JAAS file')
    return text


def parse_jaas(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a file by name. System properties have the values that Java would have in this process.

    :raises JaasSyntaxError: the text is malformed, or names a property that only a Java machine has.
    """
    return parse_sections(text, _system_properties())


def _system_properties() -> dict[str, str]:
    found = {"/": os.sep, "file.separator": os.sep, "path.separator": os.pathsep, "line.separator": os.linesep}
    found |= {"user.dir": str(Path.cwd()), "java.io.tmpdir": "/tmp"}  # noqa: S108 (Java's default)
    with suppress(KeyError):  # a user without an entry has no home in Java, either
        own = pwd.getpwuid(os.getuid())
        found |= {"user.home": own.pw_dir, "user.name": own.pw_name}
    return found
