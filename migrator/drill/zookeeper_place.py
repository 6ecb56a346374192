"""A place in an outside ZooKeeper for the time of a drill: empty before, and restored afterwards.

The drill makes one `ClaimedPlace` before anything starts, and calls `give_back` when no process runs any more. A place
that is not empty is refused. Only znodes of a Kafka cluster below the place are removed, and the parts of the chroot
that the drill has made.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError

from migrator.config.endpoints import parse_host_port
from migrator.errors import OperatorError
from migrator.observe.printable import printable
from migrator.values import value
from migrator.zookeeper import kafka_tree
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Delete
from migrator.zookeeper.removal import remove
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, ZooKeeperUnavailableError
from migrator.zookeeper.znodes import paths

SERVERS_OWN = "zookeeper"
"""The znode in the root that every server has; it does not count."""
NAMED_MAX = 10
"""The most znodes that a message names."""
CONNECTION_MS, SESSION_MS = 10_000, 60_000
ABSENT_REMEDY = "Check the address, that the server runs, and that this machine reaches it without TLS"
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9a-fA-F:.]+(?:%\w+)?")
_HOLDER = re.compile(r"migrator drill on (\S{1,255}), since ([0-9: -]+UTC)")
_CHROOT = re.compile(r"(?:/[A-Za-z0-9._-]+)*")


@value
class OutsideZooKeeper:
    """``server`` is ``host:port``; ``chroot`` begins with a slash, or is "" for the root."""

    server: str
    chroot: str

    @property
    def hosts(self) -> str:
        """The servers in the format of ``zookeeper.connect``."""
        return self.server + self.chroot


def parse_place(text: str) -> OutsideZooKeeper:
    """``host:port[/chroot]`` -> both.

    :raises ValueError: for another form, with what to write instead.
    """
    server, slash, rest = text.partition("/")
    if "://" in text:
        raise ValueError(f"{text!r} is an address of the web: write HOST:PORT/chroot, with nothing before the host")
    if "," in text:
        raise ValueError(f"{text!r} names several servers: name one of them")
    host, port = parse_host_port(server)
    if not _HOST.fullmatch(host) or not port:
        raise ValueError(f"{server!r} is not HOST:PORT")
    chroot = (slash + rest).rstrip("/")
    names = chroot.split("/")[1:]
    if not _CHROOT.fullmatch(chroot) or {".", ".."} & set(names):
        raise ValueError(f"{slash + rest!r} is no chroot for a drill: write names of letters, digits, '.', '_' and '-'")
    if names[:1] == [SERVERS_OWN]:
        raise ValueError(f"/{SERVERS_OWN} belongs to the ZooKeeper server itself: name another chroot")
    return OutsideZooKeeper(server, chroot)


class ClaimedPlace:
    """An empty chroot with our mark in it. No other drill uses it until `give_back`.

    :param place: must be empty, or not exist yet.
    :raises OperatorError: it is not empty, no server answers, or this process may not write; then nothing has changed.
    """

    def __init__(self, place: OutsideZooKeeper) -> None:
        self.place = place
        self._made: list[str] = []
        self._mark = b""
        """Our mark, and the parts of the chroot that were missing; parents first."""
        with self._connected(place.server) as session:
            self._refuse_if_used(session.client, ())
            try:
                self._make(session.client)
                self._refuse_if_used(session.client, (paths.name_of(paths.DRILL),))
            except BaseException:
                self._unmake(session.client)
                raise

    def give_back(self) -> None:
        """Remove the znodes of Kafka and of this program below the chroot, then the parts of the chroot that we made.

        Znodes of other clients that are not Kafka's stay, and then the chroot stays, too. If the drill's mark is
        missing, everything stays.

        :raises OperatorError: no server answers, or znodes stay; names them.
        """
        with self._connected(self.place.hosts) as session:
            self._refuse_if_not_ours(session.client)
            found = list(kafka_tree.every_path(BulkReader(session)))
            remove(session, map(Delete, reversed(found)))
        with self._connected(self.place.server) as session:
            self._unmake(session.client)
            left = self._found(session.client)
        if left:
            raise OperatorError(
                f"znodes that are not of this drill stay there: {_listed(left)}",
                where=self.place.hosts,
                remedy="Look whose they are; the drill removes only what a Kafka cluster has",
            )

    @contextmanager
    def _connected(self, hosts: str) -> Iterator[ZooKeeperSession]:
        options = SessionOptions(hosts, session_timeout_ms=SESSION_MS, connection_timeout_ms=CONNECTION_MS)
        session = ZooKeeperSession(options)
        try:
            with session:
                yield session
        except ZooKeeperUnavailableError as error:
            raise OperatorError(error.what, where=self.place.server, remedy=ABSENT_REMEDY) from error
        except KazooException as error:
            raise session.refusal(error, "ZooKeeper refused what the drill needs", self.place.hosts) from error

    def _make(self, client: KazooClient) -> None:
        """Create all of it in one multi: of two drills, only one creates the chroot."""
        chroot = self.place.chroot
        parts = [chroot[:end] for end in (*(at for at, sign in enumerate(chroot) if sign == "/" and at), len(chroot))]
        missing = [path for path in parts if path and client.exists(path) is None] + [chroot + paths.DRILL]
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        text = f"migrator drill on {socket.gethostname()}, since {since}, {token_hex(8)}"
        transaction = client.transaction()
        for path in missing:
            transaction.create(path, text.encode() if path == missing[-1] else b"")
        errors = [answer for answer in transaction.commit() if isinstance(answer, KazooException)]
        if any(isinstance(error, NodeExistsError) for error in errors):
            raise self._used(client, [paths.name_of(paths.DRILL)])
        if errors:
            raise errors[0]
        self._made, self._mark = missing, text.encode()

    def _refuse_if_not_ours(self, client: KazooClient) -> None:
        """Refuse a place without our mark: another user may have emptied and taken it, or the address may now lead to
        another server."""
        try:
            mark, _ = client.get(paths.DRILL)
        except NoNodeError:
            mark = None
        if mark != self._mark:
            raise OperatorError(
                f"the place is not this drill's any more: {paths.name_of(paths.DRILL)} is "
                f"{'gone' if mark is None else 'of another drill'}; nothing is removed",
                where=self.place.hosts,
                remedy="Look who uses the place. zookeeper-shell (deleteall) deletes what is left of the drill",
            )

    def _unmake(self, client: KazooClient) -> None:
        for path in reversed(self._made):
            with suppress(NoNodeError, NotEmptyError):  # another user has this directory now
                client.delete(path)

    def _found(self, client: KazooClient) -> list[str]:
        """Names of znodes in the chroot."""
        try:
            names = set(client.get_children(self.place.chroot or "/"))
        except NoNodeError:
            return []
        return sorted(names if self.place.chroot else names - {SERVERS_OWN})

    def _refuse_if_used(self, client: KazooClient, ours: tuple[str, ...]) -> None:
        chroot = self.place.chroot
        for above in (chroot[:at] for at, sign in enumerate(chroot) if sign == "/"):
            if (mark := _data(client, above + paths.DRILL)) is not None:
                raise self._of_a_drill(client, above, mark)
        if others := [name for name in self._found(client) if name not in ours]:
            raise self._used(client, others)

    def _used(self, client: KazooClient, names: list[str]) -> OperatorError:
        chroot = self.place.chroot
        mark = _data(client, chroot + paths.DRILL)
        if mark is not None and mark != self._mark:
            return self._of_a_drill(client, chroot, mark)
        brokers = _brokers(client, chroot)
        with_brokers = f", with {brokers} registered brokers" if brokers else ""
        where = "" if chroot else ", for instance a chroot that does not exist yet"
        return OperatorError(
            f"the drill needs an empty place, and found {_listed(names)}{with_brokers}",
            where=self.place.hosts,
            remedy=f"Name an empty chroot{where}. These znodes are not of a drill",
        )

    def _of_a_drill(self, client: KazooClient, chroot: str, mark: bytes) -> OperatorError:
        """The error of another drill's place, with its owner. It never recommends to delete the znodes of a running
        cluster."""
        holder = _HOLDER.match(mark.decode("utf-8", "replace"))
        who = f"a drill on {holder[1]}, since {holder[2]}," if holder else "a drill that does not say where it runs"
        brokers = _brokers(client, chroot)
        remedy = "Wait until that drill has ended, or name another chroot"
        if not brokers:
            what = f"(deleteall {chroot})" if chroot else "(deleteall)"
            remedy += f". If it does not run any more, delete what it left with zookeeper-shell {what}"
        registered = f"; {brokers} brokers are registered there" if brokers else ""
        return OperatorError(
            f"{printable(who)} has this place, says {chroot}{paths.DRILL}{registered}",
            where=self.place.hosts,
            remedy=remedy,
        )


def _data(client: KazooClient, path: str) -> bytes | None:
    """The data of a znode; None when it does not exist."""
    try:
        return client.get(path)[0] or b""
    except NoNodeError:
        return None


def _brokers(client: KazooClient, chroot: str) -> int:
    """The number of registered brokers."""
    try:
        return len(client.get_children(chroot + paths.BROKER_IDS))
    except NoNodeError:
        return 0


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return printable(", ".join(f"/{name}" for name in names[:NAMED_MAX])) + more
