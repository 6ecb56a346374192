"""The sessions of brokers: when each was last heard of. Soft state of a leader, never persisted.

A new leader begins every session anew, so a change of leadership fences no broker. Times are monotonic milliseconds,
given by the caller. Source: Kafka's ``BrokerHeartbeatManager``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from migrator.controller.grace import grace_ends_ms, may_have_grace
from migrator.controller.index import PartitionSet
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.records.uuid import Uuid
from migrator.turns import parts
from migrator.values import value

NEVER = -1
LEAVING = 2**63 - 1
"""The offset of a controlled shutdown whose records are not all written yet: no broker has passed it."""


class Errand:
    """The partitions to change because a broker leaves (``leaves``), arrives, or has ``lost`` log directories. Each
    decision changes some of them (see `errands`)."""

    __slots__ = ("_following", "_rest", "_seen", "broker_id", "epoch", "fences", "leaves", "lost", "part")

    def __init__(
        self,
        registration: BrokerRegistration,
        partitions: PartitionSet,
        *,
        leaves: bool = False,
        fences: bool = False,
        lost: Collection[Uuid] = (),
    ) -> None:
        self.broker_id = registration.broker_id
        self.epoch = registration.epoch
        self.leaves = leaves
        self.fences = fences
        self.lost = lost
        self._seen = partitions.copy()
        self._rest = parts(self._seen)
        self.part = next(self._rest, ())
        """The partitions of the next decision."""
        self._following = next(self._rest, None)

    @property
    def is_last(self) -> bool:
        """Whether `part` is the last one."""
        return self._following is None

    def advance(self) -> None:
        """Go to the next part: the records of this one are appended."""
        self.part, self._following = self._following or (), next(self._rest, None)

    def add_new(self, partitions: PartitionSet) -> None:
        """Append those of the partitions that the errand does not have yet."""
        new = partitions.without(self._seen)
        self._seen.update(new)
        self._rest = parts(new)
        self._following = next(self._rest, None)


@value
class BrokerSession:
    """``metadata_offset`` is the last offset that the broker reported (-1: none), ``shutdown_offset`` the offset at
    which it entered controlled shutdown (-1: it has not). ``presumed``: this leader has not heard of the broker yet,
    and counts its silence from its own election. ``alive_ms``: when the process of this registration lived for sure. It
    sends a heartbeat after the answer to its last request; a heartbeat alone may have waited in the network while its
    process ended. ``answered_ms``: when the request was sent that the process has answered last (-1: none); None if its
    answers do not count as heartbeats (`grace`)."""

    epoch: int
    last_contact_ms: int
    metadata_offset: int = NEVER
    shutdown_offset: int = NEVER
    presumed: bool = False
    alive_ms: int = NEVER
    answered_ms: int | None = None


class Sessions:
    """One session for each registered broker."""

    __slots__ = ("_active_ms", "_asked_ms", "_by_broker", "_errands", "_rival_ms", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._by_broker: dict[int, BrokerSession] = {}
        self._errands: dict[int, Errand] = {}
        self._asked_ms: dict[int, int] = {}
        self._rival_ms: dict[int, int] = {}
        self._timeout_ms = timeout_ms
        self._active_ms = 0

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._by_broker.get(broker_id)

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """Begin a session for every registered broker. This leader has heard of none of them."""
        self._active_ms = now_ms
        for broker_id, registration in image.cluster.brokers.items():
            answered_ms = NEVER if may_have_grace(image, registration) else None
            session = BrokerSession(registration.epoch, now_ms, presumed=True, answered_ms=answered_ms)
            self._by_broker[broker_id] = session

    def follow(self, image: MetadataImage, brokers: Iterable[int], now_ms: int) -> None:
        """Follow changed registrations: a new epoch begins a new session, and a fenced broker has left controlled
        shutdown."""
        for broker_id in brokers:
            registration = image.cluster.brokers.get(broker_id)
            session = self._by_broker.get(broker_id)
            if registration is None:
                self._by_broker.pop(broker_id, None)
                self._rival_ms.pop(broker_id, None)
            elif session is None or session.epoch != registration.epoch:
                self._by_broker[broker_id] = BrokerSession(registration.epoch, now_ms)
                self._rival_ms.pop(broker_id, None)
            elif registration.fenced:
                self._by_broker[broker_id] = replace(session, shutdown_offset=NEVER)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat of this registration has arrived. It is noted before its decision, so that no session ends
        because the controller is busy (``BrokerHeartbeatTracker``)."""
        session = self._by_broker.get(broker_id)
        if session is not None and session.epoch == epoch:
            alive_ms = NEVER if session.presumed else session.last_contact_ms
            self._by_broker[broker_id] = replace(
                session, last_contact_ms=now_ms, presumed=False, alive_ms=alive_ms, answered_ms=None
            )

    def answered(self, broker_id: int, epoch: int, sent_ms: int) -> None:
        """The process of this registration has answered a request that was sent at ``sent_ms``."""
        session = self._by_broker.get(broker_id)
        if session is not None and session.epoch == epoch and session.answered_ms is not None:
            self._by_broker[broker_id] = replace(session, answered_ms=max(session.answered_ms, sent_ms))

    def no_grace(self, brokers: Iterable[int]) -> None:
        """Ignore all answers of brokers, also the answers noted before."""
        for broker_id in brokers:
            session = self._by_broker.get(broker_id)
            if session is not None and session.answered_ms is not None:
                self._by_broker[broker_id] = replace(session, answered_ms=None)

    def is_graced(self, registration: BrokerRegistration, now_ms: int) -> bool:
        """Whether the broker would be fenced if its answers did not count as heartbeats."""
        return self.is_valid(registration, now_ms) and self.is_lost(registration.broker_id, now_ms)

    def reported(self, broker_id: int, metadata_offset: int) -> None:
        """Note the last metadata offset of the broker, from its heartbeat."""
        session = self._by_broker.get(broker_id)
        if session is not None:
            self._by_broker[broker_id] = replace(session, metadata_offset=metadata_offset)

    def begin_errand(self, errand: Errand) -> None:
        """Add an errand, which continues in later decisions."""
        self._errands[errand.broker_id] = errand

    def end_errand(self, errand: Errand, end_offset: int) -> None:
        """Remove an errand that is done or no longer needed. A controlled shutdown is complete at ``end_offset``."""
        self._errands.pop(errand.broker_id, None)
        session = self._by_broker.get(errand.broker_id)
        if session is not None and session.shutdown_offset == LEAVING:
            self._by_broker[errand.broker_id] = replace(session, shutdown_offset=end_offset)

    def errand_of(self, broker_id: int) -> Errand | None:
        return self._errands.get(broker_id)

    @property
    def next_errand(self) -> Errand | None:
        return next(iter(self._errands.values()), None)

    @property
    def being_fenced(self) -> Collection[int]:
        """The brokers that will be fenced, so they must not be elected any more."""
        return [broker_id for broker_id, errand in self._errands.items() if errand.fences]

    def asked(self, broker_id: int, now_ms: int) -> None:
        """Note a broker that wants to register in migration mode, and has to wait until the copy is complete."""
        self._asked_ms[broker_id] = now_ms

    def asking(self, now_ms: int) -> frozenset[int]:
        """The waiting brokers that asked within a time-out. Brokers back off up to the session time-out."""
        return self._recent(self._asked_ms, now_ms)

    def rival_asked(self, broker_id: int, now_ms: int) -> None:
        """Note that another process wants to register with the id of a registered broker."""
        self._rival_ms[broker_id] = now_ms
        self.no_grace((broker_id,))

    def rivals(self, now_ms: int) -> frozenset[int]:
        """The registered brokers with whose ids other processes have lately tried to register, without success."""
        return self._recent(self._rival_ms, now_ms)

    def _recent(self, at_ms: Mapping[int, int], now_ms: int) -> frozenset[int]:
        return frozenset(broker_id for broker_id, at in at_ms.items() if at + 2 * self._timeout_ms >= now_ms)

    @property
    def alive_ms(self) -> Mapping[int, int]:
        """The last time at which each broker's process gave a sign of life. Brokers that sent none to this leader are
        missing."""
        return {key: session.alive_ms for key, session in self._by_broker.items() if session.alive_ms != NEVER}

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """The broker has entered controlled shutdown with the records up to that offset. The first call counts."""
        session = self._by_broker.get(broker_id)
        if session is not None and session.shutdown_offset < 0:
            self._by_broker[broker_id] = replace(session, shutdown_offset=offset)

    def is_valid(self, registration: BrokerRegistration, now_ms: int) -> bool:
        """Whether the broker is unfenced, and was heard of within the session time-out or is in its grace."""
        session = self._by_broker.get(registration.broker_id)
        return not registration.fenced and session is not None and self._ends_ms(session) >= now_ms

    def is_silent(self, broker_id: int, now_ms: int) -> bool:
        """Whether this leader has heard nothing of the broker, or nothing within the session time-out."""
        session = self._by_broker.get(broker_id)
        return session is None or session.presumed or session.last_contact_ms + self._timeout_ms < now_ms

    def is_lost(self, broker_id: int, now_ms: int) -> bool:
        """Whether this leader has heard nothing of the broker for a whole session time-out, counted from its own
        election for one that it never heard of."""
        session = self._by_broker.get(broker_id)
        return session is None or session.last_contact_ms + self._timeout_ms < now_ms

    def silent(self, image: MetadataImage, now_ms: int) -> frozenset[int]:
        """The registered brokers, fenced or not, without a heartbeat to this leader within the session time-out. A
        broker that has not begun to read the metadata log counts as silent."""
        return frozenset(
            broker_id
            for broker_id in image.cluster.brokers
            if (session := self._by_broker.get(broker_id)) is None
            or session.metadata_offset == NEVER
            or session.last_contact_ms + self._timeout_ms < now_ms
        )

    def stalest(self, image: MetadataImage, now_ms: int) -> int | None:
        """The unfenced broker whose silence exceeds the time-out most, if any."""
        silent = [
            (self._last_contact(broker_id, now_ms), broker_id)
            for broker_id, registration in image.cluster.brokers.items()
            if not registration.fenced
            and not self.is_valid(registration, now_ms)
            and broker_id not in self.being_fenced
        ]
        return min(silent)[1] if silent else None

    def next_check_ms(self, image: MetadataImage, now_ms: int) -> int | None:
        """The first moment at which a session is too old; None when no broker is unfenced."""
        ends = [
            now_ms + self._timeout_ms if session is None else self._ends_ms(session)
            for broker_id, registration in image.cluster.brokers.items()
            if not registration.fenced and broker_id not in self.being_fenced
            for session in (self._by_broker.get(broker_id),)
        ]
        return min(ends) + 1 if ends else None

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """The lowest metadata offset of the brokers that are neither fenced nor shutting down; None without any."""
        return min(
            (
                session.metadata_offset
                for broker_id, session in self._by_broker.items()
                if session.shutdown_offset < 0
                and (registration := image.cluster.brokers.get(broker_id)) is not None
                and not registration.fenced
            ),
            default=None,
        )

    def _ends_ms(self, session: BrokerSession) -> int:
        ends_ms, answered_ms = session.last_contact_ms + self._timeout_ms, session.answered_ms
        if answered_ms is None or answered_ms == NEVER:
            return ends_ms
        return max(ends_ms, grace_ends_ms(answered_ms, self._active_ms, self._timeout_ms))

    def _last_contact(self, broker_id: int, default: int) -> int:
        session = self._by_broker.get(broker_id)
        return default if session is None else session.last_contact_ms
