"""A user with a password and a certificate, and no permission at all: every request of his must be refused.

So must every caller who cannot prove an identity. An attempt that is not answered proves nothing, and is made again. If
no answer comes for long, the drill does not hold; but that is no intrusion.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.security.protection import WRITER
from migrator.drill.workload.workload import errors_of
from migrator.raft.events import Failure
from migrator.raft.transport import PeerTimeoutError, TransportError
from migrator.records.batch import build_batch
from migrator.records.metadata import ConfigResourceType, ScramMechanism
from migrator.values import value
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from migrator.wire.security import ListenerSecurity

Address = tuple[str, int]
TIMEOUT = dt.timedelta(seconds=10)
REQUEST_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.2
SIEGE_SECONDS = 2.0
"""How long to wait for one answer while controllers stop and start."""
SIEGE_PAUSE_SECONDS = 0.05
DENIALS = frozenset(
    {
        ErrorCode.cluster_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
_TRY_LATER = frozenset(
    {ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.unknown_server_error, ErrorCode.not_coordinator}
)
"""Errors after which an attempt is repeated; the third is that of a node that does not know the permissions yet."""
_NEW = "drill-of-an-intruder"
_QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": WRITER}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
}
_ENTRY = {
    "resource_type": 2, "resource_name": "*", "resource_pattern_type": 3, "principal": "User:intruder", "host": "*",
    "operation": 2, "permission_type": 3,
}  # fmt: skip
_FILTER = {
    "resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
Api = tuple[int, int]
_HARMLESS = build(request_type(60, 0))
"""DescribeCluster: a known user gets an answer, if only a refusal."""
OF_BROKERS: tuple[tuple[Api, Mapping[str, Any]], ...] = (((67, 0), {"broker_id": 1, "broker_epoch": 1}),)
"""Requests that only a broker may send to a controller."""


def changes_of(topic: str) -> tuple[tuple[Api, Mapping[str, Any]], ...]:
    """API, version and fields of requests that only an operator may send, to a broker or a controller."""
    config = {
        "resource_type": int(ConfigResourceType.TOPIC),
        "resource_name": topic,
        "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
    }
    election = {"topic": topic, "partitions": (0,)}
    move = {"name": topic, "partitions": [{"partition_index": 0, "replicas": (1,)}]}
    theft = {"name": WRITER, "mechanism": int(ScramMechanism.SHA_512)}
    return (
        ((19, 7), {"topics": [{"name": _NEW, "num_partitions": 1, "replication_factor": 1}], "timeout": TIMEOUT}),
        ((20, 6), {"topics": [{"name": topic, "topic_id": None}], "timeout": TIMEOUT}),
        ((37, 3), {"topics": [{"name": topic, "count": 9, "assignments": None}], "timeout": TIMEOUT}),
        ((44, 1), {"resources": [config]}),
        ((51, 0), {"deletions": [theft], "upsertions": []}),
        ((49, 1), {"entries": [_QUOTA], "validate_only": False}),
        ((30, 3), {"creations": [_ENTRY]}),
        ((31, 3), {"filters": [_FILTER]}),
        ((43, 2), {"election_type": 1, "topic_partitions": [election], "timeout": TIMEOUT}),
        ((45, 0), {"topics": [move], "timeout": TIMEOUT}),
    )


@value
class Attempts:
    """The number of attempts; a sentence for each that was admitted; and a sentence for each that proves nothing,
    because no answer came in time, or because the door refuses every caller."""

    count: int
    let_in: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    def __add__(self, other: Attempts) -> Attempts:
        return Attempts(self.count + other.count, self.let_in + other.let_in, self.unproved + other.unproved)


NONE = Attempts(0)
DENIED = Attempts(1)


def shut_to_all(where: str, why: object) -> Attempts:
    """The attempt at a door that has refused the right login, too, for as long as `PATIENCE_SECONDS`."""
    text = f"{where}: even the right login is refused, so the refusal of strangers proves nothing: {why}"
    return Attempts(1, unproved=(text,))


async def ask_for_changes(
    where: str, addresses: Sequence[Address], security: ListenerSecurity, topic: str, *, controllers: bool
) -> Attempts:
    """Request changes from the broker or controller that decides on them.

    :param where: for people.
    """
    channel = ControllerChannel(addresses, "intruder", security)
    try:
        result = NONE
        for api, fields in changes_of(topic) + (OF_BROKERS if controllers else ()):
            request = build(request_type(*api), **fields)
            result += await attempt(where, request, lambda each: channel.request(each, timeout_seconds=REQUEST_SECONDS))
        return result
    finally:
        await channel.close()


async def start_attack(
    where: str, addresses: Sequence[Address], security: ListenerSecurity, topic: str
) -> RepeatedAttack:
    """Request one change after the other from each controller in turn, until this is called off.

    Controllers stop, start and change roles meanwhile. A request without an answer, or to a node that does not decide,
    does not count, as long as it is not carried out.
    """
    attack = RepeatedAttack()
    attack.task = asyncio.create_task(_attack_repeatedly(attack, where, addresses, security, topic))
    return attack


class RepeatedAttack:
    """An attack that is under way."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.attempts = NONE
        """The attempts so far."""
        self.put_off = 0
        """Requests that were answered with "try later"."""
        self.ends = False

    async def call_off(self) -> None:
        """End after the present request."""
        self.ends = True
        await self.task

    async def abandon(self) -> None:
        """End at once; safe at any time."""
        self.task.cancel()
        await asyncio.wait({self.task})


