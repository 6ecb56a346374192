"""Decides whether the znode of a broker and its registration with the quorum belong to the same process. Pure.

Nothing names the process in both places. A znode of ``/brokers/ids`` disappears when its process ends, and also when
its ZooKeeper session expires; then the same process creates another znode. A registration stays when its process ends.
So a znode counts for a registered broker only once the registered process is known to have lived after the first
reading that showed the znode: if another process had created the znode, the registered process would have ended before.
Two living processes may have one id, however; then their addresses differ, or the second process asks to register.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from migrator.config.endpoints import is_same_host
from migrator.migration.machine.readiness import Gap, Surroundings, ZooKeeperBrokers
from migrator.records.metadata import Endpoint
from migrator.values import value


@value
class Sighting:
    """A znode of ``/brokers/ids``: its czxid, and the end of the first reading that showed it."""

    born: int
    read_ms: int


@value
class Doubts:
    """Registered brokers whose znode may belong to another process, by id. ``brief``: heartbeats, or their absence,
    decide within seconds. ``lasting``: the operator has to act."""

    brief: Mapping[int, Gap]
    lasting: Mapping[int, Gap]


def sighted(before: Mapping[int, Sighting], brokers: ZooKeeperBrokers, now_ms: int) -> dict[int, Sighting]:
    """The sightings after another reading, which ended at ``now_ms``."""
    return {
        broker_id: seen if (seen := before.get(broker_id)) is not None and seen.born == born else Sighting(born, now_ms)
        for broker_id, born in brokers.born.items()
    }


def doubts(around: Surroundings, seen: Mapping[int, Sighting]) -> Doubts:
    """The brokers whose znode and registration are not known to belong together yet."""
    brief, lasting = {}, {}
    signals = around.signals
    for broker_id in sorted(seen.keys() & around.cluster.brokers.keys()):
        here = around.brokers.endpoints.get(broker_id, ())
        there = around.cluster.brokers[broker_id].listeners
        if broker_id in signals.rivals:
            lasting[broker_id] = _rival(broker_id)
        elif moved := _moved(here, there):
            lasting[broker_id] = _elsewhere(broker_id, *moved)
        elif signals.alive_ms.get(broker_id, -1) <= seen[broker_id].read_ms:
            brief[broker_id] = _unheard(broker_id)
    return Doubts(brief, lasting)


def _moved(here: Iterable[Endpoint], there: Iterable[Endpoint]) -> tuple[Endpoint, Endpoint] | None:
    """The first listener that both name with different addresses. Brokers before 3.7.1 do not register all
    listeners."""
    registered = {end.name: end for end in there}
    for end in here:
        other = registered.get(end.name)
        if other is not None and not (end.port == other.port and is_same_host(end.host, other.host)):
            return end, other
    return None


def _unheard(broker_id: int) -> Gap:
    return Gap(
        f"broker {broker_id}",
        "its znode in /brokers/ids is new to this controller, and it has not sent heartbeats since: it was restarted, "
        "its ZooKeeper session had expired, or this controller has just been elected",
        "Wait a few seconds for its heartbeats.",
    )


def _rival(broker_id: int) -> Gap:
    return Gap(
        f"broker {broker_id}",
        "another process than the registered one asks to register with its id",
        "After a restart, wait until the session of the process before is over (broker.session.timeout.ms). If two "
        "processes use this id, give one of them another id.",
    )


def _elsewhere(broker_id: int, here: Endpoint, there: Endpoint) -> Gap:
    return Gap(
        f"broker {broker_id}",
        f"its listener {here.name} is at {here.host}:{here.port} in /brokers/ids, and at {there.host}:{there.port} in "
        "its registration with the quorum",
        "If two processes use this id, give one of them another id. If the address was changed while the broker ran, "
        "restart the broker: it registers again.",
    )
