"""The client's side of SASL GSSAPI (RFC 4752) with the package ``gssapi``, which is not installed by default.

`logins` makes a `Gssapi` for each connection. It offers no security layer, as ZooKeeper's own client.
"""

from __future__ import annotations

import gssapi  # type: ignore[import-not-found]

from migrator.zookeeper.login_errors import LoginRefusedError

_NO_LAYER = 1
"""The bit of the offered security layers that means none: ZooKeeper's messages are not wrapped."""
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])


class Gssapi:
    """One login.

    :param principal: this client's; None for the owner of the ticket cache.
    :param key_tab: the file with its key; None to use the ticket cache.
    """

    def __init__(self, principal: str | None, key_tab: str | None, service: str, host: str) -> None:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        try:
            credentials = gssapi.Credentials(
                name=name, usage="initiate", store={"client_keytab": key_tab} if key_tab else None
            )
            server = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(name=server, creds=credentials, usage="initiate")
        except gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"Kerberos gives no ticket: {error}") from error
        self._chosen = False

    def first(self) -> bytes:
        """The first token of the security context."""
        return self._step(None)

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The client's next token: those of the context, then the choice of no security layer (see `Exchange`)."""
        if self._chosen:
            return None
        if not self._context.complete:
            return self._step(challenge or b"")
        try:
            offered = self._context.unwrap(challenge or b"").message
            if len(offered) != len(_CHOICE) or not offered[0] & _NO_LAYER:
                raise LoginRefusedError("the server demands integrity or encryption of SASL (a qop other than auth)")
            self._chosen = True
            return bytes(self._context.wrap(_CHOICE, encrypt=False).message)
        except gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"Kerberos: {error}") from error

    def _step(self, token: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(token) or b"")
        except gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"Kerberos: {error}") from error
