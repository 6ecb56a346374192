"""Single cases of the translation: field reports about stock, and what is left alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import orjson
import pytest
from immutables import Map

from migrator import turns
from migrator.controller.acl_index import AclIndex
from migrator.controller.quorum_target import KEY, RESOURCE
from migrator.errors import InvariantViolation
from migrator.image.model import (
    EMPTY_IMAGE,
    Acl,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    ScramCredential,
    ScramKey,
    TopicImage,
    TopicsImage,
)
from migrator.migration.translate.entity import Effect, EntityWrite, parse_entity
from migrator.migration.translate.reconcile import reconcile, repair
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_ops import delta_steps, delta_writes
from migrator.records.metadata import (
    ConfigResourceType,
    DelegationTokenRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    TopicRecord,
)
from migrator.zookeeper.ops import Applied, Create, Delete, SetData, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.producer_ids import ProducerIdBlock, encode_producer_ids
from tests.image.support.differences import changes_between
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import (
    PASSWORDS,
    apply,
    comparable,
    copy_records,
    empty_cluster,
    image_from,
    target,
    uuid,
)

PARTITION = PartitionRegistration(
    replicas=(1, 2), isr=(1, 2), removing_replicas=(), adding_replicas=(), leader=1, recovering=False, leader_epoch=3,
    partition_epoch=4,
)  # fmt: skip
T0 = paths.partition_state("t", 0)


def with_topic(*partitions: PartitionRegistration, id_: int = 1, name: str = "t") -> MetadataImage:
    topic = TopicImage(name, uuid(id_), Map(enumerate(partitions)))
    return replace(EMPTY_IMAGE, topics=TopicsImage(Map({topic.topic_id: topic}), Map({name: topic.topic_id})))


def cluster_of(image: MetadataImage) -> ModelZooKeeper:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    return zookeeper


def delta(before: MetadataImage, after: MetadataImage) -> list[EntityWrite]:
    return list(delta_writes(before, target(after), changes_between(before, after)))


def version(zookeeper: ModelZooKeeper, path: str) -> int:
    return zookeeper.dump_versions()[path]


class Counted:
    """A source that notes what is read."""

    def __init__(self, zookeeper: ModelZooKeeper) -> None:
        self._zookeeper = zookeeper
        self.seen = Counter[str]()

    def read(self, wanted: Iterable[str]) -> Iterator[Znode | None]:
        noted = list(wanted)
        self.seen.update(noted)
        return self._zookeeper.read(noted)

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        return self._zookeeper.children(wanted)


@pytest.mark.parametrize("text", ["compact", "delete", None], ids=["different", "equal", "none"])
def test_a_reconcile_reads_each_znode_once_and_writes_configs_once(text: str | None) -> None:
    """The configs of topics come first, and the topics themselves later."""
    configs = Map(
        {ConfigResource(ConfigResourceType.TOPIC, "t"): Map({} if text is None else {"cleanup.policy": text})}
    )
    image = replace(with_topic(PARTITION), configs=configs)
    held = cluster_of(
        replace(image, configs=Map({resource: Map({"cleanup.policy": "delete"}) for resource in configs}))
    )
    for zookeeper in (held, empty_cluster()):
        counted = Counted(zookeeper)
        apply(zookeeper, reconcile(counted, target(image)))
        assert set(counted.seen.values()) == {1}
        assert paths.topic_config("t") in counted.seen
        assert list(reconcile(zookeeper, target(image))) == []
        assert zookeeper.get(paths.topic_config("t")) is not None


class TestCopy:
    def read(self, zookeeper: ModelZooKeeper) -> list[object]:
        return list(copy_records(zookeeper, passwords=PASSWORDS, random=random.Random(1)))

    def test_a_partition_without_a_state_is_led_by_its_first_replica(self) -> None:
        zookeeper = cluster_of(with_topic(PARTITION))
        zookeeper.delete(T0)
        assert self.read(zookeeper) == [
            TopicRecord("t", uuid(1)),
            PartitionRecord(0, uuid(1), (1, 2), (1, 2), (), (), 1, 0, 0, 0),
        ]

    def test_topics_that_wait_for_their_deletion_are_left_out(self) -> None:
        zookeeper = cluster_of(with_topic(PARTITION))
        zookeeper.create(paths.delete_topic("t"))
        assert self.read(zookeeper) == []

    def test_a_topic_without_id_is_refused_with_a_remedy(self) -> None:
        zookeeper = empty_cluster()
        zookeeper.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1]}}')
        with pytest.raises(ZnodeError, match=r"/brokers/topics/old: .*topic id.*2\.8"):
            self.read(zookeeper)

    def test_a_topic_with_the_id_of_another_is_refused_with_a_remedy(self) -> None:
        """An image that is given both ends the controller."""
        zookeeper = cluster_of(with_topic(PARTITION))
        znode = zookeeper.get(paths.topic("t"))
        assert znode is not None
        zookeeper.create(paths.topic("t-copy"), znode.data)
        with pytest.raises(ZnodeError, match=r"/brokers/topics/t-copy: .*topic id of topic 't'.*delete"):
            self.read(zookeeper)

    def test_a_value_that_no_reader_of_the_log_takes_is_refused_with_a_remedy(self) -> None:
        """Stock brokers and controllers end at a longer one."""
        image = replace(
            with_topic(PARTITION),
            configs=Map({ConfigResource(ConfigResourceType.TOPIC, "t"): Map({"k": "é" * 20_000})}),
        )
        with pytest.raises(ZnodeError, match="'k' has 40,000 bytes") as refused:
            image_from(cluster_of(image))
        assert refused.value.where == paths.topic_config("t")
        assert "Shorten" in refused.value.remedy

    def test_a_name_that_the_log_does_not_hold_is_refused_with_its_znode(self) -> None:
        zookeeper = empty_cluster()
        path = paths.config(f"users/{'u' * 32_768}")
        zookeeper.create(path, encode_config({"producer_byte_rate": "1"}))
        with pytest.raises(ZnodeError, match="32,768 bytes, and the metadata log holds 32,767") as refused:
            self.read(zookeeper)
        assert refused.value.where == path
        assert len(str(refused.value.what)) < 200

    def test_every_fault_can_be_collected_and_the_rest_is_read(self) -> None:
        zookeeper = cluster_of(with_topic(PARTITION))
        zookeeper.create(paths.topic("bad"), b"{")
        zookeeper.create(paths.config("users/%zz"), b'{"version":1,"config":{"producer_byte_rate":"1"}}')
        zookeeper.create(paths.config("brokers/1"), b'{"version":1,"config":{"ssl.key.password":"plain"}}')
        zookeeper.set(paths.PRODUCER_IDS, b"")
        faults: list[str] = []
        records = list(
            copy_records(
                zookeeper,
                passwords=PASSWORDS,
                random=random.Random(1),
                on_fault=lambda fault: faults.append(fault.where),
            )
        )
        assert faults == [paths.topic("bad"), "/config/brokers/1", "/config/users/%zz", paths.PRODUCER_IDS]
        assert len(records) == 2

    def test_credentials_of_the_default_user_are_refused(self) -> None:
        credential = "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"
        zookeeper = empty_cluster()
        zookeeper.create(paths.config("users/<default>"), encode_config({"SCRAM-SHA-256": credential}))
        with pytest.raises(ZnodeError, match="<default>"):
            self.read(zookeeper)

    def test_the_next_producer_id_follows_the_block_that_was_handed_out(self) -> None:
        """The current block's ids are in use; stock once copied its first one (KAFKA-15552)."""
        zookeeper = empty_cluster()
        zookeeper.set(paths.PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(3, 5000, 5999)))
        assert self.read(zookeeper) == [ProducerIdsRecord(3, -1, 6000)]

    def test_the_default_is_no_name_and_a_name_is_no_default(self) -> None:
        """Users may be called <default> (KAFKA-16222, KAFKA-16411), and no broker's id is (KAFKA-15374)."""
        zookeeper = empty_cluster()
        for name in ("users/<default>", "users/%3Cdefault%3E", "users/a%40b/clients/<default>"):
            zookeeper.create(paths.config(name), encode_config({"producer_byte_rate": "1"}), parents=True)
        zookeeper.create(paths.config("brokers/<default>"), encode_config({"background.threads": "4"}))
        image = image_from(zookeeper)
        default, named = QuotaEntity("user", None), QuotaEntity("user", "<default>")
        pair = frozenset([QuotaEntity("user", "a@b"), QuotaEntity("client-id", None)])
        assert set(image.quotas) == {frozenset([default]), frozenset([named]), pair}
        assert set(image.configs) == {ConfigResource(ConfigResourceType.BROKER, "")}
        assert list(reconcile(zookeeper, target(image))) == []


