"""Controllers as processes whose log names the voters, and clients that write without a pause.

Tests and benchmarks change the voters of `ChangingVoters` while it is written. `Writers.lost` names acknowledged writes
that an image lacks.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, ControllerProcess, speak_grpc
from migrator.errors import PeerError
from migrator.image.model import MetadataImage, QuotaKey
from migrator.parts.processes import free_port, run_to_end
from migrator.raft.transport import TransportError
from migrator.records.uuid import random_uuid, uuid_to_text
from migrator.wire.client import KafkaClient
from migrator.wire.observer import Observer
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport
from migrator.wire.remote_image import read_remote_image
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from tests.patience import PATIENCE_SECONDS

ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, ALTER_CLIENT_QUOTAS = 45, 46, 49
TOPIC = "__cluster_metadata"
QUOTA = "producer_byte_rate"
REQUEST_SECONDS = 5.0
LOOK_SECONDS = 0.05
ASKING = 999


class ChangingVoters:
    """Controllers 1 to ``size``, of which the first ``voters`` begin as voters; the others observe.

    :param configured: those voters begin with ``controller.quorum.voters``, at kraft.version 0.
    """

    def __init__(self, directory: Path, size: int, voters: int, *, configured: bool = False) -> None:
        self.ports = {node: free_port() for node in range(1, size + 1)}
        self.first = frozenset(range(1, voters + 1))
        servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.controllers = {
            node: ControllerProcess(
                node,
                directory / str(node),
                {
                    "process.roles": "controller",
                    "node.id": str(node),
                    "controller.quorum.bootstrap.servers": servers,
                    "controller.listener.names": "CONTROLLER",
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                },
            )
            for node, port in self.ports.items()
        }
        self._is_configured = configured
        if configured:
            named = ",".join(f"{node}@127.0.0.1:{self.ports[node]}" for node in sorted(self.first))
            for node in self.first:
                del self.controllers[node].properties["controller.quorum.bootstrap.servers"]
                self.controllers[node].properties["controller.quorum.voters"] = named
        else:
            speak_grpc(list(self.controllers.values()))

    def format_and_start(self) -> None:
        self.format()
        for controller in self.controllers.values():
            controller.start()

    def format(self) -> None:
        """Their directories, with the first voters."""
        ids = {node: uuid_to_text(random_uuid(Random(node))) for node in self.first}
        named = ",".join(f"{node}@127.0.0.1:{self.ports[node]}:{ids[node]}" for node in sorted(self.first))
        for node, controller in self.controllers.items():
            controller.write_properties()
            first = [] if self._is_configured else ["--initial-controllers", named]
            self.format_first(node, first if node in self.first else ["--no-initial-controllers"])

    def format_first(self, node: int, how: Sequence[str]) -> None:
        """Format a controller with these options."""
        command = [MIGRATOR, "format", "-c", str(self.controllers[node].property_file), "-t", CLUSTER_ID, *how]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)

    def close(self) -> None:
        for controller in self.controllers.values():
            controller.kill()

    async def ask(self, node: int, key: int, version: int, **fields: Any) -> Any:
        """One request on a connection of its own; None: no answer."""
        client = KafkaClient("127.0.0.1", self.ports[node], "test")
        try:
            return await client.request(build(request_type(key, version), **fields), REQUEST_SECONDS)
        except (TransportError, PeerError):
            return None
        finally:
            await client.close()

    async def described(self) -> Any:
        """The metadata partition as whoever leads describes it; None while nobody does."""
        topics = ({"topic_name": TOPIC, "partitions": ({"partition_index": 0},)},)
        for node, controller in self.controllers.items():
            answer = await self.ask(node, DESCRIBE_QUORUM, 2, topics=topics) if controller.runs else None
            if answer is not None and answer.topics[0].partitions[0].error_code is ErrorCode.none:
                return answer.topics[0].partitions[0]
        return None

    async def until_caught_up(self) -> None:
        """Every controller is there, as a voter or as an observer that has everything."""

        def all_there(found: Any) -> bool:
            rows = (*found.current_voters, *found.observers)
            there = {row.replica_id for row in rows if row.log_end_offset >= found.high_watermark > 0}
            return there >= set(self.ports)  # brokers observe, too

        await self.until(all_there)

    async def until(self, condition: Callable[[Any], bool]) -> Any:
        """The description for which the condition holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = await self.described()
                if found is not None and condition(found):
                    return found
                await asyncio.sleep(LOOK_SECONDS)

    async def reassign(self, *target: int) -> None:
        """Name who shall vote, as any admin client can; whoever leads has taken it on return."""
        topics = ({"name": TOPIC, "partitions": ({"partition_index": 0, "replicas": target},)},)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                leader = (await self.until(lambda _: True)).leader_id
                answer = await self.ask(
                    leader, ALTER_PARTITION_REASSIGNMENTS, 0, timeout=dt.timedelta(seconds=5), topics=topics
                )
                if answer is not None and answer.error_code is ErrorCode.none:
                    code = answer.responses[0].partitions[0].error_code
                    assert code is ErrorCode.none, code
                    return
                await asyncio.sleep(LOOK_SECONDS)

    async def order(self, *words: str) -> str:
        """The output of `migrator quorum` on the leader's machine."""
        leader = self.controllers[(await self.until(lambda _: True)).leader_id]
        command = [MIGRATOR, "quorum", *words, "-c", str(leader.property_file)]
        return await asyncio.to_thread(run_to_end, "quorum", command, timeout_seconds=COMMAND_SECONDS)

    async def image(self) -> MetadataImage:
        """All committed records, from the leader."""
        endpoints = {node: ListenerEndpoint("CONTROLLER", "127.0.0.1", port) for node, port in self.ports.items()}
        transport = KafkaRaftTransport(ASKING, endpoints.get)
        running = [node for node, controller in self.controllers.items() if controller.runs]
        try:
            return await read_remote_image(Observer(transport, running, CLUSTER_ID, patience_seconds=PATIENCE_SECONDS))
        finally:
            await transport.close()


