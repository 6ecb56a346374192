"""A ZooKeeper session: kazoo's client with Kafka's settings, its states, and the access control of created znodes.

All access of this program to ZooKeeper goes through a `ZooKeeperSession`. It connects again by itself until it is
closed. A request that was sent when the connection broke may have been applied: it fails with one of
`CONNECTION_ERRORS`. Only `retry_lost_connections` repeats requests, for a bounded time; bulk reading and removal, whose
requests may happen twice, call it. Created znodes get the access control list that Kafka would give them. Calls block:
use a thread.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

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
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_random_exponential,
)

from migrator.config.endpoints import parse_zookeeper_connect
from migrator.config.settings import Settings
from migrator.config.tls import TlsChoice, tls_choice, tls_versions
from migrator.errors import OperatorError
from migrator.values import value
from migrator.zookeeper.connection import Client
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import FORBIDDEN_REMEDY
from migrator.zookeeper.tls import TlsOptions
from migrator.zookeeper.znodes import paths


def tls_options(settings: Settings) -> TlsOptions | None:
    """TLS by ``zookeeper.ssl.*``, tested once; None if ``zookeeper.ssl.client.enable`` is false.

    :raises OperatorError: a file or a value cannot be used.
    """
    if not settings.zookeeper_ssl_client_enable:
        return None
    options = TlsOptions(
        key_file=_file(settings, "keystore"),
        key_kind=settings.zookeeper_ssl_keystore_type or "",
        key_password=settings.zookeeper_ssl_keystore_password,
        trust_file=_file(settings, "truststore"),
        trust_kind=settings.zookeeper_ssl_truststore_type or "",
        trust_password=settings.zookeeper_ssl_truststore_password,
        check_hostname=settings.zookeeper_ssl_endpoint_identification_algorithm.upper() == "HTTPS",
        choice=_choice(settings),
    )
    options.context()
    return options


def jaas_entry(settings: Settings) -> JaasEntry | None:
    """This client's section of the JAAS file, read once as a test; None without ``migrator.zookeeper.jaas.file``.

    :raises OperatorError: see `JaasEntry.read`.
    """
    if not settings.migrator_zookeeper_jaas_file:
        return None
    entry = JaasEntry(settings.migrator_zookeeper_jaas_file, settings.migrator_zookeeper_jaas_section)
    entry.read()
    return entry


def identity_of(tls: TlsOptions | None, jaas: JaasEntry | None) -> str:
    """The identity in access control lists by the present files, such as ``sasl:kafka`` or ``x509:CN=kafka``."""
    found = []
    try:
        if jaas is not None:
            found.append(f"sasl:{jaas.read().name}")
        subject = tls.subject() if tls is not None else None
        if subject is not None:
            found.append(f"x509:{subject}")
    except OperatorError as error:  # a file may be just being replaced; the next connect reports a real fault
        found.append(f"unknown ({error.what})")
    return " and ".join(found) or "world:anyone"


def _choice(settings: Settings) -> TlsChoice:
    """The TLS versions and suites. As in Kafka, ``zookeeper.ssl.protocol`` is the only version unless
    ``zookeeper.ssl.enabled.protocols`` names some. But its default, TLSv1.2, does not forbid TLSv1.3 here."""
    key, versions = "zookeeper.ssl.enabled.protocols", settings.zookeeper_ssl_enabled_protocols or ()
    if not versions and settings.explicit.get("zookeeper.ssl.protocol", "TLS") != "TLS":
        key, versions = "zookeeper.ssl.protocol", (settings.zookeeper_ssl_protocol,)
    try:
        spoken = tls_versions(",".join(versions))
        key = "zookeeper.ssl.cipher.suites"
        return tls_choice(spoken, ",".join(settings.zookeeper_ssl_cipher_suites or ()))
    except ValueError as error:
        remedy = "Correct the value, or remove the key for the TLS library's own choice"
        raise OperatorError(str(error), where=f"{settings.source}: {key}", remedy=remedy) from error


def _file(settings: Settings, store: str) -> str | None:
    location: str | None = getattr(settings, f"zookeeper_ssl_{store}_location")
    if location is not None and not Path(location).is_file():
        raise OperatorError(
            f"zookeeper.ssl.{store}.location names no file: {location}",
            where=settings.source,
            remedy="Correct the path",
        )
    return location


log = logging.getLogger(__name__)

CONNECTION_ERRORS = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""The errors of pending requests when the connection is lost. A write may have been applied nevertheless."""

