"""An entity is not its spelling: znodes that no tool of Kafka writes so, as brokers in ZooKeeper mode read them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from migrator.image.model import EMPTY_IMAGE, ConfigResource, MetadataImage
from migrator.migration.translate.reconcile import reconcile, repair
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_ops import delta_writes
from migrator.records.metadata import ConfigResourceType, QuotaEntity
from migrator.zookeeper.ops import Applied
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.quotas import format_quota, parse_quota
from tests.image.support.differences import changes_between
from tests.lanes import examples
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support import images as some
from tests.migration.support.images import (
    PASSWORDS,
    apply,
    apply_with_repairs,
    comparable,
    empty_cluster,
    image_from,
    target,
)
from tests.migration.support.spellings import obeyed, respell


def with_znodes(znodes: dict[str, Any]) -> ModelZooKeeper:
    """An empty cluster with these znodes; what is no bytes is written as JSON."""
    zookeeper = empty_cluster()
    zookeeper.load(
        {path: data if isinstance(data, bytes | None) else orjson.dumps(data) for path, data in znodes.items()}
    )
    return zookeeper


def copied(zookeeper: ModelZooKeeper) -> MetadataImage:
    """The image of a copy, which needs no write."""
    image = image_from(zookeeper)
    assert list(reconcile(zookeeper, target(image))) == []
    return image


class TestAcls:
    @staticmethod
    def of(principal: str) -> dict[str, Any]:
        entry = {"principal": principal, "permissionType": "Allow", "operation": "All", "host": "*"}
        return {"version": 1, "acls": [entry]}

    def test_below_a_type_in_another_case_no_broker_reads_them(self) -> None:
        """Brokers look up any case, and then list the znode with the type's own name."""
        wrong = {f"/kafka-acl/{name}/t": self.of("User:intruder") for name in ("topic", "TOPIC", "Topics")}
        prefixed = {"/kafka-acl-extended/prefixed/transactionalid/t": self.of("User:intruder")}
        assert not copied(with_znodes(wrong | prefixed)).acls
        image = copied(with_znodes({"/kafka-acl/Topic/t": self.of("User:big"), **wrong, **prefixed}))
        assert [acl.principal for acl in image.acls.values()] == ["User:big"]


CREDENTIAL = "salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096"
OTHER_CREDENTIAL = "salt=YQ==,stored_key=eA==,server_key=eA==,iterations=4096"


def config(**values: str) -> dict[str, Any]:
    return {"version": 1, "config": {key.replace("SCRAM", "SCRAM-SHA-256"): text for key, text in values.items()}}


def configs(zookeeper: ModelZooKeeper) -> dict[str, dict[str, str]]:
    """All of them, without notices."""
    return {
        path: orjson.loads(data)["config"]
        for path, data in zookeeper.dump().items()
        if data and path.startswith("/config/") and not path.startswith(paths.CONFIG_CHANGES)
    }


def notices(zookeeper: ModelZooKeeper) -> list[str]:
    found = (
        zookeeper.get(f"{paths.CONFIG_CHANGES}/{name}") for name in zookeeper.list_children("/config/changes") or ()
    )
    return [orjson.loads(znode.data or b"")["entity_path"] for znode in found if znode is not None]


