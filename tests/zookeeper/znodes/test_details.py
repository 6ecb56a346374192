"""Single facts about single families: what Kafka writes, tolerates and refuses."""

from __future__ import annotations

import pickle

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.image.model import ScramCredential
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import Endpoint, FeatureRange, ScramMechanism, SecurityProtocol
from migrator.records.uuid import uuid_from_text
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import (
    AclEntry,
    ResourcePattern,
    acl_path,
    decode_acls,
    encode_acl_change,
    node_name,
    parse_acl_path,
)
from migrator.zookeeper.znodes.broker_ids import decode_broker
from migrator.zookeeper.znodes.configs import decode_config, encode_config
from migrator.zookeeper.znodes.controller import ControllerClaim, decode_controller, decode_controller_epoch
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.entities import canonical
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import broker_ids
from migrator.zookeeper.znodes.migration import INITIAL_STATE, decode_migration
from migrator.zookeeper.znodes.partition_state import PartitionState, decode_partition_state, encode_partition_state
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids
from migrator.zookeeper.znodes.quotas import format_quota, parse_quota
from migrator.zookeeper.znodes.scram import join_user_config, split_user_config
from migrator.zookeeper.znodes.topics import decode_topic
from tests.zookeeper.znodes.support import strategies as some


class TestNames:
    def test_are_sanitized_as_kafka_does(self) -> None:
        assert paths.sanitize("c@@l dude*") == "c%40%40l%20dude%2A"
        assert paths.sanitize("a~b_c.d-e/ü") == "a%7Eb_c.d-e%2F%C3%BC"
        assert paths.desanitize("/x", "a+b%20c") == "a b c"

    @given(some.awkward_names)
    def test_survive(self, name: str) -> None:
        assert paths.desanitize("/x", paths.sanitize(name)) == name
        assert "/" not in paths.sanitize(name)

    @pytest.mark.parametrize("name", ["%", "a%4", "%zz", "%ff", "%c3"])
    def test_that_are_not_encoded_are_refused(self, name: str) -> None:
        with pytest.raises(ZnodeError, match="/config/users"):
            paths.desanitize(f"/config/users/{name}", name)

    @pytest.mark.parametrize(
        ("name", "legal"),
        [("a", True), ("ü %", True), ("..", False), ("a/b", False), ("\U0001f600", False), ("", False)],
    )
    def test_that_zookeeper_takes(self, name: str, legal: bool) -> None:
        assert paths.is_legal_name(name) is legal

    def test_of_ancestors(self) -> None:
        assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
        assert paths.ancestors("/a") == []
        assert (paths.parent_of("/a/b"), paths.parent_of("/a"), paths.name_of("/a/b")) == ("/a", "/", "b")

    def test_of_secrets(self) -> None:
        assert paths.is_sensitive("/config/users/alice")
        assert paths.is_sensitive("/delegation_token/tokens/x")
        assert not paths.is_sensitive("/config/topics/t")

    @given(st.lists(some.awkward_names | st.sampled_from(["%41", "%2e", "%2E", "%7e", "%7E", "%5F", "%40", "@", "+"])))
    def test_are_canonical_as_they_are_sanitized(self, parts: list[str]) -> None:
        """The short way says the same as the long one."""
        node = "".join(parts).replace("/", "") or "a"
        try:
            plain = paths.desanitize("/x", node)
        except ZnodeError:
            return
        expected = node if node == paths.DEFAULT_ENTITY else paths.sanitize(plain)
        assert canonical(f"users/{node}") == f"users/{expected}"
        assert canonical(f"users/{node}/clients/{node}") == f"users/{expected}/clients/{expected}"

    @pytest.mark.parametrize(
        ("name", "stands_for"),
        [
            ("ips/::1", "ips/::1"),
            ("ips/%3A%3A1", "ips/::1"),
            ("ips/fe80::1%eth0", "ips/fe80::1%eth0"),
            ("ips/<default>", "ips/<default>"),
            ("brokers/ +07", "brokers/7"),
            ("brokers/<default>", "brokers/<default>"),
            ("topics/a+b", "topics/a+b"),
        ],
    )
    def test_of_other_kinds(self, name: str, stands_for: str) -> None:
        assert canonical(name) == stands_for

    @pytest.mark.parametrize(
        "name", ["brokers/", "brokers/x", "brokers/99999999999", "planets/mars", "users/a/b", "ips/%zz"]
    )
    def test_that_stand_for_nothing(self, name: str) -> None:
        with pytest.raises(ZnodeError, match=name):
            canonical(name)


