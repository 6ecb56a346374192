"""Brokers in ZooKeeper that do not obey the quorum after the copy. Pure: two readings in, named gaps out.

Before the copy `readiness` waits for them. Later a broker may still be started without the migration, or with the id of
a controller: it registers in ``/brokers/ids``, finds a KRaft controller, and gets no requests from any controller. Only
ZooKeeper shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.image.model import ClusterImage
from migrator.migration.machine.readiness import Gap
from migrator.values import value

_ENABLE = (
    "Set zookeeper.metadata.migration.enable=true, controller.quorum.voters (or, if the voters are in the log, "
    "controller.quorum.bootstrap.servers) and controller.listener.names in its file, and restart it."
)


@value
class Running:
    """One reading of ``/brokers/ids``: by broker id, the transaction that created its znode, which identifies one run
    of the process."""

    znodes: Mapping[int, int]


class Strays:
    """The strays of one leadership. A broker that is starting, or whose session has not expired yet, looks like a stray
    for some seconds, so a broker is named only when two readings in a row show the same run of it. A broker with the id
    of a controller is named at once.

    :param controllers: ids of the voters when the process began. Those that have registered since count as well.
    """

    def __init__(self, controllers: frozenset[int]) -> None:
        self._controllers = controllers
        self._suspects: Mapping[int, int] = {}

    def look(self, running: Running, cluster: ClusterImage) -> tuple[Gap, ...]:
        """The brokers that are strays now, by id."""
        gaps = {
            broker_id: gap for broker_id in sorted(running.znodes) if (gap := self._gap(broker_id, cluster)) is not None
        }
        before, self._suspects = self._suspects, {broker_id: running.znodes[broker_id] for broker_id in gaps}
        return tuple(
            gap
            for broker_id, gap in gaps.items()
            if self._is_controller(broker_id, cluster) or before.get(broker_id) == running.znodes[broker_id]
        )

    def _is_controller(self, node_id: int, cluster: ClusterImage) -> bool:
        return node_id in self._controllers or node_id in cluster.controllers

    def _gap(self, broker_id: int, cluster: ClusterImage) -> Gap | None:
        who = f"broker {broker_id}"
        registration = cluster.brokers.get(broker_id)
        if self._is_controller(broker_id, cluster):
            return Gap(
                who,
                "a broker in ZooKeeper mode runs with the id of a controller",
                "Stop this broker, and give it an id that no controller has.",
            )
        if registration is None:
            return Gap(
                who,
                "it runs in ZooKeeper mode, but is not registered with the quorum: no controller sends it changes",
                _ENABLE,
            )
        if not registration.is_migrating_zk_broker:
            return Gap(
                who,
                "it is registered in KRaft mode, but a broker with its id runs in ZooKeeper mode",
                f"Stop the broker that should not run. To go back to ZooKeeper mode: {_ENABLE}",
            )
        if registration.fenced:
            return Gap(
                who,
                "it runs in ZooKeeper mode, but sends no heartbeats to the quorum: it was restarted without the "
                "migration, or cannot reach the controllers",
                _ENABLE,
            )
        return None


def in_words(strays: tuple[Gap, ...], limit: int = 3) -> str:
    more = f" (and {len(strays) - limit} more)" if len(strays) > limit else ""
    return "; ".join(f"{gap.who}: {gap.reason}" for gap in strays[:limit]) + more