class TestPartitionEpochs:
    def test_a_change_of_several_steps_takes_as_many_sets(self) -> None:
        before, after = with_topic(PARTITION), with_topic(replace(PARTITION, leader=2, partition_epoch=7))
        (write,) = delta(before, after)
        assert len(write.ops) == 3
        zookeeper = cluster_of(before)
        apply(zookeeper, [write])
        assert version(zookeeper, T0) == 7

    def test_a_new_partition_starts_at_its_epoch(self) -> None:
        before = with_topic(PARTITION)
        zookeeper = cluster_of(before)
        apply(zookeeper, delta(before, with_topic(PARTITION, replace(PARTITION, partition_epoch=2))))
        assert version(zookeeper, paths.partition_state("t", 1)) == 2

    def test_a_lag_is_caught_up_with_although_nothing_else_differs(self) -> None:
        """Stock leaders merge several changes into one set."""
        image = with_topic(PARTITION)
        zookeeper = cluster_of(image)
        lagging = with_topic(replace(PARTITION, partition_epoch=6))
        (write,) = reconcile(zookeeper, target(lagging))
        assert [type(op) for op in write.ops] == [SetData, SetData]
        apply(zookeeper, [write])
        assert version(zookeeper, T0) == 6

    def test_whose_controller_epoch_a_state_carries_is_no_difference(self) -> None:
        zookeeper = cluster_of(with_topic(PARTITION))
        other = Target(with_topic(PARTITION), passwords=PASSWORDS, controller_epoch=1000)
        assert list(reconcile(zookeeper, other)) == []


