"""Each broker's ``inter.broker.protocol.version`` in force in ZooKeeper mode, and its consequences.

A quorum that begins a migration must have the same: its ``metadata.version`` decides which records and requests the
brokers get (KIP-866).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from migrator.config.keys import IBP
from migrator.config.settings import Settings
from migrator.controller.activation import check_first_level
from migrator.errors import OperatorError, PeerError
from migrator.observe.printable import number_ranges
from migrator.preflight.asking import ask_each
from migrator.preflight.reading import read_brokers
from migrator.records.versions import LATEST_SUPPORTED, MetadataVersion, parse_version, version_at
from migrator.values import value
from migrator.wire.broker_settings import BROKER, Refused, describe_configs
from migrator.wire.client import KafkaConnection
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError

TYPE_IT = "give -r VERSION"
KINDS_MAX = 10
"""The most different answers that a message has, each with its brokers."""
CHARACTERS_MAX = 200
"""Characters of one answer: anything may be registered as a broker."""


@value
class Said:
    """One broker's value, or the reason why it is unknown."""

    text: str = ""
    fault: str = ""


def ask_protocol_versions(settings: Settings, session: ZooKeeperSession) -> dict[int, Said]:
    """The answers by broker id, of every broker that is registered in ZooKeeper.

    :raises MigratorError: ZooKeeper does not answer any more, or refuses us.
    """
    said: dict[int, Said] = {}

    def on_fault(fault: ZnodeError) -> None:
        name = paths.name_of(fault.where)
        said[int(name)] = Said(fault=f"{fault.where}: {fault.what}")

    brokers = read_brokers(BulkReader(session), on_fault)
    answers = asyncio.run(ask_each(settings, brokers, _ask))
    for broker_id in brokers:
        answer = answers.get(broker_id)
        if answer is None:
            said[broker_id] = Said(fault=f"it has no listener {settings.broker_rpc_listener}")
        else:
            said[broker_id] = Said(answer.answer or "", answer.fault)
    return said


async def _ask(broker_id: int, connection: KafkaConnection) -> str:
    found = (await describe_configs(connection, BROKER, [str(broker_id)], [IBP])).get(str(broker_id), {})
    if isinstance(found, Refused):
        raise PeerError(f"it answers DescribeConfigs with {found.error}")
    if IBP not in found:
        raise PeerError(f"it does not say its {IBP}")
    return found[IBP]


def version_of_brokers(said: Mapping[int, Said], type_it: str = TYPE_IT) -> MetadataVersion:
    """The version that all brokers have.

    :param type_it: how the operator can give the version instead.
    :raises OperatorError: they have none in common, or none with which a migration can begin.
    """
    if not said:
        raise OperatorError(
            f"no broker is registered, so none can be asked for its {IBP}",
            where=paths.BROKER_IDS,
            remedy=f"Start the brokers, or {type_it}: the release that {IBP} of the brokers names",
        )
    unknown = [broker_id for broker_id, it in said.items() if it.fault]
    if unknown:
        raise OperatorError(
            f"{number_ranges('broker', unknown)} did not say it: {answers_text(said)}",
            where=IBP,
            remedy=f"Start these brokers, or let this node ask them; or {type_it}: the value that all brokers have",
        )
    versions = {_parsed(it.text) for it in said.values()}
    if len(versions) > 1:
        raise OperatorError(
            f"the brokers differ: {answers_text(said)}",
            where=IBP,
            remedy=f"Set the same on all brokers, and restart them; or {type_it}: the value that they will have",
        )
    version = versions.pop()
    if version is None or version.level > LATEST_SUPPORTED:
        raise OperatorError(
            f"a migration cannot begin with it: {answers_text(said)}",
            where=IBP,
            remedy=f"Bring the brokers to a release from 3.6 to {version_at(LATEST_SUPPORTED).release} first; or "
            f"{type_it}: the value that they will have",
        )
    check_first_level(
        version.level,
        where=f"{IBP} of the brokers ({answers_text(said)})",
        remedy=f"Upgrade the brokers first, and set it to 3.6 or later; or {type_it}: the value that they will have",
    )
    return version


def _parsed(text: str) -> MetadataVersion | None:
    """The version for a text; None for a release that has no metadata.version, such as 2.8."""
    try:
        return parse_version(text)
    except ValueError:
        return None


def answers_text(said: Mapping[int, Said]) -> str:
    """The answers as text, grouped by answer."""
    kinds: dict[str, list[int]] = {}
    for broker_id, it in sorted(said.items()):
        kinds.setdefault(_short(it.fault or it.text), []).append(broker_id)
    told = [f"{number_ranges('broker', ids)}: {text}" for text, ids in list(kinds.items())[:KINDS_MAX]]
    more = len(kinds) - KINDS_MAX
    return "; ".join(told) + (f"; and {more} more answers" if more > 0 else "")


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}..."