class TestTopics:
    def test_of_every_version(self) -> None:
        first = decode_topic("/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2]}}')
        assert first.topic_id is None
        assert first.partitions == {0: (1, 2), 1: (2,)}
        second = decode_topic("/t", b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{"0":[3],"9":[1]}}')
        assert (second.adding, second.removing) == ({0: (3,)}, {})
        third = decode_topic("/t", b'{"version":3,"topic_id":"AQEBAQEBAQEBAQEBAQEBAQ","partitions":{}}')
        assert third.topic_id == uuid_from_text("AQEBAQEBAQEBAQEBAQEBAQ")

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (None, "no data"),
            (b"[]", "not an object"),
            (b'{"version":3,"topic_id":"x","partitions":{}}', "topic_id"),
            (b'{"version":1,"partitions":{"0":[]}}', "partition 0 has no replicas"),
            (b'{"version":1,"partitions":{"0":[1,1]}}', "partition 0"),
            (b'{"version":1,"partitions":{"0":{"1":2}}}', "partition 0"),
            (b'{"version":1,"partitions":{"0":[true]}}', "partition 0"),
            (b'{"version":1,"partitions":{"\xd9\xa0":[1]}}', "partition id"),
        ],
    )
    def test_that_do_not_decode(self, data: bytes | None, fault: str) -> None:
        with pytest.raises(ZnodeError, match=fault):
            decode_topic("/brokers/topics/t", data)

    def test_that_brokers_read_although_no_broker_writes_them_so(self) -> None:
        topic = decode_topic(
            "/t",
            b' {"version":"x","partitions":{"0":[1],"00":[2]},"topic_id":"AQEBAQEBAQEBAQEBAQEBAQ==","more":{},'
            b'"adding_replicas":{"01":[3]},"partitions":{"01":[1,2]}}',
        )
        assert topic.topic_id == uuid_from_text("AQEBAQEBAQEBAQEBAQEBAQ")
        assert (topic.partitions, topic.adding) == ({1: (1, 2)}, {1: (3,)})


class TestPartitionStates:
    def test_version_and_other_fields_do_not_count(self) -> None:
        data = b'{"version":"7","leader":1,"leader_epoch":2,"controller_epoch":3,"isr":[2],"isr":[1],"more":[]}'
        assert decode_partition_state("/s", data) == PartitionState(1, 2, 3, (1,))

    def test_is_written_as_kafka_does(self) -> None:
        state = PartitionState(1, 2, 3, (1, 2))
        assert orjson.loads(encode_partition_state(state)) == {
            "version": 1,
            "leader": 1,
            "leader_epoch": 2,
            "controller_epoch": 3,
            "isr": [1, 2],
        }

    def test_equal_replica_lists_are_one_object(self) -> None:
        data = encode_partition_state(PartitionState(1, 2, 3, (1, 2)))
        assert decode_partition_state("/s", data).isr is decode_partition_state("/s", data).isr

    @pytest.mark.parametrize("isr", [b"{}", b'"12"', b"null", b"[1.0]", b"[-1]", b"[true]", b"[[1]]"])
    def test_isr_has_to_be_a_list_of_ids(self, isr: bytes) -> None:
        broker_ids(1)  # so that 1.0 and true would be found as equal keys of the cache
        with pytest.raises(ZnodeError, match="isr"):
            decode_partition_state(
                "/s", b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":%s}' % isr
            )

    def test_unknown_recovery_state(self) -> None:
        data = b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1],"leader_recovery_state":2}'
        with pytest.raises(ZnodeError, match="leader_recovery_state"):
            decode_partition_state("/s", data)


class TestConfigs:
    @pytest.mark.parametrize("data", [None, b"", b'{"version":1}', b'{"version":"x","config":null}'])
    def test_nothing_is_an_empty_config(self, data: bytes | None) -> None:
        assert decode_config("/c", data) == {}

    def test_messages_do_not_carry_values(self) -> None:
        with pytest.raises(ZnodeError) as caught:
            decode_config("/config/brokers/1", b'{"version":1,"config":{"k":["hunter2"]}}')
        assert "hunter2" not in str(caught.value)
        assert "'k'" in str(caught.value)

    def test_keys_are_sorted(self) -> None:
        assert encode_config({"b": "1", "a": "2"}) == b'{"version":1,"config":{"a":"2","b":"1"}}'


