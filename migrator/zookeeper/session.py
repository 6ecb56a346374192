"""A ZooKeeper session: kazoo's client made from Kafka's settings, its states, and who may read what it creates."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol, Self

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from migrator.config.endpoints import parse_zookeeper_connect
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.values import value
from migrator.zookeeper.connection import Client
from migrator.zookeeper.identity import identity_of, jaas_entry, tls_options
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import FORBIDDEN_REMEDY
from migrator.zookeeper.tls import TlsOptions
from migrator.zookeeper.znodes import paths

log = logging.getLogger(__name__)

CONNECTION_ERRORS = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""What pending requests fail with when the connection goes. A write may have been applied all the same."""

RETRY_DELAY_MAX_SECONDS = 1.0
CLOSED_POLL_SECONDS = 0.1
SILENT_SECONDS = 3.0
"""Who waits longer for a connection is told so."""


@value
class SessionOptions:
    """How to connect; crosses process borders, so that a worker can have a session of its own.

    ``hosts`` carries the chroot, as ``zookeeper.connect`` does. Times are milliseconds. ``set_acl`` is
    ``zookeeper.set.acl``. ``tls`` None is plain text, ``jaas`` None no SASL.
    """

    hosts: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    in_flight: int = 10
    set_acl: bool = False
    tls: TlsOptions | None = None
    jaas: JaasEntry | None = None


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; the session may survive."""
    LOST = "lost"
    """The session is gone, and its ephemeral znodes with it. A new one follows by itself."""


_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

Listener = Callable[[SessionState], None]


class KazooRequest(Protocol):
    """What kazoo's connection sends and decodes."""

    type: int

    def serialize(self) -> bytes: ...
    def deserialize(self, reply: bytes, offset: int) -> Any: ...


class ZooKeeperUnavailableError(OperatorError):
    """No server answers."""

    REMEDY = "Check zookeeper.connect, check that the servers run, and that this machine reaches them"

    def __init__(self, hosts: str, what: str) -> None:
        super().__init__(what, where=hosts, remedy=self.REMEDY)

    def __reduce__(self) -> tuple[type[ZooKeeperUnavailableError], tuple[str, str]]:
        return type(self), (self.where, self.what)


class ZooKeeperLoginError(ZooKeeperUnavailableError):
    """A server answers, and does not accept who we are."""

    REMEDY = (
        "Check the name and the password in the JAAS file (migrator.zookeeper.jaas.file) against those of the brokers, "
        "and the section Server in the JAAS file of the ZooKeeper servers"
    )


def options_from(settings: Settings, hosts: str | None = None) -> SessionOptions:
    """The options of a controller.

    :param hosts: takes the place of ``zookeeper.connect``, which a controller no longer has at the end of a migration.
    :raises OperatorError: when neither is given, a key or trust store is not PEM, or a file cannot be used.
    """
    hosts = hosts or settings.zookeeper_connect
    if not hosts:
        raise OperatorError(
            "zookeeper.connect is not set", where=settings.source, remedy="Give the connection string of the brokers"
        )
    return SessionOptions(
        hosts=hosts,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms or settings.zookeeper_session_timeout_ms,
        in_flight=settings.zookeeper_max_in_flight_requests,
        set_acl=settings.zookeeper_set_acl,
        tls=tls_options(settings),
        jaas=jaas_entry(settings),
    )


