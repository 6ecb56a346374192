"""The bounds of each caller: its share of the work, and the most elements of a request.

A listener asks `ClusterCallers` before it decodes a request. A caller with rights on the cluster (a broker, a
controller, an administrator) gets large bounds, any other caller small ones. Heartbeats, fetches and votes of a caller
with such rights never wait for a share: a busy client must not make a broker look dead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from migrator.apis.authorization import Access, allows_cluster
from migrator.apis.call import ApiKind
from migrator.apis.registry import APIS
from migrator.controller.decision import RefusedError
from migrator.records.acl_codes import AclOperation
from migrator.wire.aside import INLINE_BYTES
from migrator.wire.book import Caller, Part, Share
from migrator.wire.callers import MAX_REQUEST_ELEMENTS
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.schemas import ALTER_PARTITION

MAX_READ_WITHOUT_RIGHTS: Final = 100_000
"""Elements of one request of a caller without rights on the cluster. An owner of many topics may ask for as many."""
MAX_WRITTEN_WITHOUT_RIGHTS: Final = 15_000
"""The same for a request that writes. While it is decided, all other writers wait, also heartbeats of brokers: 0.4 s
with 55,000 elements, all of them refused. Kafka refuses more than 10,000 records of one request
(``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
ALTER_PARTITION_ELEMENT_BYTES: Final = 13
"""The bytes of a broker of an ISR with its epoch, the smallest element since version 3."""
BEYOND_THEIR_SIZE: Final = frozenset({19, 29, 31, 32, 33, 37, 43, 44, 46})
"""APIs whose small requests can concern all partitions, all access control entries, or every configuration, or whose
few elements can be long lists and regular expressions to check."""

MAX_REMEMBERED: Final = 10_000
"""The most callers whose share is kept; beyond this number all of them are forgotten."""

AccessOf = Callable[[Principal, str], Access]


class ClusterCallers:
    """A `migrator.wire.callers.Callers` by what the access control entries say now.

    :param access_of: gives the access of a principal from a host.
    :param version: gives another number whenever the access has changed.
    """

    def __init__(self, access_of: AccessOf, version: Callable[[], Hashable]) -> None:
        self._access_of = access_of
        self._version = version
        self._known: dict[tuple[Principal, str], Share] = {}
        self._known_version: Hashable = None

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        """See `migrator.wire.callers.Callers`."""
        version = self._version()
        if version != self._known_version or len(self._known) > MAX_REMEMBERED:
            self._known, self._known_version = {}, version
        share = self._known.get((principal, host))
        if share is None:
            share = self._known[principal, host] = self._share(principal, host)
        return Caller(share, key if share is Share.BROKERS else host if share is Share.STRANGERS else principal)

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        """See `migrator.wire.callers.Callers`. Heartbeats, fetches and votes never wait; of a caller without rights,
        every request waits."""
        return share.part is not Part.RIGHTS or size > INLINE_BYTES or api_key in BEYOND_THEIR_SIZE

    def max_elements(self, share: Share, api_key: int, size: int) -> int:
        """See `migrator.wire.callers.Callers`. A broker sends all its waiting changes of ISRs in one AlterPartition,
        and sends the same again when the connection breaks. So this request is bounded only by its bytes, as in Kafka
        (``AlterPartitionManager``)."""
        if share is Share.BROKERS and api_key == ALTER_PARTITION:
            return max(MAX_REQUEST_ELEMENTS, size // ALTER_PARTITION_ELEMENT_BYTES)
        if share.part is Part.RIGHTS:
            return MAX_REQUEST_ELEMENTS
        writes = api_key in APIS and APIS[api_key].kind is ApiKind.WRITE
        return MAX_WRITTEN_WITHOUT_RIGHTS if writes else MAX_READ_WITHOUT_RIGHTS

    def _share(self, principal: Principal, host: str) -> Share:
        access = self._access_of(principal, host)
        try:
            if allows_cluster(access, AclOperation.CLUSTER_ACTION):
                return Share.BROKERS
            if allows_cluster(access, AclOperation.ALTER) or allows_cluster(access, AclOperation.DESCRIBE):
                return Share.OPERATORS
        except RefusedError:  # the entries are not loaded yet
            pass
        return Share.STRANGERS if principal == ANONYMOUS else Share.OTHERS
