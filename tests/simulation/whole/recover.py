"""An operator who recovers a lost majority: `migrator quorum recover` on the survivor's disk, then fresh controllers.

The disks of all others are gone for good, or so the operator believes: in some worlds the given-up ones come back with
them, and lead their old quorum on.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from migrator.errors import OperatorError
from migrator.node.survivor import Survivor
from migrator.raft.voter_set import ReplicaKey
from tests.simulation.whole.controller import Controller
from tests.simulation.whole.machine import ProcessGoneError

if TYPE_CHECKING:
    from collections.abc import Collection

    from migrator.records.batch import Batch
    from tests.simulation.whole.world import World

FRESH = 2
"""Controllers with new ids, where the old ones come back with their disks."""
CRASHES_AFTER = 60
"""Operations of the command on the disk, at most."""
ADDS_SECONDS = 1.5


class Recoveries:
    """At most one in a world: the manual excludes a second failure after a recovery."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = Random(f"recover {world.options.seed}")
        self._is_done = False

    def lose_majority(self) -> None:
        """A majority of the voters is lost, and what is left goes on with one log."""
        world, watch = self.world, self.world.watch
        voters = watch.voter_keys()
        own = {one.key: one for one in world.controllers.values()}
        left = sorted((key for key in voters if key in own), key=lambda key: key.node_id)
        if self._is_done or not world.options.dynamic or not left or len(voters) < 2 or not watch.committed.images:
            return
        left = self._random.sample(left, min(len(left), self._random.randint(1, len(voters) // 2)))
        self._stop_all()
        survivor = self._longest([own[key] for key in left])
        if survivor is None:
            world.count("recoveries that are not possible")
            self._start_all()
            return
        lost = self._recover(survivor)
        self._is_done = True
        self._begin_anew(survivor, lost)

    def _stop_all(self) -> None:
        for controller in self.world.controllers.values():
            self.world.kill(controller, power=self._random.random() < 0.5)
            controller.life += 1  # nobody else starts it
            controller.disk.free = controller.disk.fails_at = None
            controller.disk.is_read_only = False

    def _start_all(self) -> None:
        for controller in self.world.controllers.values():
            self.world.chaos.restart_later(controller)

    def _longest(self, left: Collection[Controller]) -> Controller | None:
        """Of those that have a log in which they vote, the one whose log ends last."""
        found = []
        for controller in left:
            machine = controller.begin_life()
            try:
                end = machine.context.run(_log_end, controller)
            except OperatorError as error:
                self.world.trace(f"operator: {controller.name} cannot go on: {error}")
            else:
                found.append((end, controller.node_id))
            machine.die()
        return self.world.controllers[max(found)[1]] if found else None

    def _recover(self, survivor: Controller) -> frozenset[ReplicaKey]:
        """The command, again for as long as it is interrupted; who is given up."""
        random, machine = self._random, survivor.begin_life()
        while True:
            machine.crash_at_operation = random.randrange(CRASHES_AFTER) if random.random() < 0.5 else None
            try:
                batches, lost = machine.context.run(_command, survivor)
            except ProcessGoneError:
                self.world.count("recoveries that were interrupted")
            else:
                break
            if random.random() < 0.5:
                survivor.disk.lose_power(random)
            machine = survivor.begin_life()
        machine.die()
        if random.random() < 0.5:
            survivor.disk.lose_power(random)
        self.world.count("recoveries")
        self.world.trace(f"operator: {survivor.name} is recovered; given up are {sorted(map(str, lost))}")
        self.world.watch.recovered(survivor, batches, lost)
        return lost

    def _begin_anew(self, survivor: Controller, lost: Collection[ReplicaKey]) -> None:
        """All others are formatted anew, but for those that come back."""
        world = self.world
        come_back = self._random.random() < 0.5
        for controller in [one for one in world.controllers.values() if one is not survivor]:
            if come_back and controller.key in lost:
                world.count("given-up replicas that come back")
                controller.is_given_up = True
            else:
                world.replace_disk(controller)
        for node_id in range(max(world.controllers) + 1, max(world.controllers) + 1 + FRESH if come_back else 0):
            world.controllers[node_id] = Controller(world, node_id)
            world.controllers[node_id].format()
        self._start_all()
        world.after(ADDS_SECONDS, self._add)

    def format_again(self, controller: Controller) -> None:
        """A controller that has followed the given-up replicas has records that the survivor's quorum lacks."""
        self.world.count("controllers that followed the given-up")

        def replace() -> None:
            self.world.kill(controller, power=True)
            self.world.replace_disk(controller)
            self.world.chaos.restart_later(controller)

        self.world.after(self._random.uniform(0, 3), replace)

    def _add(self) -> None:
        """Until there are three again."""
        if self.world.faults_go_on and len(self.world.watch.voter_keys()) < 3:
            self.world.operator.order()
            self.world.after(ADDS_SECONDS, self._add)


def _log_end(controller: Controller) -> tuple[int, int]:
    survivor = Survivor(controller.settings())
    found = survivor.evidence()
    survivor.plan(_others(survivor))
    survivor.close()
    return found.log_end.epoch, found.log_end.offset


def _command(controller: Controller) -> tuple[list[Batch], frozenset[ReplicaKey]]:
    """Do as `migrator quorum recover --force` does. Returns the log after it, and the replicas that were given up."""
    survivor = Survivor(controller.settings())
    begun = survivor.unfinished()
    if begun is not None:
        list(survivor.finish(begun))
    elif _others(survivor):
        list(survivor.recover(survivor.plan(_others(survivor))))
    storage = survivor._directory.storage
    batches = list(storage.batches_from(storage.log.start_offset()))
    lost = frozenset(key for entry in survivor._directory.recoveries for key in entry.lost)
    survivor.close()
    return batches, lost


def _others(survivor: Survivor) -> list[ReplicaKey]:
    found = survivor.evidence()
    voters = found.membership.voters
    keys = [] if voters is None else [voters.key(node_id) for node_id in sorted(voters.ids)]
    return [key for key in keys if key != found.survivor]
