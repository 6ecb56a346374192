"""``/cluster/id``. Source: ``kafka.zk.ClusterIdZNode``."""

from __future__ import annotations

import orjson

from migrator.zookeeper.znodes.fields import Fields

_REMEDY = "Restore it from the meta.properties of any broker"


def decode_cluster_id(path: str, data: bytes | None) -> str:
    """:raises ZnodeError: when it is not a cluster id."""
    return Fields.parse(path, data, _REMEDY).text("id")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Version "1", which is a string here and nowhere else."""
    return orjson.dumps({"version": "1", "id": cluster_id})