class TestTopics:
    def test_recreated_under_its_name(self) -> None:
        before, after = with_topic(PARTITION, PARTITION), with_topic(PARTITION, id_=2)
        for writes in (delta(before, after), list(reconcile(cluster_of(before), target(after)))):
            (write,) = writes
            assert write.effect is Effect.REPLACE
            kinds = [type(op) for op in write.ops]
            assert kinds.index(Create) > max(index for index, kind in enumerate(kinds) if kind is Delete)
            zookeeper = cluster_of(before)
            apply(zookeeper, writes)
            assert comparable(image_from(zookeeper)) == comparable(after)

    def test_a_deletion_that_zookeeper_began_is_finished_marker_last(self) -> None:
        zookeeper = cluster_of(with_topic(PARTITION))
        zookeeper.create(paths.delete_topic("t"))
        (write,) = reconcile(zookeeper, target(EMPTY_IMAGE))
        assert write.effect is Effect.FINISH_DELETION
        assert write.ops[-2:] == (Delete(paths.topic("t")), Delete(paths.delete_topic("t")))

    def test_partitions_missing_or_too_many(self) -> None:
        image = with_topic(PARTITION, PARTITION)
        zookeeper = cluster_of(image)
        zookeeper.delete(T0)
        zookeeper.delete(paths.partition("t", 0))
        zookeeper.create(f"{paths.partition('t', 9)}/state", b"", parents=True)
        (write,) = reconcile(zookeeper, target(image))
        assert write.effect is Effect.DELETE
        apply(zookeeper, [write])
        assert zookeeper.list_children(paths.partitions("t")) == ("0", "1")
        assert comparable(image_from(zookeeper)) == comparable(image)

    def test_a_config_of_no_topic_does_not_wait_for_a_namesake(self) -> None:
        zookeeper = empty_cluster()
        zookeeper.create(paths.topic_config("ghost"), encode_config({"retention.ms": "1"}))
        (write,) = reconcile(zookeeper, target(EMPTY_IMAGE))
        assert write.ops == (Delete(paths.topic_config("ghost")),)

    def test_one_multi_can_hold_a_new_topic(self) -> None:
        (write,) = delta(EMPTY_IMAGE, with_topic(PARTITION))
        assert write.effect is Effect.CREATE
        assert isinstance(empty_cluster().multi(write.ops), Applied)

    def test_a_topic_without_a_config_has_the_node_of_one(self) -> None:
        """Brokers in ZooKeeper mode read it when they create the log (KAFKA-16003)."""
        zookeeper = empty_cluster()
        apply(zookeeper, delta(EMPTY_IMAGE, with_topic(PARTITION)))
        assert zookeeper.dump()[paths.topic_config("t")] == encode_config({})
        zookeeper.delete(paths.topic_config("t"))
        apply(zookeeper, reconcile(zookeeper, target(with_topic(PARTITION))))
        assert zookeeper.dump()[paths.topic_config("t")] == encode_config({})

    def test_a_deletion_deletes_everything_once(self) -> None:
        """Its config, too, which stock once deleted twice and stumbled over (KAFKA-16206)."""
        resource = ConfigResource(ConfigResourceType.TOPIC, "t")
        before = replace(with_topic(PARTITION), configs=Map({resource: Map({"retention.ms": "1"})}))
        zookeeper = cluster_of(before)
        writes = delta(before, EMPTY_IMAGE)
        assert [write.entity for write in writes] == ["topic t"]
        assert len(set(writes[0].ops)) == len(writes[0].ops)
        apply(zookeeper, writes)
        assert paths.topic_config("t") not in zookeeper.dump()
        assert list(reconcile(zookeeper, target(EMPTY_IMAGE))) == []


