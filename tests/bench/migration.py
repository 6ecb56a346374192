"""One peer's migration from a filled ZooKeeper to dual-write, creations there, and the loss of its leader.

Everything is seen from outside, the same way for both peers: `/controller` and `/migration` in ZooKeeper, what brokers
are told, what processes take of memory. Only that dual-writing has begun each peer says itself.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kio.schema.errors import ErrorCode
from rich.console import Console

from migrator.drill.cluster import ControllerProcess, zookeeper_client
from migrator.drill.workload.workload import CREATE_TOPICS
from migrator.errors import MigratorError
from migrator.parts.usage import PeakMemory, ProcessorMeter
from migrator.raft.transport import TransportError
from migrator.values import value
from migrator.wire.legacy.messages import UpdateType
from migrator.wire.schemas import LEADER_AND_ISR, UPDATE_METADATA, build, request_type
from migrator.zookeeper.znodes import paths
from tests.bench.figures import Result
from tests.bench.observers import Arrival, Claim, StallSampler, ZooKeeperWatch
from tests.bench.peers import BenchCluster
from tests.bench.propagation import measure

POLL_SECONDS = 0.01
STATUS_SECONDS = 0.1
UP_SECONDS = 90.0
PARTITIONS_PER_SECOND_MIN = 1_000
"""A peer that is slower than that in any phase is given up."""
REQUEST_SECONDS = 60.0
MEGABYTE = 1e6
MADE = (ErrorCode.none, ErrorCode.topic_already_exists)
"""What says that a topic is there; after a lost answer, the second."""


@value
class BenchOptions:
    """``created_topics`` of ``created_partitions`` each are made in dual-write, ``topics_per_request`` at a time."""

    partitions: int
    created_topics: int = 1_000
    created_partitions: int = 10
    topics_per_request: int = 50


class PhaseFailedError(Exception):
    """A peer did not come to what was waited for."""


async def run(cluster: BenchCluster, options: BenchOptions, console: Console) -> Result:
    """Run one peer through all phases; what fails ends it, with the figures so far."""
    bench = _Bench(cluster, options, console)
    failure = None
    try:
        await bench.run()
    except (PhaseFailedError, MigratorError, TransportError, KazooException, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        await cluster.close()
    return Result(cluster.name, cluster.title, bench.figures, failure)


class _Bench:
    def __init__(self, cluster: BenchCluster, options: BenchOptions, console: Console) -> None:
        self.figures: dict[str, float] = {}
        self._cluster = cluster
        self._options = options
        self._console = console
        self._patience = 60.0 + options.partitions / PARTITIONS_PER_SECOND_MIN

    async def run(self) -> None:
        self._say(f"ZooKeeper is filled with {self._options.partitions:,} partitions")
        await asyncio.to_thread(self._cluster.fill)
        with zookeeper_client(self._cluster.zookeeper_hosts) as client:
            watch = await asyncio.to_thread(ZooKeeperWatch, client)
            await self._bring_up()
            claim = await self._migrate(client, watch)
            await self._create_topics(client)
            if len(self._cluster.controllers) > 1:
                await self._kill_leader(client, watch, claim)

    async def _bring_up(self) -> None:
        """All but the last broker are there, the controllers wait for it."""
        self._say("the quorum is brought up")
        for controller in self._cluster.controllers:
            await asyncio.to_thread(controller.format)
        for controller in self._cluster.controllers:
            await asyncio.to_thread(controller.start)
        early = self._cluster.quiet_brokers[:-1]
        for broker in early:
            await broker.start()
        await self._until("the first brokers are registered", lambda: all(b.epoch >= 0 for b in early), UP_SECONDS)

    async def _migrate(self, client: KazooClient, watch: ZooKeeperWatch) -> Claim:
        late = self._cluster.quiet_brokers[-1]
        self._say("the last broker joins, the copy begins")
        with ExitStack() as stack:
            memory = {node: stack.enter_context(PeakMemory(pid)) for node, pid in self._pids().items()}
            stalls = stack.enter_context(StallSampler(self._cluster.metrics_ports))
            await late.start()
            await self._until("the last broker is registered", lambda: late.epoch >= 0, UP_SECONDS)
            ready = time.monotonic()
            processor = ProcessorMeter(self._pids().values())
            await self._until("a claim of /controller", lambda: bool(watch.claims))
            claim = watch.claims[0]
            self.figures["ready_to_claim"] = claim.at - ready
            await self._until("the end of the copy", lambda: watch.copied_at is not None)
            copied = watch.copied_at or 0.0
            self.figures["claim_to_copied"] = copied - claim.at
            self.figures["ready_to_copied"] = copied - ready
            self._say(f"copied in {copied - claim.at:.1f} s")
            written = asyncio.create_task(self._written(client, "made-after-the-copy"))
            self.figures["claim_to_informed"] = await self._informed(claim) - claim.at
            self.figures["claim_to_dual_write"] = await self._dual_write(claim) - claim.at
            self.figures["processor_s"] = processor.seconds
            self.figures["others_percent"] = 100 * processor.others_share
            closing = await self._informed(claim, UpdateType.FULL)
            self.figures["claim_to_closing"] = closing - claim.at
            stalls.look()
            self.figures["copied_to_written"] = await written - copied
        self._say(f"dual-writes {self.figures['claim_to_dual_write']:.1f} s after the claim")
        told = self._cluster.quiet_brokers[0].heard
        sizes = sum(heard.size for heard in told if heard.api_key == UPDATE_METADATA)
        self.figures["update_metadata_mb"] = sizes / MEGABYTE
        self.figures["leader_rss_mb"] = memory.pop(claim.node_id).peak_bytes / MEGABYTE
        self.figures["follower_rss_mb"] = max((each.peak_bytes for each in memory.values()), default=0) / MEGABYTE
        if stalls.longest_ms:
            self.figures["stall_ms"] = max(stalls.longest_ms.values())
        return claim

    async def _create_topics(self, client: KazooClient) -> None:
        """As fast as one client can, one request after the other."""
        options = self._options
        names = [f"bench-{number:05}" for number in range(options.created_topics)]
        self._say(f"{len(names):,} topics are created in dual-write")
        await self._until("every broker is unfenced", self._all_run, UP_SECONDS)
        channel = self._cluster.channel("bench")
        self.figures |= await measure(lambda name: self._create(channel.request, [name]), self._cluster.quiet_brokers)
        begin = time.monotonic()
        try:
            for start in range(0, len(names), options.topics_per_request):
                await self._create(channel.request, names[start : start + options.topics_per_request])
        finally:
            await channel.close()
        acknowledged = time.monotonic()
        last = options.created_partitions - 1
        arrival = Arrival(client, [paths.partition_state(name, last) for name in names])
        await self._until_async(
            "the created topics are in ZooKeeper", lambda: asyncio.to_thread(arrival.complete), POLL_SECONDS
        )
        written = time.monotonic()
        count = options.created_topics * options.created_partitions
        self.figures["acknowledged_rate"] = count / (acknowledged - begin)
        self.figures["write_behind_rate"] = count / (written - begin)
        self.figures["write_behind_lag"] = written - acknowledged

    async def _written(self, client: KazooClient, name: str) -> float:
        """When a topic is in ZooKeeper that is made as soon as the controller makes one."""
        channel = self._cluster.channel("bench")

        async def is_made() -> bool:
            try:
                await self._create(channel.request, [name])
            except (PhaseFailedError, TransportError):
                return False
            return True

        try:
            await self._until_async(f"{name} is made", is_made, POLL_SECONDS)
        finally:
            await channel.close()
        arrival = Arrival(client, [paths.partition_state(name, self._options.created_partitions - 1)])
        await self._until_async(f"{name} is in ZooKeeper", lambda: asyncio.to_thread(arrival.complete), POLL_SECONDS)
        return time.monotonic()

    async def _create(self, send: Callable[..., Awaitable[Any]], names: list[str]) -> None:
        topic = {"num_partitions": self._options.created_partitions, "replication_factor": 3, "configs": []}
        request = build(
            request_type(*CREATE_TOPICS),
            topics=[{"name": name, **topic} for name in names],
            timeout=dt.timedelta(seconds=REQUEST_SECONDS),
        )
        answer = await send(request, timeout_seconds=REQUEST_SECONDS)
        refused = [topic for topic in answer.topics if topic.error_code not in MADE]
        if refused:
            raise PhaseFailedError(f"topics were refused, e.g. {refused[0]}")

    async def _kill_leader(self, client: KazooClient, watch: ZooKeeperWatch, claim: Claim) -> None:
        self._say(f"the leader, {claim.node_id}, is killed")
        seen = len(watch.claims)
        with StallSampler(self._cluster.metrics_ports) as stalls:
            killed = time.monotonic()
            await asyncio.to_thread(self._cluster.controller(claim.node_id).kill)
            await self._until("another claim", lambda: len(watch.claims) > seen)
            successor = watch.claims[-1]
            written = asyncio.create_task(self._written(client, "made-after-the-kill"))
            self.figures["kill_to_claim"] = successor.at - killed
            self.figures["kill_to_informed"] = await self._informed(successor) - killed
            self.figures["kill_to_led"] = await self._informed(successor, api_key=LEADER_AND_ISR) - killed
            self.figures["kill_to_dual_write"] = await self._dual_write(successor) - killed
            self.figures["kill_to_written"] = await written - killed
        if stalls.longest_ms:
            self.figures["failover_stall_ms"] = max(stalls.longest_ms.values())
        self._say(f"the next leader dual-writes after {self.figures['kill_to_dual_write']:.1f} s")

    # --- waiting ---

    async def _informed(self, claim: Claim, kind: UpdateType | None = None, api_key: int = UPDATE_METADATA) -> float:
        """When the last broker heard the first such request, of that type if one is given, under this claim."""

        def heard() -> list[float | None]:
            return [broker.first(api_key, claim.node_id, kind) for broker in self._cluster.quiet_brokers]

        await self._until(f"request {api_key} of {claim.node_id} at every broker", lambda: None not in heard())
        return max(at for at in heard() if at is not None)

    async def _dual_write(self, claim: Claim) -> float:
        controller: ControllerProcess = self._cluster.controller(claim.node_id)
        await self._until_async(
            f"controller {claim.node_id} dual-writes", lambda: self._cluster.dual_writes(controller), STATUS_SECONDS
        )
        return time.monotonic()

    def _all_run(self) -> bool:
        return all(broker.running.is_set() for broker in self._cluster.quiet_brokers)

    async def _until(self, what: str, condition: Callable[[], bool], seconds: float | None = None) -> None:
        async def asked() -> bool:
            return condition()

        await self._until_async(what, asked, POLL_SECONDS, seconds)

    async def _until_async(
        self, what: str, condition: Callable[[], Awaitable[bool]], poll: float, seconds: float | None = None
    ) -> None:
        deadline = time.monotonic() + (seconds or self._patience)
        while not await condition():
            if time.monotonic() > deadline:
                raise PhaseFailedError(f"not in {seconds or self._patience:.0f} s: {what}")
            for controller in self._cluster.controllers:
                if controller.process is not None and controller.process.exit_code() not in (None, -9):
                    raise PhaseFailedError(str(controller.process.failure(f"{controller.process.name} ended")))
            await asyncio.sleep(poll)

    def _pids(self) -> dict[int, int]:
        processes = {controller.node_id: controller.process for controller in self._cluster.controllers}
        return {node_id: process.pid for node_id, process in processes.items() if process is not None}

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {self._cluster.name}: {text}")
