"""The parts that one rollout works with: executor, observer, lock, clock, inventory and what speaks to the operator.

`site` makes one `RolloutParts` for a command; tests put models into it. It holds no state of the rollout: that is in
the journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from migrator.rollout.inventory import Inventory
from migrator.rollout.meanwhile import Meanwhile, Silences
from migrator.rollout.plan.modes import ModeSettings
from migrator.rollout.ports import Clock, ClusterProbe, Executor, Lock, Observation
from migrator.values import value


class _HeardObserver:
    """Looks as another observer does, and says every few seconds that it still does."""

    def __init__(self, observer: ClusterProbe, tell: Callable[[str], None]) -> None:
        self._observer = observer
        self._tell = tell

    async def observe(self, *, partitions: bool = True) -> Observation:
        """Everything that can be seen now (see `ClusterProbe`)."""
        what = "brokers, partitions and controllers" if partitions else "brokers and controllers"
        async with Meanwhile(self._tell, f"looks at {what}"):
            return await self._observer.observe(partitions=partitions)

    async def close(self) -> None:
        """Close what the other observer has open."""
        await self._observer.close()


@value
class RolloutParts:
    """``zookeeper_connect``: of the file that the inventory's ``access`` names, or "". ``silences`` shows sentences to
    the operator. ``keep_zookeeper`` writes Kafka's znodes to a file, ``unregister`` removes a broker's registration
    from the quorum; both return why that failed, or "". ``ends_again``: the operator wants to end a reopened migration
    again. ``reopens``: the operator wants to go back also after the end, and so to reopen the migration."""

    inventory: Inventory
    executor: Executor
    observer: ClusterProbe
    lock: Lock
    clock: Clock
    silences: Silences
    keep_zookeeper: Callable[[Path], Awaitable[str]]
    unregister: Callable[[int], Awaitable[str]]
    zookeeper_connect: str = ""
    ends_again: bool = False
    reopens: bool = False

    def tell(self, sentence: str) -> None:
        """Show a sentence. A terminal or pipe that is closed stops nothing: the journal has the facts."""
        with suppress(OSError):
            self.silences.tell(sentence)

    def heard(self) -> Self:
        """The same parts, with an observer that tells the operator of a look that takes long."""
        return replace(self, observer=_HeardObserver(self.observer, self.tell))

    def mode_settings(self, release_version: str) -> ModeSettings:
        """The settings from which property files are made.

        :param release_version: the quorum's metadata.version; "" for that of the inventory.
        """
        brokers, level = self.inventory.brokers, release_version or self.inventory.controllers.release_version
        return ModeSettings(brokers.settings, brokers.controller_protocol, self.zookeeper_connect, level)