class TestQuotas:
    @pytest.mark.parametrize(
        ("key", "quota", "text"),
        [
            ("producer_byte_rate", 1024.0, "1024"),
            ("producer_byte_rate", 1023.9999999, "1024"),
            ("consumer_byte_rate", 1.5, "1"),
            ("consumer_byte_rate", 2.0**63, "9223372036854775807"),
            ("producer_byte_rate", float("inf"), "9223372036854775807"),
            ("connection_creation_rate", 1e10, "2147483647"),
            ("connection_creation_rate", 7.0, "7"),
            ("request_percentage", 50.0, "50.0"),
            ("controller_mutation_rate", float("inf"), "Infinity"),
        ],
    )
    def test_types(self, key: str, quota: float, text: str) -> None:
        assert format_quota(key, quota) == text

    @pytest.mark.parametrize(
        ("text", "quota"), [("1.0E10", 1e10), (" 5d ", 5.0), (".5", 0.5), ("-Infinity", -float("inf"))]
    )
    def test_what_java_parses(self, text: str, quota: float) -> None:
        assert parse_quota("/q", "request_percentage", text) == quota

    @pytest.mark.parametrize("text", ["", "x", "1_0", "inf", "NaN", "0x1p3", "\u0661", "1e9999999999999"])
    def test_what_is_refused(self, text: str) -> None:
        with pytest.raises(ZnodeError, match="request_percentage"):
            parse_quota("/q", "request_percentage", text)

    @given(some.user_configs)
    def test_share_the_znode_with_credentials(self, user: object) -> None:
        config = join_user_config(user)  # type: ignore[arg-type]
        assert split_user_config("/config/users/a", config) == user

    @pytest.mark.parametrize(
        "credential",
        [
            "",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==",
            "salt=*,stored_key=YQ==,server_key=YQ==,iterations=1",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=x",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=0",
            "salt=YQ==,YQ==,stored_key=YQ==,server_key=YQ==,iterations=1",
            "salt=YQ=,stored_key=YQ==,server_key=YQ==,iterations=1",
            "salt=Y,stored_key=YQ==,server_key=YQ==,iterations=1",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=2147483648",
        ],
    )
    def test_malformed_credentials(self, credential: str) -> None:
        with pytest.raises(ZnodeError, match="SCRAM-SHA-256") as caught:
            split_user_config("/config/users/a", {"SCRAM-SHA-256": credential})
        assert "YQ==" not in str(caught.value)

    @pytest.mark.parametrize(
        "spelling",
        [
            "salt=YQ,stored_key=Yg,server_key=Yw,iterations=4096",
            "iterations=+04096,server_key=Yw==,stored_key=Yg,salt=YQ==,,",
            "salt=eHl6,salt=YR==,stored_key=Yg==,server_key=Yw==,iterations=4096",
        ],
    )
    def test_a_credential_in_every_form_that_java_reads(self, spelling: str) -> None:
        """``Base64.getDecoder`` asks for no padding, ``String.split`` for no end, and a later part counts."""
        credential = split_user_config("/u", {"SCRAM-SHA-256": spelling}).credentials[ScramMechanism.SHA_256]
        assert credential == ScramCredential(b"a", b"b", b"c", 4096)

    def test_a_credential_as_kafka_writes_it(self) -> None:
        user = split_user_config("/u", {"SCRAM-SHA-512": "salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096"})
        credential = user.credentials[ScramMechanism.SHA_512]
        assert (credential.salt, credential.stored_key, credential.server_key) == (b"a", b"b", b"c")
        assert credential.iterations == 4096


class TestAcls:
    def test_paths(self) -> None:
        literal = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PatternType.LITERAL)
        prefixed = ResourcePattern(ResourceType.TOPIC, "p", PatternType.PREFIXED)
        assert acl_path(literal) == "/kafka-acl/TransactionalId/tx"
        assert acl_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/p"
        assert parse_acl_path(acl_path(literal)) == literal
        assert parse_acl_path(acl_path(prefixed)) == prefixed
        for name in ("Nothing", "topic", "TOPIC", "Topics", "Transactional_Id"):  # brokers list the types' own names
            assert parse_acl_path(f"/kafka-acl/{name}/x") is None
        assert parse_acl_path("/kafka-acl/Topic") is None

    def test_names_in_every_form_that_kafka_accepts(self) -> None:
        data = (
            b'{"version":1,"acls":[{"principal":"User:a:b","permissionType":"DENY","operation":"describeconfigs",'
            b'"host":"*"}]}'
        )
        assert decode_acls("/a", data) == {AclEntry("User:a:b", "*", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY)}

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            ("principal", "alice"),
            ("operation", "Any"),
            ("operation", "Describe_Configs"),
            ("permissionType", "Maybe"),
            ("host", None),
        ],
    )
    def test_wrong_entries(self, field: str, wrong: object) -> None:
        entry = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*", field: wrong}
        with pytest.raises(ZnodeError, match=f"/kafka-acl/Topic/t.*{'permission' if 'perm' in field else field}"):
            decode_acls("/kafka-acl/Topic/t", orjson.dumps({"version": 1, "acls": [entry]}))

    def test_no_data_is_no_entries(self) -> None:
        assert decode_acls("/a", None) == decode_acls("/a", b"") == frozenset()

    def test_every_resource_type_has_its_parent(self) -> None:
        assert tuple(map(node_name, ResourceType)) == paths.ACL_RESOURCE_TYPES

    def test_notices(self) -> None:
        assert encode_acl_change(ResourcePattern(ResourceType.TOPIC, "foo", PatternType.LITERAL)) == b"TOPIC:foo"
        prefixed = encode_acl_change(ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PatternType.PREFIXED))
        assert orjson.loads(prefixed) == {
            "version": 1,
            "resourceType": "TRANSACTIONAL_ID",
            "name": "tx",
            "patternType": "PREFIXED",
        }


