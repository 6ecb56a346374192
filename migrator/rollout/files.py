"""The property files of nodes: how they are read, and where a rollout keeps what they were."""

from __future__ import annotations

from migrator.errors import OperatorError
from migrator.rollout.modes import FileMode
from migrator.rollout.nodes import Node
from migrator.rollout.ports import Executor
from migrator.rollout.steps import Phase

LEAVES = {
    FileMode.BROKER_ZOOKEEPER: Phase.MIGRATE,
    FileMode.BROKER_MIGRATING: Phase.KRAFT,
    FileMode.CONTROLLER_MIGRATING: Phase.FINISH,
}
"""By mode of a file, the phase that takes the file out of this mode, and keeps the file as it was."""


async def text_of(executor: Executor, node: Node) -> str:
    """A node's property file.

    :raises OperatorError: there is none, or it is no text.
    """
    content = await executor.read(node, node.properties)
    where = f"{node.name} on {node.host}: {node.properties}"
    if content is None:
        raise OperatorError("there is no such file", where=where, remedy="Correct the path in the inventory")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise OperatorError(f"byte {error.start} is no UTF-8", where=where, remedy="Save it as UTF-8") from None


def backup(node: Node, phase: Phase, rollout: str) -> str:
    """Where the file stays as it was before a phase."""
    return f"{node.properties}.before-{phase.value}.{rollout}"


def backup_of(node: Node, mode: FileMode, rollout: str) -> str:
    """Where the file is as it was in this mode, if this rollout has found it so; "" for a mode that is never left."""
    phase = LEAVES.get(mode)
    return "" if phase is None else backup(node, phase, rollout)
