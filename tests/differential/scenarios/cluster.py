"""Features, the cluster, the quorum, and what the listener itself answers (APIs 57, 60, 55, 18, 17, 36, 7, 50)."""

from __future__ import annotations

from typing import Any

from tests.differential.support.steps import Step, ask, labelled

UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA = {"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)}
OTHER = {"topic_name": "t", "partitions": ({"partition_index": 0},)}
CLIENT = {"client_software_name": "differential", "client_software_version": "1.0"}


def _feature(name: str, level: int, kind: int = UPGRADE, version: int = 1, **fields: Any) -> Step:
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind != UPGRADE}
    return ask(57, version, feature_updates=(row,), **fields)


FEATURES = (
    _feature("metadata.version", 22),
    _feature("metadata.version", 20),
    _feature("metadata.version", 22, SAFE),
    _feature("metadata.version", 16, SAFE),
    _feature("metadata.version", 16, UNSAFE),
    _feature("metadata.version", 3, SAFE),
    _feature("metadata.version", 0, SAFE),
    _feature("metadata.version", 0),
    _feature("metadata.version", -1),
    _feature("metadata.version", 20, 0),
    _feature("metadata.version", 20, 7),
    _feature("metadata.version", 20, SAFE, validate_only=True),
    _feature("nope", 1),
    _feature("nope", 0),
    _feature("nope", 0, SAFE),
    _feature("nope", -1),
    _feature("kraft.version", 1),
    _feature("kraft.version", 0),
    _feature("metadata.version", 21),
    _feature("metadata.version", 21, SAFE),
    *(_feature("metadata.version", 21, version=version) for version in range(2)),
    *(_feature("metadata.version", 16, SAFE, version=version) for version in range(2)),
    *(_feature("x", 1, version=version) for version in range(2)),
    ask(57, 1, feature_updates=()),
    ask(
        57,
        1,
        feature_updates=(
            {"feature": "nope", "max_version_level": 1},
            {"feature": "metadata.version", "max_version_level": 21},
        ),
    ),
)

DESCRIPTIONS = (
    *(ask(60, version, endpoint_type=kind) for version in range(2) for kind in (1, 2, 3)),
    ask(60, 1, endpoint_type=2, include_cluster_authorized_operations=True),
    *(ask(55, version, topics=(METADATA,)) for version in range(3)),
    *(ask(55, version, topics=(OTHER,)) for version in range(3)),
    *(ask(55, version, topics=(METADATA, OTHER)) for version in range(3)),
    *(ask(55, version, topics=()) for version in range(3)),
    *(ask(55, v, topics=({**METADATA, "partitions": ({"partition_index": 1},)},)) for v in range(3)),
    *(ask(55, v, topics=({**METADATA, "partitions": ()},)) for v in range(3)),
)

LISTENER = (
    *(ask(18, version, **CLIENT) for version in range(5)),
    *(ask(18, version, client_software_name="", client_software_version="1") for version in (3, 4)),
    *(ask(18, version, client_software_name="a b", client_software_version="1") for version in (3, 4)),
    *(ask(18, version, client_software_name="a", client_software_version="-1") for version in (3, 4)),
    *(ask(17, version, mechanism="PLAIN") for version in range(2)),
    *(ask(36, version, auth_bytes=b"x") for version in range(3)),
    *(ask(7, version, broker_id=1, broker_epoch=1) for version in range(4)),
    ask(50, 0, users=()),
    labelled("users of an API that is not served", ask(50, 0, users=({"name": "a"},))),
)

_KRAFT = labelled("kraft.version is raised", _feature("kraft.version", 1))
BEFORE_BROKERS = (
    _feature("kraft.version", 2),
    _KRAFT,
    _feature("kraft.version", 0, SAFE),
    _feature("kraft.version", 0),
)
"""Stock says no as soon as a broker is there that does not know the feature."""
STEPS = (*FEATURES, *DESCRIPTIONS, *LISTENER)
