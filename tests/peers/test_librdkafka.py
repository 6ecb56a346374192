"""librdkafka's own tests against real brokers on our quorum: nothing fails that passes on Kafka's controllers.

What fails on both is in `librdkafka.FAIL_ON_STOCK`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.drill.kafka.cluster import until
from migrator.parts.kafka import StockKafka
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.peers.support import librdkafka
from tests.peers.support.franz_go import SuiteResult
from tests.peers.support.librdkafka import BY_CHANCE
from tests.peers.support.on_our_quorum import start

pytestmark = pytest.mark.lane("test-long")
AS_ITS_README_WANTS = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}
COOPERATIVE = (
    *("a_assign_tests", "b_subscribe_with_cb_test", "c_subscribe_no_cb_test", "d_change_subscription_add_topic"),
    *("e_change_subscription_remove_topic", "f_assign_call_cooperative", "g_incremental_assign_call_eager"),
    *("h_delete_topic", "i_delete_topic_2", "j_delete_topic_no_rb_callback", "k_add_partition", "l_unsubscribe"),
    *("m_unsubscribe_2", "n_wildcard", "s_subscribe_when_rebalancing", "t_max_poll_interval_exceeded"),
    *("subscription_variation: 0", "v_commit_during_rebalance", "x_incremental_rebalances"),
)
"""Parts of 0113: one that fails would keep the others from running. Of the three variations of one part, which take
95 s each, the first; all but the one that needs a consumer in Java."""
BROKERS = 3
"""0103 makes topics with three replicas."""
SUITES = {
    "admin": ("0081", "0107", "0069", "0044"),
    "transactions": ("0103", "0129", "0090"),
    "groups": (
        *("0018", "0019", "0030", "0045", "0050", "0051", "0102", "0118", "0130"),
        *(f"0113 {part}" for part in COOPERATIVE),
    ),
}
SECONDS = 180.0
"""For each. The longest, a part of 0113, takes 95 s."""


@pytest.mark.parametrize("suite", SUITES)
def test_as_on_kafkas_controllers(
    suite: str, kafka_391: StockKafka, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not librdkafka.can_be_built():
        pytest.skip("librdkafka's tests come from the source package of Debian 12, and need a compiler")
    tests = librdkafka.build()

    def run(where: str) -> SuiteResult:
        directory = tmp_path / where
        directory.mkdir()
        return librdkafka.run(tests, cluster.bootstrap, directory, chosen=SUITES[suite], seconds=SECONDS)

    with KafkaCluster(
        kafka_391, tmp_path, controllers=1, brokers=BROKERS, broker_properties=AS_ITS_README_WANTS
    ) as cluster:  # fmt: skip
        start(cluster, BROKERS)
        ours = run("ours")
        cluster.replace_controllers_by_stock()
        until("all is in sync on Kafka's controllers", Admin(cluster.bootstrap, BROKERS).in_sync)
        stock = run("stock")
        for name, result in (("", ours), ("stock_", stock)):
            record_property(f"{name}passed", len(result.passed))
            record_property(f"{name}failed", len(result.failed))
            record_property(f"{name}skipped", len(result.skipped))
        assert ours.failed - BY_CHANCE.keys() <= stock.failed
        assert ours.passed