class TestConfigs:
    def image(self, config: dict[str, str]) -> MetadataImage:
        resource = ConfigResource(ConfigResourceType.BROKER, "1")
        return replace(EMPTY_IMAGE, configs=Map({resource: Map(config)}))

    def test_the_same_password_is_not_encrypted_anew(self) -> None:
        image = self.image({"ssl.key.password": "x", "a": "1"})
        zookeeper = cluster_of(image)
        data = zookeeper.dump()["/config/brokers/1"]
        assert data is not None
        assert b'"x"' not in data
        assert list(reconcile(zookeeper, target(image))) == []

    def test_without_a_secret_passwords_are_neither_written_nor_lost(self) -> None:
        reported: list[str] = []
        none = PasswordEncoder(None, random.randbytes)
        image = self.image({"ssl.key.password": "x", "a": "1"})
        goal = Target(
            image, passwords=none, controller_epoch=1, report=lambda path, reason: reported.append(f"{path} {reason}")
        )
        zookeeper = empty_cluster()
        apply(zookeeper, reconcile(zookeeper, goal))
        assert zookeeper.dump()["/config/brokers/1"] == encode_config({"a": "1"})
        assert "/config/brokers/1 ssl.key.password: " in reported[0]
        encrypted = PASSWORDS.encode("x")
        image = self.image({"ssl.key.password": encrypted})  # as a stock controller without a secret copies it
        apply(zookeeper, reconcile(zookeeper, Target(image, passwords=none, controller_epoch=1)))
        assert zookeeper.dump()["/config/brokers/1"] == encode_config({"ssl.key.password": encrypted})

    def test_a_password_under_another_secret_is_reported_and_written_anew(self) -> None:
        image = self.image({"ssl.key.password": "x"})
        zookeeper = cluster_of(image)
        other = PasswordEncoder("another", random.randbytes, iterations=1)
        reported: list[str] = []
        goal = Target(image, passwords=other, controller_epoch=1, report=lambda _, reason: reported.append(reason))
        assert apply(zookeeper, reconcile(zookeeper, goal)) == 1
        assert "does not decrypt" in reported[0]
        assert list(reconcile(zookeeper, goal)) == []

    def test_what_says_the_same_is_left_alone_however_it_is_spelt(self) -> None:
        key = frozenset([QuotaEntity("user", "a b")])
        credential = ScramCredential(b"s", b"k", b"v", 4096)
        image = replace(
            EMPTY_IMAGE,
            quotas=Map({key: Map({"request_percentage": 1000.0, "producer_byte_rate": 5.0})}),
            scram=Map({ScramKey(1, "a b"): credential}),
        )
        zookeeper = cluster_of(image)
        config = orjson.loads(zookeeper.dump()["/config/users/a%20b"] or b"")["config"]
        config["SCRAM-SHA-256"] = ",".join(reversed(config["SCRAM-SHA-256"].split(",")))
        spelt = {**dict(reversed(config.items())), "request_percentage": "1.0E3", "producer_byte_rate": "5.0"}
        zookeeper.set("/config/users/a%20b", orjson.dumps({"config": spelt, "version": 1}))
        assert list(reconcile(zookeeper, target(image))) == []

    def test_removing_quotas_keeps_credentials(self) -> None:
        credential = ScramCredential(b"s", b"k", b"v", 4096)
        only_scram = replace(EMPTY_IMAGE, scram=Map({ScramKey(2, "u"): credential}))
        both = replace(
            only_scram, quotas=Map({frozenset([QuotaEntity("user", "u")]): Map({"request_percentage": 1.0})})
        )
        zookeeper = cluster_of(both)
        apply(zookeeper, delta(both, only_scram))
        assert comparable(image_from(zookeeper)) == comparable(only_scram)
        apply(zookeeper, delta(only_scram, EMPTY_IMAGE))
        assert zookeeper.dump()["/config/users/u"] == encode_config({})

    def test_every_change_is_announced(self) -> None:
        entity = frozenset([QuotaEntity("user", "a@b"), QuotaEntity("client-id", None)])
        image = replace(self.image({"a": "1"}), quotas=Map({entity: Map({"request_percentage": 1.0})}))
        zookeeper = cluster_of(image)
        notices = [
            zookeeper.dump()[f"{paths.CONFIG_CHANGES}/{name}"]
            for name in zookeeper.list_children("/config/changes") or ()
        ]
        assert [orjson.loads(notice or b"")["entity_path"] for notice in notices] == [
            "brokers/1",
            "users/a%40b/clients/<default>",
        ]


