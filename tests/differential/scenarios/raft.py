"""The quorum's own messages (APIs 1, 52, 53, 54, 59, 80, 81, 82), as brokers and other controllers send them.

None of them may take the leadership away: that is the matter of the tests of the consensus core.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from tests.differential.support.steps import CAUGHT_UP, NODE, Step, ask, labelled, some_uuid

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = uuid.UUID(int=1)
EPOCH = 1
"""Of the leaders, which are the only voters of a young quorum."""
NO_WAIT = dt.timedelta(0)
BOTH = range(2)
TO_ITSELF = "what a leader says to itself"
ENDPOINT = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}
KRAFT_VERSIONS = {"min_supported_version": 0, "max_supported_version": 1}


def _topics(partition: dict[str, Any], name: str = METADATA_TOPIC) -> tuple[dict[str, Any], ...]:
    """In the words of every message."""
    names = {"topic_name": name, "topic": name, "name": name, "topic_id": METADATA_TOPIC_ID}
    return ({**names, "partitions": (partition,)},)


def _fetch(version: int, topics: Any = None, **changes: Any) -> Step:
    """Of an observer; changes of the partition's fields, or of the message's."""
    partition = {
        "partition": 0,
        "current_leader_epoch": EPOCH,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 10**6,
        "replica_directory_id": some_uuid(1),
    }
    message = {
        "cluster_id": CLUSTER_ID,
        "replica_id": 7,
        "replica_state": {"replica_id": 7, "replica_epoch": -1},
        "max_wait": NO_WAIT,
        "min_bytes": 0,
        "max_bytes": 10**6,
        "session_id": 0,
        "session_epoch": -1,
    }
    partition |= {key: value for key, value in changes.items() if key in partition}
    message |= {key: value for key, value in changes.items() if key in message}
    return ask(1, version, **message, topics=_topics(partition) if topics is None else topics)


def _snapshot(version: int, topics: Any = None, **changes: Any) -> Step:
    partition = {
        "partition": 0,
        "current_leader_epoch": EPOCH,
        "snapshot_id": {"end_offset": CAUGHT_UP, "epoch": 1},
        "position": 0,
        "replica_directory_id": some_uuid(1),
    }
    message = {"cluster_id": CLUSTER_ID, "replica_id": 7, "max_bytes": 10**6}
    partition |= {key: value for key, value in changes.items() if key in partition}
    message |= {key: value for key, value in changes.items() if key in message}
    return ask(59, version, **message, topics=_topics(partition) if topics is None else topics)


def _vote(version: int, topics: Any = None, **changes: Any) -> Step:
    partition = {
        "partition_index": 0,
        "candidate_epoch": EPOCH,
        "candidate_id": 3001,
        "candidate_directory_id": some_uuid(1),
        "voter_directory_id": None,
        "last_offset_epoch": 0,
        "last_offset": 0,
    }
    message = {"cluster_id": CLUSTER_ID, "voter_id": NODE}
    partition |= {key: value for key, value in changes.items() if key in partition}
    message |= {key: value for key, value in changes.items() if key in message}
    return ask(52, version, **message, topics=_topics(partition) if topics is None else topics)


def _epoch(key: int, version: int, topics: Any = None, **changes: Any) -> Step:
    """BeginQuorumEpoch and EndQuorumEpoch."""
    partition = {
        "partition_index": 0,
        "voter_directory_id": None,
        "leader_id": NODE,
        "leader_epoch": EPOCH,
        "preferred_successors": (),
        "preferred_candidates": (),
    }
    message = {"cluster_id": CLUSTER_ID, "voter_id": NODE, "leader_endpoints": (ENDPOINT,)}
    partition |= {key: value for key, value in changes.items() if key in partition}
    message |= {key: value for key, value in changes.items() if key in message}
    return ask(key, version, **message, topics=_topics(partition) if topics is None else topics)


def _voter(key: int, **changes: Any) -> Step:
    """AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter."""
    fields = {
        "cluster_id": CLUSTER_ID,
        "voter_id": 3001,
        "voter_directory_id": some_uuid(1),
        "listeners": (ENDPOINT,),
        "current_leader_epoch": EPOCH,
        "k_raft_version_feature": KRAFT_VERSIONS,
    }
    return ask(key, 0, **{**fields, **changes})


FETCH = (
    *(_fetch(version) for version in range(18)),
    *(_fetch(version, cluster_id=None) for version in range(12, 18)),
    *(_fetch(version, cluster_id="other") for version in range(13, 18)),
    *(_fetch(version, topics=()) for version in range(12, 18)),
    *(_fetch(version, partition=1) for version in range(12, 18)),
    *(_fetch(version, current_leader_epoch=0) for version in range(12, 18)),
    *(_fetch(version, current_leader_epoch=2) for version in range(12, 18)),
    *(_fetch(version, current_leader_epoch=-1) for version in range(12, 18)),
    *(_fetch(version, fetch_offset=-1) for version in range(12, 18)),
    *(_fetch(version, last_fetched_epoch=-1) for version in range(12, 18)),
    *(_fetch(version, last_fetched_epoch=2) for version in range(12, 18)),
    *(_fetch(version, fetch_offset=CAUGHT_UP, last_fetched_epoch=1) for version in range(12, 18)),
    *(_fetch(version, fetch_offset=CAUGHT_UP) for version in range(12, 18)),
    *(_fetch(version, max_wait=dt.timedelta(milliseconds=-1)) for version in range(12, 18)),
    _fetch(17, replica_id=-1, replica_state={"replica_id": -1, "replica_epoch": -1}),
    labelled("a fetch of the leader's own", _fetch(17, replica_state={"replica_id": NODE, "replica_epoch": -1})),
    _fetch(17, topics=2 * _topics({"partition": 0})),
    labelled("a fetch of no bytes", _fetch(17, max_bytes=0, partition_max_bytes=0)),
)

# Not asked for: a snapshot of no topic at all, upon which a stock controller ends itself.
SNAPSHOTS = (
    *(_snapshot(version, cluster_id="other") for version in BOTH),
    *(
        labelled("a snapshot that cannot be had", step)
        for version in BOTH
        for step in (
            _snapshot(version),
            _snapshot(version, cluster_id=None),
            _snapshot(version, partition=1),
            _snapshot(version, topics=_topics({"partition": 0}, "other")),
            _snapshot(version, current_leader_epoch=0),
            _snapshot(version, current_leader_epoch=2),
            _snapshot(version, snapshot_id={"end_offset": 0, "epoch": 0}),
            _snapshot(version, position=-1),
        )
    ),
)

ELECTIONS = (
    *(_vote(version) for version in BOTH),
    *(_vote(version, cluster_id="other") for version in BOTH),
    *(_vote(version, cluster_id=None) for version in BOTH),
    *(_vote(version, topics=()) for version in BOTH),
    *(_vote(version, partition_index=1) for version in BOTH),
    *(_vote(version, candidate_epoch=0) for version in BOTH),
    *(_vote(version, candidate_id=-1) for version in BOTH),
    *(_vote(version, last_offset=-1) for version in BOTH),
    *(_vote(version, last_offset_epoch=-1) for version in BOTH),
    *(_vote(version, last_offset_epoch=1) for version in BOTH),
    _vote(1, voter_id=-1),
    _vote(1, voter_id=3001),
    _vote(1, voter_directory_id=some_uuid(5)),
    *(labelled(TO_ITSELF, _epoch(key, version)) for key in (53, 54) for version in BOTH),
    *(_epoch(key, version, cluster_id="other") for key in (53, 54) for version in BOTH),
    *(labelled(TO_ITSELF, _epoch(key, version, cluster_id=None)) for key in (53, 54) for version in BOTH),
    *(_epoch(key, version, topics=()) for key in (53, 54) for version in BOTH),
    *(_epoch(key, version, partition_index=1) for key in (53, 54) for version in BOTH),
    *(_epoch(key, version, leader_epoch=0) for key in (53, 54) for version in BOTH),
    *(_epoch(key, version, leader_id=-1) for key in (53, 54) for version in BOTH),
)

VOTERS = (
    *(_voter(key) for key in (80, 81, 82)),
    *(_voter(key, cluster_id="other") for key in (80, 81, 82)),
    *(_voter(key, cluster_id=None) for key in (80, 81, 82)),
    *(_voter(key, voter_id=NODE) for key in (80, 81, 82)),
    *(_voter(key, voter_id=-1) for key in (80, 81, 82)),
    *(_voter(key, voter_directory_id=None) for key in (80, 81, 82)),
    *(_voter(key, listeners=()) for key in (80, 82)),
    _voter(82, current_leader_epoch=0),
    _voter(82, current_leader_epoch=2),
    _voter(82, k_raft_version_feature={"min_supported_version": 1, "max_supported_version": 1}),
)

STEPS = (*FETCH, *SNAPSHOTS, *ELECTIONS, *VOTERS)
