"""Some time without new faults in which what is broken stays broken: a majority that can talk has to elect somebody.

The bound. Property files here have a fetch time-out F of at most 3 s, and an election time-out E of at most 1.5 s (each
draws from E to 2 E). The others are the defaults of Kafka's keys, which ADR 25 keeps: request time-out R = 2 s,
back-off B of at most 1 s.

* The last word of a leader that cannot be reached any more was heard before the calm began. So after F every follower
  asks others, and after 2 E whoever knows no leader. A request to somebody who does not answer is over after R. After
  F + R = 5 s everybody has begun an election or has a leader.
* A candidate whose log is too old may raise the epoch once more. Those with the longest log then wait E to 2 E: 3 s.
* An election without a winner is over when all have answered (a few round trips and fsyncs, at most 0.3 s here), or
  after 2 E if one of them is silent. Then each waits for a time drawn from 0 to B. Two that drew times within a round
  trip of each other meet again: at most every third time in the slowest world. Ten times in a row is one in 50,000,
  and a seed has about two calms. 10 x 1.3 s = 13 s.

5 + 3 + 13 = 21 s, and 5 % more for clocks that run slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from migrator.node.core import NodeCore
from migrator.raft.states import Role
from migrator.records.uuid import ZERO_UUID
from tests.simulation.whole.breach import check

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

BOUND_SECONDS = 23.0
LOOK_SECONDS = 0.2
AFTER_SECONDS = 2.0
"""Within them, what was to be mended meanwhile is mended."""


class Calm:
    """Of one world; begins again and again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_on = False
        self._held: list[Callable[[], object]] = []
        self._hanging: list[Controller] = []
        self._majority: dict[int, int] = {}
        """Who can talk, and in which life."""

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do it then, or after the calm."""

        def act() -> None:
            if self.is_on:
                self._held.append(action)
            else:
                action()

        self._world.after(seconds, act)

    def begin(self) -> None:
        """Unless that would say nothing: there is no such majority, or something is under way."""
        world = self._world
        if self.is_on or world.majority_is_lost or not world.watch.committed.end or self._somebody_works():
            return
        world.chaos.mend_machines()
        majority = self._find_majority()
        if not majority:
            return
        self.is_on = True
        self._majority = {one.node_id: one.life for one in majority}
        self._hanging = [one for one in world.controllers.values() if _hangs(one)]
        for controller in self._hanging:
            self._hang_until(controller, world.now + 2 * BOUND_SECONDS)
        world.count("calms")
        if self._leader() is None:
            world.count("calms that began without a leader")
        world.trace(f"calm for {sorted(self._majority)}")
        self._look(world.now + BOUND_SECONDS)

    def _somebody_works(self) -> bool:
        """An operator changes voters, restarts controllers for their new files, or has two quorums to look after."""
        world = self._world
        both = any(world.watch.is_apart(one) for one in world.controllers.values())
        return world.operator.is_busy or world.reconfigurations.is_under_way or both or not self._all_are_found()

    def _all_are_found(self) -> bool:
        watch = self._world.watch
        return not watch.is_dynamic() or watch.addresses_are_known()

    def _look(self, until: float) -> None:
        world = self._world
        if not self.is_on:
            return
        gone = [node_id for node_id, life in self._majority.items() if not self._still(node_id, life)]
        if gone or self._leader() is not None:
            self.end()
            return
        check("a_majority_that_can_talk_elects", world.now < until, f"{sorted(self._majority)}: {world.watch.roles()}")
        world.after(LOOK_SECONDS, lambda: self._look(until))

    def end(self) -> None:
        if not self.is_on:
            return
        self.is_on = False
        self._world.trace("the calm is over")
        held, self._held = self._held, []
        for action in held:
            self.later(self._world.random.uniform(0, AFTER_SECONDS), action)
        for controller in self._hanging:
            self._hang_until(controller, self._world.now + self._world.random.uniform(0, AFTER_SECONDS))

    def _hang_until(self, controller: Controller, when: float) -> None:
        if controller.machine is not None:
            controller.machine.hang(until=when)

    def _still(self, node_id: int, life: int) -> bool:
        controller = self._world.controllers[node_id]
        return controller.runs and controller.life == life and not controller.is_ending

    def _leader(self) -> int | None:
        """Whom all of them follow, if that one is active."""
        cores = {node_id: self._world.watch.core_of(node_id) for node_id in self._majority}
        for node_id, core in cores.items():
            if core is not None and core.quorum.role is Role.LEADER and core.controller.epoch is not None:
                seen = {(other.quorum.epoch, other.quorum.leader_id) for other in cores.values() if other is not None}
                return node_id if seen == {(core.quorum.epoch, node_id)} else None
        return None

    def _find_majority(self) -> list[Controller]:
        """All who run and can talk to each other, if they are a majority with whole logs, and nobody else can talk to
        one of them; empty otherwise."""
        world = self._world
        alive = [one for one in world.controllers.values() if one.runs and not _hangs(one)]
        if any(world.watch.core_of(one.node_id) is None or one.is_ending for one in alive):
            return []
        cut = world.network.cut

        def talks(one: Controller, other: Controller) -> bool:
            return (one.host, other.host) not in cut and (other.host, one.host) not in cut

        for first in alive:
            group = [one for one in alive if one is first or talks(first, one)]
            rest = [one for one in alive if one not in group]
            whole = all(talks(one, other) for one in group for other in group if one is not other)
            apart = all((one.host, other.host) in cut for one in rest for other in group)
            if whole and apart and self._elects(group):
                return group
        return []

    def _elects(self, group: list[Controller]) -> bool:
        world = self._world
        disks = {(one.node_id, one.directory_id if world.watch.is_dynamic() else ZERO_UUID): one for one in group}
        voters = {(key.node_id, key.directory_id) for key in world.watch.voter_keys()}
        cores = [
            core
            for key, controller in disks.items()
            if key in voters
            and (core := world.watch.core_of(controller.node_id)) is not None
            and not controller.in_process(partial(_must_fetch_first, core))
        ]
        return len(cores) > len(voters) // 2 and all(it.quorum.membership == cores[0].quorum.membership for it in cores)


def _must_fetch_first(core: NodeCore) -> bool:
    return core.storage.must_fetch_first


def _hangs(controller: Controller) -> bool:
    return controller.machine is not None and controller.machine.hangs_until > controller.world.now
