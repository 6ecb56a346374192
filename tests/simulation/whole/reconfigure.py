"""An operator who changes property files, and restarts the controllers for it: one of them, or all, one by one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.world import World

LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 8.0
"""An operator does not wait longer until one is back before the next one is restarted."""
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": ("3000", "20000", "10000000"),
    "metadata.max.retention.bytes": ("1", "30000", "100000000"),
    "metadata.log.segment.bytes": ("1000", "20000", "1000000000"),
    "controller.quorum.election.timeout.ms": ("700", "1000", "1500"),
    "controller.quorum.fetch.timeout.ms": ("1500", "2000", "3000"),
}


class Reconfigurations:
    """Each file names all controllers, so a controller that moves to another port makes all files old."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = Random(f"files {world.options.seed}")
        self._to_restart: list[int] = []
        self._waits_until = 0.0
        self._moved_at: dict[int, int] = {}
        """Lives that began before a file was changed."""

    def change(self, controller: Controller) -> None:
        """Write other files, and begin to restart."""
        if self.is_under_way:
            return
        random, ids = self._random, sorted(self.world.controllers)
        kind = random.random()
        if kind < 0.4:
            controller.other_settings |= self._some_settings()
            self._restart([controller.node_id], "controllers with other settings")
        elif kind < 0.7:
            for one in self.world.controllers.values():
                one.other_settings |= self._some_settings()
            self._restart(random.sample(ids, len(ids)), "rolling restarts with other settings")
        elif self._may_move():
            controller.port += 1
            others = [node_id for node_id in ids if node_id != controller.node_id]
            self._restart([controller.node_id, *random.sample(others, len(others))], "controllers that move")

    @property
    def is_under_way(self) -> bool:
        """Whether a controller has not read its new file yet."""
        return bool(self._to_restart)

    def finish(self) -> None:
        """All that have still to read a new file, at once."""
        for node_id in self._to_restart:
            if not self._has_new_file(self.world.controllers[node_id]):
                self.world.controllers[node_id].stop()
        self._to_restart = []

    def _may_move(self) -> bool:
        """With voters in the log, only a leader makes a new address known. While none can be elected without the one
        that has moved, nobody leads again: so a majority has to be there beside it, and nobody else has moved."""
        watch, world = self.world.watch, self.world
        voters = watch.voter_keys()
        if not watch.is_dynamic():
            return True
        return watch.addresses_are_known() and len(voters) > 2 and not world.options.minority_stays_dead

    def _some_settings(self) -> dict[str, str]:
        random = self._random
        names = random.sample(sorted(SETTINGS), random.randint(1, len(SETTINGS)))
        found = {name: random.choice(SETTINGS[name]) for name in names}
        options = self.world.options
        if options.wiped_at_once == 1 or not options.requires_bootstrap:  # else the world relies on the key
            found["migrator.quorum.require.bootstrap"] = random.choice(("true", "false"))
        return found

    def _restart(self, ids: list[int], what: str) -> None:
        self.world.count(what)
        self.world.trace(f"operator: {what}: {ids}")
        self._to_restart = ids
        self._moved_at = {node_id: self.world.controllers[node_id].life for node_id in ids}
        self._go_on()

    def _go_on(self) -> None:
        """One after the other: the next one once the last one is back, and follows or leads."""
        if not self._to_restart:
            return
        controller = self.world.controllers[self._to_restart[0]]
        if self._has_new_file(controller):
            if self.world.watch.takes_part(controller) or self.world.now > self._waits_until:
                del self._to_restart[0]
                self._waits_until = self.world.now + PATIENCE_SECONDS
        else:
            controller.stop()  # whoever is down reads its file when it starts
        self.world.after(LOOK_SECONDS, self._go_on)

    def _has_new_file(self, controller: Controller) -> bool:
        return controller.life > self._moved_at[controller.node_id]
