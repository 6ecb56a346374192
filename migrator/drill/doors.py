"""Tries every door of a secured cluster, as somebody who must not get in, and as somebody who is nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from migrator.drill import intruder
from migrator.drill.cluster import Cluster, Doors, zookeeper_client
from migrator.drill.intruder import NONE, Attempts
from migrator.drill.open_ports import answers_in_clear
from migrator.drill.report import Report
from migrator.drill.security import Secured
from migrator.drill.users import INTRUDER, WRITER
from migrator.parts.zookeeper import four_letter_word
from migrator.zookeeper.session import default_acl
from migrator.zookeeper.znodes import paths

MAX_EXAMPLES = 5
BATCH = 500
"""Requests to ZooKeeper under way at once."""


_Deed = Callable[[KazooClient], object]
_FORBIDDEN: tuple[tuple[str, _Deed], ...] = (
    ("read a password", lambda client: client.get(f"{paths.USER_CONFIGS}/{WRITER}")),
    ("see who has a password", lambda client: client.get_children(paths.USER_CONFIGS)),
    ("change the epoch", lambda client: client.set(paths.CONTROLLER_EPOCH, b"1")),
    ("depose the controller", lambda client: client.delete(paths.CONTROLLER)),
    ("register a broker", lambda client: client.create(paths.broker(99), b"{}")),
    ("give a permission", lambda client: client.create(f"{paths.LITERAL_ACLS}/Topic/open-to-me", b"{}")),
    ("change an access control list", lambda client: client.set_acls("/", default_acl("/", set_acl=False))),
)


async def try_doors(cluster: Cluster, report: Report, phase: str) -> None:
    """Note who got in although he may not, which ports answer in clear, and which znodes are open to others.

    Nothing is done to a cluster in clear.

    :param phase: where the migration is, for people.
    """
    security = cluster.security
    if not isinstance(security, Secured):
        return
    with report.step(f"Nobody gets in who may not: {phase}"):
        doors = cluster.doors()
        report.wait_for("the intruder and strangers are refused")
        attempts = await _at_brokers(doors, security) + await _at_controllers(doors, security)
        attempts += await asyncio.to_thread(_at_zookeeper, cluster, security)
        report.attempts(attempts.count, attempts.not_refused)
        report.wait_for("ports are asked in clear")
        count, found = await answers_in_clear()
        report.figure("ports that speak TLS and nothing else", count - len(found))
        report.none_of("ports in clear", len(found), found)
        report.wait_for("access control lists of znodes are read")
        count, found = await asyncio.to_thread(_open_znodes, cluster)
        report.figure("znodes that belong to the cluster alone", count - len(found))
        report.none_of("open znodes", len(found), found[:MAX_EXAMPLES])


async def _at_brokers(doors: Doors, security: Secured) -> Attempts:
    found = NONE
    as_himself, with_a_guess = security.at_brokers(INTRUDER), security.at_brokers(INTRUDER, password="a guess")  # noqa: S106
    for broker, address in doors.brokers.items():
        name = f"broker {broker}"
        found += await intruder.read_and_write(name, address, as_himself, doors.topic)
        found += await intruder.come_in(name, address, with_a_guess)
    if brokers := [*doors.brokers.values()]:
        found += await intruder.ask_for_changes("brokers", brokers, as_himself, doors.topic, controllers=False)
    return found


async def _at_controllers(doors: Doors, security: Secured) -> Attempts:
    if not doors.controllers:
        return NONE
    as_himself = security.at_controllers(INTRUDER)
    found = await intruder.ask_for_changes("controllers", doors.controllers, as_himself, doors.topic, controllers=True)
    for address in doors.controllers:
        for what, stranger in security.strangers().items():
            name = f"controller at port {address[1]}, {what}"
            found += await intruder.come_in(name, address, stranger)
    return found


def _at_zookeeper(cluster: Cluster, security: Secured) -> Attempts:
    server = cluster.zookeeper
    strangers = security.strangers()
    found = [
        f"ZooKeeper answers somebody {what}"
        for what, stranger in strangers.items()
        if four_letter_word(server.port, "srvr", context=stranger.client_context)
    ]
    count = len(strangers)
    with zookeeper_client(security.session(cluster.zookeeper_hosts, certificate=INTRUDER)) as client:
        for what, forbidden in _FORBIDDEN:
            count += 1
            try:
                forbidden(client)
            except NoAuthError:
                continue
            found.append(f"ZooKeeper lets an intruder {what}")
    return Attempts(count, tuple(found))


def _open_znodes(cluster: Cluster) -> tuple[int, list[str]]:
    """How many znodes there are below the chroot, and those on which others have more than Kafka gives them."""
    with cluster.zookeeper_client() as client:
        everything = list(_all_paths(client))
        found = []
        for start in range(0, len(everything), BATCH):
            batch = everything[start : start + BATCH]
            for path, answer in [(path, client.get_acls_async(path)) for path in batch]:
                try:
                    entries, _ = answer.get()
                except NoNodeError:
                    continue
                granted = {entry.perms for entry in entries if entry.id.scheme == "world"}
                expected = {entry.perms for entry in default_acl(path, set_acl=True) if entry.id.scheme == "world"}
                if not granted <= expected:
                    found.append(f"{path}: {entries}")
    return len(everything), found


def _all_paths(client: KazooClient) -> Iterator[str]:
    waiting = ["/"]
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        yield from batch
        for path, answer in [(path, client.get_children_async(path)) for path in batch]:
            try:
                waiting += [f"{path.rstrip('/')}/{child}" for child in answer.get()]
            except NoNodeError:
                continue
