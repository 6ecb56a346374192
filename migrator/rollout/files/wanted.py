"""What a step makes of a node's property file."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.kafkas_controller import refused_by_kafka
from migrator.config.keys import CONNECT, CONTROL_PLANE, PROTOCOLS
from migrator.config.properties import decoded, encoded
from migrator.errors import OperatorError
from migrator.rollout.files.property_files import earlier_of
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node, Role
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import (
    FileMode,
    ModeSettings,
    file_mode,
    lost_zookeeper,
    parsed,
    refuse_unstartable,
    rewritten,
    stock_file,
)
from migrator.rollout.plan.steps import Step


async def wanted_file(
    parts: RolloutParts, step: Step, node: Node, text: str, progress: Progress
) -> tuple[bytes, bytes | None]:
    """The file as it has to be; and the file as it was in this mode before, None when that is unknown.

    :param text: the file as it is.
    :raises OperatorError: the file cannot be made, or a host cannot be reached.
    """
    if step.mode is None:
        raise ValueError(step.name)
    if step.mode is FileMode.STOCK:
        release = parts.inventory.handover
        for key, what, remedy in refused_by_kafka(parsed(node, text)):
            raise OperatorError(f"Kafka does not start: {what}", where=f"{node.properties}: {key}", remedy=remedy)
        return encoded(text if release is None else stock_file(text, release)), None
    earlier = await earlier_of(parts.executor, node, step.mode, progress.rollout, text)
    was = None if earlier is None else decoded(earlier)
    if was is None and lost_zookeeper(node, text, step.mode):
        parts.tell(
            f"{step.name}: no backup and no commented line says which keys zookeeper.* the file had. It gets "
            f"{CONNECT} only: if ZooKeeper needs more, for example zookeeper.ssl.*, add it to {node.properties}"
        )
    settings = parts.mode_settings(progress.release_version)
    new = rewritten(node, text, step.mode, settings, was)
    if step.mode is FileMode.BROKER_KRAFT:
        refuse_unstartable(node, new)
    for sentence in not_kept(node, text, new, settings, was) if node.role is Role.BROKER else ():
        parts.tell(f"{step.name}: {node.properties}: {sentence}. The file as it was stays beside it")
    return encoded(new), earlier


def not_kept(node: Node, text: str, new: str, settings: ModeSettings, earlier: str | None) -> Iterator[str]:
    """Changes in a broker's file since the migration began that no rollout has made and the way back loses: a
    sentence for each.

    :param text: the file as it is.
    :param new: the file as the way back makes it.
    :param earlier: the file as it was in this mode, before or during the migration; None when that is unknown.
    """
    here, then = parsed(node, text), parsed(node, new)
    target, mode = file_mode(node.role, then), file_mode(node.role, here)
    if target is mode or target is FileMode.BROKER_KRAFT:
        return
    wanted = {key: wanted for key, wanted in settings.for_brokers.items() if key != PROTOCOLS}
    changed = [key for key in wanted if key in here and here[key] != wanted[key] and here[key] != then.get(key)]
    if changed and target is FileMode.BROKER_ZOOKEEPER:
        yield f"{', '.join(changed)}: had another value than in brokers.settings; is again as before the migration"
    was = {} if earlier is None else parsed(node, earlier)
    if mode is FileMode.BROKER_KRAFT and CONTROL_PLANE in was and CONTROL_PLANE not in then:
        yield f"{CONTROL_PLANE}={was[CONTROL_PLANE]} does not come back: the broker has no such listener any more"