class TestConfigs:
    def test_a_user_whose_name_is_not_encoded_keeps_its_credential(self) -> None:
        """Provisioners of others write it so, and brokers decode the name. Its quotas no broker looks up."""
        zookeeper = with_znodes({"/config/users/svc@X": config(SCRAM=CREDENTIAL, producer_byte_rate="1")})
        image = copied(zookeeper)
        assert [key.user for key in image.scram] == ["svc@X"]
        assert not image.quotas

    def test_quotas_below_a_users_znode_that_no_broker_looks_up_are_left_alone(self) -> None:
        image = copied(with_znodes({"/config/users/svc@X/clients/c": config(producer_byte_rate="1")}))
        assert not image.quotas

    def test_the_znode_of_an_ip_has_the_address_as_its_name(self) -> None:
        """Brokers do not start with an encoded one, which stock controllers write."""
        zookeeper = with_znodes({"/config/ips/::1": config(connection_creation_rate="5")})
        image = copied(zookeeper)
        assert set(image.quotas) == {IPV6}
        assert set(configs(empty_and_reconciled(image))) == {"/config/ips/::1"}
        with pytest.raises(ZnodeError, match="brokers do not start"):
            copied(with_znodes({"/config/ips/%3A%3A1": config(connection_creation_rate="5")}))
        zookeeper = with_znodes(
            {"/config/ips/%3A%3A1": config(connection_creation_rate="5"), "/config/ips/::1": config()}
        )
        apply(zookeeper, reconcile(zookeeper, target(image)))
        assert configs(zookeeper) == {"/config/ips/::1": {"connection_creation_rate": "5"}}

    def test_quotas_without_a_znode_are_reported_in_the_order_of_their_texts(self) -> None:
        keys = [frozenset([QuotaEntity("user", name), QuotaEntity("ip", "1.2.3.4")]) for name in "abcdefghij"]
        image = replace(EMPTY_IMAGE, quotas=Map({key: Map({"request_percentage": 1.0}) for key in keys}))
        reported: list[str] = []
        goal = Target(image, passwords=PASSWORDS, controller_epoch=1, report=lambda path, _: reported.append(path))
        changes = changes_between(EMPTY_IMAGE, image)
        for writes in (reconcile(empty_cluster(), goal), delta_writes(EMPTY_IMAGE, goal, changes)):
            reported.clear()
            assert not list(writes)
            assert len(reported) == len(keys)
            assert reported == sorted(reported)

    def test_a_broker_whose_id_begins_with_a_zero(self) -> None:
        image = copied(with_znodes({"/config/brokers/01": config(a="1"), "/config/brokers/1": config()}))
        assert dict(image.configs) == {ConfigResource(ConfigResourceType.BROKER, "1"): {"a": "1"}}
        with pytest.raises(ZnodeError, match="brokers do not start"):
            copied(with_znodes({"/config/brokers/one": config(a="1")}))

    def test_of_two_znodes_the_canonical_one_counts_if_it_says_anything(self) -> None:
        both = {
            "/config/users/svc@X": config(SCRAM=OTHER_CREDENTIAL),
            "/config/clients/a+b": config(producer_byte_rate="1"),
        }
        image = copied(with_znodes({"/config/users/svc%40X": config(SCRAM=CREDENTIAL), **both}))
        assert [each.stored_key for each in image.scram.values()] == [b"b"]
        image = copied(with_znodes({"/config/users/svc%40X": config(producer_byte_rate="1"), **both}))
        assert [each.stored_key for each in image.scram.values()] == [b"x"]
        assert len(image.quotas) == 2

    def test_a_name_that_stands_for_nothing_is_left_alone(self) -> None:
        zookeeper = with_znodes({"/config/users/50%off": config(producer_byte_rate="1")})
        with pytest.raises(ZnodeError, match="not URL-encoded"):
            image_from(zookeeper)
        assert list(reconcile(zookeeper, target(EMPTY_IMAGE))) == []