class TestSmallOnes:
    def test_producer_ids(self) -> None:
        block = decode_producer_ids("/p", b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}')
        assert block is not None
        assert block.next_id == 1000
        odd = b'{"version":"x","broker":1,"block_start":"+0","block_end":"0000000000000000000000999"}'
        assert decode_producer_ids("/p", odd) == block
        assert decode_producer_ids("/p", None) is None
        with pytest.raises(ZnodeError, match="no data"):
            decode_producer_ids("/p", b"")

    def test_controller(self) -> None:
        assert decode_controller("/controller", b'{"version":1,"brokerid":3,"timestamp":"12"}') == ControllerClaim(
            3, 12
        )
        assert not ControllerClaim(3, 12).is_kraft
        with pytest.raises(ZnodeError, match="version 3 is unknown"):
            decode_controller("/controller", b'{"version":3,"brokerid":3}')

    @pytest.mark.parametrize(
        "data", [None, b"", b"-1", b"1.0", b" 1", b"\xff", b"2147483646", b"99999999999", b"1" * 5000]
    )
    def test_controller_epoch(self, data: bytes | None) -> None:
        with pytest.raises(ZnodeError, match="/controller_epoch"):
            decode_controller_epoch("/controller_epoch", data)

    def test_migration(self) -> None:
        assert decode_migration("/migration", None) is None
        assert decode_migration("/migration", b"") is None
        assert not INITIAL_STATE.copied
        with pytest.raises(ZnodeError, match="version 1 is unknown"):
            decode_migration("/migration", b'{"version":1}')

    def test_token_of_another_name(self) -> None:
        with pytest.raises(ZnodeError, match="name of the znode"):
            decode_token("/delegation_token/tokens/x", b'{"version":1,"tokenId":"y"}')

    def test_token_times_as_strings_are_refused_as_by_brokers(self) -> None:
        data = {"version": 1, "tokenId": "x", "owner": "User%3Aa", "renewers": [], "issueTimestamp": "1"}
        with pytest.raises(ZnodeError, match="issueTimestamp"):
            decode_token("/delegation_token/tokens/x", orjson.dumps(data))

    def test_token_before_version_3_is_requested_by_its_owner(self) -> None:
        times = {"issueTimestamp": 1, "maxTimestamp": 2, "expiryTimestamp": 3}
        data = {"version": 2, "tokenId": "x", "owner": "User%3Aa", "renewers": ["User%3Ab"], **times}
        token = decode_token("/delegation_token/tokens/x", orjson.dumps(data))
        assert token is not None
        assert (token.owner, token.requester, token.renewers) == ("User:a", "User:a", ("User:b",))

    def test_broker_of_version_5(self) -> None:
        broker = decode_broker(
            "/brokers/ids/1",
            b'{"features":{"f":{"min_version":1,"first_active_version":2,"max_version":3}},"listener_security_protocol_map":'
            b'{"IN":"SASL_SSL"},"endpoints":["IN://[::1]:9093"],"jmx_port":-1,"port":-1,"host":null,"version":5,'
            b'"timestamp":"17","rack":"r"}',
        )
        assert broker.endpoints == (Endpoint("IN", "::1", 9093, SecurityProtocol.SASL_SSL),)
        assert broker.features == (FeatureRange("f", 1, 3),)
        assert (broker.rack, broker.timestamp_ms, broker.host) == ("r", 17, None)

    def test_broker_of_version_1(self) -> None:
        broker = decode_broker("/b", b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}')
        assert broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092, SecurityProtocol.PLAINTEXT),)

    def test_errors_cross_process_borders(self) -> None:
        error = ZnodeError("/path", "fault", "remedy")
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert str(copy) == str(error) == "/path: fault. remedy"
