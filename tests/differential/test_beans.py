"""The beans that we serve, beside a stock controller's MBeans in a migration, as Kafka's JmxTool reads them."""

from __future__ import annotations

from pathlib import Path

from migrator.drill.cluster import CLUSTER_ID, controller_properties, migration_properties
from migrator.observe.beans import CONTROLLER, RAFT, beans_of
from migrator.observe.write_times import WriteTimes
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from tests.conftest import ZooKeeperSpace
from tests.observe.test_metrics import READING

NODE_ID = 3001
LOCAL = "127.0.0.1"
OURS_ALONE = {
    "MigrationIneligibleBrokerCount": "KIP-866 has it; Kafka never shipped it.",
    "MigrationIneligibleControllerCount": "KIP-866 has it; Kafka never shipped it.",
    "MetadataType": "KIP-866 has it; Kafka never shipped it.",
    "ZooKeeperWriteBehindLag": "KIP-866's name; Kafka ships it as ZkWriteBehindLag, which we serve too.",
    "ZooKeeperBlockingKRaftMillis": "KIP-866 has it; Kafka never shipped it.",
}
"""Of kafka.controller:type=KafkaController, and why stock has none."""
STOCK_ALONE = {
    "TimedOutBrokerHeartbeatCount": "Of deadlines in Kafka's queue of events. A heartbeat here has none.",
    "EventQueueOperationsStartedCount": "Of Kafka's queue of events. Ours is an event loop.",
    "EventQueueOperationsTimedOutCount": "Of Kafka's queue of events. Ours is an event loop.",
}
"""Of the same type, and why we have none."""
_RATES = "A mean or a maximum of Kafka's own windows of time."
RAFT_OF_STOCK_ALONE = {
    "number-unknown-voter-connections": "Kafka 3.9 sets it to 0 at the start, and never again.",
    "poll-idle-ratio-avg": "Of Kafka's own thread; migrator_event_loop_stall_ms is ours.",
    **dict.fromkeys(("commit-latency-avg", "commit-latency-max"), _RATES),
    **dict.fromkeys(("election-latency-avg", "election-latency-max"), _RATES),
    **dict.fromkeys(("append-records-rate", "fetch-records-rate"), f"{_RATES} rate() of log-end-offset says it."),
}
"""The attributes of raft-metrics that we do not serve, and why."""


def in_the_open(port: int) -> tuple[str, ...]:
    """Options of a Java process whose MBeans can be read on this machine."""
    remote = "-Dcom.sun.management.jmxremote"
    return (
        *(f"{remote}.port={port}", f"{remote}.rmi.port={port}", f"{remote}.host={LOCAL}"),
        *(f"{remote}.authenticate=false", f"{remote}.ssl=false", f"-Djava.rmi.server.hostname={LOCAL}"),
    )


def read(kafka: StockKafka, port: int, query: str, directory: Path) -> dict[str, dict[str, str]]:
    """Attributes of each MBean, as text."""
    options = ("--jmx-url", f"service:jmx:rmi:///jndi/rmi://{LOCAL}:{port}/jmxrmi", "--object-name", query)
    form = ("--one-time", "true", "--report-format", "tsv")
    said = kafka.tool("org.apache.kafka.tools.JmxTool", *options, *form, directory=directory)
    found: dict[str, dict[str, str]] = {}
    for line in said.splitlines():
        name, is_row, value = line.partition("\t")
        bean, is_attribute, attribute = name.rpartition(":")
        if is_row and is_attribute:
            found.setdefault(bean, {})[attribute] = value
    return found


def test_beans_are_those_of_a_stock_controller(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    jmx = free_port()
    properties = controller_properties(NODE_ID, {NODE_ID: free_port()}) | migration_properties(zookeeper.hosts)
    jvm = Jvm(flags=(*Jvm().flags, *in_the_open(jmx)))
    node = kafka_391.node("stock controller", tmp_path / "stock", properties, jvm=jvm)
    node.format(CLUSTER_ID, release_version="3.9-IV0")
    with node:
        stock = read(kafka_391, jmx, CONTROLLER + "*", tmp_path) | read(kafka_391, jmx, RAFT, tmp_path)
    ours = beans_of(READING, WriteTimes())
    assert set(ours) - set(stock) == {CONTROLLER + name for name in OURS_ALONE}
    assert set(stock) - set(ours) == {CONTROLLER + name for name in STOCK_ALONE}
    assert stock[RAFT].keys() - ours[RAFT].keys() == RAFT_OF_STOCK_ALONE.keys()
    for bean in set(ours) & set(stock):
        served = {name: "." in text for name, text in stock[bean].items() if name not in RAFT_OF_STOCK_ALONE}
        assert {name: isinstance(value, float) for name, value in ours[bean].items()} == served, bean
    assert ours[RAFT]["current-state"] == stock[RAFT]["current-state"] == "leader"
