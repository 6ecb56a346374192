"""Compares idle real brokers with the metadata image: their metadata and their logs.

The real cluster calls it at the end of phases. Each difference is a sentence; no sentence means equal. It needs a
cluster in which nothing changes, and reads only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from migrator.image.model import MetadataImage, TopicImage
from migrator.log.metadata_log import PARTITION_METADATA_FILE
from migrator.raft.transport import TransportError
from migrator.records.uuid import Uuid, uuid_from_text
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from migrator.wire.security import PLAINTEXT, ListenerSecurity

METADATA = (3, 12)
ANSWER_SECONDS = 10.0
MAX_EXAMPLES = 5
_LOG = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_TOPIC_ID = re.compile(r"^topic_id: (?P<id>\S+)$", re.MULTILINE)
_STRAY = "-stray"
_SET_ASIDE = ("-delete", "-future", _STRAY)
"""Ends of the names of directories whose log is not in use."""


async def metadata_differences(
    broker: int, host: str, port: int, image: MetadataImage, security: ListenerSecurity = PLAINTEXT
) -> list[str]:
    """Differences between the image and this broker's answers to a client; at most `MAX_EXAMPLES`."""
    client = KafkaClient(host, port, "drill", security=security)
    try:
        everything = build(request_type(*METADATA), topics=None, allow_auto_topic_creation=False)
        answer = await client.request(everything, ANSWER_SECONDS)
    except TransportError as error:
        return [f"broker {broker}: {error}"]
    finally:
        await client.close()
    return [f"broker {broker}: {text}" for text in islice(_compared(answer, image), MAX_EXAMPLES)]


def _compared(answer: Any, image: MetadataImage) -> Iterator[str]:
    told = {topic.name: topic for topic in answer.topics}
    if one_sided := told.keys() ^ set(image.topics.ids):
        yield f"topics that only one side has: {sorted(one_sided)[:MAX_EXAMPLES]}"
    for topic in image.topics.by_id.values():
        if (seen := told.get(topic.name)) is not None:
            yield from _topic(topic, seen)


def _topic(topic: TopicImage, seen: Any) -> Iterator[str]:
    if seen.topic_id is None or seen.topic_id.bytes != topic.topic_id:
        yield f"topic {topic.name!r} has the id {seen.topic_id}"
    partitions = {each.partition_index: each for each in seen.partitions}
    if partitions.keys() != topic.partitions.keys():
        yield f"topic {topic.name!r} has the partitions {sorted(partitions)}"
        return
    for index, expected in topic.partitions.items():
        each = partitions[index]
        same = (
            each.leader_id == expected.leader
            and each.leader_epoch == expected.leader_epoch
            and set(each.isr_nodes) == set(expected.isr)
            and each.replica_nodes == tuple(expected.replicas)
        )
        if not same:
            yield f"{topic.name}-{index} is {each}, in the image {expected}"


def log_differences(broker: int, data: Path, image: MetadataImage) -> list[str]:
    """Logs on a broker's disk that should not be there, and missing ones."""
    held = {path.name for path in data.iterdir() if path.is_dir() and not path.name.endswith(_SET_ASIDE)}
    own = {
        f"{topic.name}-{index}"
        for topic in image.topics.by_id.values()
        for index, partition in topic.partitions.items()
        if broker in partition.replicas
    }
    logs = {name for name in held if _LOG.fullmatch(name) and not name.startswith("__cluster_metadata-")}
    return [f"broker {broker}: only on disk, or only in the image: {sorted(logs ^ own)[:MAX_EXAMPLES]}"] * (logs != own)


def violations(output: str, data: Path, image: MetadataImage) -> list[str]:
    """Fatal errors in a broker's output, and logs that it set aside although their topic was not deleted.

    The log of a deleted topic may be set aside, when a leader died before its StopReplica.
    """
    fatal = [line for line in output.splitlines() if "] FATAL " in line]
    aside = [path for path in data.iterdir() if path.name.endswith(_STRAY) and topic_id_of(path) in image.topics.by_id]
    return fatal + [f"{path.name} was put aside" for path in aside]


def topic_id_of(log: Path) -> Uuid | None:
    """The topic id that a broker noted in a log's directory; None without one."""
    with contextlib.suppress(FileNotFoundError):
        found = _TOPIC_ID.search((log / PARTITION_METADATA_FILE).read_text())
        return None if found is None else uuid_from_text(found["id"])
    return None