RETRY_DELAY_MAX_SECONDS = 1.0
CLOSED_POLL_SECONDS = 0.1
SILENT_SECONDS = 3.0
"""Seconds of waiting for a connection after which the log gets a message."""


@value
class SessionOptions:
    """The options of a session. They can be pickled, so that a worker process can have its own session.

    ``hosts`` includes the chroot, as ``zookeeper.connect`` does. Times are milliseconds. ``set_acl`` is
    ``zookeeper.set.acl``. ``tls`` None means plain text, ``jaas`` None no SASL.
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
    """The session has ended, with its ephemeral znodes. The client makes a new one by itself."""


_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

Listener = Callable[[SessionState], None]


class KazooRequest(Protocol):
    """A request in the form that kazoo's connection sends and decodes."""

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
    """A server answers, but does not accept this client's login."""

    REMEDY = (
        "Check the name and the password in the JAAS file (migrator.zookeeper.jaas.file) against those of the brokers, "
        "and the section Server in the JAAS file of the ZooKeeper servers"
    )


def options_from(settings: Settings, hosts: str | None = None) -> SessionOptions:
    """The options of a controller.

    :param hosts: replaces ``zookeeper.connect``, which a controller no longer has at the end of a migration.
    :raises OperatorError: neither is given, or a file cannot be used.
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
    """One client. It reconnects by itself, with a new session when the old one has expired, until it is closed."""

    def __init__(self, options: SessionOptions) -> None:
        """:raises OperatorError: the hosts are malformed."""
        try:
            address = parse_zookeeper_connect(options.hosts)
        except ValueError as error:
            remedy = "Write zookeeper.connect of the brokers"
            raise OperatorError(str(error), where=options.hosts, remedy=remedy) from error
        self.options = options
        self.closed = threading.Event()
        """Set by `close`: there will be no connection any more."""
        self.client = Client(
            tls=options.tls,
            jaas=options.jaas,
            hosts=str(address),
            timeout=options.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RETRY_DELAY_MAX_SECONDS, max_jitter=0.4),
        )

    @property
    def chroot(self) -> str:
        return str(self.client.chroot or "")

    @property
    def state(self) -> SessionState:
        """The state that the client has reported last."""
        return _STATES[self.client.state]

    @property
    def trouble(self) -> str:
        """Why there is no connection, as the end of a sentence; "" while there is one or the reason is unknown."""
        return self.client.trouble

    @property
    def identity(self) -> str:
        """This client's identity in access control lists."""
        return identity_of(self.options.tls, self.options.jaas)

    def start(self) -> Self:
        """Connect, and wait for the connection. The session is closed after an error.

        :raises ZooKeeperLoginError: no server accepts the login.
        :raises ZooKeeperUnavailableError: there is no connection within ``connection_timeout_ms``.
        """
        self.start_in_background()
        if not self._wait_and_say_so(self.options.connection_timeout_ms / 1000):
            error = self.away(f"no ZooKeeper server answered within {self.options.connection_timeout_ms} ms")
            self.close()
            raise error
        return self

    def _wait_and_say_so(self, seconds: float) -> bool:
        """Like `wait_connected`, with a message in the log when it takes long."""
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
        """Connect without waiting. Listeners learn of the connection."""
        self.client.start_async()

    def wait_connected(self, seconds: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the client is connected, and return whether it is. The wait also ends when the session is closed
        or
        ``give_up`` returns True."""
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
        """End the session. Pending requests fail, and waits for a connection end."""
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
        """Add a listener to state changes. It is called on kazoo's connection thread and must not block."""

        def on_change(state: str) -> None:
            listener(_STATES[state])

        self.client.add_listener(on_change)

    def call(self, request: KazooRequest) -> IAsyncResult:
        """Send a request after all earlier ones. A thread of kazoo sets the result."""
        result = self.client.handler.async_result()
        self.client._call(request, result)  # noqa: SLF001 - the only way to an operation that kazoo lacks
        return result

    def sync(self) -> None:
        """Make the connected server catch up with the leader.

        :raises ZooKeeperUnavailableError: it does not answer within the session time-out.
        """
        self.wait_for(self.client.sync_async("/"))

    def wait_for(self, result: IAsyncResult) -> Any:
        """Wait for the answer to a request, at most for the session time-out.

        :raises ZooKeeperUnavailableError: no answer came, or the connection was lost.
        :raises kazoo.exceptions.KazooException: the error that the server answered.
        """
        try:
            return result.get(timeout=self.options.session_timeout_ms / 1000)
        except (*CONNECTION_ERRORS, self.client.handler.timeout_exception) as error:
            raise self.away(f"the connection to ZooKeeper was lost ({type(error).__name__})") from error
        except AuthFailedError as error:
            raise self.refusal(error, "") from error

    def away(self, what: str) -> ZooKeeperUnavailableError:
        """The error for a missing connection, with ``what`` and the reason."""
        refusals = dict(self.client.refusals)
        if refusals:
            told = "; ".join(f"{server}: {why}" for server, why in refusals.items())
            return ZooKeeperLoginError(self.options.hosts, told)
        what = f"{what}: {self.trouble}" if self.trouble else what
        return ZooKeeperUnavailableError(self.options.hosts, what)

    def refusal(self, error: Exception, what: str, where: str = "") -> OperatorError:
        """The error for a server's refusal, of this client's login or of the request ``what``."""
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
        """The access control list for the creation of a znode, by its full path (``ZkData.defaultAcls``)."""
        return default_acl(path, set_acl=self.options.set_acl)

    def server_version(self) -> tuple[int, ...] | None:
        """The server's version, from its four letter word ``srvr``; None when the server does not answer that."""
        try:
            text = self.client.command(b"srvr")
        except (KazooException, OSError):
            return None
        match = re.search(r"version: (\d+)\.(\d+)\.(\d+)", text)
        return tuple(map(int, match.groups())) if match else None


def default_acl(path: str, *, set_acl: bool) -> Sequence[ACL]:
    """Every client has all rights. With ``zookeeper.set.acl`` only the creator has, and every client may read znodes
    without secrets."""
    if not set_acl or path == paths.OPEN_PATH:
        return tuple(OPEN_ACL_UNSAFE)
    if paths.is_sensitive(path):
        return tuple(CREATOR_ALL_ACL)
    return (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)


T = TypeVar("T")


def retry_lost_connections(session: ZooKeeperSession, attempt: Callable[[], T], *, seconds: float, done: str) -> T:
    """Call ``attempt`` until it ends without one of `CONNECTION_ERRORS` and without kazoo's time-out. Returns its
    result.

    :param seconds: how long to try again after lost connections. The end of the session ends the attempts, too.
    :param done: the participle of the action for messages, such as "read".
    :raises ZooKeeperUnavailableError: there is no connection for that long.
    :raises OperatorError: the server refuses the request.
    """
    timeout = session.client.handler.timeout_exception
    retrying = Retrying(
        retry=retry_if_exception_type((*CONNECTION_ERRORS, timeout)),
        stop=stop_any(stop_after_delay(seconds), stop_when_event_set(session.closed)),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except (*CONNECTION_ERRORS, timeout) as error:
        how = "the session was closed" if session.closed.is_set() else f"no answer for {seconds:g} s"
        raise session.away(f"ZooKeeper could not be {done}: {how} ({type(error).__name__})") from error
    except KazooException as error:
        raise session.refusal(error, f"ZooKeeper refused to be {done}") from error
