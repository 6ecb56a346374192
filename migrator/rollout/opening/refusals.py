"""Refusals of a rollout when it begins or turns back, before anything changes. Pure.

`opening` and `rollout plan` call these functions with the inventory, property files and a look. Each raises an
`OperatorError` with a remedy, or returns: a broker that would not start with its new settings is found here and not in
the middle of the roll.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.config.keys import PROTOCOLS
from migrator.errors import OperatorError
from migrator.rollout.engine.decisions import ahead_of_copy, may_be_ahead
from migrator.rollout.gates.gates import DOES_THE_REST, FINISHED, FORWARD_AGAIN, ONLY_REOPEN
from migrator.rollout.inventory import FIND_QUORUM, ControllerKind, Inventory
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.listeners import lacks_controllers
from migrator.rollout.plan.modes import FileMode, ModeSettings, file_mode, parsed, refuse_unstartable, rewritten
from migrator.rollout.ports import BrokerMode, Observation
from migrator.seeing.controllers import ControllerProgram

BY_ROLLOUT = "'migrator rollout rollback --reopen' does all of it"


def refuse_dynamic_maps(inventory: Inventory, seen: Observation) -> None:
    """Refuse a ``listener.security.protocol.map`` that is set dynamically, because it overrides what the rollout writes
    into the file. A broker in migration mode takes its dynamic settings from ZooKeeper first (``KafkaServer``). Then it
    looks for the protocol of the controllers' listener, and does not start without one (``RaftManager``,
    ``SecurityProtocol.forName``). A map that could not be seen is left to preflight, which reads it in ZooKeeper.

    :raises OperatorError: brokers would not start in migration mode.
    """
    found = [
        (node, broker.dynamic_map)
        for node in inventory.brokers.nodes
        if (broker := seen.broker(node)) is not None and broker.mode is not BrokerMode.KRAFT
        if broker.dynamic_map and lacks_controllers(broker.dynamic_map, inventory.brokers.settings)
    ]
    if not found:
        return
    node, text = found[0]
    missing = lacks_controllers(text, inventory.brokers.settings)
    command = (
        f"kafka-configs.sh --bootstrap-server HOST:PORT --entity-type brokers --entity-name {node.node_id} --alter"
    )
    raise OperatorError(
        f"brokers would not start in migration mode: their {PROTOCOLS} is set dynamically, which counts more than the "
        f"property file, and it lacks the controllers' listener {missing}",
        where=", ".join(each.name for each, _ in found),
        remedy=f"For each of them, add it: {command} --add-config "
        f"'{PROTOCOLS}=[{text},{missing}:{inventory.brokers.controller_protocol}]'. If the map of its file has all of "
        f"its listeners, you can remove the dynamic one instead: {command} --delete-config {PROTOCOLS}",
    )


FIRST_WITH_BOOTSTRAP = (3, 9)
"""Kafka's release that finds a quorum by ``controller.quorum.bootstrap.servers`` (KIP-853)."""


def refuse_lost_brokers(inventory: Inventory, seen: Observation, texts: Mapping[str, str]) -> None:
    """Refuse brokers that could not find the quorum. When voters are configured, they must be configured on brokers of
    every release: a broker registers with a controller that it knows as a voter (Kafka's
    ``RaftControllerNodeProvider``), and the log of such a quorum names no voters.

    :param texts: property files by node.
    :raises OperatorError: a broker would have no key by which its release finds the quorum.
    """
    voters, bootstrap = FIND_QUORUM
    if inventory.brokers.settings.get(voters):
        return
    without = [node for node in inventory.brokers.nodes if not parsed(node, texts[node.name]).get(voters)]
    releases = {number: broker.release for number, broker in (seen.brokers or {}).items()}
    if old := [node for node in without if _is_old(releases.get(node.node_id, ""))]:
        named = ", ".join(f"{node.name} ({releases[node.node_id]})" for node in old)
        _refuse(
            f"brokers older than Kafka 3.9 do not know {bootstrap}, and have nothing else to find the controllers by: "
            f"{named}"
        )
    if without and _are_configured(inventory.controllers.nodes, texts):
        named = ", ".join(node.name for node in without)
        _refuse(
            f"the controllers have {voters}, and these brokers would have only {bootstrap}: a broker registers only "
            f"with a controller that it knows as a voter: {named}"
        )


def _are_configured(controllers: tuple[Node, ...], texts: Mapping[str, str]) -> bool:
    return any(parsed(node, texts.get(node.name, "")).get(FIND_QUORUM[0]) for node in controllers)