def test_configs_of_topics_and_brokers_come_before_everything_else() -> None:
    """A broker that starts meanwhile in ZooKeeper mode may have a log of a topic that ZooKeeper does not know yet."""
    compacted = {ConfigResource(ConfigResourceType.TOPIC, "t"): Map({"cleanup.policy": "compact"})}
    throttled = {ConfigResource(ConfigResourceType.BROKER, "1"): Map({"leader.replication.throttled.rate": "1"})}
    image = replace(with_topic(), configs=Map({**compacted, **throttled}))
    zookeeper = empty_cluster()
    writes = list(reconcile(zookeeper, target(image)))
    assert [write.entity for write in writes] == ["config topics/t", "config brokers/1", "topic t"]
    apply(zookeeper, writes)
    assert comparable(image_from(zookeeper)) == comparable(image)

    zookeeper.set(paths.topic_config("t"), encode_config({"cleanup.policy": "compact", "retention.ms": "1"}))
    writes = list(reconcile(zookeeper, target(image)))
    assert [write.entity for write in writes] == ["config topics/t"], "written once"


class TestTheRest:
    def test_producer_ids_never_go_back_and_are_not_rewritten(self) -> None:
        zookeeper = empty_cluster()
        zookeeper.set(paths.PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(1, 5000, 5999)))
        assert list(reconcile(zookeeper, target(replace(EMPTY_IMAGE, producer_ids_next=3000)))) == []
        assert list(reconcile(zookeeper, target(replace(EMPTY_IMAGE, producer_ids_next=6000)))) == []
        apply(zookeeper, reconcile(zookeeper, target(replace(EMPTY_IMAGE, producer_ids_next=7000))))
        assert image_from(zookeeper).producer_ids_next == 7000

    def test_an_acl_that_zookeeper_cannot_hold_is_reported_and_stops_nothing(self) -> None:
        good = Acl(3, "g", 3, "User:a", "*", 3, 3)
        image = replace(EMPTY_IMAGE, acls=Map({uuid(1): good, uuid(2): replace(good, resource_name="team/g")}))
        reported: list[str] = []
        goal = Target(image, passwords=PASSWORDS, controller_epoch=1, report=lambda path, _: reported.append(path))
        zookeeper = empty_cluster()
        assert apply(zookeeper, reconcile(zookeeper, goal)) == 1
        assert reported == ["/kafka-acl/Group/team/g"]
        assert [write.entity for write in delta_writes(EMPTY_IMAGE, goal, changes_between(EMPTY_IMAGE, image))] == [
            "acls /kafka-acl/Group/g"
        ]

    def test_foreign_acls_and_tokens_are_removed_and_announced(self) -> None:
        acl = Acl(2, "t", 4, "User:a", "*", 3, 3)
        token = DelegationTokenRecord("User:a", "User:a", (), 1, 2, 3, "id")
        zookeeper = cluster_of(replace(EMPTY_IMAGE, acls=Map({uuid(1): acl}), tokens=Map({"id": token})))
        writes = list(reconcile(zookeeper, target(EMPTY_IMAGE)))
        assert [write.effect for write in writes] == [Effect.DELETE, Effect.DELETE]
        apply(zookeeper, writes)
        assert len(zookeeper.list_children(paths.PREFIXED_ACL_CHANGES) or ()) == 2
        assert len(zookeeper.list_children(paths.TOKEN_CHANGES) or ()) == 2

    def test_parents_are_created_where_they_are_missing(self) -> None:
        image = replace(
            EMPTY_IMAGE,
            quotas=Map({frozenset([QuotaEntity("user", "u"), QuotaEntity("client-id", "c")]): Map({"x": 1.0})}),
            acls=Map({uuid(1): Acl(2, "t", 4, "User:a", "*", 3, 3)}),
        )
        for zookeeper in (ModelZooKeeper(), empty_cluster()):
            for write in delta(EMPTY_IMAGE, image):
                if not isinstance(zookeeper.multi((*write.ops, *write.notices)), Applied):
                    apply(zookeeper, repair(zookeeper, target(image), write.entity))
            assert comparable(image_from(zookeeper)) == comparable(image)

    def test_a_user_and_its_clients_are_repaired_together(self) -> None:
        """Each repair would create the parent of the other, so the two could not be in one multi."""
        user = QuotaEntity("user", "u")
        keys = [frozenset([user]), frozenset([user, QuotaEntity("client-id", "c")])]
        image = replace(EMPTY_IMAGE, quotas=Map({key: Map({"request_percentage": 1.0}) for key in keys}))
        first, second = delta(EMPTY_IMAGE, image)
        assert first.entity == second.entity == "config users/u"
        zookeeper = empty_cluster()
        together = repair(zookeeper, target(image), first.entity)
        ops = [op for write in together for op in (*write.ops, *write.notices)]
        assert isinstance(zookeeper.multi(ops), Applied)
        assert comparable(image_from(zookeeper)) == comparable(image)

    def test_only_our_own_names_can_be_repaired(self) -> None:
        assert parse_entity("config users/a b")[1] == "users/a b"
        with pytest.raises(InvariantViolation):
            parse_entity("topics t")


def test_the_target_of_the_voters_is_never_written_to_zookeeper() -> None:
    image = replace(EMPTY_IMAGE, configs=Map({RESOURCE: {KEY: "4,5,6"}}))
    assert delta(EMPTY_IMAGE, image) == []
    assert list(reconcile(cluster_of(EMPTY_IMAGE), target(image))) == []


BIG = with_topic(*[PARTITION] * 100)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (EMPTY_IMAGE, BIG),
        (BIG, EMPTY_IMAGE),
        (BIG, with_topic(*[PARTITION] * 100, id_=2)),
        (BIG, with_topic(*[replace(PARTITION, partition_epoch=5)] * 100)),
    ],
    ids=["created", "deleted", "deleted and created again", "changed"],
)
def test_the_writes_of_one_big_topic_are_made_in_slices(
    before: MetadataImage, after: MetadataImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_RECORDS", 10)
    steps = list(delta_steps(before, target(after), changes_between(before, after), AclIndex()))
    (write,) = filter(None, steps)
    assert steps.count(None) >= len(write.ops) // 10
