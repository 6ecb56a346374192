"""People who look at a quorum, give orders that it refuses, and take and return the lock of a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from migrator.errors import OperatorError
from migrator.observe.status import Force, Goal
from migrator.rpc.operator_client import OperatorClient
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from tests.simulation.whole import certificates
from tests.simulation.whole.breach import check
from tests.simulation.whole.grpc_wire import connect
from tests.simulation.whole.retarget import ask_leader, files_of

if TYPE_CHECKING:
    from tests.simulation.whole.world import World

PATIENCE_SECONDS = 5.0
REASON = "nobody migrates here"


class Onlookers:
    """They work from the client's machine, one at a time or several at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"onlookers {world.options.seed}")
        self._locks = 0

    def look(self) -> None:
        """Begin one question or order that the seed chooses."""
        ask = self._random.choice((self._describe_quorum, self._read, self._order, self._move_lock))
        loop = self._world.client.machine.loop
        loop.from_outside(lambda: loop.create_task(ask()))

    async def _describe_quorum(self) -> None:
        """Kafka's request: a controller that names itself as the leader of an epoch was elected in it."""
        topic = {"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)}
        response = await self._world.client.ask_leader(build(request_type(DESCRIBE_QUORUM, 2), topics=(topic,)))
        for partition in response.topics[0].partitions if response is not None else ():
            if partition.error_code == ErrorCode.none:
                leader = self._world.watch.leaders.get(partition.leader_epoch)
                told = f"controller {partition.leader_id} says that it leads in epoch {partition.leader_epoch}"
                holds = partial(check, "who_says_that_it_leads_was_elected", leader == partition.leader_id)
                self._world.after(0.0, partial(holds, f"{told}, not {leader}"))  # a task of the client raises nothing
                self._world.count("descriptions of the quorum")

    async def _read(self) -> None:
        """Status, voters and journal of some controller."""

        async def read(client: OperatorClient) -> None:
            await client.status()
            await client.voters()
            async for _ in client.journal():
                pass

        await self._ask_somebody("what controllers show", read)

    async def _order(self) -> None:
        """What only a migration has. Every controller refuses it, or has no answer."""
        order = self._random.choice(
            (
                lambda client: client.pause(REASON),
                lambda client: client.resume(),
                lambda client: client.force(Force.RECONCILE, REASON),
                lambda client: client.reopen(REASON),
                lambda client: client.close_way_back(REASON),
                lambda client: client.gates(Goal.FINISH),
            )
        )
        await self._ask_somebody("orders of a migration", order)

    async def _ask_somebody(self, what: str, ask: Callable[[OperatorClient], Awaitable[object]]) -> None:
        controllers = [one for one in self._world.controllers.values() if one.has_grpc]
        if not controllers:
            return
        address, principals = files_of(self._random.choice(controllers))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async with OperatorClient.at(address, certificates.FILES, principals, connect) as client:
                    await ask(client)
                    self._world.count(what)
        except (OperatorError, TimeoutError) as error:
            self._world.count(f"{what}: refused")
            self._world.trace(f"onlooker: {what} at {address}? {error}")

    async def _move_lock(self) -> None:
        """Take the lock of a rollout, or give it back. What is acknowledged is committed, and nobody came between."""
        self._locks += 1
        text = f"rollout {self._locks}" if self._random.random() < 0.6 else ""

        async def move(client: OperatorClient) -> str | None:
            held = (await client.rollout_lock()).held
            is_moved = held != text and (await client.rollout_lock((held, text))).moved
            return held if is_moved else None

        given = await ask_leader(self._world, self._random, move, f"lock {text or 'given back'}")
        if given is not None and given[1] is not None:
            self._world.watch.acknowledged(("lock", given[1], text), given[0])
