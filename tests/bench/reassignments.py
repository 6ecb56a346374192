"""Three voters become three others while clients write: by our target, and by the six commands of stock Kafka.

Both peers have six controllers at kraft.version 1 and the same topics. Our operator types one command; stock's adds and
removes one controller after the other, and types a command again that was refused.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from kio.schema.errors import ErrorCode
from rich.console import Console

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.light.broker import directory_of
from migrator.errors import MigratorError, OperatorError, PeerError
from migrator.parts.usage import ProcessorMeter
from migrator.raft.transport import TransportError
from migrator.records.uuid import uuid_to_text
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from tests.bench.figures import Figure, Result
from tests.bench.quorums import REQUEST_SECONDS, TITLES, StockVoters, fill, running
from tests.interop.support.changing_voters import ChangingVoters, Writers

REASSIGNMENT_FIGURES = (
    Figure("move", "first command to (4,5,6) alone in force", "s", "<= 1x"),
    Figure("pause_ms", "longest pause between two acknowledged writes meanwhile", "ms", "<= 1x"),
    Figure("pause_before_ms", "longest pause in as long a time before", "ms"),
    Figure("commands", "commands that the operator types", ""),
    Figure("writes", "writes acknowledged meanwhile", "/s"),
    Figure("processor_s", "processor time of all controllers meanwhile", "s"),
    Figure("others_percent", "the processors' share that others took meanwhile", "%"),
)
"""Goals are multiples of stock's."""
OLD, NEW = (1, 2, 3), (4, 5, 6)
CLIENTS = 10
MORE_WRITES = 200
BROKERS = (101, 102, 103)
BROKER_REGISTRATION, BROKER_HEARTBEAT = 62, 63
METADATA_VERSION = 21  # 3.9-IV0
NO_SESSION_ENDS = {"broker.session.timeout.ms": "3600000"}
"""The brokers are three registrations: who votes does not concern them, and they would take part of the processors."""


async def run(peer: str, directory: Path, partitions: int, console: Console) -> Result:
    """One peer's move; what fails ends it, with the figures so far."""
    figures: dict[str, float] = {}
    failure = None
    try:
        size, voters = len(OLD + NEW), len(OLD)
        async with running(peer, directory, size=size, voters=voters, properties=NO_SESSION_ENDS) as quorum:
            console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {peer}: {partitions:,} partitions are created")
            await _fill(quorum, partitions)
            await quorum.until_caught_up()
            console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {peer}: {OLD} become {NEW}")
            await _measure(quorum, figures)
    except (MigratorError, TimeoutError, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Result(peer, TITLES[peer], figures, failure)


async def _measure(quorum: ChangingVoters, figures: dict[str, float]) -> None:
    writers = Writers(quorum, CLIENTS)
    await quorum.until(lambda _: len(writers.acknowledged) > 5 * MORE_WRITES)
    meter = ProcessorMeter([controller.process.pid for controller in quorum.controllers.values() if controller.process])
    begin = time.monotonic()
    figures["commands"] = await (_by_commands(quorum) if isinstance(quorum, StockVoters) else _by_target(quorum))
    await quorum.until(lambda found: {row.replica_id for row in found.current_voters} == set(NEW))
    end = time.monotonic()
    written = len(writers.acknowledged)
    await quorum.until(lambda found: found.leader_id in NEW and len(writers.acknowledged) > written + MORE_WRITES)
    figures |= {"move": end - begin, "processor_s": meter.seconds, "others_percent": 100 * meter.others_share}
    await writers.end()
    times = sorted(writers.acknowledged.values())
    after = time.monotonic()
    figures["pause_ms"] = longest_pause_ms(times, begin, after)
    figures["pause_before_ms"] = longest_pause_ms(times, begin - (after - begin), begin)
    figures["writes"] = sum(begin <= at <= after for at in times) / (after - begin)
    lost = writers.lost(await quorum.image())
    if lost:
        raise MigratorError(f"{len(lost)} acknowledged writes are lost, the first is {lost[0]}")


def longest_pause_ms(times: Iterable[float], begin: float, end: float) -> float:
    """Between two acknowledgements, or between one and the beginning."""
    inside = [begin, *(at for at in times if begin <= at <= end)]
    return max((1000 * (after - before) for before, after in itertools.pairwise(inside)), default=0.0)


async def _by_target(quorum: ChangingVoters) -> int:
    await quorum.order("reassign", "--to", ",".join(map(str, NEW)))
    return 1


async def _by_commands(quorum: StockVoters) -> int:
    """Add, then remove, one after the other; each names a controller and its directory."""
    found = await quorum.until(lambda _: True)
    directories = {row.replica_id: uuid_to_text(row.replica_directory_id.bytes) for row in found.current_voters}
    properties = {node: str(controller.property_file) for node, controller in quorum.controllers.items()}
    steps = [("--command-config", properties[node], "add-controller") for node in NEW]
    removals = [
        ("remove-controller", "--controller-id", str(node), "--controller-directory-id", directories[node])
        for node in OLD
    ]
    typed = 0
    for step in (*steps, *removals):
        typed += await _type(quorum, step)
    return typed


async def _type(quorum: StockVoters, step: tuple[str, ...]) -> int:
    for count in range(1, 11):
        try:
            await asyncio.to_thread(quorum.command, *step)
        except OperatorError:
            if count == 10:
                raise
        else:
            break
    return count


async def _fill(quorum: ChangingVoters, partitions: int) -> None:
    """Three brokers are registered, then come their topics."""
    leader = (await quorum.until(lambda _: True)).leader_id
    client = KafkaClient("127.0.0.1", quorum.ports[leader], "bench")
    try:
        for broker in BROKERS:
            await _register(client, broker)
        await fill(quorum, partitions, BROKERS)
    except (TransportError, PeerError) as error:
        raise MigratorError(f"the topics could not be created: {error}") from error
    finally:
        await client.close()


async def _register(client: KafkaClient, broker: int) -> None:
    registration = build(
        request_type(BROKER_REGISTRATION, 4),
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=broker),
        listeners=[{"name": "PLAINTEXT", "host": "127.0.0.1", "port": broker, "security_protocol": 0}],
        features=[
            {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": METADATA_VERSION},
            {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1},
        ],
        rack=None,
        is_migrating_zk_broker=False,
        log_dirs=(directory_of(broker),),
        previous_broker_epoch=-1,
    )
    registered = await client.request(registration, REQUEST_SECONDS)
    _check(registered.error_code, f"registration of broker {broker}")
    is_fenced = True
    while is_fenced:  # until its registration is committed
        heartbeat = build(
            request_type(BROKER_HEARTBEAT, 1),
            broker_id=broker,
            broker_epoch=registered.broker_epoch,
            current_metadata_offset=registered.broker_epoch,
            want_fence=False,
            want_shut_down=False,
        )
        beaten = await client.request(heartbeat, REQUEST_SECONDS)
        _check(beaten.error_code, f"heartbeat of broker {broker}")
        is_fenced = beaten.is_fenced


def _check(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise MigratorError(f"{what}: {code.name}")
