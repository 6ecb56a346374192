"""The names of Kafka's own tests of the migration (branch 3.9), and the known defects of it.

A test requires that docs/interop.md accounts for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

SUITES: Mapping[str, str] = {
    "ZkMigrationIntegrationTest": """
        testMigrateAcls testStartZkBrokerWithAuthorizer testMigrate testMigrateTopicDeletions testDualWriteScram
        testDeleteLogOnStartup testDualWrite testDualWriteQuotaAndScram testNewAndChangedTopicsInDualWrite
        testPartitionReassignmentInHybridMode testIncrementalAlterConfigsPreMigration""",
    "ZkMigrationFailoverTest": "testControllerFailoverZkRace testDriverSkipsEventsFromOlderEpoch",
    "KRaftMigrationDriverTest": """
        testOnControllerChangeWhenUninitialized testOnlySendNeededRPCsToBrokers testMigrationWithClientException
        testMigrationWithClientExceptionWhileMigratingZnodeCreation
        testShouldNotMoveToNextStateIfControllerNodesAreNotReadyToMigrate testSkipWaitForBrokersInDualWrite
        testTopicDualWriteSnapshot testTopicDualWriteDelta testNoDualWriteBeforeMigration testControllerFailover
        testBeginMigrationOnce testCoalesceMigrationRecords""",
    "ZkMigrationClientTest": """
        testMigrateEmptyZk testEmptyWrite testUpdateExistingPartitions testCreateNewTopic testIdempotentCreateTopics
        testClaimAbsentController testExistingKRaftControllerClaim testNonIncreasingKRaftEpoch
        testClaimAndReleaseExistingController testReadMigrateAndWriteProducerId testMigrateTopicConfigs
        testTopicAndBrokerConfigsMigrationWithSnapshots testUpdateExistingTopicWithNewAndChangedPartitions""",
    "ZkConfigMigrationClientTest": """
        testMigrationBrokerConfigs testMigrateClientQuotas testWriteExistingClientQuotas testWriteNewClientQuotas
        testWriteNewTopicConfigs testWriteExistingTopicConfigs testScram testScramAndQuotaChangesInSnapshot
        testDelegationTokens""",
    "ZkAclMigrationClientTest": """
        testAclsMigrateAndDualWrite testAclsChangesInSnapshot testDeleteOneAclOfMany testAclUpdateAndDelete""",
    "KRaftMigrationZkWriterTest": """
        testExtraneousZkPartitions testReconcileSnapshotEmptyZk testReconcileSnapshotTopics""",
    "MigrationManifestTest": "testEmpty testOneBatch testManyBatch",
    "BufferingBatchConsumerTest": """
        testEmptyBatches testOneBatchSameAsMinSize testOneBatchSmallerThanMinSize testOneBatchLargerThanMinSize
        testMultiBatchSameAsMinSize testMultiBatchSmallerThanMinSize testMultiBatchLargerThanMinSize""",
    "MigrationPropagatorTest": "testCalculateBrokerChanges",
    "zookeeper_migration_test.py": "test_online_migration test_pre_migration_mode_3_4 test_reconcile_kraft_to_zk",
}
"""By suite: the names of its tests."""

DEFECTS = (
    *(f"KAFKA-{number}" for number in (
        14840, 14801, 14909, 14970, 15003, 15004, 15009, 15010, 15017, 15098, 15149, 15374, 15389, 15441,
        15450, 15532, 15552, 15605, 15670, 15704, 15799, 16003, 16005, 16007, 16101, 16120, 16171, 16180,
        16206, 16216, 16222, 16411, 16428, 16431, 16463, 16539, 16563, 16667, 16848, 17042, 17457, 17506,
        17543, 17788, 19480, 20488, 20960,
    )),
    "Strimzi#9108", "Strimzi#10714", "Strimzi#11262", "Strimzi#12785", "Strimzi#12929",
    "cp-ansible#2470", "cp-ansible#2685",
)  # fmt: skip
"""Identifiers of defects and field reports."""

REPORTS = (
    "malformed ACL",
    "topic without an id",
    "null or empty znodes",
    "partition without a state",
    "ACL name with `/`",
    "lost delta",
    "crash between End and `/migration`",
    "stale `/migration` and a fresh quorum",
    "a forgotten quorum wakes up",
    "brokers rolled back with their registrations still in the log",
    "topic deleted and recreated in one delta",
    "state znode version below the partition epoch",
    "registration inside an aborted copy",
    "no controller after `/controller` is deleted",
    "two operators roll at once",
    "a broker in ZooKeeper mode whose session expires while it handles LeaderAndIsr",
    "ZooKeeper chroot",
    "`config.providers` placeholders",
    "JKS and PKCS12 stores",
    "plug-ins in Java",
    "broker defaults that become the controller's",
    "controllers that are brokers too",
    "node ids that clash with broker ids",
    "a broker whose thread for AlterPartition ended in a rollback",
    "LeaderAndIsr above `socket.request.max.bytes`",
)
"""Reports without an identifier, as the page calls them."""
