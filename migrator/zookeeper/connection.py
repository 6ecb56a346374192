"""kazoo's client with two changes: it is connected only after its login, and a failed login is a lost connection with a
reason.

kazoo itself reports CONNECTED before the SASL exchange, and stops permanently when the exchange fails, even when only
the server went away. Here requests wait in kazoo's queue until the exchange is over, at every reconnect and every new
session, so none is sent without an identity.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped, SystemZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, ReplyHeader
from kazoo.protocol.states import KeeperState

from migrator.errors import OperatorError
from migrator.zookeeper.login_errors import LoginRefusedError
from migrator.zookeeper.logins import JaasEntry, ZooKeeperLogin
from migrator.zookeeper.tls import TlsOptions, connect

SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
ROUNDS_MAX = 10
"""The most tokens in a login. GSSAPI needs four."""
ATTEMPTS = (
    "Connection dropped",
    "Connection time-out",
    "Transition to CONNECTING",
    "Session has expired",
    "Failed connecting",
    "Cannot resolve",
)
"""The start of the warnings that kazoo logs at each attempt to connect: about 65 a minute while ZooKeeper is
unreachable. They are not logged: the code that waits for the connection reports better (`ZooKeeperSession.start`,
`migrator.node.migration.away`)."""


def _quiet() -> logging.Logger:
    """kazoo's logger without the warnings of `ATTEMPTS`, in every process."""
    found = logging.getLogger("kazoo.client")
    if _is_no_attempt not in found.filters:
        found.addFilter(_is_no_attempt)
    return found


def _is_no_attempt(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING or not record.getMessage().startswith(ATTEMPTS)


class LoginDroppedError(ConnectionDropped):  # type: ignore[misc] # kazoo has no types
    """The connection was closed because one side did not accept the other's login."""


class ZooKeeperHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads; connections over TLS are made by `tls.connect`."""

    def __init__(self, tls: TlsOptions | None) -> None:
        super().__init__()
        self._tls = tls
        self._name = ""

    def create_connection(self, address: tuple[str, int], hostname: Any = None, **options: Any) -> Any:
        """Connect to a server. When kazoo sends a four letter word, it passes the port as ``hostname``."""
        if self._tls is None:
            return super().create_connection(address, hostname=hostname, **options)
        if isinstance(hostname, str):
            self._name = hostname
        return connect(self._tls, self._name or address[0], address, options.get("timeout"))


class Client(KazooClient):  # type: ignore[misc]
    """One client.

    ``trouble``: why there is no connection; "" while there is one or the reason is unknown. ``refusals``: for each
    server why the last login failed, on either side. The client tries again, but waiting alone does not help. One
    server of an ensemble may be set up wrongly while the others are not.
    """

    def __init__(self, *, tls: TlsOptions | None, jaas: JaasEntry | None, **options: Any) -> None:
        self.trouble = ""
        self.refusals: dict[str, str] = {}
        super().__init__(handler=ZooKeeperHandler(tls), use_ssl=tls is not None, logger=_quiet(), **options)
        sasl = {"mechanism": "by the JAAS file"} if jaas else None
        self._connection = ZooKeeperConnection(
            self, self._conn_retry.copy(), tls, jaas, logger=self.logger, sasl_options=sasl
        )

    @property
    def refused_by_all(self) -> bool:
        """Whether the last login has failed at every server."""
        return len(self.refusals) >= len(set(self.hosts))

    def _session_callback(self, state: str) -> None:
        if state in {KeeperState.CONNECTED, KeeperState.CONNECTED_RO} and self._connection.entering:
            return
        super()._session_callback(state)


class ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """The connection of a `Client`, on a separate thread."""

    def __init__(
        self, client: Client, retry: Any, tls: TlsOptions | None, jaas: JaasEntry | None, **options: Any
    ) -> None:
        super().__init__(client, retry, **options)
        self._tls = tls
        self._jaas = jaas
        self.entering = False
        """Whether the connection is being made, including its login."""

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self.entering = True
        try:
            timeouts: tuple[float, float] = super()._connect(host, hostip, port)
        except (ConnectionDropped, self.handler.timeout_exception) as error:
            self.client.trouble = f"{host}:{port}: {error}{self._tls.expiry() if self._tls else ''}"
            self.client.refusals.pop(f"{host}:{port}", None)
            if isinstance(error, LoginDroppedError):
                self.client.refusals[f"{host}:{port}"] = str(error)
            raise
        finally:
            self.entering = False
        self.client.trouble, self.client.refusals = "", {}
        self.client._session_callback(KeeperState.CONNECTED)  # noqa: SLF001 - held back until now
        return timeouts

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        if not found:
            self.client.trouble = f"{', '.join(host for host, _ in self.client.hosts)}: the name is not known"
        return found

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in, before any other request is sent.

        :raises ConnectionDropped: the login failed.
        """
        who = ""
        try:
            login = self._login()
            who = f"as {login.who} "
            self._exchange(login, host, timeout)
        except LoginRefusedError as error:
            raise LoginDroppedError(f"the SASL login {who}failed: {error}") from error
        except ConnectionDropped as error:
            raise ConnectionDropped(
                f"the connection ended in the middle of the SASL login {who}({error}); some servers refuse a wrong "
                "password so"
            ) from error

    def _login(self) -> ZooKeeperLogin:
        if self._jaas is None:
            raise LoginRefusedError("there is no JAAS file")
        try:
            return self._jaas.read()
        except OperatorError as error:
            raise LoginRefusedError(str(error)) from error

    def _exchange(self, login: ZooKeeperLogin, host: str, timeout: float) -> None:
        exchange = login.exchange(host)
        token: bytes | None = exchange.first()
        for xid in range(1, ROUNDS_MAX + 1):
            self._submit(SASL(token), timeout, xid)
            header, body, offset = self._read_header(timeout)
            if header.err:
                raise LoginRefusedError("the server refused it: unknown name, wrong password, or no right to log in")
            if header.xid != xid:
                raise ConnectionDropped("the server answered something else")
            challenge, _ = SASL.deserialize(body, offset)
            token = exchange.respond(challenge)
            if token is None:
                return
        raise LoginRefusedError(f"the login was not finished after {ROUNDS_MAX} tokens")

    def _read_response(self, header: ReplyHeader, buffer: bytes, offset: int) -> Any:
        """Read a response. An error code that kazoo does not know would end its thread without an answer to the
        request, so it is handled here."""
        if header.err == SESSION_CLOSED_REQUIRE_SASL_AUTH:
            self.client.trouble = "the server serves only clients that have logged in with SASL"
            header = header._replace(err=AuthFailedError.code)
        elif header.err and header.err not in EXCEPTIONS:
            self.logger.warning("ZooKeeper answered with error %d, which this program does not know", header.err)
            header = header._replace(err=SystemZookeeperError.code)
        return super()._read_response(header, buffer, offset)
