"""A published procedure as data: property files with gaps for this machine's addresses, and steps in order.

`runner` performs it. The text of a file stays as published, so a change of the page must be copied here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from migrator.drill.kafka.cluster import KafkaBrokerMode
from migrator.values import value


class Step(StrEnum):
    """One act or wait of an operator."""

    CLUSTER_ID = "read /cluster/id with Kafka's ZooKeeper shell"
    FORMAT = "format the controllers"
    PROVISION = "start the controllers"
    HEALTH = "ask kafka-metadata-quorum whether the controllers are well"
    POLL_2 = "read by HTTP that every controller waits for the copy"
    POLL_1 = "read by HTTP that every controller migrates"
    POLL_3 = "read by HTTP that the migration is finished on every controller"
    MIGRATING = "roll the brokers into migration mode"
    DUAL_WRITE = "wait until metadata is written to both sides"
    KRAFT = "roll the brokers into KRaft mode"
    KRAFT_TOGETHER = "restart the controllers, and roll the brokers into KRaft mode without a wait in between"
    FINALIZE = "restart the controllers with the final file, one after the other"
    FINALIZE_AT_ONCE = "restart all controllers with the final file at the same time"
    STOP_ZOOKEEPER = "take ZooKeeper away"
    FINISHED = "wait for the end of the migration"
    FLAG_AGAIN = "restart a controller with the first file after the end"
    DEPROVISION = "stop the controllers"
    FORGET_CONTROLLERS_LOG = "delete __cluster_metadata-0 of the stopped controllers, and nothing else of theirs"
    FORGET_BROKERS_LOG = "delete __cluster_metadata-0 of the brokers"
    NEW_QUORUM = "delete the directories of the stopped controllers"
    REFUSED = "a new quorum refuses a /migration that is not its own, and says what to do"
    BROKER_IS_CONTROLLER = "wait until a broker is the controller"
    RAISE_EPOCH = "set /controller_epoch above the quorum's, while the quorum runs"
    ZOOKEEPER = "roll the brokers back into ZooKeeper mode"
    REJOIN_ZOOKEEPER = "roll the brokers from KRaft mode back into migration mode"


@value
class Shell:
    """A command for Kafka's ZooKeeper shell, e.g. ``deleteall /controller``."""

    command: str

    def __str__(self) -> str:
        return f"zookeeper-shell {self.command}"


@value
class Procedure:
    """One published way.

    In each text ``{id}``, ``{port}``, ``{plane}`` (a second port), ``{zookeeper}``, ``{voters}``, ``{servers}`` and
    ``{protocol}`` are gaps.

    :ivar release: of the brokers.
    :ivar protocol: their ``inter.broker.protocol.version``.
    :ivar prepared: file of each controller, up to the end.
    :ivar finalized: the same for the end.
    :ivar brokers: file of each broker, by mode.
    :ivar format: words after ``migrator format``, for each controller; the last line counts for all that are left.
        Gaps: ``{cluster}``, ``{file}``, ``{protocol}``, and ``{initial}`` for the list of the first controllers.
    :ivar health: words after ``kafka-metadata-quorum --bootstrap-controller``; ``{file}`` is a gap.
    :ivar waits: regular expressions of log lines that the active controller writes until dual-write.
    :ivar broker_waits: the same of each broker, after each of its restarts.
    :ivar rejoining: file of each broker on its way from KRaft mode back, if it is not that of migration mode.
    :ivar polled: the path where its automation reads the state of the migration of each controller, by HTTP.
    :ivar every_start: controllers are formatted, and ``quorum-state`` is deleted, before each of their starts.
    """

    name: str
    release: str
    protocol: str
    prepared: str
    finalized: str
    brokers: Mapping[KafkaBrokerMode, str]
    format: tuple[tuple[str, ...], ...]
    steps: tuple[Step | Shell, ...]
    controllers: int = 1
    health: tuple[str, ...] = ()
    waits: tuple[str, ...] = ("Completed migration of metadata from Zoo[Kk]eeper to KRaft",)
    broker_waits: tuple[str, ...] = ()
    every_start: bool = False
    rejoining: str = ""
    polled: str = ""


def properties(text: str, gaps: Mapping[str, str]) -> dict[str, str]:
    """Of a file's text; the last line of a key wins, as in Java."""
    lines = [line.partition("=") for line in text.format(**gaps).split("\n") if line.strip()]
    return {key.strip(): content for key, _, content in lines}
