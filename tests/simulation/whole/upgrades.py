"""An operator who upgrades: metadata.version level by level, and the voters from the configuration into the log."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from migrator.controller.kraft_upgrade import MINIMUM_METADATA_VERSION
from migrator.observe.voters import VoterOrder
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED
from migrator.wire.schemas import build, request_type
from tests.simulation.whole.retarget import give_order
from tests.simulation.whole.writes import TIMEOUT, Claim, Write, granted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.whole.world import World

UPGRADE, SAFE_DOWNGRADE = 1, 2


class Upgrades:
    """metadata.version with Kafka's request, kraft.version as `migrator quorum upgrade` has it done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = Random(f"upgrades {world.options.seed}")

    def change_metadata_version(self) -> None:
        """Mostly some levels up; sometimes down, which is mostly refused, and sometimes only asked."""
        random, now = self._random, self._level()
        if random.random() < 0.2:
            self._ask_for_level(max(1, now - 1))
        else:
            self._ask_for_level(min(LATEST_SUPPORTED, now + random.choice((1, 1, 2, 5))))

    def _level(self) -> int:
        return self.world.watch.committed.loader.published.features.metadata_version

    def _ask_for_level(self, level: int) -> None:
        random, now = self._random, self._level()
        update = {
            "feature": FEATURE_NAME,
            "max_version_level": level,
            "upgrade_type": SAFE_DOWNGRADE if level < now else UPGRADE,
        }
        validates = random.random() < 0.1
        request = build(request_type(57, 1), timeout=TIMEOUT, feature_updates=(update,), validate_only=validates)

        def claims(response: Any) -> Iterable[Claim]:
            for _ in granted(response) if not validates and level != now else ():
                self.world.count("metadata.version steps")
                yield "feature", FEATURE_NAME, level

        loop = self.world.client.machine.loop
        loop.from_outside(lambda: loop.create_task(self.world.client.write(Write(request, claims))))

    def take_voters_into_the_log(self) -> None:
        """Asks the leader; refused while a voter has not registered, or does not answer, and below a level that
        has voters in the log."""
        if self._level() < MINIMUM_METADATA_VERSION and self._random.random() < 0.8:
            self._ask_for_level(MINIMUM_METADATA_VERSION)
        elif self._may_upgrade():
            loop = self.world.client.machine.loop
            loop.from_outside(lambda: loop.create_task(self._upgrade()))

    def _may_upgrade(self) -> bool:
        """While a controller has yet to read where another one is now, its word for the log would be an old one."""
        return not self.world.watch.is_dynamic() and not self.world.reconfigurations.is_under_way

    async def _upgrade(self) -> None:
        answer = await give_order(self.world, self._random, VoterOrder.UPGRADE, "")
        self.world.count("kraft.version upgrades" if answer is not None else "kraft.version upgrades refused")
