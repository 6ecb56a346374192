"""The ``meta.properties`` of a broker that goes back: in ZooKeeper mode it starts with version 0 only.

Source: ``org.apache.kafka.metadata.properties.MetaPropertiesEnsemble`` (``REQUIRE_V0``). A broker keeps version 0 in
KRaft mode. But a directory that was added, or whose disk was replaced, was formatted for KRaft mode and has version 1.
Kafka 3.6 refuses version 1 in migration mode, too, when other directories have version 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from migrator.config.properties import decoded, parse_properties
from migrator.config.reading import log_directories
from migrator.errors import OperatorError
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import META_PROPERTIES, named_directories
from migrator.rollout.ports import ExecutorError

DEFAULT_DIRECTORY = "/tmp/kafka-logs"  # noqa: S108 - Kafka's default of log.dir


class IdentityError(OperatorError):
    """A directory of a broker has an identity with which the broker does not start in ZooKeeper mode."""


async def refuse_new_identity(parts: RolloutParts, node: Node, properties: Mapping[str, str]) -> None:
    """Called before the broker is stopped. A file that cannot be read is reported, and delays nothing.

    :raises IdentityError: a directory has version 1.
    """
    for directory in broker_directories(node, properties):
        path = str(PurePosixPath(directory) / META_PROPERTIES)
        try:
            content = await parts.executor.read(node, path)
        except ExecutorError as error:
            parts.tell(f"{node.name}: {path} could not be looked at. With version=1 it does not start: {error}")
            continue
        if content is not None and version_of(content) != "0":
            raise IdentityError(
                "the directory was formatted for KRaft mode (version=1), and a broker in ZooKeeper mode starts with "
                "version 0 only; nothing was done",
                where=f"{node.place}: {path}",
                remedy=f"Write version=0 in place of version=1, and broker.id={node.node_id} in place of "
                f"node.id={node.node_id}; leave the other lines. The broker may run meanwhile: it reads the file only "
                "when it starts. Then 'migrator rollout resume'",
            )


def broker_directories(node: Node, properties: Mapping[str, str]) -> list[str]:
    """The directories where a broker keeps partitions and its identity: at least one.

    :raises OperatorError: there are more than any broker has.
    """
    return named_directories(node, log_directories(properties)) or [DEFAULT_DIRECTORY]


def version_of(content: bytes) -> str:
    """The version in the file. It is 0 when the file does not say one, or cannot be parsed; the broker itself judges
    that."""
    try:
        return parse_properties(decoded(content)).get("version", "0").strip()
    except ValueError:
        return "0"
