"""The metadata.version of a rollout's controllers, decided once, when the rollout begins.

While a migration begins, a broker in ZooKeeper mode offers the quorum its ``inter.broker.protocol.version`` as its one
metadata.version (``KafkaServer``). The leader refuses a broker with another one than the quorum has
(``ClusterControlManager.processRegistrationFeature``), so no broker would come back from the first restart.
"""

from __future__ import annotations

from migrator.config.keys import IBP
from migrator.errors import OperatorError
from migrator.preflight.protocol_versions import Said, answers_text, version_of_brokers
from migrator.records.versions import parse_version
from migrator.rollout.inventory import Inventory
from migrator.rollout.ports import BrokerMode, Observation

WHERE = "controllers.release_version"
TYPE_IT = f"set {WHERE} in the inventory"
OF_QUORUM = (
    f"Set {IBP}={{}} on all brokers, and restart them. If nothing was copied yet, you may instead stop the controllers "
    f"and move their directories away: they are then formatted with what the brokers have"
)


def first_level(inventory: Inventory, seen: Observation) -> str:
    """The quorum's own metadata.version; else that of the inventory; else that of the brokers, as for ``migrator
    format``. "" when the quorum has one that cannot be seen.

    :raises OperatorError: brokers could not register with it, or have none in common.
    """
    typed = inventory.controllers.release_version
    if seen.has_data:
        _refuse_others(seen, seen.metadata_version, "the quorum", OF_QUORUM.format(seen.metadata_version))
        return seen.metadata_version
    if not typed:
        return version_of_brokers(_said(seen), TYPE_IT).name
    _refuse_others(
        seen, typed, WHERE, f"Leave {WHERE} out of the inventory: the controllers then get what brokers have"
    )
    return typed


def _said(seen: Observation) -> dict[int, Said]:
    """The version that each broker offers, by id; without the brokers in KRaft mode, which offer no single version."""
    found = {}
    for number, broker in (seen.brokers or {}).items():
        if broker.mode in (BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING):
            text = (broker.settings or {}).get(IBP)
            found[number] = Said(text) if text else Said(fault=f"it does not say its {IBP}")
    return found


def _refuse_others(seen: Observation, level: str, who: str, remedy: str) -> None:
    others = {number: it for number, it in _said(seen).items() if it.text and level and not _same(it.text, level)}
    if others:
        raise OperatorError(
            f"brokers could not register with metadata.version {level}, which {who} has: {answers_text(others)}",
            where=IBP,
            remedy=remedy,
        )


def _same(one: str, other: str) -> bool:
    try:
        return parse_version(one).level == parse_version(other).level
    except ValueError:  # the broker's release has no metadata.version
        return False
