"""An administrator: writes through Kafka's protocol, at whichever controller answers, and tells what it was told."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from migrator.raft.transport import TransportError, UnreachableError
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.schemas import build, request_type
from tests.simulation.whole.controller import PORT
from tests.simulation.whole.disk import SimulatedDisk
from tests.simulation.whole.machine import SimulatedMachine, SkewedClock

if TYPE_CHECKING:
    from tests.simulation.whole.world import World

ALTER_CLIENT_QUOTAS = (49, 1)
KEY = "consumer_byte_rate"
REQUEST_SECONDS = 2.0
NOT_HERE = frozenset((ErrorCode.not_controller, ErrorCode.not_leader_or_follower))
PAUSE_SECONDS = 0.05
BIG = 1_010
"""Records of one request that is decided and encoded beside the loop."""
NAMES = 40


class Client:
    """Writes numbers, each larger than all before, as the quotas of a few users."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = SimulatedMachine(world, "client", "10.0.0.100", SimulatedDisk(), SkewedClock(), 1)
        self._random = Random(f"client {world.options.seed}")
        self._clients: dict[int, KafkaClient] = {}
        self._leader: int | None = None
        self.begun = 0
        self.is_done = False

    def start(self) -> None:
        self.machine.loop.from_outside(lambda: self.machine.loop.create_task(self._run()))

    async def _run(self) -> None:
        options = self.world.options
        if not options.writes:
            return
        running: set[asyncio.Task[None]] = set()
        while not self.is_done:
            await asyncio.sleep(self._random.expovariate(options.writes))
            if len(running) < 20:
                task = asyncio.create_task(self._write())
                running.add(task)
                task.add_done_callback(running.discard)

    async def _write(self) -> None:
        self.begun += 1
        number, is_big = self.begun, self._random.random() < self.world.options.big_share
        names = [str(self._random.randrange(NAMES))]
        if is_big:
            first = NAMES + BIG * self._random.randrange(self.world.options.big_groups)
            names = [str(name) for name in range(first, first + BIG)]
        entries = tuple(
            {
                "entity": ({"entity_type": "user", "entity_name": name},),
                "ops": ({"key": KEY, "value": float(number), "remove": False},),
            }
            for name in names
        )
        request = build(request_type(*ALTER_CLIENT_QUOTAS), entries=entries, validate_only=False)
        response = await self.ask_leader(request)
        for found in response.entries if response is not None else ():
            if found.error_code == ErrorCode.none:
                self.world.watch.acknowledged(found.entity[0].entity_name, number)

    async def ask_leader(self, request: Any) -> Any:
        """The answer of the one who leads; None if nobody says that it is written."""
        ids = sorted(self.world.controllers)
        node_id = self._leader or self._random.choice(ids)
        for _ in range(20):
            client = self._client(node_id)
            try:
                response = await client.request(request, REQUEST_SECONDS)
            except UnreachableError:
                self._leader, node_id = None, self._random.choice(ids)
                continue
            except TransportError:
                self._leader = None
                return None  # perhaps it is written
            if not _is_elsewhere(response):
                self._leader = node_id
                return response
            self._leader = None
            node_id = self._random.choice(ids)
            await asyncio.sleep(PAUSE_SECONDS)
        return None

    def _client(self, node_id: int) -> KafkaClient:
        client = self._clients.get(node_id)
        if client is None:
            host = self.world.controllers[node_id].host
            limits = ClientLimits(max_in_flight=4)
            client = self._clients[node_id] = KafkaClient(host, PORT, "administrator", limits=limits)
        return client


def _is_elsewhere(response: Any) -> bool:
    """Whether another controller leads."""
    found = getattr(response, "entries", None) or (response,)
    return any(one.error_code in NOT_HERE for one in found)
