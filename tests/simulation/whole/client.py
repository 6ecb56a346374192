"""An administrator: writes through Kafka's protocol, at whichever controller answers, and tells what it was told."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from migrator.raft.transport import TransportError, UnreachableError
from migrator.wire.client import ClientLimits, KafkaClient
from tests.simulation.whole import certificates
from tests.simulation.whole.disk import SimulatedDisk
from tests.simulation.whole.machine import SimulatedMachine, SkewedClock
from tests.simulation.whole.writes import Write, Writes, parts_of

if TYPE_CHECKING:
    from tests.simulation.whole.world import World

REQUEST_SECONDS = 2.0
NOT_HERE = frozenset((ErrorCode.not_controller, ErrorCode.not_leader_or_follower))
TRIES = 10
PAUSE_SECONDS = 0.05
"""Before the second try, doubled for each further one up to `pause_ms_max` of the options (KIP-580): without a leader,
most of what a seed costs were requests that somebody refuses."""
ADMINISTRATOR = "administrator"


class Client:
    """One machine, from which administrators, operators and brokers ask."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = SimulatedMachine(world, "client", "10.0.0.100", SimulatedDisk(), SkewedClock(), 1)
        options = world.options
        self._random = Random(f"client {options.seed}")
        self._writes = Writes(
            self._random,
            other_share=options.other_share,
            big_share=options.big_share,
            big_groups=options.big_groups,
        )
        certificates.install(self.machine.disk, certificates.OPERATOR)
        self._random = Random(f"client {world.options.seed}")
        self._clients: dict[tuple[str, int, str], KafkaClient] = {}
        self._leader: int | None = None
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
                task = asyncio.create_task(self.write(self._writes.next()))
                running.add(task)
                task.add_done_callback(running.discard)

    async def write(self, write: Write, asker: str = ADMINISTRATOR) -> Any:
        """Ask for it, and hold the controllers to their answer."""
        watch = self.world.watch
        response, node_id = await self.ask(write.request, asker)
        for claim in write.claims(response) if response is not None else ():
            if write.only_validates:
                watch.validated(claim)
            else:
                watch.acknowledged(claim, node_id)
        return response

    async def ask_leader(self, request: Any, asker: str = ADMINISTRATOR) -> Any:
        """The leader's answer; None if no answer says that the change is written."""
        return (await self.ask(request, asker))[0]

    async def ask(self, request: Any, asker: str = ADMINISTRATOR) -> tuple[Any, int]:
        """The answer, and whose it is."""
        ids = sorted(self.world.controllers)
        node_id = self._leader or self._random.choice(ids)
        pause, longest = PAUSE_SECONDS, self.world.options.pause_ms_max / 1000
        for _ in range(TRIES):
            try:
                response = await self._client(node_id, asker).request(request, REQUEST_SECONDS)
            except UnreachableError:
                response = None
            except TransportError:
                self._leader = None
                return None, node_id  # perhaps it is written
            if response is not None and not _is_elsewhere(response):
                self._leader = node_id
                return response, node_id
            if node_id == self._leader:
                self._leader = None
            await asyncio.sleep(self._random.uniform(pause / 2, pause))
            node_id, pause = self._leader or self._random.choice(ids), min(pause * 2, longest)
        return None, node_id

    def _client(self, node_id: int, asker: str) -> KafkaClient:
        """A connection has its requests answered in their order, so who asks at the same time needs one for itself."""
        controller = self.world.controllers[node_id]
        key = (controller.host, controller.port, asker)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = KafkaClient(*key, limits=ClientLimits(max_in_flight=4))
        return client


def _is_elsewhere(response: Any) -> bool:
    """Whether another controller leads."""
    return any(part.error_code in NOT_HERE for part in parts_of(response))
