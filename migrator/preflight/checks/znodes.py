"""M0xx: the contents of ZooKeeper. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy. A fault that many znodes share is one case with the first few paths.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.machine.readiness import Severity
from migrator.migration.translate.to_records import TOPIC_ID_REMEDY
from migrator.preflight.check import Concerns, Found, PreflightCheck, of_zookeeper
from migrator.preflight.evidence import EXAMPLES_MAX, Evidence, Sample, ZooKeeperFacts
from migrator.preflight.lost_states import Lost, Reported, newest
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.znodes import paths


@of_zookeeper
def undecodable(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    for fault in zookeeper.faults:
        yield Found(fault.where, fault.what, fault.remedy)
    if more := zookeeper.faults_in_all - len(zookeeper.faults):
        yield Found("/", f"{more:,} more znodes do not decode", "Correct the named znodes, and run preflight again")


def topics_without_id(evidence: Evidence) -> Iterator[Found]:
    """The next ZooKeeper controller gives them new ids (``KafkaController.processTopicIds``); until then brokers still
    tell the old ones."""
    sample = Sample() if evidence.zookeeper is None else evidence.zookeeper.without_id
    told = [f"{topic} has {topic_id}" for topic, topic_id in sorted(_topic_ids(evidence))]
    known = f". Brokers still know ids: {', '.join(told)}" if told else ""
    if sample.count:
        yield Found(sample.examples[0], f"{sample.count:,} topics have no topic id: {sample}{known}")


def _topic_ids(evidence: Evidence) -> set[tuple[str, str]]:
    return {pair for answer in evidence.machine.answers.values() for pair in answer.topic_ids.items()}


def stale_migration(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None or not (mark := evidence.zookeeper.standing.mark).copied:
        return
    what = (
        f"it says that controller {mark.kraft_controller_id} copied this cluster up to offset "
        f"{mark.kraft_metadata_offset} of epoch {mark.kraft_metadata_epoch}"
    )
    migrated = [it.who for it in evidence.controllers if it.directory.log_state == ZkMigrationState.MIGRATION.name]
    if migrated:
        remedy = "Do not delete it while that quorum leads: preflight is for clusters before their migration"
        yield Found(paths.MIGRATION, f"{what}; the log of {migrated[0]} holds a copy, too", remedy)
    else:
        yield Found(paths.MIGRATION, what)


@of_zookeeper
def null_migration(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if zookeeper.null_migration:
        yield Found(paths.MIGRATION, "it has no data, as zookeeper-security-migration leaves it (KAFKA-19480)")


@of_zookeeper
def kraft_claim(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    controller = zookeeper.standing.view.controller
    if controller is not None and controller.is_kraft:
        yield Found(
            paths.CONTROLLER,
            f"KRaft controller {controller.broker_id} claimed the cluster with epoch {controller.kraft_epoch}",
        )


@of_zookeeper
def no_controller(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    view = zookeeper.standing.view
    if zookeeper.standing.fault is not None:
        return
    if view.epoch is None:
        yield Found(paths.CONTROLLER_EPOCH, "it is missing: no ZooKeeper controller was ever elected here")
    if view.controller is None:
        yield Found(paths.CONTROLLER, "it is missing: no broker is the controller now")


def no_cluster(evidence: Evidence) -> Iterator[Found]:
    if evidence.no_cluster is not None:
        yield Found(evidence.no_cluster.where, evidence.no_cluster.what, evidence.no_cluster.remedy)


def wrong_cluster(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None or (cluster_id := evidence.zookeeper.standing.cluster_id) is None:
        return
    for controller in evidence.controllers:
        identity = controller.directory.identity
        if identity is not None and identity.cluster_id != cluster_id:
            yield Found(
                controller.directory.path,
                f"it was formatted for cluster {identity.cluster_id}, but {paths.CLUSTER_ID} is {cluster_id}",
                f"Empty the directory and format it again with --cluster-id {cluster_id}",
                (controller.who,),
            )
    for broker in evidence.brokers:
        for directory, identity in broker.identities:
            if identity.cluster_id != cluster_id:
                yield Found(
                    directory,
                    f"it belongs to cluster {identity.cluster_id}, but {paths.CLUSTER_ID} is {cluster_id}",
                    "Give preflight the ZooKeeper, chroot included, and the files of one and the same cluster",
                    (broker.who,),
                )


@of_zookeeper
def unexpected(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.unexpected, "znodes that Kafka 3.9 does not know")


@of_zookeeper
def orphan_configs(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.orphan_configs, "configurations of topics that do not exist")


@of_zookeeper
def nested_acls(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.nested_acls, "resources with a slash in their name: what lies below is not read as ACLs")


@of_zookeeper
def moving(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.topics.moving
    if sample.count:
        yield Found(paths.TOPICS, f"{sample.count:,} partitions are being reassigned: {sample}")


@of_zookeeper
def orders(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    for path in zookeeper.orders:
        yield Found(path, "an order of an old tool waits here; a KRaft controller does not read it")


@of_zookeeper
def deletions(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.deletions
    if sample.count:
        yield Found(paths.DELETE_TOPICS, f"the deletion of {sample.count:,} topics is pending: {sample}")


def lost_states(evidence: Evidence) -> Iterator[Found]:
    """A partition has lost its state when brokers know it with an epoch above 0; one that was just created has had
    none."""
    for lost, report in _reported(evidence):
        if report is not None and report.leader_epoch > 0:
            yield Found(
                lost.path,
                f"the state of {lost} is gone, and brokers know it at leader epoch {report.leader_epoch}, "
                f"leader {report.leader}, in sync {list(report.isr)}",
            )


def without_state(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None:
        return
    young = [str(lost) for lost, report in _reported(evidence) if report is None or report.leader_epoch <= 0]
    more = evidence.zookeeper.topics.without_state.count - len(evidence.zookeeper.topics.lost)
    if young:
        sample = Sample(len(young) + more, tuple(young[:EXAMPLES_MAX]))
        yield Found(paths.TOPICS, f"{sample.count:,} partitions have no state znode: {sample}")


def _reported(evidence: Evidence) -> Iterator[tuple[Lost, Reported | None]]:
    """Each partition without a state, and the brokers' reports about it."""
    answers = evidence.machine.answers.values()
    for lost in () if evidence.zookeeper is None else evidence.zookeeper.topics.lost:
        yield lost, newest(it.partitions[lost.key] for it in answers if lost.key in it.partitions)


