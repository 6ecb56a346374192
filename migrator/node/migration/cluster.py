"""One controller's access to the ZooKeeper cluster that is migrated; none when the migration is off.

With ``zookeeper.metadata.migration.enable=true`` a controller has a session, worker processes with separate sessions,
and channels to brokers in ZooKeeper mode. Without it the controller has none of these, whatever else the property file
says: Kafka's manual ends a migration by removing ``zookeeper.connect`` as well, and ZooKeeper may be gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn, cast

from migrator.config.settings import Settings
from migrator.errors import InvariantViolation
from migrator.image.model import ImageDelta
from migrator.migration.broker_rpcs.messenger import BrokerMessenger
from migrator.migration.copying.worker import LoadAhead, Task, Tools, Workers
from migrator.migration.ports import BrokersPort, MigratedCluster, StartWorker, ZooKeeperPort
from migrator.node.core import NodeCore
from migrator.node.migration.runtime import NodeBrokers, NodeZooKeeper
from migrator.records.metadata import Endpoint
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import broker_security
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import SessionState, ZooKeeperSession, options_from


class ReachedCluster:
    """The `MigratedCluster` of a controller whose migration is on; the protocol says what each method does.

    :raises OperatorError: the settings of ZooKeeper, or of the brokers' listener, cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        core: NodeCore,
        on_failure: Callable[[BaseException], None],
        on_told: Callable[[float], None],
    ) -> None:
        security, name = broker_security(settings), f"controller-{settings.node_id}"

        def connect(_broker_id: int, endpoint: Endpoint) -> KafkaClient:
            return KafkaClient(endpoint.host, endpoint.port, name, security=security)

        self._session = ZooKeeperSession(options_from(settings))
        self._workers = Workers(Tools(self._session.options, password_encoder(settings)))
        self._messenger = BrokerMessenger(settings.broker_rpc_listener, connect, on_failure, on_told)
        self.zookeeper = NodeZooKeeper(self._session)
        self.brokers = NodeBrokers(settings, core, self.zookeeper, self._messenger)
        self.start_worker: StartWorker = self._workers.worker

    @property
    def connected(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    @property
    def hosts(self) -> str:
        return self._session.options.hosts

    @property
    def away(self) -> tuple[str, str]:
        error = self._session.away("no server answers")
        return error.what, error.remedy

    @property
    def troubles(self) -> Mapping[int, str]:
        return self._messenger.troubles

    def cluster_id(self) -> str:
        return read_cluster_id(self._session)

    def start(self, on_connection: Callable[[SessionState], None]) -> None:
        self._session.add_listener(on_connection)
        self._session.start_in_background()

    def follow(self, load: LoadAhead) -> None:
        self._workers.prepare(load)

    def lead(self) -> None:
        self._workers.prepare()

    def leave(self) -> None:
        self._messenger.close()
        self._workers.release()

    def publish(self, delta: ImageDelta) -> None:
        self._messenger.publish(delta)

    async def close(self) -> None:
        self._messenger.close()
        await self._messenger.closed()
        await asyncio.to_thread(self._workers.close)
        await asyncio.to_thread(self._session.close)


class NoCluster:
    """The `MigratedCluster` of a controller whose migration is off: no state of its driver uses it."""

    connected = False
    hosts = ""
    away = ("the migration is turned off on this controller", "")

    def __init__(self) -> None:
        self.troubles: Mapping[int, str] = {}
        self.zookeeper = cast("ZooKeeperPort", _Absent("ZooKeeper"))
        self.brokers = cast("BrokersPort", _Absent("the channels to brokers"))

    def start_worker(self, task: Task) -> NoReturn:
        """Must not be called."""
        raise _asked(f"a worker for {type(task).__name__}")

    def cluster_id(self) -> NoReturn:
        """Must not be called."""
        raise _asked("the cluster id in ZooKeeper")

    def start(self, on_connection: Callable[[SessionState], None]) -> None:
        """Do nothing: there is no ZooKeeper to connect to."""

    def follow(self, load: LoadAhead) -> None:
        """Do nothing: no workers will be needed."""

    def lead(self) -> None:
        """Do nothing: no workers will be needed."""

    def leave(self) -> None:
        """Do nothing: `lead` has begun nothing."""

    def publish(self, delta: ImageDelta) -> None:
        """Do nothing: no broker gets requests."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class _Absent:
    """A port whose methods must not be used."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        raise _asked(f"{self._what} ({name})")


def _asked(what: str) -> InvariantViolation:
    return InvariantViolation(f"the migration is turned off on this controller, and {what} was asked for")


def migrated_cluster(
    settings: Settings,
    core: NodeCore,
    on_failure: Callable[[BaseException], None],
    on_told: Callable[[float], None],
) -> MigratedCluster:
    """The cluster that this controller's settings name.

    :param on_told: see `BrokerMessenger`.

    :raises OperatorError: see `ReachedCluster`.
    """
    if settings.zookeeper_metadata_migration_enable:
        return ReachedCluster(settings, core, on_failure, on_told)
    return NoCluster()