class Writers:
    """Clients that write one quota after the other, each with a name of its own, and note which were acknowledged."""

    def __init__(self, quorum: ChangingVoters, clients: int, prefix: str = "writer") -> None:
        self._quorum = quorum
        self._prefix = prefix
        self._leader = 1
        self._ended = False
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(clients)]
        self.acknowledged: dict[str, float] = {}
        """Name of each, and when its answer came."""

    async def _write(self, number: int) -> None:
        client: KafkaClient | None = None
        at, count = 0, 0
        while not self._ended:
            if client is None or at != self._leader:
                if client is not None:
                    await client.close()
                at = self._leader
                client = KafkaClient("127.0.0.1", self._quorum.ports[at], f"writer-{number}")
            name = f"{self._prefix}-{number}-{count}"
            entity = ({"entity_type": "user", "entity_name": name},)
            entries = ({"entity": entity, "ops": ({"key": QUOTA, "value": 1.0 + count, "remove": False},)},)
            try:
                answer = await client.request(
                    build(request_type(ALTER_CLIENT_QUOTAS, 1), entries=entries, validate_only=False), REQUEST_SECONDS
                )
                code = answer.entries[0].error_code
            except (TransportError, PeerError):
                code = ErrorCode.not_controller
            if code is ErrorCode.none:
                self.acknowledged[name] = time.monotonic()
                count += 1
            else:
                await self._look_for_the_leader(number)
        if client is not None:
            await client.close()

    async def _look_for_the_leader(self, number: int) -> None:
        if number == 0:  # one looks for all
            found = await self._quorum.described()
            if found is not None:
                self._leader = found.leader_id
        await asyncio.sleep(LOOK_SECONDS)

    async def go_on(self, writes: int) -> None:
        """Until so many more are acknowledged."""
        written = len(self.acknowledged)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.acknowledged) < written + writes:
                await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        self._ended = True
        await asyncio.gather(*self._tasks)

    def longest_pause_ms(self) -> int:
        """Between two acknowledgements of any client."""
        times = sorted(self.acknowledged.values())
        return int(1000 * max(after - before for before, after in itertools.pairwise(times)))

    def pause_ms(self, at: float) -> int:
        """The longest time without an acknowledgement that a moment of `time.monotonic` or what came of it caused."""
        times = sorted(when for when in self.acknowledged.values() if when >= at - LOOK_SECONDS)
        return int(1000 * max((after - before for before, after in itertools.pairwise(times)), default=0))

    def lost(self, image: MetadataImage) -> list[str]:
        """Acknowledged writes that the image lacks."""
        kept = _names(image.quotas)
        return sorted(name for name in self.acknowledged if name not in kept)


def _names(quotas: Iterable[QuotaKey]) -> set[str | None]:
    return {entity.entity_name for key in quotas for entity in key}