@of_zookeeper
def without_leader(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.topics.without_leader
    if sample.count:
        yield Found(paths.TOPICS, f"{sample.count:,} partitions have no leader: {sample}")


@of_zookeeper
def inconsistent(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.topics.inconsistent
    if sample.count:
        yield Found(
            paths.TOPICS, f"{sample.count:,} partitions have a leader or in-sync replicas that are none: {sample}"
        )


@of_zookeeper
def newer_epochs(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    sample = zookeeper.topics.newer_epochs
    if sample.count:
        yield Found(
            paths.CONTROLLER_EPOCH,
            f"it is {zookeeper.standing.view.epoch}, but {sample.count:,} partition states carry a newer one: {sample}",
        )


@of_zookeeper
def empty_producer_ids(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if zookeeper.empty_producer_ids:
        yield Found(
            paths.PRODUCER_IDS,
            "the znode holds empty data instead of none: a stock controller would fail during the copy",
        )


@of_zookeeper
def stray_partitions(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.stray_partitions, "partitions have a znode, but are in no assignment")


@of_zookeeper
def several_znodes(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if (sample := zookeeper.spellings.several).count:
        yield Found(paths.CONFIG, f"{sample.count:,} users, clients or brokers have several znodes: {sample}")


@of_zookeeper
def other_names(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if (sample := zookeeper.spellings.alone).count:
        yield Found(paths.CONFIG, f"{sample.count:,} znodes have names that Kafka's tools do not write: {sample}")


@of_zookeeper
def ignored_quotas(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.spellings.ignored, "znodes hold quotas that no broker obeys")


@of_zookeeper
def unparsed_quotas(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    yield from _one(zookeeper.spellings.unparsed, "quotas are no integers, and brokers in ZooKeeper mode need integers")


def _one(sample: Sample, what: str) -> Iterator[Found]:
    """One finding for a whole sample, at its first name."""
    if sample.count:
        yield Found(sample.examples[0], f"{sample.count:,} {what}: {sample}")


CHECKS = (
    PreflightCheck("M001", Severity.BLOCKER, "A znode does not decode", undecodable, "Correct the znode as described "
        "for each case"),
    PreflightCheck(
        "M002", Severity.BLOCKER, "Topics have no id", topics_without_id,
        TOPIC_ID_REMEDY,
    ),
    PreflightCheck(
        "M003", Severity.BLOCKER, "/migration says that the cluster was copied", stale_migration,
        "If no quorum controls the cluster any more, delete /migration; a stock controller with an empty log would "
        "erase every topic, ACL and configuration",
    ),
    PreflightCheck(
        "M004", Severity.BLOCKER, "/migration has no data", null_migration,
        "Delete the znode: stock controllers hang on it", Concerns.STOCK,
    ),
    PreflightCheck(
        "M005", Severity.BLOCKER, "A KRaft controller holds the claim", kraft_claim,
        "Find this quorum. If it migrates the cluster, let it continue. If it is a forgotten quorum, stop it and "
            "run 'migrator rollback' on its last leader",
    ),
    PreflightCheck(
        "M006", Severity.BLOCKER, "No ZooKeeper controller", no_controller,
        "Start the brokers in ZooKeeper mode, and wait until one of them is elected",
    ),
    PreflightCheck(
        "M007", Severity.BLOCKER, "No Kafka cluster in this ZooKeeper", no_cluster,
        "Give the connection string of the brokers, chroot included", alone=True,
    ),
    PreflightCheck(
        "M008", Severity.BLOCKER, "Formatted for another cluster", wrong_cluster,
        "Format the controllers with the id in /cluster/id",
    ),
    PreflightCheck(
        "M009", Severity.WARNING, "Unexpected znodes", unexpected,
        "These znodes are neither migrated nor changed. Find out who made them, and delete them if nobody needs them",
    ),
    PreflightCheck(
        "M010", Severity.WARNING, "Configurations without a topic", orphan_configs,
        "Delete these znodes. They are not migrated, and would be reported as foreign writes later",
    ),
    PreflightCheck(
        "M011", Severity.WARNING, "ACLs of names with a slash", nested_acls,
        "Brokers in ZooKeeper mode do not see them either: write them as a prefixed pattern, or delete them",
    ),
    PreflightCheck(
        "M012", Severity.WARNING, "Reassignments in flight", moving,
        "Let the reassignments finish, or cancel them with kafka-reassign-partitions. A migration continues them, "
            "but the replicas to be removed may stay on disk (KAFKA-16120)",
    ),
    PreflightCheck(
        "M013", Severity.WARNING, "Orders of old tools", orders,
        "Wait until the controller has processed the order. If the znode stays, delete it",
    ),
    PreflightCheck(
        "M014", Severity.WARNING, "Deletions in flight", deletions,
        "Start the brokers that hold their replicas and wait; topics whose deletion is pending are not migrated, and "
        "removed from ZooKeeper after the copy",
    ),
    PreflightCheck(
        "M015", Severity.BLOCKER, "Partitions have lost their state", lost_states,
        "Restore what the brokers report: 'migrator repair partition-states'. A copy would take leader epoch 0 and all "
        "replicas as in sync, and brokers ignore what is older than they know",
    ),
    PreflightCheck(
        "M016", Severity.WARNING, "Partitions without a leader", without_leader,
        "Start the brokers that hold the replicas. Otherwise the partitions stay offline after the migration",
    ),
    PreflightCheck(
        "M017", Severity.WARNING, "Partition states that contradict the assignment", inconsistent,
        "Restart the controller broker, which corrects it, or reassign these partitions: the copy takes "
        "them as they stand",
    ),
    PreflightCheck(
        "M018", Severity.WARNING, "Partition states from a newer controller epoch", newer_epochs,
        "A migration was taken back by hand: ZooKeeper controllers refuse these partitions (KAFKA-20488). Set "
        "/controller_epoch above the highest of them, then delete /controller so that a broker is elected",
    ),
    PreflightCheck(
        "M019", Severity.BLOCKER, "Empty producer id block", empty_producer_ids,
        "Set the znode to null, or to the last block that was handed out", Concerns.STOCK,
    ),
    PreflightCheck(
        "M020", Severity.WARNING, "Partitions that are in no assignment", stray_partitions,
        "They are not migrated. If a broker has a directory of such a partition, put the "
        "partition back into the assignment. Otherwise delete these znodes: a new partition would take their states",
    ),
    PreflightCheck(
        "M021", Severity.WARNING, "Partitions without a state", without_state,
        "If the topic was just created, wait. Otherwise the copy takes the first replica as leader, and all "
            "replicas as in sync",
    ),
    PreflightCheck(
        "M022", Severity.WARNING, "Several znodes for one user, client or broker", several_znodes,
        "Delete all but the right one with a ZooKeeper client. Brokers obey the one that they read last, in no fixed "
        "order; the migration takes the parts that are named, and writes each later change to all of these znodes",
    ),
    PreflightCheck(
        "M023", Severity.WARNING, "Names of znodes that Kafka's tools do not write", other_names,
        "Nothing has to be done. The migration reads the znode as brokers do and leaves it as it is; the first change "
        "is written to it and to a znode with the name in Kafka's spelling. Kafka's tools see only the latter",
    ),
    PreflightCheck(
        "M024", Severity.WARNING, "Quotas that no broker obeys", ignored_quotas,
        "Brokers look up quotas of a user below the URL-encoded name only. These are not migrated: set them "
        "with kafka-configs if they are wanted",
    ),
    PreflightCheck(
        "M025", Severity.BLOCKER, "Quotas with which brokers do not start", unparsed_quotas,
        "Set the quota again with kafka-configs. A broker in ZooKeeper mode that is restarted ends with "
        "NumberFormatException",
    ),
)  # fmt: skip
