"""Functions for the steps of a drill: to wait, compare, corrupt, and read ZooKeeper.

Steps call `until` for every condition: it waits a bounded time, and its error has the status of the controllers.
Comparisons leave out znodes that change by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import WatchedEvent

from migrator.drill.cluster import COMMAND_SECONDS, ENCODER_SECRET, MIGRATOR, WAIT_SECONDS, Cluster, ControllerProcess
from migrator.drill.report import DrillFailedError, DrillReport
from migrator.errors import OperatorError
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.log.dump import to_objects
from migrator.log.errors import StorageError
from migrator.migration.machine.states import State
from migrator.migration.translate.to_records import RecordReader
from migrator.observe.status import Status
from migrator.parts.java import ONE_TIER
from migrator.parts.processes import ChildProcess
from migrator.verify.kraft.files import log_directory_of
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import ControllerClaim, decode_controller
from migrator.zookeeper.znodes.passwords import PasswordEncoder

POLL_SECONDS = 0.1
REGISTRATION = "REGISTER_BROKER_RECORD"
DUAL_WRITING = State.DUAL_WRITING.value
_VOLATILE = (
    paths.BROKER_IDS,
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    paths.MIGRATION,
    paths.CONFIG_CHANGES,
    paths.LITERAL_ACL_CHANGES,
    paths.PREFIXED_ACL_CHANGES,
    paths.TOKEN_CHANGES,
    "/brokers/seqid",
    paths.ROLLOUT,
)
"""Paths that change on a cluster whose metadata do not."""
_PARTITION = re.compile(r"/brokers/topics/([^/]+)/partitions/\d+")


async def until(
    cluster: Cluster, report: DrillReport, what: str, condition: Callable[[], Awaitable[bool]], *, seconds: float
) -> float:
    """Wait for a condition; return the seconds that it took.

    :raises DrillFailedError: the condition did not hold in time, or a controller died; with the status of the
        controllers.
    """
    report.wait_for(what)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    expected = [controller for controller in cluster.controllers if controller.runs]
    while not await condition():
        dead = [controller for controller in expected if not controller.runs]
        if dead and dead[0].process is not None:
            raise DrillFailedError(str(dead[0].process.failure(f"controller {dead[0].node_id} ended by itself")))
        if loop.time() - begin > seconds:
            said = "; ".join(_sentence(status) for status in (await cluster.statuses()).values())
            raise DrillFailedError(
                f"this did not happen within {seconds:.0f} s: {report.now}. Controllers say: {said or 'nothing'}"
            )
        await asyncio.sleep(POLL_SECONDS)
    report.wait_for("")
    return loop.time() - begin


def _sentence(status: Status) -> str:
    problems = ", ".join(f"{problem.who}: {problem.what}" for problem in status.problems)
    migration = status.migration
    return (
        f"{status.node_id} {status.quorum.role} {migration.public_state}/{migration.internal_state}"
        f"{' (' + problems + ')' if problems else ''}"
    )


async def all_report(cluster: Cluster, public_state: str) -> bool:
    """Whether every controller that runs reports this state, and one leads."""
    running = [controller for controller in cluster.controllers if controller.runs]
    statuses = await cluster.statuses()
    return (
        len(statuses) == len(running) > 0
        and all(status.migration.public_state == public_state for status in statuses.values())
        and await cluster.leader() is not None
    )


async def dual_writing(cluster: Cluster) -> bool:
    """Whether a leader dual-writes, and nothing waits to be written to ZooKeeper."""
    leader = await cluster.leader()
    status = None if leader is None else await leader.status()
    return (
        status is not None
        and status.migration.active
        and status.migration.internal_state == DUAL_WRITING
        and (status.write_behind is None or status.write_behind.lag_records == 0)
    )


async def answers(cluster: Cluster, node_id: int) -> bool:
    """Whether this controller answers."""
    return node_id in await cluster.statuses()


async def leader_of(cluster: Cluster) -> ControllerProcess:
    """The leader, once it answers: a busy controller may answer late.

    :raises DrillFailedError: there is no leader.
    """
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while (leader := await cluster.leader()) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise DrillFailedError("no controller leads")
        await asyncio.sleep(POLL_SECONDS)
    return leader


async def verify(cluster: Cluster, *, repair: bool = False) -> tuple[int, dict[str, Any]]:
    """Run `migrator verify` on the leader's directory; return its exit code and its output.

    :raises DrillFailedError: the command printed no verdict.
    """
    leader = await leader_of(cluster)
    conf = f"spark.driver.extraJavaOptions={ONE_TIER}"
    seconds = 2 * COMMAND_SECONDS if repair else COMMAND_SECONDS  # a repair compares twice
    more = ("--repair", "--yes") if repair else ()
    if not repair:
        more = ("--page", str(cluster.directory / "verify.html"))
    return await command(cluster, "verify", "-c", str(leader.property_file), "--conf", conf, *more, seconds=seconds)


async def command(cluster: Cluster, name: str, *arguments: str, seconds: float = COMMAND_SECONDS) -> tuple[int, Any]:
    """Run `migrator NAME ARGUMENTS --json`; return its exit code and its output.

    :raises DrillFailedError: the command printed no JSON.
    """
    child = ChildProcess(name, [MIGRATOR, name, *arguments, "--json"], output=cluster.directory / f"{name}.log")
    watched = asyncio.create_task(cluster.watch.follow(child.pid))
    try:
        code = await asyncio.to_thread(child.wait, timeout_seconds=seconds)
    finally:
        watched.cancel()
        await asyncio.wait({watched})
        child.kill()
    text, tail = child.output_text(), child.tail()
    start = text.find("\n{") + 1 if not text.startswith("{") else 0
    try:
        return code, json.loads(text[start : text.rindex("}") + 1])
    except ValueError:
        raise DrillFailedError(f"{name} ended with exit code {code}: {tail}") from None


def image_in_zookeeper(cluster: Cluster) -> MetadataImage:
    """The metadata that ZooKeeper has. Blocks.

    :raises ZnodeError: a znode does not decode.
    """
    builder, passwords = ImageBuilder(EMPTY_IMAGE), PasswordEncoder(ENCODER_SECRET, os.urandom)
    with ZooKeeperSession(cluster.security.session(cluster.zookeeper_hosts)) as session:
        reader = RecordReader(BulkReader(session), passwords=passwords, random=random.Random(0))
        for record in chain.from_iterable(reader.all_records()):
            builder.replay(record)
    return builder.image(EMPTY_IMAGE.provenance)


def controller_claim(client: KazooClient) -> ControllerClaim | None:
    """The claim in `/controller`; None without one."""
    try:
        return decode_controller(paths.CONTROLLER, client.get(paths.CONTROLLER)[0])
    except NoNodeError:
        return None


async def broker_leads(cluster: Cluster) -> bool:

    def look() -> bool:
        with cluster.zookeeper_client() as client:
            claim = controller_claim(client)
            return claim is not None and not claim.is_kraft

    return await asyncio.to_thread(look)


def metadata_of(client: KazooClient) -> dict[str, bytes | None]:
    """Data by path of every znode that holds metadata."""
    found: dict[str, bytes | None] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        children = client.get_children(path)
        waiting += [f"{path.rstrip('/')}/{child}" for child in children]
        if path != "/" and not path.startswith(_VOLATILE):
            found[path] = client.get(path)[0]
    return found


def settled_metadata(client: KazooClient, brokers_own: re.Pattern[str]) -> dict[str, bytes | None]:
    """Like `metadata_of`, without znodes that brokers write at any time (`Cluster.brokers_own`)."""
    return {path: data for path, data in metadata_of(client).items() if not brokers_own.fullmatch(path)}


def doomed_topics(metadata: Mapping[str, bytes | None]) -> set[str]:
    """Topics whose deletion is pending."""
    parent = paths.delete_topic("")
    return {path.removeprefix(parent) for path in metadata if path.startswith(parent)}


def partition_count(metadata: Mapping[str, bytes | None]) -> int:
    """The number of partitions of topics without a pending deletion."""
    doomed = doomed_topics(metadata)
    matches = (_PARTITION.fullmatch(path) for path in metadata)
    return sum(1 for match in matches if match is not None and match.group(1) not in doomed)


def highest_state_epoch(client: KazooClient) -> int:
    highest = 0
    for topic in client.get_children(paths.TOPICS):
        try:
            partitions = client.get_children(paths.partitions(topic))
        except NoNodeError:
            continue
        for partition in partitions:
            data, _ = client.get(paths.partition_state(topic, int(partition)))
            highest = max(highest, orjson.loads(data)["controller_epoch"])
    return highest


class StopAtClaim:
    """Freezes ZooKeeper when a KRaft controller claims it, so that the copy cannot end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._client = ZooKeeperSession(cluster.security.session(cluster.zookeeper_hosts)).client
        self.claimed = asyncio.Event()

    def arm(self) -> None:
        """Begin to watch. Blocking."""
        self._client.start(timeout=30.0)
        self._watch()

    def release(self) -> None:
        """Let ZooKeeper go on. Blocking; safe at any time."""
        self._cluster.zookeeper.resume()
        self._client.stop()
        self._client.close()

    def _watch(self, _event: WatchedEvent | None = None) -> None:
        if self.claimed.is_set():
            return
        try:
            data, _ = self._client.get(paths.CONTROLLER, watch=self._watch)
        except NoNodeError:
            self._client.exists(paths.CONTROLLER, watch=self._watch)
            return
        if decode_controller(paths.CONTROLLER, data).is_kraft:
            self._cluster.zookeeper.pause()
            self._loop.call_soon_threadsafe(self.claimed.set)


def registration_ms(controller: ControllerProcess, broker: int) -> int | None:
    """When this broker last registered, by the clock of the leader of that time; None when the log does not have it.
    Blocks."""
    segments = sorted(log_directory_of(controller.metadata_directory).glob("*.log"))
    found = None
    with suppress(StorageError):  # the last batch is being written
        for record in chain.from_iterable(map(to_objects, segments)):
            if record["type"] == REGISTRATION and record["data"]["brokerId"] == broker:
                found = int(record["timestamp"])
    return found


def log_tail(controller: ControllerProcess) -> str:
    """The last lines of a controller's output."""
    if controller.process is None:
        raise OperatorError("the controller was not started", where=f"controller {controller.node_id}")
    return controller.process.tail()