class TestChanges:
    """In dual-write. What was learnt at the comparison is known to the writes that follow."""

    def start(self, *names: str) -> tuple[ModelZooKeeper, Target]:
        zookeeper = with_znodes({f"/config/{name}": config(SCRAM=CREDENTIAL) for name in names})
        goal = target(image_from(zookeeper))
        assert list(reconcile(zookeeper, goal)) == []
        return zookeeper, goal

    def change(self, zookeeper: ModelZooKeeper, goal: Target, after: MetadataImage) -> None:
        before = goal.image
        goal = Target(after, passwords=PASSWORDS, controller_epoch=1, spellings=goal.spellings)
        (write,) = delta_writes(before, goal, changes_between(before, after))
        outcome = zookeeper.multi((*write.ops, *write.notices))
        if not isinstance(outcome, Applied):
            (write,) = repair(zookeeper, goal, write.entity)
            assert isinstance(zookeeper.multi((*write.ops, *write.notices)), Applied)
        assert list(reconcile(zookeeper, goal)) == []

    @pytest.mark.parametrize(
        "names", [("users/svc@X",), ("users/svc%40X", "users/svc@X"), ("users/s%76c@X", "users/svc@X")]
    )
    def test_a_revoked_credential_is_in_no_znode_any_more(self, names: tuple[str, ...]) -> None:
        zookeeper, goal = self.start(*names)
        self.change(zookeeper, goal, EMPTY_IMAGE)
        assert configs(zookeeper) == {f"/config/{name}": {} for name in names}
        assert notices(zookeeper) == ["users/svc%40X"]

    def test_a_change_is_in_every_znode_and_in_the_one_that_tools_know(self) -> None:
        zookeeper, goal = self.start("users/svc@X")
        (key,) = goal.image.scram
        changed = replace(goal.image, scram=Map({key: replace(goal.image.scram[key], stored_key=b"x")}))
        self.change(zookeeper, goal, changed)
        assert configs(zookeeper) == {
            path: {"SCRAM-SHA-256": OTHER_CREDENTIAL.replace("server_key=eA==", "server_key=Yw==")}
            for path in ("/config/users/svc%40X", "/config/users/svc@X")
        }

    def test_a_znode_that_is_gone_meanwhile_does_not_stop_the_rest(self) -> None:
        zookeeper, goal = self.start("users/svc%40X", "users/svc@X")
        zookeeper.delete("/config/users/svc@X")
        self.change(zookeeper, goal, EMPTY_IMAGE)
        assert configs(zookeeper) == {"/config/users/svc%40X": {}}

    def test_without_its_canonical_znode_the_clients_of_a_user_still_get_theirs(self) -> None:
        zookeeper, goal = self.start("users/svc@X")
        entity = frozenset([QuotaEntity("user", "svc@X"), QuotaEntity("client-id", "c")])
        self.change(zookeeper, goal, replace(goal.image, quotas=Map({entity: Map({"request_percentage": 1.0})})))
        found = configs(zookeeper)
        assert set(found) == {"/config/users/svc@X", "/config/users/svc%40X", "/config/users/svc%40X/clients/c"}
        assert found["/config/users/svc%40X"] == found["/config/users/svc@X"], "an empty one would lock the user out"


def empty_and_reconciled(image: MetadataImage) -> ModelZooKeeper:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    return zookeeper


IPV6 = frozenset([QuotaEntity("ip", "::1")])


class TestAnySpelling:
    """Property: however the znodes are spelt, a copy takes what brokers obey, and nothing has to be written for it."""

    @settings(max_examples=examples(60))
    @given(some.images(), st.randoms(use_true_random=False))
    def test_says_the_same(self, image: MetadataImage, random: Random) -> None:
        zookeeper = empty_and_reconciled(image)
        before = obeyed(zookeeper, random)
        respell(zookeeper, random)
        assert obeyed(zookeeper, random) == before, "the respelling itself changed nothing"
        assert comparable(copied(zookeeper)) == comparable(image)
        assert list(reconcile(zookeeper, target(image))) == []

    @settings(max_examples=examples(60))
    @given(some.images(), some.images(), st.randoms(use_true_random=False))
    def test_follows_every_change(self, before: MetadataImage, after: MetadataImage, random: Random) -> None:
        """Brokers that start afterwards, in whatever order they list the znodes, obey what the log said last."""
        after = replace(some.grown_from(before, after), producer_ids_next=before.producer_ids_next)
        zookeeper = empty_and_reconciled(before)
        respell(zookeeper, random)
        goal = target(before)
        assert list(reconcile(zookeeper, goal)) == []
        goal = Target(after, passwords=PASSWORDS, controller_epoch=1, spellings=goal.spellings)
        writes = delta_writes(before, goal, changes_between(before, after))
        apply_with_repairs(zookeeper, writes, lambda entity: repair(zookeeper, goal, entity))
        assert list(reconcile(zookeeper, goal)) == []
        assert obeyed(zookeeper, random) == obeyed(empty_and_reconciled(after), random)


class TestNumbers:
    def test_unlimited_stays_the_longest_long(self) -> None:
        """Kafka writes "no limit" so (KAFKA-2209). No broker parses a larger number, and none starts with one."""
        for text in ("9223372036854775807", "9223372036854775806"):
            quota = parse_quota("/q", "producer_byte_rate", text)
            assert format_quota("producer_byte_rate", quota) == "9223372036854775807"
