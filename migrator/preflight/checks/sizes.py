"""M4xx: the sizes of requests and znodes, compared with the limits of the receivers. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy. Sizes are computed from the reading of ZooKeeper; a warning begins at half of a limit, because clusters
grow.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.keys import KEYS
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Concerns, Found, PreflightCheck
from migrator.preflight.evidence import Evidence
from migrator.zookeeper.request_size import JUTE_MAXBUFFER, bytes_of_one

REQUEST_LIMIT = "socket.request.max.bytes"
JUTE_KEY = "migrator.zookeeper.jute.maxbuffer"
NEAR = 0.5
"""The share of a limit at which a warning begins, because clusters grow while they migrate."""


def big_leader_and_isr(evidence: Evidence) -> Iterator[Found]:
    yield from _leader_and_isr(evidence, 1.0, float("inf"))


def growing_leader_and_isr(evidence: Evidence) -> Iterator[Found]:
    yield from _leader_and_isr(evidence, NEAR, 1.0)


def big_update_metadata(evidence: Evidence) -> Iterator[Found]:
    """Find brokers that refuse one UpdateMetadata with all partitions. Ours send parts of some 10 MB."""
    if evidence.zookeeper is None:
        return
    size = evidence.zookeeper.topics.update_metadata_bytes
    limits = {broker_id: _limit(evidence, broker_id) for broker_id in evidence.zookeeper.brokers}
    for broker_id, (limit, where) in sorted(limits.items()):
        if size > limit:
            yield Found(
                where,
                f"one UpdateMetadata has about {size:,} bytes, more than {limit:,}",
                hosts=(f"broker {broker_id}",),
            )


def big_znode(evidence: Evidence) -> Iterator[Found]:
    """Find a znode that is too large to be written back in a multi with its conditions."""
    if evidence.zookeeper is None:
        return
    path, size = evidence.zookeeper.largest
    if size > evidence.jute_maxbuffer:
        yield Found(path, f"it has {size:,} bytes, more than the jute.maxbuffer of {evidence.jute_maxbuffer:,}")


def big_znode_for_us(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None:
        return
    path, size = evidence.zookeeper.largest
    limit = _our_limit(evidence)
    if limit < size <= evidence.jute_maxbuffer:
        yield Found(path, f"it has {size:,} bytes; the controllers write at most {limit:,} in one request ({JUTE_KEY})")


def growing_znode(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None:
        return
    path, size = evidence.zookeeper.largest
    limit = min(evidence.jute_maxbuffer, _our_limit(evidence))
    if NEAR * limit < size <= limit:
        yield Found(path, f"it has {size:,} bytes, of {limit:,} that fit into a request")


def _our_limit(evidence: Evidence) -> int:
    """Bytes of the largest znode that all controllers can write."""
    settings = (controller.settings.migrator_zookeeper_jute_maxbuffer for controller in evidence.controllers)
    return bytes_of_one(min(settings, default=JUTE_MAXBUFFER))


def long_list(evidence: Evidence) -> Iterator[Found]:
    """Find a list of children above jute.maxbuffer: Java clients refuse it and lose the session each time."""
    if evidence.zookeeper is None:
        return
    path, size = evidence.zookeeper.longest_list
    if size > evidence.jute_maxbuffer:
        yield Found(path, f"the list of its children has {size:,} bytes, above {evidence.jute_maxbuffer:,}")


def _leader_and_isr(evidence: Evidence, above: float, up_to: float) -> Iterator[Found]:
    if evidence.zookeeper is None:
        return
    for broker_id, size in sorted(evidence.zookeeper.topics.leader_and_isr_bytes.items()):
        limit, where = _limit(evidence, broker_id)
        if above * limit < size <= up_to * limit:
            replicas = evidence.zookeeper.topics.replicas[broker_id]
            yield Found(
                where,
                f"its LeaderAndIsr has about {size:,} bytes ({replicas:,} replicas), and it takes {limit:,}",
                hosts=(f"broker {broker_id}",),
            )


def _limit(evidence: Evidence, broker_id: int) -> tuple[int, str]:
    """The most bytes that a broker takes in one request, and the origin of this limit."""
    for broker in evidence.brokers:
        limit = broker.file.number(REQUEST_LIMIT)
        if broker.broker_id == broker_id and limit is not None:
            return limit, broker.file.at(REQUEST_LIMIT)
    return int(KEYS[REQUEST_LIMIT].default or 0), f"Kafka's default of {REQUEST_LIMIT} (no file was given)"


CHECKS = (
    PreflightCheck(
        "M401", Severity.BLOCKER, "LeaderAndIsr too big for a broker", big_leader_and_isr,
        "Raise socket.request.max.bytes on the broker, or move replicas away: this request cannot be split",
    ),
    PreflightCheck(
        "M402", Severity.WARNING, "LeaderAndIsr grows towards the limit", growing_leader_and_isr,
        "Raise socket.request.max.bytes on the broker before the migration",
    ),
    PreflightCheck(
        "M403", Severity.BLOCKER, "UpdateMetadata too big for a broker", big_update_metadata,
        "Raise socket.request.max.bytes on the brokers", Concerns.STOCK,
    ),
    PreflightCheck(
        "M404", Severity.BLOCKER, "A znode bigger than jute.maxbuffer", big_znode,
        "Find out what the ZooKeeper servers have and give it with --jute-maxbuffer; controllers in Java need the "
        "same -Djute.maxbuffer",
    ),
    PreflightCheck(
        "M405", Severity.BLOCKER, "A znode bigger than this program writes", big_znode_for_us,
        "Set migrator.zookeeper.jute.maxbuffer to the jute.maxbuffer of the ZooKeeper servers", Concerns.OURS,
    ),
    PreflightCheck(
        "M406", Severity.WARNING, "A znode grows towards the limit", growing_znode,
        "Do not add partitions to this topic during the migration",
    ),
    PreflightCheck(
        "M407", Severity.BLOCKER, "A list of children bigger than jute.maxbuffer", long_list,
        "Give stock controllers a higher -Djute.maxbuffer, as the brokers must have it already", Concerns.STOCK,
    ),
)  # fmt: skip