def _refuse(what: str) -> None:
    raise OperatorError(
        what, where="brokers.settings", remedy=f"Add {FIND_QUORUM[0]} to brokers.settings of the inventory"
    )


def _is_old(release: str) -> bool:
    numbers = tuple(int(part) for part in release.split(".")[:2] if part.isdecimal())
    return len(numbers) == len(FIRST_WITH_BOOTSTRAP) and numbers < FIRST_WITH_BOOTSTRAP


def refuse_files(inventory: Inventory, texts: Mapping[str, str], settings: ModeSettings) -> None:
    """Refuse property files that Kafka would refuse. A broker whose file is in KRaft mode is left to its own step.

    :param texts: property files by node.
    :raises OperatorError: Kafka would refuse a file, or a file cannot be parsed.
    """
    for node in inventory.brokers.nodes:
        text = texts[node.name]
        if file_mode(node.role, parsed(node, text)) is not FileMode.BROKER_KRAFT:
            for mode in (FileMode.BROKER_MIGRATING, FileMode.BROKER_KRAFT):
                refuse_unstartable(node, rewritten(node, text, mode, settings))


def refuse_ahead(brokers: Sequence[Node], texts: Mapping[str, str], seen: Observation) -> None:
    """Refuse files in KRaft mode before the copy, when a rollout begins. While it is unknown which controller the
    cluster has, this is left to the broker's own step.

    :param texts: property files by node.
    :raises FileAheadError: a broker is the ZooKeeper controller, and files are in KRaft mode.
    """
    ahead = [
        node for node in brokers if file_mode(NodeKind.BROKER, parsed(node, texts[node.name])) is FileMode.BROKER_KRAFT
    ]
    ahead = [node for node in ahead if not may_be_ahead(node, seen)]
    if ahead and seen.controller_broker is not None:
        raise ahead_of_copy(*ahead)


def refuse_back(
    inventory: Inventory, progress: Progress, seen: Observation, texts: Mapping[str, str], *, reopens: bool = False
) -> None:
    """Refuse to go back after the end of the migration; called before the way back is shown or begun.

    :param texts: property files by node.
    :param reopens: whether the operator wants to reopen the migration then.
    :raises OperatorError: the end of the migration was reached, or this is unknown; or it cannot be reopened.
    """
    if reopens and seen.is_finished:
        _refuse_reopening(inventory, seen)
        return
    refuse_ended(seen, progress)
    if progress.goes_back or (seen.migration is not None and seen.migration.state):
        return
    nodes = inventory.controllers.nodes
    off = [file_mode(node.role, parsed(node, texts[node.name])) is FileMode.CONTROLLER_ENDED for node in nodes]
    if any(off) if inventory.controllers.kind is ControllerKind.STOCK else all(off):  # one of Kafka's alone ends it all
        raise OperatorError(
            "controllers have the migration off, and none of them answers: the migration may be finished",
            where="rollback",
            remedy="Start the controllers; 'migrator status' says whether it is finished",
        )


def refuse_ended(seen: Observation, progress: Progress) -> None:
    """:raises OperatorError: the end of the migration was reached, and the way back does not reopen it."""
    if not seen.is_finished:
        return
    if progress.reopens and progress.goes_back:
        return
    go_on = FORWARD_AGAIN if progress.goes_back else "Nothing is to be done" if progress.closed else DOES_THE_REST
    raise OperatorError(f"the migration {FINISHED}", where="rollback", remedy=f"{go_on}. {ONLY_REOPEN}. {BY_ROLLOUT}")


def _refuse_reopening(inventory: Inventory, seen: Observation) -> None:
    """
    :raises OperatorError: voters are Kafka's own, or ZooKeeper does not answer.
    """
    voters = {} if seen.quorum is None else seen.quorum.voters
    stock = [voter.node_id for voter in voters.values() if voter.program is ControllerProgram.STOCK]
    if stock or inventory.controllers.kind is ControllerKind.STOCK:
        raise OperatorError(
            "only controllers of this program reopen a migration, and Kafka's own have taken over",
            where="--reopen",
            remedy="Hand the quorum over to this program's controllers first (docs/runbook.md, the way back from 7)",
        )
    if not seen.zookeeper_answers:
        raise OperatorError(
            "ZooKeeper does not answer, and the cluster is to go back to it",
            where="--reopen",
            remedy="Start ZooKeeper with its content of before. 'access' of the inventory has to name it in "
            "zookeeper.connect",
        )
