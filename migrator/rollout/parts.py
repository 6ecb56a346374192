"""All that one rollout is run with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from migrator.rollout.inventory import Inventory
from migrator.rollout.plan.modes import ModeSettings
from migrator.rollout.ports import Clock, Executor, Lock, Observer
from migrator.values import value


@value
class RolloutParts:
    """``zookeeper_connect``: of the file that the inventory's ``access`` names, or "". ``show`` shows a sentence.
    ``keep_zookeeper`` writes Kafka's znodes to a file, and says why not, or "". ``unregister`` removes a broker's
    registration from the quorum, and says why not, or ""."""

    inventory: Inventory
    executor: Executor
    observer: Observer
    lock: Lock
    clock: Clock
    show: Callable[[str], None]
    keep_zookeeper: Callable[[Path], Awaitable[str]]
    unregister: Callable[[int], Awaitable[str]]
    zookeeper_connect: str = ""

    def tell(self, sentence: str) -> None:
        """Show a sentence. A terminal or a pipe that is gone holds nothing up: the journal has what counts."""
        with suppress(OSError):
            self.show(sentence)

    def mode_settings(self, release_version: str) -> ModeSettings:
        """For the property files.

        :param release_version: of the quorum; "" for that of the inventory.
        """
        brokers, level = self.inventory.brokers, release_version or self.inventory.controllers.release_version
        return ModeSettings(brokers.settings, brokers.controller_protocol, self.zookeeper_connect, level)
