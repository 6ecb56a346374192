"""Orders over gRPC: which voters the quorum shall have, with the product's own client."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from migrator.errors import OperatorError
from migrator.observe.voters import VoterOrder
from migrator.rpc.operator_client import OperatorClient
from tests.simulation.whole import certificates
from tests.simulation.whole.controller import GRPC_PORT, Controller
from tests.simulation.whole.grpc_wire import connect

if TYPE_CHECKING:
    from tests.simulation.whole.world import World

VOTERS_MIN = 2


class Retarget:
    """Works from the client's machine. It asks one controller after the other until one says that it leads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"retarget {world.options.seed}")

    def order(self) -> Coroutine[Any, Any, None] | None:
        """None where nobody takes orders over gRPC."""
        random, controllers = self._random, list(self._world.controllers.values())
        asked = [one for one in controllers if one.has_grpc]
        if not asked:
            return None
        random.shuffle(asked)
        shall = random.sample(controllers, random.randint(VOTERS_MIN, len(controllers)))
        target = ",".join(str(one.node_id) for one in shall)
        order = VoterOrder.CANCEL if random.random() < 0.2 else VoterOrder.TO
        return self._ask(asked, order, "" if order is VoterOrder.CANCEL else target)

    async def _ask(self, controllers: list[Controller], order: VoterOrder, target: str) -> None:
        for controller in controllers:
            try:
                async with self._client(controller) as client:
                    status = await client.status()
                    if status.quorum.leader_id != status.node_id:
                        continue
                    answer = await client.reassign(order, target)
            except OperatorError as error:
                self._world.trace(f"operator: {order.value} {target}? {error}")
                continue
            self._world.count("targets of voters")
            self._world.trace(f"operator: {order.value} {target}. {answer}")
            self._world.watch.retargeted(answer.target)
            return

    def _client(self, controller: Controller) -> OperatorClient:
        principals = frozenset({certificates.principal(certificates.voter(controller.node_id))})
        return OperatorClient.at(f"{controller.host}:{GRPC_PORT}", certificates.FILES, principals, connect)
