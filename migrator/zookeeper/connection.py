"""kazoo's client with what it lacks: it is connected only once it has logged in, and a login that fails is a lost
connection with a reason, not the end of the client.

kazoo reports CONNECTED before the SASL exchange, and stops for good when that exchange fails, also where a server only
went away in its middle. Requests wait in its queue until the exchange is over, so none goes out without an identity;
that holds for every reconnect and every new session.
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
"""Tokens that a login may take; GSSAPI takes four."""
ATTEMPTS = (
    "Connection dropped",
    "Connection time-out",
    "Transition to CONNECTING",
    "Session has expired",
    "Failed connecting",
    "Cannot resolve",
)
"""kazoo warns so of each attempt to connect, about 65 times a minute while ZooKeeper is away. Whoever waits for the
connection says it better (`ZooKeeperSession.start`, `migrator.node.migration.away`)."""


def _quiet() -> logging.Logger:
    """kazoo's log, in every process, without the attempts to connect."""
    found = logging.getLogger("kazoo.client")
    if _is_no_attempt not in found.filters:
        found.addFilter(_is_no_attempt)
    return found


def _is_no_attempt(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING or not record.getMessage().startswith(ATTEMPTS)


class LoginDroppedError(ConnectionDropped):  # type: ignore[misc] # kazoo has no types
    """The connection was given up, because one side did not accept the other's login."""


class ZooKeeperHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads; connections over TLS are made by `tls.connect`."""

    def __init__(self, tls: TlsOptions | None) -> None:
        super().__init__()
        self._tls = tls
        self._name = ""

    def create_connection(self, address: tuple[str, int], hostname: Any = None, **options: Any) -> Any:
        """Connect to a server. For its four letter words kazoo gives the port as the name."""
        if self._tls is None:
            return super().create_connection(address, hostname=hostname, **options)
        if isinstance(hostname, str):
            self._name = hostname
        return connect(self._tls, self._name or address[0], address, options.get("timeout"))


class Client(KazooClient):  # type: ignore[misc]
    """One client.

    ``trouble`` says why there is no connection, "" while there is one or nothing is known. ``refusals``: by server, why
    it or we did not accept the other's login when that was last tried; it is tried again, but waiting alone will not
    help. A server of an ensemble may be set up wrongly while the others are not.
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
        """Whether no server is left that could accept us."""
        return len(self.refusals) >= len(set(self.hosts))

    def _session_callback(self, state: str) -> None:
        if state in {KeeperState.CONNECTED, KeeperState.CONNECTED_RO} and self._connection.entering:
            return
        super()._session_callback(state)


class ZooKeeperConnection(ConnectionHandler):  # type: ignore[misc]
    """The connection of a `Client`, on a thread of its own."""

    def __init__(
        self, client: Client, retry: Any, tls: TlsOptions | None, jaas: JaasEntry | None, **options: Any
    ) -> None:
        super().__init__(client, retry, **options)
        self._tls = tls
        self._jaas = jaas
        self.entering = False
        """The way in, login included, is not over yet."""

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
            self.client.trouble = f"{', '.join(host for host, _ in self.client.hosts)}: nobody knows this name"
        return found

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in, before anything else is sent.

        :raises ConnectionDropped: it did not succeed.
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
        """Errors that kazoo does not know would end its thread, and the request would never be answered."""
        if header.err == SESSION_CLOSED_REQUIRE_SASL_AUTH:
            self.client.trouble = "the server serves only clients that have logged in with SASL"
            header = header._replace(err=AuthFailedError.code)
        elif header.err and header.err not in EXCEPTIONS:
            self.logger.warning("ZooKeeper answered with error %d, which this program does not know", header.err)
            header = header._replace(err=SystemZookeeperError.code)
        return super()._read_response(header, buffer, offset)
