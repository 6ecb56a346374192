"""Brokers' files that Kafka does not start with once a rollout has changed them: seen before anything changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.rollout.inventory import Inventory
from migrator.rollout.plan.modes import FileMode, ModeSettings, file_mode, parsed, refuse_unstartable, rewritten


def refuse_files(inventory: Inventory, texts: Mapping[str, str], settings: ModeSettings) -> None:
    """A broker whose file is in KRaft mode has been taken further: its own step looks at the file.

    :param texts: property files by node.
    :raises OperatorError: Kafka would refuse one; or it cannot be read.
    """
    for node in inventory.brokers.nodes:
        text = texts[node.name]
        if file_mode(node.role, parsed(node, text)) is not FileMode.BROKER_KRAFT:
            for mode in (FileMode.BROKER_MIGRATING, FileMode.BROKER_KRAFT):
                refuse_unstartable(node, rewritten(node, text, mode, settings))