class ZooKeeperSession:
    """One client. Reconnects by itself, with a new session when the old one expired, until it is closed."""

    def __init__(self, options: SessionOptions) -> None:
        """:raises OperatorError: nobody could connect to such hosts."""
        try:
            address = parse_zookeeper_connect(options.hosts)
        except ValueError as error:
            remedy = "Write zookeeper.connect of the brokers"
            raise OperatorError(str(error), where=options.hosts, remedy=remedy) from error
        self.options = options
        self.closed = threading.Event()
        """Set by `close`: there is no connection any more, and no new one comes."""
        self.client = Client(
            tls=options.tls,
            jaas=options.jaas,
            hosts=str(address),
            timeout=options.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RETRY_DELAY_MAX_SECONDS, max_jitter=0.4),
        )

    @property
    def chroot(self) -> str:
        """The chroot, or ""."""
        return str(self.client.chroot or "")

    @property
    def state(self) -> SessionState:
        """As last seen by the client."""
        return _STATES[self.client.state]

    @property
    def trouble(self) -> str:
        """Why there is no connection, as a sentence's end; "" while there is one, or nothing is known."""
        return self.client.trouble

    @property
    def identity(self) -> str:
        """Who we are in access control lists."""
        return identity_of(self.options.tls, self.options.jaas)

    def start(self) -> Self:
        """Connect and wait for it.

        :raises ZooKeeperLoginError: no server accepts our login; the session is closed then.
        :raises ZooKeeperUnavailableError: likewise after ``connection_timeout_ms``.
        """
        self.start_in_background()
        if not self._wait_and_say_so(self.options.connection_timeout_ms / 1000):
            error = self.away(f"no ZooKeeper server answered within {self.options.connection_timeout_ms} ms")
            self.close()
            raise error
        return self

    def _wait_and_say_so(self, seconds: float) -> bool:
        """As `wait_connected`; somebody who watches is told why nothing happens."""
        silent = min(seconds, SILENT_SECONDS)
        if self.wait_connected(silent, self._is_refused):
            return True
        left = seconds - silent
        if left <= 0 or self._is_refused():
            return False
        why = f" ({self.trouble})" if self.trouble else ""
        hosts = self.options.hosts
        log.warning("no ZooKeeper server of %s answers yet%s; this waits for up to %.0f s more", hosts, why, left)
        return self.wait_connected(left, self._is_refused)

    def _is_refused(self) -> bool:
        return self.client.refused_by_all

    def start_in_background(self) -> None:
        """Connect without waiting: listeners hear of it."""
        self.client.start_async()

    def wait_connected(self, seconds: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Whether the client got connected within that time; no longer than until the session is closed, or until
        ``give_up`` says so."""
        live = self.client._live  # noqa: SLF001 - kazoo hands it out only from start_async
        deadline = time.monotonic() + seconds
        while not self.closed.is_set():
            left = deadline - time.monotonic()
            if live.wait(min(max(left, 0.0), CLOSED_POLL_SECONDS)):
                return True
            if left <= 0 or give_up():
                return False
        return False

    def close(self) -> None:
        """End the session. Pending requests fail, and whoever waits for a connection waits no longer."""
        self.closed.set()
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError) as error:
            log.warning("The ZooKeeper session did not close cleanly: %s", error)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_listener(self, listener: Listener) -> None:
        """Hear of state changes. Called on kazoo's connection thread: it must not block."""

        def on_change(state: str) -> None:
            listener(_STATES[state])

        self.client.add_listener(on_change)

    def call(self, request: KazooRequest) -> IAsyncResult:
        """Send a request, after all that were sent before it. The result is set on kazoo's thread."""
        result = self.client.handler.async_result()
        self.client._call(request, result)  # noqa: SLF001 - the only way to an operation that kazoo lacks
        return result

    def sync(self) -> None:
        """Make the server that we are connected to catch up with the leader.

        :raises ZooKeeperUnavailableError: when it does not answer within the session time-out.
        """
        self.wait_for(self.client.sync_async("/"))

    def wait_for(self, result: IAsyncResult) -> Any:
        """The answer to a request, awaited no longer than the session time-out.

        :raises ZooKeeperUnavailableError: when none comes, or the connection goes.
        :raises kazoo.exceptions.KazooException: what the server answered.
        """
        try:
            return result.get(timeout=self.options.session_timeout_ms / 1000)
        except (*CONNECTION_ERRORS, self.client.handler.timeout_exception) as error:
            raise self.away(f"the connection to ZooKeeper was lost ({type(error).__name__})") from error
        except AuthFailedError as error:
            raise self.refusal(error, "") from error

    def away(self, what: str) -> ZooKeeperUnavailableError:
        """What to tell of a connection that is not there: ``what``, and why."""
        refusals = dict(self.client.refusals)
        if refusals:
            told = "; ".join(f"{server}: {why}" for server, why in refusals.items())
            return ZooKeeperLoginError(self.options.hosts, told)
        what = f"{what}: {self.trouble}" if self.trouble else what
        return ZooKeeperUnavailableError(self.options.hosts, what)

    def refusal(self, error: Exception, what: str, where: str = "") -> OperatorError:
        """What to tell of an error that the server answered: it does not know us, or ``what`` did not please it."""
        if isinstance(error, AuthFailedError):
            return ZooKeeperLoginError(
                self.options.hosts, self.trouble or "the ZooKeeper server did not recognize our identity"
            )
        if isinstance(error, NoAuthError):
            what = f"{what}: {self.identity} has no right to it (NO_AUTH)"
            return OperatorError(what, where=where or self.options.hosts, remedy=FORBIDDEN_REMEDY)
        return OperatorError(
            f"{what}: {type(error).__name__}",
            where=where or self.options.hosts,
            remedy="Look at the log of the ZooKeeper servers, and try again",
        )

    def acl_of(self, path: str) -> Sequence[ACL]:
        """The access control list that a znode is created with (``ZkData.defaultAcls``, by the full path)."""
        return default_acl(path, set_acl=self.options.set_acl)

    def server_version(self) -> tuple[int, ...] | None:
        """By the four letter word ``srvr``; None where the server does not answer it."""
        try:
            text = self.client.command(b"srvr")
        except (KazooException, OSError):
            return None
        match = re.search(r"version: (\d+)\.(\d+)\.(\d+)", text)
        return tuple(map(int, match.groups())) if match else None


def default_acl(path: str, *, set_acl: bool) -> Sequence[ACL]:
    """The world may do all; with ``zookeeper.set.acl`` only the creator, and the world reads what is no secret."""
    if not set_acl or path == paths.OPEN_PATH:
        return tuple(OPEN_ACL_UNSAFE)
    if paths.is_sensitive(path):
        return tuple(CREATOR_ALL_ACL)
    return (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)
