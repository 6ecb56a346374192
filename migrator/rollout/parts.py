"""The parts that one rollout works with."""

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
    """``zookeeper_connect``: of the file that the inventory's ``access`` names, or "". ``show`` shows a sentence to the
    operator. ``keep_zookeeper`` writes Kafka's znodes to a file, ``unregister`` removes a broker's registration from
    the quorum; both return why that failed, or "". ``ends_again``: the operator wants to end a reopened migration
    again. ``reopens``: the operator wants to go back also after the end, and so to reopen the migration."""

    inventory: Inventory
    executor: Executor
    observer: Observer
    lock: Lock
    clock: Clock
    show: Callable[[str], None]
    keep_zookeeper: Callable[[Path], Awaitable[str]]
    unregister: Callable[[int], Awaitable[str]]
    zookeeper_connect: str = ""
    ends_again: bool = False
    reopens: bool = False

    def tell(self, sentence: str) -> None:
        """Show a sentence. A terminal or pipe that is closed stops nothing: the journal has the facts."""
        with suppress(OSError):
            self.show(sentence)

    def mode_settings(self, release_version: str) -> ModeSettings:
        """The settings from which property files are made.

        :param release_version: the quorum's metadata.version; "" for that of the inventory.
        """
        brokers, level = self.inventory.brokers, release_version or self.inventory.controllers.release_version
        return ModeSettings(brokers.settings, brokers.controller_protocol, self.zookeeper_connect, level)
