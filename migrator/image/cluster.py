"""Broker and controller registrations of an image under change."""

from __future__ import annotations

from dataclasses import replace

from migrator.errors import InvariantViolation
from migrator.image.model import BrokerRegistration, ClusterImage, ControllerRegistration
from migrator.image.tracked import TrackedMap
from migrator.records.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

_FENCING = {-1: False, 0: None, 1: True}
_SHUTDOWN = {0: None, 1: True}


class ClusterBuilder:
    """Replays registrations. A change must name the epoch of the registration that it changes."""

    __slots__ = ("brokers", "controllers")

    def __init__(self, base: ClusterImage) -> None:
        self.brokers = TrackedMap(base.brokers)
        self.controllers = TrackedMap(base.controllers)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        """A broker's new registration, in place of an older one."""
        self.brokers.put(
            record.broker_id,
            BrokerRegistration(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                is_migrating_zk_broker=record.is_migrating_zk_broker,
                listeners=record.end_points,
                features=record.features,
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=record.log_dirs,
            ),
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """Forget a broker."""
        self._registration(record.broker_id, record.broker_epoch)
        self.brokers.remove(record.broker_id)

    def fence(self, record: FenceBrokerRecord) -> None:
        """Fence a broker (metadata.version below 3.3-IV2)."""
        self._set_fenced(record, fenced=True)

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker (metadata.version below 3.3-IV2)."""
        self._set_fenced(record, fenced=False)

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        """Fencing, controlled shutdown and log directories; what the record leaves out stays."""
        old = self._registration(record.broker_id, record.broker_epoch)
        if record.fenced not in _FENCING or record.in_controlled_shutdown not in _SHUTDOWN:
            raise InvariantViolation(
                f"unknown change of broker {record.broker_id}: fenced {record.fenced}, "
                f"in controlled shutdown {record.in_controlled_shutdown}"
            )
        fenced = _FENCING[record.fenced]
        stopping = _SHUTDOWN[record.in_controlled_shutdown]
        self.brokers.put(
            record.broker_id,
            replace(
                old,
                fenced=old.fenced if fenced is None else fenced,
                in_controlled_shutdown=old.in_controlled_shutdown if stopping is None else stopping,
                log_dirs=record.log_dirs or old.log_dirs,
            ),
        )

    def register_controller(self, record: RegisterControllerRecord) -> None:
        """A controller's new registration, in place of an older one."""
        self.controllers.put(
            record.controller_id,
            ControllerRegistration(
                controller_id=record.controller_id,
                incarnation_id=record.incarnation_id,
                zk_migration_ready=record.zk_migration_ready,
                listeners=record.end_points,
                features=record.features,
            ),
        )

    def finish(self) -> ClusterImage:
        """The resulting registrations."""
        return ClusterImage(self.brokers.snapshot(), self.controllers.snapshot())

    def _set_fenced(self, record: FenceBrokerRecord | UnfenceBrokerRecord, *, fenced: bool) -> None:
        old = self._registration(record.broker_id, record.broker_epoch)
        self.brokers.put(record.broker_id, replace(old, fenced=fenced))

    def _registration(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise InvariantViolation(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise InvariantViolation(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
        return broker
