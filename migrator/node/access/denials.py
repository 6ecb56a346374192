"""What the authorizer denied, in the log: who, from where, what, to what. In Kafka's words and by its logger's name.

Denials that a caller did not ask for by name (what is left out of a list) are not logged, as in Kafka. Lines are
bounded for each principal, so that one cannot hide another's. Source: ``StandardAuthorizerData.logAuditMessage``.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from migrator.apis.authorization import Access, Audited
from migrator.errors import PeerError
from migrator.observe.logins import LineRate
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.wire.schemas import request_type

log = logging.getLogger("kafka.authorizer.logger")

PRINCIPALS_MAX = 256
"""Whose lines are counted apart."""
NAME_MAX = 300
"""Characters of a principal or a resource in one line."""
_RESOURCES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


class Denials:
    """For any thread.

    :param rate: makes the bucket of one principal's lines.
    """

    def __init__(self, rate: Callable[[], LineRate] = LineRate) -> None:
        self._rate = rate
        self._rates: OrderedDict[str, LineRate] = OrderedDict()
        self._lock = Lock()

    def watch(self, access: Access, principal: str, host: str, request: tuple[int, int]) -> Audited:
        """The same access, which tells what it denies.

        :param request: API key and version.
        """

        def denied(operation: AclOperation, resource_type: ResourceType, name: str) -> None:
            left_out = self._take(principal)
            if left_out is None:
                return
            log.info(
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s",
                principal[:NAME_MAX], operation.name, host, _RESOURCES[resource_type], name[:NAME_MAX],
                _name_of(*request),
            )  # fmt: skip
            if left_out:
                log.info("%d more denials of %s were not logged", left_out, principal[:NAME_MAX])

        return Audited(access, denied)

    def _take(self, principal: str) -> int | None:
        with self._lock:
            rate = self._rates.pop(principal, None) or self._rate()
            self._rates[principal] = rate
            if len(self._rates) > PRINCIPALS_MAX:
                self._rates.popitem(last=False)
            return rate.take()


def _name_of(api_key: int, version: int) -> str:
    try:
        name: str = request_type(api_key, version).__name__
    except PeerError:
        return f"API {api_key}"
    return name.removesuffix("Request")
