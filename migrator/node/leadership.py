"""Starts a leader's work when this node is elected, and ends it when the node no longer leads.

The quorum's runner calls `Leadership` as its `QuorumObserver`: for appended, truncated and committed records, and for
each change of the role. A `LeaderListener` gets `became_active` once the image has everything that the log has, and
`lost_leadership` for the same epoch later. A failed activation stops the process, because such a leader would serve
nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from migrator.image.model import MetadataImage
from migrator.node.active import ActiveController
from migrator.node.metadata import MetadataRuntime, NotLeadingError
from migrator.node.periodic import PeriodicTasks
from migrator.node.quorum.observer import QuorumObserver
from migrator.raft.messages import EpochOffset
from migrator.raft.states import Role
from migrator.raft.voter_set import Membership
from migrator.records.contents import Decoded
from migrator.records.metadata import MetadataRecord
from migrator.supervision import OnError, Supervisor, TaskKind

log = logging.getLogger(__name__)

LEADING = TaskKind("leadership", OnError.STOP)
"""A leader whose activation failed would serve nobody, and stay leader."""


class LeaderListener(Protocol):
    """A part that works only while this node is the active controller."""

    def became_active(self, epoch: int, image: MetadataImage) -> None:
        """This node is the active controller of ``epoch``; ``image`` is the committed one."""

    def lost_leadership(self, epoch: int) -> None:
        """This node is no longer the active controller of ``epoch``."""


class Leadership(QuorumObserver):
    """Passes events of the quorum to the images, and activates and deactivates the controller with its role.

    :param on_appended: called with the bytes by which the log has grown.
    :param on_failure: called when this node must stop.
    """

    def __init__(
        self,
        metadata: MetadataRuntime,
        bootstrap: Sequence[MetadataRecord],
        on_appended: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._metadata = metadata
        self._bootstrap = bootstrap
        self._on_appended = on_appended
        self._supervisor = Supervisor(on_failure)
        self._leading: int | None = None
        self._told: tuple[int, int | None] | None = None
        self.leaders_seen = 0
        """How often this controller has learned a new leader, or a new epoch of one."""
        self._task: asyncio.Task[None] | None = None
        self._controller: ActiveController | None = None
        self._periodic: PeriodicTasks | None = None
        self.listeners: list[LeaderListener] = []
        self.role_listeners: list[Callable[[], None]] = []
        self.address_listeners: list[Callable[[], None]] = []
        self.membership_listeners: list[Callable[[Membership], None]] = []

    def attach(self, controller: ActiveController, periodic: PeriodicTasks) -> None:
        """Set the parts that become active with the leadership; to be called before the quorum starts."""
        self._controller = controller
        self._periodic = periodic

    def appended(self, size: int, decoded: Sequence[Decoded] = ()) -> None:
        """Count the bytes by which the log has grown (see `QuorumObserver`)."""
        self._on_appended(size)
        self._metadata.appended(decoded)

    def appended_own(self, batches: bytes, records: Sequence[MetadataRecord]) -> None:
        """Count and load one batch that `QuorumRunner.append` made of these records (see `QuorumObserver`)."""
        self._on_appended(len(batches))
        self._metadata.appended_own(batches, records)

    def truncated(self, offset: int) -> None:
        """Tell the metadata that the log ends at ``offset`` now (see `QuorumObserver`)."""
        self._metadata.truncated(offset)

    def installed(self, snapshot: EpochOffset) -> None:
        """Tell the metadata that a snapshot has taken the place of the whole log (see `QuorumObserver`)."""
        self._metadata.installed(snapshot)

    def committed(self, high_watermark: int) -> None:
        """Tell the metadata that everything below ``high_watermark`` is committed (see `QuorumObserver`)."""
        self._metadata.committed(high_watermark)

    def role_changed(self, role: Role, epoch: int, leader_id: int | None) -> None:
        """Take on or give up leadership: this node's role, epoch or leader is another (see `QuorumObserver`)."""
        self._tell(role, epoch, leader_id)
        if self._leading is not None and (role is not Role.LEADER or epoch != self._leading):
            self._end()
        if role is Role.LEADER and self._leading is None:
            self._leading = epoch
            self._task = self._supervisor.spawn(LEADING, self._lead(epoch))
        for listener in self.role_listeners:
            listener()

    def _tell(self, role: Role, epoch: int, leader_id: int | None) -> None:
        """Log each new leader once. Steps of elections are logged for debugging only."""
        log.debug("%s in epoch %d, the leader is %s", role.value.capitalize(), epoch, leader_id)
        if role not in (Role.LEADER, Role.FOLLOWER) or self._told == (epoch, leader_id):
            return
        self._told = (epoch, leader_id)
        self.leaders_seen += 1
        if role is Role.LEADER:
            log.info("This controller leads in epoch %d", epoch)
        else:
            log.info("Controller %s leads in epoch %d", leader_id, epoch)

    def addresses_missing(self, voters: Sequence[int], wait_ms: int) -> None:
        """Log which voters have no known address, and look for them (see `QuorumObserver`)."""
        names = ", ".join(map(str, voters))
        log.warning(
            "This controller would stand for election, and does not know where these voters are: %s. It asks for their "
            "addresses, and stands without them after %d ms",
            names,
            wait_ms,
        )
        for listener in self.address_listeners:
            listener()

    def membership_changed(self, membership: Membership) -> None:
        """Pass the new voters to all parts that use them (see `QuorumObserver`)."""
        for listener in self.membership_listeners:
            listener(membership)

    async def close(self) -> None:
        """End all activity."""
        task = self._task
        if self._leading is not None:
            self._end()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _lead(self, epoch: int) -> None:
        if self._controller is None or self._periodic is None:
            return
        try:
            await self._controller.activate(epoch, self._bootstrap)
            for listener in self.listeners:
                listener.became_active(epoch, self._metadata.published)
            await self._periodic.run(epoch)
        except NotLeadingError as error:
            log.info("This node lost the leadership of epoch %d before it became active: %s", epoch, error)

    def _end(self) -> None:
        epoch, self._leading = self._leading, None
        if self._task is not None:
            self._task.cancel()
        if self._controller is not None:
            self._controller.deactivate()
        for listener in self.listeners:
            if epoch is not None:
                listener.lost_leadership(epoch)
