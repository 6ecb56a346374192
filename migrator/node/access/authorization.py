"""The authorizer of the published access control entries. It follows the image entry by entry.

The endpoint asks it for the access of each caller. Until the committed entries are known, only super users get an
answer: deny entries could be missing. While a large change is applied over several turns, the old entries hold, and a
resource without entries is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from migrator.apis.authorization import Access, Authorizer, Unlimited, not_ready
from migrator.config.settings import Settings
from migrator.controller.acl_index import AclIndex
from migrator.image.model import ImageDelta
from migrator.node.metadata import MetadataRuntime
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.uuid import Uuid
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.turns import parts
from migrator.wire.principal import Principal

ENTRIES = TaskKind("access-control-entries", OnError.STOP)
_DONE: Final = object()
_ALL: Final[frozenset[int]] = frozenset(ResourceType)


class _NotReady:
    """The access of all callers except super users, until the entries are known."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Refuse to decide, because the entries are not known yet. :raises RefusedError: UNKNOWN_SERVER_ERROR."""
        del operation, resource_type, name
        raise not_ready()


class Authorization:
    """Follows the published image of ``metadata``, whose log on disk is loaded.

    Many changes at once (a snapshot) are applied over several turns of the event loop; until then the old entries hold,
    and a resource without one is closed: after the copy from ZooKeeper none is known yet, and
    ``allow.everyone.if.no.acl.found`` would open every resource to everybody. The few entries about the cluster come
    first: brokers that are no super users must not be without heartbeats for as long as all entries take.
    Only super users have access until this node knows what the quorum has committed: deny entries could be missing.
    Source: ``AclPublisher``, ``StandardAuthorizerData``.
    """

    def __init__(self, settings: Settings, metadata: MetadataRuntime, on_failure: OnFailure) -> None:
        self._supervisor = Supervisor(on_failure)
        self._enabled = bool(settings.authorizer_class_name)
        self._super_users = settings.super_user_names
        self._allow_if_no_acl = settings.allow_everyone_if_no_acl_found
        self._metadata = metadata
        self._ready = False
        self._waiting: deque[ImageDelta] = deque()
        self._work: Iterator[None] | None = None
        self._unknown: frozenset[int] = frozenset()
        """The types of resources of which entries wait to be taken in."""
        self._index = AclIndex()
        self._authorizer = self._arranged()
        if self._enabled:
            self._index = AclIndex.of(metadata.published.acls)
            self._authorizer = self._arranged()
            metadata.subscribers.append(self._published)

    def access_of(self, principal: Principal, host: str) -> Access:
        if not self._enabled or str(principal) in self._super_users:
            return Unlimited()
        authorizer = self.authorizer
        if authorizer is None:
            return _NotReady()
        return authorizer.access_of(str(principal), host)

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer of the present entries, a new object after each change; None until the entries are known."""
        if not self._ready:
            self._ready = self._metadata.has_reached_high_watermark and self._work is None
        return self._authorizer if self._ready else None

    def _arranged(self) -> Authorizer:
        return Authorizer(self._index, self._super_users, allow_if_no_acl=self._allow_if_no_acl, unknown=self._unknown)

    def _published(self, delta: ImageDelta) -> None:
        if delta.changes.acls:
            self._waiting.append(delta)
            self._unknown = _ALL
            self._authorizer = self._arranged()
            if self._work is None:
                self._work = self._take_in()
                self._go_on()

    def _go_on(self) -> None:
        """Apply one slice of the waiting changes; the next slice follows in another turn."""
        if self._work is not None and next(self._work, _DONE) is not _DONE:
            self._supervisor.call_soon(ENTRIES, self._go_on)
        else:
            self._work, self._unknown = None, frozenset()
            self._authorizer = self._arranged()

    def _take_in(self) -> Iterator[None]:
        while self._waiting:
            delta = self._waiting.popleft()
            before, after = delta.before.acls, delta.after.acls
            found: dict[bool, list[Uuid]] = {True: [], False: []}
            for number, part in enumerate(parts(delta.changes.acls)):
                if number:
                    yield
                for acl_id in part:
                    acl = before.get(acl_id) or after.get(acl_id)
                    found[acl is not None and acl.resource_type == ResourceType.CLUSTER].append(acl_id)
            self._index = yield from self._index.follow(before, after, found[True])
            self._unknown = _ALL if self._waiting else _ALL - {ResourceType.CLUSTER}
            self._authorizer = self._arranged()
            self._index = yield from self._index.follow(before, after, found[False])
            self._authorizer = self._arranged()  # these entries hold, also while more wait
