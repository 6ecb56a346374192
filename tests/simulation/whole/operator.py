"""An operator who changes the voters of a dynamic quorum, one change after the other: with Kafka's requests, or with a
target that is ordered over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.raft.voter_set import ReplicaKey
from migrator.records.uuid import ZERO_UUID
from migrator.wire.schemas import build, request_type
from tests.simulation.whole.controller import CLUSTER_ID
from tests.simulation.whole.retarget import Retarget

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

ADD_RAFT_VOTER = (80, 0)
REMOVE_RAFT_VOTER = (81, 0)
VOTERS_MIN = 2


class Operator:
    """Works from the client's machine."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = Random(f"operator {world.options.seed}")
        self._orders = 0
        """That have no answer yet."""
        self.retarget = Retarget(world)

    @property
    def is_busy(self) -> bool:
        return self._orders > 0

    def order(self) -> None:
        """Add a voter or remove one; nothing while every operator waits for an answer."""
        if self._orders >= self.world.options.operators:
            return
        work = self.retarget.order() if not self.is_busy and self._random.random() < 0.4 else None
        if work is None and (request := self._next_order()) is not None:
            work = self._ask(request)
        if work is not None:
            self._orders += 1
            loop = self.world.client.machine.loop
            loop.from_outside(lambda: loop.create_task(self._done(work)))

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            await asyncio.sleep(0)
            self._orders -= 1

    async def _ask(self, request: Any) -> None:
        response = await self.world.client.ask_leader(request)
        name = "voters added" if request.__api_key__ == ADD_RAFT_VOTER[0] else "voters removed"
        if response is not None and response.error_code == ErrorCode.none:
            self.world.count(name)
        self.world.trace(f"operator: {name}? {getattr(response, 'error_code', None)!r}")

    def _next_order(self) -> Any:
        watch, controllers = self.world.watch, self.world.controllers
        if not watch.is_dynamic():
            return None
        voters = watch.voter_keys()
        own = {one.key: one for one in controllers.values()}
        lost = sorted((key for key in voters if key not in own), key=lambda key: key.node_id)
        if lost:
            return self._remove(lost[0])
        ids = {key.node_id for key in voters}
        others = [one for key, one in own.items() if one.node_id not in ids and one.runs]
        if others and (len(voters) <= VOTERS_MIN or self._random.random() < 0.6):
            return self._add(self._random.choice(others))
        if len(voters) > VOTERS_MIN and watch.addresses_are_known():
            return self._remove(self._random.choice(sorted(voters, key=lambda key: key.node_id)))
        return None

    def _add(self, controller: Controller) -> Any:
        listener = {"name": "CONTROLLER", "host": controller.host, "port": controller.port}
        return build(
            request_type(*ADD_RAFT_VOTER),
            cluster_id=CLUSTER_ID,
            timeout=timedelta(seconds=5),
            voter_id=controller.node_id,
            voter_directory_id=_uuid(controller.directory_id),
            listeners=(listener,),
        )

    def _remove(self, key: ReplicaKey) -> Any:
        return build(
            request_type(*REMOVE_RAFT_VOTER),
            cluster_id=CLUSTER_ID,
            voter_id=key.node_id,
            voter_directory_id=_uuid(key.directory_id),
        )


def _uuid(directory_id: bytes) -> Any:
    return None if directory_id == ZERO_UUID else UUID(bytes=directory_id)
