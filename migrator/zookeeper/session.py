"""A ZooKeeper session: kazoo's client made from Kafka's settings, its states, and who may read what it creates."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, Self

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError, SessionExpiredError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.values import value
from migrator.zookeeper.znodes import paths

log = logging.getLogger(__name__)

CONNECTION_ERRORS = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""What pending requests fail with when the connection goes. A write may have been applied all the same."""

RETRY_DELAY_MAX_SECONDS = 1.0
CLOSED_POLL_SECONDS = 0.1
_PEM_SUFFIXES = {".pem", ".crt", ".cer", ".key"}


@value
class SessionOptions:
    """How to connect; crosses process borders, so that a worker can have a session of its own.

    ``hosts`` carries the chroot, as ``zookeeper.connect`` does. Times are milliseconds. ``key_file`` and ``ca_file``
    are PEM; ``set_acl`` is ``zookeeper.set.acl``.
    """

    hosts: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    in_flight: int = 10
    set_acl: bool = False
    use_tls: bool = False
    key_file: str | None = None
    key_password: Any = None
    ca_file: str | None = None
    check_hostname: bool = True


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


class Request(Protocol):
    """What kazoo's connection sends and decodes."""

    type: int

    def serialize(self) -> bytes: ...
    def deserialize(self, reply: bytes, offset: int) -> Any: ...


class ZooKeeperUnavailableError(OperatorError):
    """No server answers."""

    def __init__(self, hosts: str, what: str) -> None:
        super().__init__(
            what,
            where=hosts,
            remedy="Check zookeeper.connect, that the servers run, and that this machine reaches them",
        )

    def __reduce__(self) -> tuple[type[ZooKeeperUnavailableError], tuple[str, str]]:
        return ZooKeeperUnavailableError, (self.where, self.what)


def options_from(settings: Settings, hosts: str | None = None) -> SessionOptions:
    """The options of a controller.

    :param hosts: takes the place of ``zookeeper.connect``, which a controller no longer has at the end of a migration.
    :raises OperatorError: when neither is given, or a key or trust store is not PEM.
    """
    hosts = hosts or settings.zookeeper_connect
    if not hosts:
        raise OperatorError(
            "zookeeper.connect is not set", where=settings.source, remedy="Give the connection string of the brokers"
        )
    tls = settings.zookeeper_ssl_client_enable
    return SessionOptions(
        hosts=hosts,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms or settings.zookeeper_session_timeout_ms,
        in_flight=settings.zookeeper_max_in_flight_requests,
        set_acl=settings.zookeeper_set_acl,
        use_tls=tls,
        key_file=_pem(settings, "keystore") if tls else None,
        key_password=settings.zookeeper_ssl_keystore_password if tls else None,
        ca_file=_pem(settings, "truststore") if tls else None,
        check_hostname=bool(settings.zookeeper_ssl_endpoint_identification_algorithm),
    )


def _pem(settings: Settings, store: str) -> str | None:
    """The PEM file of a store, checked."""
    location: str | None = getattr(settings, f"zookeeper_ssl_{store}_location")
    if location is None:
        return None
    kind: str | None = getattr(settings, f"zookeeper_ssl_{store}_type")
    is_pem = kind.upper() == "PEM" if kind else Path(location).suffix in _PEM_SUFFIXES
    if not is_pem:
        raise OperatorError(
            f"zookeeper.ssl.{store}.location is a Java key store, which only Java can read",
            where=settings.source,
            remedy=f"Export it to PEM (keytool and openssl) and set zookeeper.ssl.{store}.type=PEM",
        )
    if not Path(location).is_file():
        raise OperatorError(
            f"zookeeper.ssl.{store}.location names no file: {location}",
            where=settings.source,
            remedy="Correct the path",
        )
    return location


class ZooKeeperSession:
    """One client. Reconnects by itself, with a new session when the old one expired, until it is closed."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.closed = threading.Event()
        """Set by `close`: there is no connection any more, and no new one comes."""
        password = options.key_password
        self.client = KazooClient(
            hosts=options.hosts,
            timeout=options.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RETRY_DELAY_MAX_SECONDS, max_jitter=0.4),
            use_ssl=options.use_tls,
            certfile=options.key_file,
            keyfile=options.key_file,
            keyfile_password=password.reveal() if password is not None else None,
            ca=options.ca_file,
            check_hostname=options.check_hostname,
        )

    @property
    def chroot(self) -> str:
        """The chroot, or ""."""
        return str(self.client.chroot or "")

    @property
    def state(self) -> SessionState:
        """As last seen by the client."""
        return _STATES[self.client.state]

    def start(self) -> Self:
        """Connect and wait for it.

        :raises ZooKeeperUnavailableError: after ``connection_timeout_ms``; the session is closed then.
        """
        self.start_in_background()
        if not self.wait_connected(self.options.connection_timeout_ms / 1000):
            self.close()
            raise ZooKeeperUnavailableError(
                self.options.hosts, f"no ZooKeeper server answered within {self.options.connection_timeout_ms} ms"
            )
        return self

    def start_in_background(self) -> None:
        """Connect without waiting: listeners hear of it."""
        self.client.start_async()

    def wait_connected(self, seconds: float) -> bool:
        """Whether the client got connected within that time; no longer than until the session is closed."""
        live = self.client._live  # noqa: SLF001 - kazoo hands it out only from start_async
        deadline = time.monotonic() + seconds
        while not self.closed.is_set():
            left = deadline - time.monotonic()
            if live.wait(min(max(left, 0.0), CLOSED_POLL_SECONDS)):
                return True
            if left <= 0:
                return False
        return False

    def close(self) -> None:
        """End the session. Pending requests fail, and whoever waits for a connection waits no longer."""
        self.closed.set()
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError) as error:
            log.warning("The ZooKeeper session did not end in order: %s", error)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_listener(self, listener: Listener) -> None:
        """Hear of state changes. Called on kazoo's connection thread: it must not block."""

        def on_change(state: str) -> None:
            listener(_STATES[state])

        self.client.add_listener(on_change)

    def call(self, request: Request) -> IAsyncResult:
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
            what = f"ZooKeeper went away ({type(error).__name__})"
            raise ZooKeeperUnavailableError(self.options.hosts, what) from error

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
