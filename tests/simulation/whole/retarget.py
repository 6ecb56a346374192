"""Orders over gRPC: which voters the quorum shall have, with the product's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from migrator.errors import OperatorError
from migrator.observe.voters import VoterOrder, VotersAnswer
from migrator.rpc.operator_client import OperatorClient
from tests.simulation.whole import certificates
from tests.simulation.whole.controller import GRPC_PORT
from tests.simulation.whole.grpc_wire import connect

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

T = TypeVar("T")
VOTERS_MIN = 2


class Retarget:
    """Works from the client's machine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"retarget {world.options.seed}")

    def order(self) -> Coroutine[Any, Any, None] | None:
        """None where no controller takes orders over gRPC."""
        random, controllers = self._random, list(self._world.controllers.values())
        if not any(one.has_grpc for one in controllers):
            return None
        shall = random.sample(controllers, random.randint(VOTERS_MIN, len(controllers)))
        target = ",".join(str(one.node_id) for one in shall)
        order = VoterOrder.CANCEL if random.random() < 0.2 else VoterOrder.TO
        return self._retarget(order, "" if order is VoterOrder.CANCEL else target)

    async def _retarget(self, order: VoterOrder, target: str) -> None:
        if (given := await give_order(self._world, self._random, order, target)) is not None:
            leader, answer = given
            self._world.count("targets of voters")
            self._world.watch.retargeted(answer.target, leader)


async def give_order(world: World, random: Random, order: VoterOrder, target: str) -> tuple[int, VotersAnswer] | None:
    """Give the leader an order about the voters: see `ask_leader`."""
    return await ask_leader(world, random, lambda client: client.reassign(order, target), f"{order.value} {target}")


async def ask_leader(
    world: World, random: Random, ask: Callable[[OperatorClient], Awaitable[T]], what: str
) -> tuple[int, T] | None:
    """Ask one controller after the other until one says that it leads: its id and its answer; None when none answers.

    :param what: is asked, for the trace.
    """
    controllers = [one for one in world.controllers.values() if one.has_grpc]
    for controller in random.sample(controllers, len(controllers)):
        address, principals = files_of(controller)
        try:
            async with OperatorClient.at(address, certificates.FILES, principals, connect) as client:
                status = await client.status()
                if status.quorum.leader_id != status.node_id:
                    continue
                answer = await ask(client)
        except OperatorError as error:
            world.trace(f"operator: {what}? {error}")
            continue
        world.trace(f"operator: {what}. {answer}")
        return controller.node_id, answer
    return None


def files_of(controller: Controller) -> tuple[str, frozenset[str]]:
    """The address of its gRPC server, and whose certificate that server has."""
    principal = certificates.principal(certificates.voter(controller.node_id))
    return f"{controller.host}:{GRPC_PORT}", frozenset({principal})
