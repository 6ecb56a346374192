"""What each caller may cost: its share of the work, and how many elements its requests may have."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from migrator.apis.authorization import Access, allows_cluster, unlogged
from migrator.apis.call import ApiKind
from migrator.apis.registry import APIS
from migrator.controller.decision import RefusedError
from migrator.records.acl_codes import AclOperation
from migrator.wire.aside import INLINE_BYTES
from migrator.wire.callers import MAX_REQUEST_ELEMENTS
from migrator.wire.envelope import peek_envelope
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.schemas import ENVELOPE, peek_request
from migrator.wire.shares import Caller, Share, Work

MAX_READ_WITHOUT_RIGHTS: Final = 100_000
"""Elements of one request of a caller without rights on the cluster. An owner of many topics may ask for as many."""
MAX_WRITTEN_WITHOUT_RIGHTS: Final = 60_000
"""The same of a request that writes: while it is decided, all other writers wait. Kafka refuses more than 10,000
records of one request (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
ELEMENT_BYTES: Final = 150
"""Memory of one decoded element, about."""
LEAST_ELEMENT_BYTES: Final = 3
"""Bytes of a small element in a request."""
ALTER_PARTITION: Final = 56
ALTER_PARTITION_ELEMENT_BYTES: Final = 13
"""A broker of an ISR with its epoch, the smallest element since version 3."""
BEYOND_THEIR_SIZE: Final = frozenset({19, 29, 31, 32, 33, 37, 43, 44, 46})
"""APIs whose small requests can be about all partitions, all access control entries, or every configuration, or whose
few elements can be long lists and regular expressions to check."""

AccessOf = Callable[[Principal, str], Access]


class ClusterCallers:
    """A `migrator.wire.callers.Callers` by what the access control entries say now.

    :param access_of: what a principal may do from a host.
    """

    def __init__(self, access_of: AccessOf) -> None:
        self._access_of = access_of

    def work(self, frame: bytearray, principal: Principal, host: str, connection: Hashable) -> Work | None:
        """See `migrator.wire.callers.Callers`. A forwarded request is its client's work, not its broker's."""
        key, _, _ = peek_request(frame)
        if len(frame) <= INLINE_BYTES and key not in BEYOND_THEIR_SIZE and key != ENVELOPE:
            return None
        caller = self._caller(principal, host, connection)
        if key == ENVELOPE and caller.share is Share.BROKERS and (inside := peek_envelope(frame)) is not None:
            key, principal, host = inside
            caller = self._caller(principal, host, principal)
        if len(frame) <= INLINE_BYTES and key not in BEYOND_THEIR_SIZE:
            return None
        elements = min(len(frame) // LEAST_ELEMENT_BYTES, _most(caller.share, key, len(frame)))
        return Work(caller, len(frame) + elements * ELEMENT_BYTES)

    def has_rights(self, principal: Principal, host: str) -> bool:
        """See `migrator.wire.callers.Callers`."""
        return self._caller(principal, host, None).share.has_rights

    def max_elements(self, api_key: int, size: int, principal: Principal, host: str) -> int:
        """See `migrator.wire.callers.Callers`."""
        return _most(self._caller(principal, host, None).share, api_key, size)

    def _caller(self, principal: Principal, host: str, connection: Hashable) -> Caller:
        access = unlogged(self._access_of(principal, host))
        try:
            if allows_cluster(access, AclOperation.CLUSTER_ACTION):
                return Caller(Share.BROKERS, connection)
            if allows_cluster(access, AclOperation.ALTER) or allows_cluster(access, AclOperation.DESCRIBE):
                return Caller(Share.OPERATORS, principal)
        except RefusedError:  # the entries are not loaded yet
            pass
        return Caller(Share.STRANGERS, host) if principal == ANONYMOUS else Caller(Share.OTHERS, principal)


def _most(share: Share, api_key: int, size: int) -> int:
    """A broker asks for every change of an ISR that waits in one AlterPartition, and asks for the same again when the
    connection breaks. So that request is bound by its bytes alone, as in Kafka (``AlterPartitionManager``)."""
    if share.has_rights:
        is_isr_change = share is Share.BROKERS and api_key == ALTER_PARTITION
        return (
            max(MAX_REQUEST_ELEMENTS, size // ALTER_PARTITION_ELEMENT_BYTES) if is_isr_change else MAX_REQUEST_ELEMENTS
        )
    writes = api_key in APIS and APIS[api_key].kind is ApiKind.WRITE
    return MAX_WRITTEN_WITHOUT_RIGHTS if writes else MAX_READ_WITHOUT_RIGHTS
