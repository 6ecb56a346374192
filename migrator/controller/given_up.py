"""The notes of recoveries of a lost majority in the image, for controllers that join later (`migrator.raft.refused`).

They are configurations of the resource that also has a reassignment's target. Stock controllers keep them in snapshots,
and accept no change of them from clients.
"""

from __future__ import annotations

from typing import Final

from migrator.image.model import ConfigResource, MetadataImage
from migrator.raft.refused import NOTHING_RECOVERED, Recovered
from migrator.raft.voter_set import ReplicaKey
from migrator.records.metadata import QUORUM_RESOURCE, ConfigRecord, ConfigResourceType
from migrator.records.uuid import uuid_from_text

QUORUM: Final = ConfigResource(ConfigResourceType.UNKNOWN, QUORUM_RESOURCE)
REFUSED_KEY: Final = "refused.voters"
"""``1@<directory id>,2@<directory id>``: the refused replicas of all recoveries."""
RECOVERED_KEY: Final = "recovered.at"
"""``<epoch>:<end offset>`` of the last recovery's records."""


def given_up_records(recovered: Recovered) -> tuple[ConfigRecord, ConfigRecord]:
    """The records of a recovery, in the form that `recovered_of` reads."""
    keys = sorted(recovered.refused, key=lambda key: (key.node_id, key.directory_id))
    return (
        ConfigRecord(QUORUM.resource_type, QUORUM.name, REFUSED_KEY, ",".join(map(str, keys))),
        ConfigRecord(QUORUM.resource_type, QUORUM.name, RECOVERED_KEY, f"{recovered.epoch}:{recovered.end_offset}"),
    )


def recovered_of(image: MetadataImage) -> Recovered:
    """The notes about recoveries in the image; an empty value when their form is not this program's."""
    configs = image.configs.get(QUORUM, {})
    refused, at = configs.get(REFUSED_KEY), configs.get(RECOVERED_KEY)
    return _parsed(refused, at) if refused and at else NOTHING_RECOVERED


def _parsed(refused: str, at: str) -> Recovered:
    try:
        epoch, _, end_offset = at.partition(":")
        return Recovered(frozenset(map(_key, refused.split(","))), int(epoch), int(end_offset))
    except ValueError:
        return NOTHING_RECOVERED


def _key(text: str) -> ReplicaKey:
    node_id, _, directory = text.partition("@")
    return ReplicaKey(int(node_id), uuid_from_text(directory))