async def _attack_repeatedly(
    attack: RepeatedAttack, where: str, addresses: Sequence[Address], security: ListenerSecurity, topic: str
) -> None:
    clients = {address: KafkaClient(*address, "intruder", security=security) for address in addresses}
    wanted = itertools.cycle(itertools.product(changes_of(topic) + OF_BROKERS, clients.items()))
    try:
        while not attack.ends:
            (api, fields), (address, client) = next(wanted)
            request = build(request_type(*api), **fields)
            with contextlib.suppress(TransportError):
                answer = await client.request(request, SIEGE_SECONDS)
                match verdict_on(answer):
                    case AccessVerdict.DENIED:
                        attack.attempts += DENIED
                    case AccessVerdict.LATER:
                        attack.put_off += 1
                    case AccessVerdict.LET_IN:
                        attack.attempts += Attempts(1, (_not_refused(where, address, request, answer),))
            await asyncio.sleep(SIEGE_PAUSE_SECONDS)
    finally:
        for client in clients.values():
            await client.close()


async def read_and_write(broker: str, address: Address, security: ListenerSecurity, topic: str) -> Attempts:
    """Try to read and write at one broker, which need not lead the partition."""
    client = KafkaClient(*address, "intruder", security=security)
    try:
        result = NONE
        for request in (_produce(topic), _fetch(topic)):
            result += await attempt(broker, request, lambda each: client.request(each, REQUEST_SECONDS))
        return result
    finally:
        await client.close()


async def speak_for_the_cluster(broker: str, address: Address, security: ListenerSecurity, topic: str) -> Attempts:
    """Send a broker the requests of brokers and controllers."""
    client = KafkaClient(*address, "intruder", security=security)
    try:
        request = _write_marker(topic)
        return await attempt(broker, request, lambda each: client.request(each, REQUEST_SECONDS))
    finally:
        await client.close()


async def come_in(
    where: str, address: Address, strangers: Mapping[str, ListenerSecurity], known: ListenerSecurity
) -> Attempts:
    """Connect, log in if the stranger has a login, and send a request, which must not be answered.

    :param strangers: callers who must be refused, by their credentials.
    :param known: an identity that must be admitted: a door that refuses every caller proves nothing.
    """
    if why := await _shut_out(address, known, is_wanted=True):
        return shut_to_all(where, why)
    result = NONE
    for what, stranger in strangers.items():
        try:
            refused = await _shut_out(address, stranger)
        except TransportError as error:
            result += Attempts(1, unproved=(f"{where}: a stranger {what} got no answer: {error}",))
        else:
            result += DENIED if refused else Attempts(1, (f"{where}: a stranger {what} was let in",))
    return result


async def _shut_out(address: Address, security: ListenerSecurity, *, is_wanted: bool = False) -> str:
    """Why a connection fails; empty when it succeeds.

    :param is_wanted: whether it should succeed: then any failure is tried again, otherwise only silence. A port on
        which nobody listens is silent, too.
    :raises TransportError: there was only silence.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        client = KafkaClient(*address, "stranger", security=security)
        try:
            await client.connect(REQUEST_SECONDS)
            if not is_wanted:  # versions are answered before a login
                await client.request(_HARMLESS, REQUEST_SECONDS)
        except TransportError as error:
            in_time = asyncio.get_running_loop().time() < deadline
            silent = isinstance(error, PeerTimeoutError) or error.how is Failure.REFUSED
            if silent and not is_wanted and not in_time:
                raise
            if not (in_time and (silent or is_wanted)):
                return str(error)
        else:
            return ""
        finally:
            await client.close()
        await asyncio.sleep(RETRY_SECONDS)


class AccessVerdict(Enum):
    """The meaning of an answer to an intruder."""

    DENIED = "refused for lack of permission, all of it"
    LATER = "neither refused nor done"
    LET_IN = "anything else"


def verdict_on(answer: Any) -> AccessVerdict:
    errors = set(errors_of(answer)) - {ErrorCode.none}
    if errors and errors <= DENIALS:
        return AccessVerdict.DENIED
    return AccessVerdict.LATER if errors & _TRY_LATER else AccessVerdict.LET_IN


async def attempt(where: str, request: Any, ask: Callable[[Any], Awaitable[Any]]) -> Attempts:
    """Make one attempt, again and again until there is a final answer."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    answered: object = "no answer"
    while asyncio.get_running_loop().time() < deadline:
        try:
            verdict = verdict_on(answered := await ask(request))
        except TransportError as error:
            answered = error
        else:
            if verdict is AccessVerdict.DENIED:
                return DENIED
            if verdict is AccessVerdict.LET_IN:
                return Attempts(1, (_not_refused(where, None, request, answered),))
        await asyncio.sleep(RETRY_SECONDS)
    return Attempts(1, unproved=(_not_refused(where, None, request, answered),))


def _not_refused(where: str, address: Address | None, request: Any, answered: object) -> str:
    """One sentence: at which door, which attempt, which answer."""
    at = "" if address is None else f" (port {address[1]})"
    return f"{where}{at}: {type(request).__name__} was not refused: {answered}"


def _produce(topic: str) -> Any:
    batch = build_batch([b"from an intruder"], timestamp_ms=0)
    partition = {"index": 0, "records": batch}
    data = {"name": topic, "partition_data": [partition]}
    return build(request_type(0, 9), transactional_id=None, acks=-1, timeout=TIMEOUT, topic_data=[data])


def _write_marker(topic: str) -> Any:
    """Abort a transaction, which only brokers may request from each other."""
    marker = {
        "producer_id": 1, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": (0,)}],
    }  # fmt: skip
    return build(request_type(27, 1), markers=[marker])


def _fetch(topic: str) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1024}
    return build(
        request_type(1, 12), replica_id=-1, max_wait=dt.timedelta(0), min_bytes=1, max_bytes=1024, session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
    )  # fmt: skip
