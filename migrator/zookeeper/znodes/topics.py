"""``/brokers/topics/<topic>``: the topic id and the replicas of every partition. Source: ``kafka.zk.TopicZNode``.

* version 1: ``partitions`` only
* version 2: ``adding_replicas`` and ``removing_replicas`` of partitions that are being reassigned (KIP-455)
* version 3: ``topic_id`` (KIP-516)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from migrator.records.uuid import Uuid, uuid_from_text, uuid_to_text
from migrator.values import value
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import INT32_MAX, Fields, broker_ids

_REMEDY = (
    "Correct the assignment with a ZooKeeper client and try again: 'kafka-topics --describe' shows the replicas that "
    "brokers know. Do not delete the znode: the topic would be lost"
)

Replicas = tuple[int, ...]


@value
class TopicAssignment:
    """Broker ids by partition id. ``adding`` and ``removing`` name only partitions that are being reassigned.

    ``topic_id`` is None where a broker before 2.8 wrote the znode last.
    """

    topic_id: Uuid | None
    partitions: Mapping[int, Replicas]
    adding: Mapping[int, Replicas]
    removing: Mapping[int, Replicas]


def decode_topic(path: str, data: bytes | None) -> TopicAssignment:
    """Decode a topic's assignment. Brokers ignore the version.

    :raises ZnodeError: the data is not a topic's assignment.
    """
    fields = Fields.parse(path, data, _REMEDY)
    named = fields.mapping("partitions")
    partitions = _replica_map(path, named)
    for partition, replicas in partitions.items():
        if not replicas:
            raise fields.fault(f"partition {partition} has no replicas")
    adding, removing = fields.mapping("adding_replicas"), fields.mapping("removing_replicas")
    return TopicAssignment(
        topic_id=_topic_id(fields) if fields.has("topic_id") else None,
        partitions=partitions,
        adding=_affected(path, adding, named) if adding else {},
        removing=_affected(path, removing, named) if removing else {},
    )


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3, as every broker from 2.8 writes it."""
    fields: dict[str, Any] = {
        "version": 3,
        "partitions": _texts(assignment.partitions),
        "adding_replicas": _texts(assignment.adding),
        "removing_replicas": _texts(assignment.removing),
    }
    if assignment.topic_id is not None:
        fields["topic_id"] = uuid_to_text(assignment.topic_id)
    return orjson.dumps(fields)


def _topic_id(fields: Fields) -> Uuid:
    try:
        return uuid_from_text(fields.text("topic_id"))
    except ValueError:
        raise fields.fault("field 'topic_id' is not a Kafka Uuid") from None


def _replica_map(path: str, texts: Mapping[str, Any]) -> dict[int, Replicas]:
    replicas: dict[int, Replicas] = {}
    for text, ids in texts.items():
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX):
            raise ZnodeError(path, f"{text!r} is not a partition id", _REMEDY)
        try:
            replicas[int(text)] = broker_ids(*(ids if type(ids) is list else [None]))
        except (ValueError, TypeError):
            raise ZnodeError(path, f"the replicas of partition {text} are not a list of broker ids", _REMEDY) from None
    return replicas


def _affected(path: str, texts: Mapping[str, Any], named: Mapping[str, Any]) -> dict[int, Replicas]:
    """The affected partitions, without those that the topic does not have (compared by the text of their ids) and
    without empty lists: Kafka ignores both."""
    known = {text: ids for text, ids in texts.items() if text in named}
    return {partition: replicas for partition, replicas in _replica_map(path, known).items() if replicas}


def _texts(replicas: Mapping[int, Replicas]) -> dict[str, Replicas]:
    return {str(partition): replicas[partition] for partition in sorted(replicas)}
