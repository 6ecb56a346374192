"""A small cluster for fault tests: controller processes behind gates, light brokers, a chroot of a real ZooKeeper.

A test stops or cuts the connection of one controller to ZooKeeper at a chosen request (`gate`). Timeouts are short and
batches small, so that a small cluster has every state.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.drill.cluster import CLUSTER_ID, ENCODER_SECRET, ClusterOptions, ControllerProcess, zookeeper_client
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light.broker import LightBroker, LightBrokerOptions
from migrator.drill.light.cluster import LightCluster
from migrator.drill.light.image_comparison import differences
from migrator.drill.workload.fill import FillOptions, fill
from migrator.image.model import MetadataImage
from migrator.log.formatting import FormatPlan, format_directories
from migrator.migration.machine.states import State
from migrator.observe.status import Status
from migrator.records.versions import parse_version
from migrator.verify.kraft import image_rows
from migrator.verify.recheck import agrees
from migrator.verify.zookeeper import reading
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.faults.support.gate import Gate
from tests.patience import PATIENCE_SECONDS

POLL_SECONDS = 0.05
QUICK = {
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.fetch.timeout.ms": "1200",
    "controller.quorum.election.backoff.max.ms": "200",
    "broker.session.timeout.ms": "3000",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.metadata.migration.min.batch.size": "25",
    "migrator.copy.batch.records": "25",
}
"""Short waits, so that a test is; small batches, so that a small copy has many."""

Rows = Mapping[tuple[str, str, str], str]


class FaultCluster(LightCluster):
    """As the drill's, but on a ZooKeeper that is there already, each controller through a gate of its own.

    :param hosts: connection string of an empty chroot.
    :param access: how brokers and the test come to it, if not as anybody; for controllers ``extra`` says that.
    """

    def __init__(
        self,
        directory: Path,
        hosts: str,
        options: ClusterOptions,
        extra: Mapping[str, str],
        access: SessionOptions | None = None,
    ) -> None:
        super().__init__(directory, options)
        self.zookeeper_hosts = hosts
        self.access = replace(access or SessionOptions(hosts), hosts=hosts)
        server, _, chroot = hosts.partition("/")
        self.chroot = "/" + chroot
        self.gates = {controller.node_id: Gate(server) for controller in self.controllers}
        self.extra = dict(QUICK) | dict(extra)
        self.brokers = [
            LightBroker(
                LightBrokerOptions(number, CLUSTER_ID, self.access, self.addresses, heartbeat_interval_seconds=0.5)
            )
            for number in range(1, options.brokers + 1)
        ]
        self._clients: list[ControllerChannel] = []

    def fill(self) -> int:
        """Only the content; the server runs."""
        ids = tuple(broker.options.broker_id for broker in self.brokers)
        options = FillOptions(
            CLUSTER_ID, ids, self.options.partitions, wall_ms(), ENCODER_SECRET,
            set_acl=self.access.set_acl,
        )  # fmt: skip
        with zookeeper_client(self.access) as client:
            return fill(client, options)

    def format(self) -> None:
        """Every controller's directory, without a process for each."""
        for controller in self.controllers:
            controller.properties |= self.extra
            controller.properties["zookeeper.connect"] = self.gates[controller.node_id].hosts + self.chroot
            self.format_one(controller)

    def format_one(self, controller: ControllerProcess, cluster_id: str = CLUSTER_ID) -> None:
        """One of them, for this cluster or for another."""
        controller.write_properties()
        settings, _ = load_settings(controller.property_file)
        directory = settings.metadata_directory
        plan = FormatPlan((directory,), directory, cluster_id, controller.node_id, parse_version("3.9"))
        format_directories(plan, random=Random(controller.node_id), now_ms=0)

    @property
    def client(self) -> ControllerChannel:
        """A new way to the active controller, for one request: nothing is known of who was active."""
        answering = [
            address
            for controller, address in zip(self.controllers, self.addresses, strict=True)
            if controller.runs and not controller.paused
        ]
        self._clients.append(ControllerChannel(answering, "client"))
        return self._clients[-1]

    async def active(self) -> tuple[ControllerProcess, Status] | None:
        """The controller that acts in the migration, in the highest epoch."""
        acting = [
            (status.quorum.leader_epoch, node, status)
            for node, status in (await self.statuses()).items()
            if status.migration.active
        ]
        if not acting:
            return None
        _, node, status = max(acting, key=lambda found: found[0])
        return self.controller(node), status

    async def until(self, what: str, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait for a condition, which may be a coroutine's; gives what held."""
        deadline = time.monotonic() + seconds
        while True:
            held = condition()
            if inspect.isawaitable(held):
                held = await held
            if held:
                return held
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {seconds:.0f} s: {what}\n{await self.account()}")
            await asyncio.sleep(POLL_SECONDS)

    async def account(self) -> str:
        """The controllers' words, for a failure's message."""
        statuses = await self.statuses()
        tails = [
            f"--- {controller.node_id}, exit code {controller.process.exit_code()}\n{controller.process.tail()}"
            for controller in self.controllers
            if controller.process is not None
        ]
        said = [
            f"{node}: {status.quorum.role} {status.migration} {status.problems}" for node, status in statuses.items()
        ]
        return "\n".join(said + tails)

    async def in_state(self, *states: State) -> bool:
        """Whether an active controller is in one of these."""
        found = await self.active()
        return found is not None and found[1].migration.internal_state in {state.value for state in states}

    async def until_state(self, *states: State) -> ControllerProcess:
        """Wait for one of these states; gives the active controller."""
        await self.until(" or ".join(state.value for state in states), lambda: self.in_state(*states))
        found = await self.active()
        assert found is not None
        return found[0]

    async def until_dual_writing(self) -> ControllerProcess:
        """Wait until the active controller dual-writes and ZooKeeper lags behind nothing."""

        writers: list[ControllerProcess] = []

        async def caught_up() -> bool:
            found = await self.active()
            if found is None or found[1].migration.internal_state != State.DUAL_WRITING.value:
                return False
            behind = found[1].write_behind
            if behind is None or behind.lag_records:
                return False
            writers.append(found[0])  # asked once more, a busy one may not answer in time
            return True

        await self.until("dual-writing, nothing waits for ZooKeeper", caught_up)
        return writers[-1]

    async def until_problem(self, *texts: str) -> str:
        """Wait until the active controller names a problem with all of these texts in it and a remedy."""
        said = ""

        async def named() -> bool:
            nonlocal said
            found = await self.active()
            if found is None:
                return False
            for problem in found[1].problems:
                said = f"{problem.who}: {problem.what}. {problem.remedy}"
                if all(text in said for text in texts):
                    return True
            return False

        await self.until(f"a problem that names {texts}", named)
        return said

    async def until_converged(self) -> MetadataImage:
        """Wait until ZooKeeper, the leader's log and every running broker agree; gives the image."""
        leader = await self.until_dual_writing()
        found: list[str] = []

        async def agree() -> bool:
            nonlocal leader
            leader = await self.until_dual_writing()
            image = leader.image()
            found[:] = await asyncio.to_thread(different_rows, self.access, image)
            for broker in self.brokers:
                if broker.running.is_set():
                    found.extend(differences(broker, image))
            return not found

        try:
            await self.until("ZooKeeper and the brokers equal the image", agree)
        except AssertionError as error:
            raise AssertionError(f"{found[:10]}\n{error}") from None
        return leader.image()

    async def close(self) -> None:
        """End everything but ZooKeeper."""
        for client in self._clients:
            await client.close()
        for controller in self.controllers:
            if controller.paused:
                controller.resume()
        for broker in self.brokers:
            await broker.stop(controlled=False)
        await asyncio.gather(*(asyncio.to_thread(controller.kill) for controller in self.controllers))


@asynccontextmanager
async def cluster_in(
    directory: Path,
    hosts: str,
    *,
    controllers: int = 3,
    brokers: int = 3,
    partitions: int = 120,
    transport: str = "grpc",
    filled: bool = True,
    access: SessionOptions | None = None,
    **extra: str,
) -> AsyncIterator[FaultCluster]:
    """A cluster in ZooKeeper mode, its brokers running, its controllers formatted but not started.

    :param access: see `FaultCluster`.
    :param extra: properties of the controllers, with ``_`` for each dot.
    """
    options = ClusterOptions(partitions, brokers, controllers, transport)
    properties = {key.replace("_", "."): text for key, text in extra.items()}
    cluster = FaultCluster(directory, hosts, options, properties, access)
    async with AsyncExitStack() as stack:
        for gate in cluster.gates.values():
            await stack.enter_async_context(gate)
        stack.push_async_callback(cluster.close)
        if filled:
            await asyncio.to_thread(cluster.fill)
        cluster.format()
        await asyncio.gather(*(broker.start() for broker in cluster.brokers))
        yield cluster


def start_all(cluster: FaultCluster) -> None:
    """Start every controller; none is waited for."""
    for controller in cluster.controllers:
        controller.start()


def zookeeper_rows(access: str | SessionOptions) -> Rows:
    """Canonical rows of ZooKeeper, as `migrator verify` sees them."""
    encoder = PasswordEncoder(ENCODER_SECRET, os.urandom)
    with ZooKeeperSession(SessionOptions(access) if isinstance(access, str) else access) as session:
        tree = BulkReader(session)
        names = reading.topic_names(tree)
        rows = [*reading.topics(tree, names, encoder, b"")]
        rows += reading.other_families(tree, encoder, b"")
    return {(kind, entity, field): text for kind, entity, field, text in rows}


def rows_of(image: MetadataImage) -> Rows:
    rows = [row for topic in image.topics.by_id.values() for row in image_rows.topic_rows(topic)]
    rows += image_rows.other_rows(image, b"")
    return {(kind, entity, field): text for kind, entity, field, text in rows}


def different_rows(access: str | SessionOptions, image: MetadataImage) -> list[str]:
    """A text for each row that is not the same on both sides, by the rules of `migrator verify`."""
    left, right = zookeeper_rows(access), rows_of(image)
    return [
        f"{key}: ZooKeeper {left.get(key)!r}, log {right.get(key)!r}"
        for key in left.keys() | right.keys()
        if not agrees(key, left.get(key), right.get(key))
    ]


def every_znode(client: KazooClient) -> dict[str, tuple[int, int]]:
    """The last transactions that changed each znode, and its children: equal dumps mean that nobody wrote."""
    found: dict[str, tuple[int, int]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            children, stat = client.get_children(path, include_data=True)
        except NoNodeError:
            continue
        found[path] = (stat.mzxid, stat.pzxid)
        waiting += [f"{path.rstrip('/')}/{child}" for child in children]
    return found
