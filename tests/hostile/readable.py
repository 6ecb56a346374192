"""Records that decode, and at whose replay stock Kafka 3.9 ends.

Source: the ``replay`` methods of ``ClusterControlManager``, ``ReplicationControlManager``, ``AclControlManager``,
``ConfigurationControlManager``, ``ScramControlManager``, and of the images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from migrator.controller.scram import MAX_ITERATIONS, MIN_ITERATIONS
from migrator.records import metadata as r
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.uuid import ZERO_UUID

BESIDE: Final = "replicas named twice, or an ISR beside them"
_PROTOCOLS = {int(protocol) for protocol in r.SecurityProtocol}
_CONFIGS = {int(kind) for kind in r.ConfigResourceType}


def faults_for_stock(record: r.MetadataRecord) -> Iterator[str]:
    if isinstance(record, r.RegisterBrokerRecord | r.RegisterControllerRecord):
        for endpoint in record.end_points:
            if endpoint.security_protocol not in _PROTOCOLS:
                yield f"security protocol {endpoint.security_protocol}"
    if isinstance(record, r.RegisterBrokerRecord) and (record.broker_id < 0 or record.broker_epoch < 0):
        yield "a negative id or epoch"
    if isinstance(record, r.ConfigRecord) and record.resource_type not in _CONFIGS:
        yield f"configuration of type {record.resource_type}"
    if isinstance(record, r.TopicRecord) and (record.topic_id == ZERO_UUID or not record.name):
        yield "a topic without id or name"
    if isinstance(record, r.UserScramCredentialRecord) and not (
        record.mechanism in (1, 2) and MIN_ITERATIONS <= record.iterations <= MAX_ITERATIONS
    ):
        yield "a credential that no login could use"
    yield from _of_partitions(record)
    yield from _of_entries(record)


def _of_partitions(record: r.MetadataRecord) -> Iterator[str]:
    if isinstance(record, r.PartitionRecord):
        if record.partition_id < 0 or not record.replicas or min(record.replicas) < 0:
            yield "a partition without number or replicas"
        if len(set(record.replicas)) != len(record.replicas) or not set(record.isr) <= set(record.replicas):
            yield BESIDE
    if isinstance(record, r.PartitionChangeRecord) and record.isr is not None and min(record.isr, default=0) < 0:
        yield "a negative id in an ISR"


def _of_entries(record: r.MetadataRecord) -> Iterator[str]:
    if isinstance(record, r.AccessControlEntryRecord):
        known = (
            record.resource_type in {int(kind) for kind in ResourceType}
            and record.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
            and record.operation in {int(operation) for operation in AclOperation}
            and record.permission_type in {int(permission) for permission in AclPermission}
        )
        if not known:
            yield "an access control entry of unknown kinds"
    if isinstance(record, r.ClientQuotaRecord) and math.isnan(record.value):
        yield "a quota that is no number"
