"""Tries every door of a secured cluster, as a user without permissions and as a caller without a valid identity.

Steps of the scenario call `try_doors` in each phase, and `under_attack` around changes of the leader. An attempt that
got no answer is not counted as refused. Each kind of door must have been found, so a door that nobody tried fails the
drill.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError

from migrator.drill.cluster import Cluster, ControllerProcess, Doors, zookeeper_client
from migrator.drill.doors import intruder
from migrator.drill.doors.grpc_and_metrics import LISTENER, METRICS, try_grpc, try_metrics
from migrator.drill.doors.intruder import DENIED, NONE, Attempts, shut_to_all
from migrator.drill.probes import command
from migrator.drill.report import DrillReport
from migrator.drill.security.open_ports import ask_every_port
from migrator.drill.security.protection import CONTROLLER, INTRUDER, OPERATOR, WRITER, Secured
from migrator.parts.zookeeper import answer_to_word, four_letter_word
from migrator.zookeeper.session import default_acl
from migrator.zookeeper.znodes import paths

MAX_EXAMPLES = 5
BATCH = 500
"""The most requests to ZooKeeper at once."""


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


async def try_doors(cluster: Cluster, report: DrillReport, phase: str) -> None:
    """Note which forbidden attempts succeeded, which ports answer in clear, and which znodes are open to others.

    Nothing is done to a cluster in clear.

    :param phase: the phase of the migration, in words.
    """
    security = cluster.security
    if not isinstance(security, Secured) or not cluster.options.secure:
        return
    with report.step(f"No intruder gets in: {phase}"):
        doors = cluster.doors()
        ours = [controller for controller in cluster.controllers if controller.runs]
        report.wait_for("the intruder and strangers are refused")
        attempts = await _at_brokers(doors, security) + await _at_controllers(doors, security)
        attempts += await try_grpc(ours, security) + await try_metrics(ours, security)
        attempts += await asyncio.to_thread(_at_zookeeper, cluster, security)
        report.attempts(attempts.count, attempts.let_in, attempts.unproved)
        report.wait_for("ports are asked in clear")
        await asyncio.to_thread(cluster.watch.look)
        ports = await ask_every_port()
        report.figure("ports that speak TLS and nothing else", len(ports.tls))
        report.none_of("ports in clear", len(ports.in_clear), ports.in_clear)
        missing = _expected_ports(cluster, doors, ours) - ports.tls
        report.check("every door is among these ports", not missing, sorted(missing))
        if ours:  # its output is searched for secrets at the end, as all files are
            await command(cluster, "status", "-c", str(ours[0].property_file))
        report.wait_for("access control lists of znodes are read")
        count, found = await asyncio.to_thread(_open_znodes, cluster)
        report.figure("znodes that belong to the cluster alone", count - len(found))
        report.none_of("open znodes", len(found), found[:MAX_EXAMPLES])


@asynccontextmanager
async def under_attack(
    cluster: Cluster, report: DrillReport, when: str, *, decided: bool = True
) -> AsyncIterator[None]:
    """The intruder requests changes from controllers without a pause while leaders change. No controller may carry one
    out, also before it knows the permissions.

    Nothing is done to a cluster in clear.

    :param when: the occasion, in words.
    :param decided: whether the controllers decide at the end. Then they have to refuse each change once more. Before a
        copy they answer many requests as Kafka's do, without a decision (``newPreMigrationException``).
    """
    security = cluster.security
    if not isinstance(security, Secured) or not cluster.options.secure:
        yield
        return
    where, topic, told = f"controllers, {when}", cluster.doors().topic, False
    attack = await intruder.start_attack(where, cluster.addresses, security.at_controllers(INTRUDER), topic)
    try:
        yield
        report.wait_for("the intruder is refused")
        await attack.call_off()
        attempts = attack.attempts
        if decided:
            as_himself = security.at_controllers(INTRUDER)
            attempts += await intruder.ask_for_changes(where, cluster.addresses, as_himself, topic, controllers=True)
        report.figure("answers to the intruder: not now, or not here", attack.put_off)
        report.attempts(attempts.count, attempts.let_in, attempts.unproved)
        told = True
    finally:
        await attack.abandon()
        if not told:  # the drill has failed, maybe because of what the intruder has done
            report.attempts(attack.attempts.count, attack.attempts.let_in)


async def _at_brokers(doors: Doors, security: Secured) -> Attempts:
    found = NONE
    as_himself, strangers = security.at_brokers(INTRUDER), security.strangers_at_brokers()
    for broker, address in doors.brokers.items():
        name = f"broker {broker}"
        found += await intruder.read_and_write(name, address, as_himself, doors.topic)
        found += await intruder.come_in(name, address, strangers, security.at_brokers(OPERATOR))
    for broker, address in doors.between_brokers.items():
        name = f"broker {broker}, where brokers and controllers come in"
        if doors.brokers:  # light brokers accept every password, so only controllers are tried
            found += await intruder.speak_for_the_cluster(name, address, as_himself, doors.topic)
        found += await intruder.come_in(name, address, strangers, security.at_brokers(CONTROLLER))
    if brokers := [*doors.brokers.values()]:
        found += await intruder.ask_for_changes("brokers", brokers, as_himself, doors.topic, controllers=False)
    return found


async def _at_controllers(doors: Doors, security: Secured) -> Attempts:
    if not doors.controllers:
        return NONE
    as_himself = security.at_controllers(INTRUDER)
    found = await intruder.ask_for_changes("controllers", doors.controllers, as_himself, doors.topic, controllers=True)
    for address in doors.controllers:
        name = f"controller at port {address[1]}"
        found += await intruder.come_in(name, address, security.strangers(), security.at_controllers(OPERATOR))
    return found


def _expected_ports(cluster: Cluster, doors: Doors, ours: Sequence[ControllerProcess]) -> set[int]:
    """The ports of all known doors: if one of them was not found, others may have been missed, too."""
    addresses = [*doors.brokers.values(), *doors.between_brokers.values(), *doors.controllers]
    addresses += [at for each in ours for key in (LISTENER, METRICS) if (at := each.address_of(key)) is not None]
    return {cluster.zookeeper.port, *(port for _, port in addresses)}


def _at_zookeeper(cluster: Cluster, security: Secured) -> Attempts:
    server = cluster.zookeeper
    strangers = security.strangers()
    known = security.zookeeper_options().tls
    if known is None or not _until(lambda: four_letter_word(server.port, "srvr", context=known.context())):
        return shut_to_all("ZooKeeper", "no answer")
    result = NONE
    for what, stranger in strangers.items():
        result += _unauthenticated(server.port, what, stranger.client_context)
    with zookeeper_client(security.session(cluster.zookeeper_hosts, certificate=INTRUDER)) as client:
        for what, forbidden in _FORBIDDEN:
            result += _forbidden(client, what, forbidden)
    return result


def _unauthenticated(port: int, what: str, context: ssl.SSLContext | None) -> Attempts:
    """One attempt without a valid identity; tried again while ZooKeeper neither answers nor ends the connection."""
    seen: list[str] = []

    def is_decided() -> bool:
        try:
            seen.append(answer_to_word(port, "srvr", context=context))
        except (TimeoutError, ConnectionRefusedError):
            return False
        except OSError:
            seen.append("")
        return True

    if not _until(is_decided):
        return Attempts(1, unproved=(f"ZooKeeper neither answers a stranger {what} nor ends the connection",))
    return Attempts(1, (f"ZooKeeper answers a stranger {what}",)) if seen[-1] else DENIED


def _forbidden(client: KazooClient, what: str, deed: _Deed) -> Attempts:
    """One attempt of the intruder; tried again while ZooKeeper neither refuses nor does it. ZooKeeper looks at rights
    before it says that a new znode exists already (``PrepRequestProcessor``): then an earlier try, whose answer was
    lost, was carried out."""
    seen: list[str] = []

    def is_decided() -> bool:
        try:
            deed(client)
        except NodeExistsError:
            seen.append("")
        except KazooException as error:
            seen.append(f"{type(error).__name__} {error}".strip())
            return isinstance(error, NoAuthError)
        else:
            seen.append("")
        return True

    decided = _until(is_decided)
    if decided and seen[-1]:
        return DENIED
    if decided:
        return Attempts(1, (f"ZooKeeper lets an intruder {what}",))
    return Attempts(1, unproved=(f"ZooKeeper does not refuse an intruder who tries to {what}: {seen[-1]}",))


def _until(holds: Callable[[], object]) -> bool:
    """Whether it holds within `intruder.PATIENCE_SECONDS`."""
    deadline = time.monotonic() + intruder.PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(intruder.RETRY_SECONDS)
    return True


def _open_znodes(cluster: Cluster) -> tuple[int, list[str]]:
    """The number of znodes below the chroot, and those on which others have more rights than Kafka gives them."""
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
