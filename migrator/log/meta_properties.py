"""``meta.properties``: the cluster and the node to which a directory belongs.

`formatting` reads and writes it, and tools read it to see whose directory it is. A missing file means that the
directory is not formatted; a file that cannot be understood is an error. A write is durable and in Java's form. Source:
``org.apache.kafka.metadata.properties.MetaProperties``.
"""

from __future__ import annotations

import re
from pathlib import Path

from migrator.config.properties import decoded, parse_properties
from migrator.config.property_edits import escaped
from migrator.log.errors import StorageError, storage_errors
from migrator.log.files import write_durably
from migrator.machine import machine
from migrator.records.uuid import Uuid, uuid_from_text, uuid_to_text
from migrator.values import value

FILE_NAME = "meta.properties"
_ESCAPED = re.compile("[=:#!]")
"""The characters that Java's ``Properties.store`` escapes in values, too."""


@value
class MetaProperties:
    """``directory_id`` is None in directories that old releases have formatted; Kafka then adds one at its start."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Content of the file, version 1, in the order in which Java writes it."""
    lines = [f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(properties.directory_id)}")
    cluster_id = escaped(properties.cluster_id, is_key=False)
    lines += ["version=1", f"cluster.id={_ESCAPED.sub(lambda match: chr(92) + match[0], cluster_id)}"]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(text: str) -> MetaProperties:
    """Parse the file's content, in version 0 (which calls the node id ``broker.id``) or 1.

    :raises ValueError: a key is missing or its value is malformed; the message names the key.
    """
    found = parse_properties(text)
    version = found.get("version", "0")
    if version not in ("0", "1"):
        raise ValueError(f"version is {version!r}, known are 0 and 1")
    id_key = "node.id" if version == "1" or "node.id" in found else "broker.id"
    for key in ("cluster.id", id_key):
        if not found.get(key):
            raise ValueError(f"{key} is missing")
    try:
        node_id = int(found[id_key])
    except ValueError:
        raise ValueError(f"{id_key} is {found[id_key]!r}, not a number") from None
    directory = found.get("directory.id")
    return MetaProperties(found["cluster.id"], node_id, uuid_from_text(directory) if directory else None)


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Read the directory's file; None when there is no file, so the directory is not formatted.

    :raises StorageError: when it cannot be read or understood.
    """
    path = directory / FILE_NAME
    with storage_errors("cannot read", path):
        if not machine().exists(path):
            return None
        content = machine().content(path)
    try:
        return decode_meta_properties(decoded(content))
    except ValueError as error:
        remedy = "Restore the file from a copy, or empty the directory and format it again"
        raise StorageError(str(error), where=str(path), remedy=remedy) from error


def write_meta_properties(directory: Path, properties: MetaProperties) -> None:
    """Write the directory's file; durable when this returns.

    :raises StorageError: when that fails.
    """
    write_durably(directory / FILE_NAME, encode_meta_properties(properties))
