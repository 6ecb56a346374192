"""What a published procedure says: property files with gaps for this machine's addresses, and steps in order."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from migrator.drill.kafka.cluster import KafkaBrokerMode
from migrator.values import value


class Step(StrEnum):
    """What an operator does, or waits for."""

    FORMAT = "format the controllers"
    PROVISION = "start the controllers"
    MIGRATING = "roll the brokers into migration mode"
    DUAL_WRITE = "wait until metadata is written to both sides"
    KRAFT = "roll the brokers into KRaft mode"
    FINALIZE = "restart the controllers with the final file, one after the other"
    FINISHED = "wait for the end of the migration"
    DEPROVISION = "stop the controllers"
    DELETE_CONTROLLER = "delete /controller"
    DELETE_MIGRATION = "delete /migration"
    RAISE_EPOCH = "set /controller_epoch above the quorum's, while the quorum runs"
    ZOOKEEPER = "roll the brokers back into ZooKeeper mode"
    REJOIN_ZOOKEEPER = "roll the brokers from KRaft mode back into migration mode"


@value
class Procedure:
    """One published way.

    ``release``: of the brokers. ``protocol``: their ``inter.broker.protocol.version``. ``prepared``, ``finalized``: of
    controllers. ``brokers``: by mode. In each text ``{id}``, ``{port}``, ``{zookeeper}``, ``{voters}``, ``{servers}`` and
    ``{protocol}`` are gaps. ``format``: the words after ``format``; its gaps are ``{cluster}``, ``{file}`` and
    ``{protocol}``. ``waits``: regular expressions of log lines that the active controller writes until dual-write.
    """

    name: str
    release: str
    protocol: str
    prepared: str
    finalized: str
    brokers: Mapping[KafkaBrokerMode, str]
    format: tuple[str, ...]
    steps: tuple[Step, ...]
    controllers: int = 1
    waits: tuple[str, ...] = ("Completed migration of metadata from Zoo[Kk]eeper to KRaft",)


def properties(text: str, gaps: Mapping[str, str]) -> dict[str, str]:
    """Of a file's text; the last line of a key wins, as in Java."""
    lines = [line.partition("=") for line in text.format(**gaps).split("\n") if line.strip()]
    return {key.strip(): content for key, _, content in lines}
