"""What somebody has changed in a broker's file since the migration began, and the way back does not keep. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.rollout.nodes import Node
from migrator.rollout.plan.listeners import CONTROL_PLANE, PROTOCOLS
from migrator.rollout.plan.modes import FileMode, ModeSettings, file_mode, parsed


def not_kept(node: Node, text: str, new: str, settings: ModeSettings, earlier: str | None) -> Iterator[str]:
    """A sentence for each.

    :param text: the file as it is.
    :param new: as the way back makes it.
    :param earlier: as it was in this mode before the migration, or while it was under way; None where nobody knows.
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
