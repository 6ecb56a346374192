"""The way back without a backup: only what a rollout has changed is changed back, whatever else the file says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.config.kafkas_broker import RESERVED
from migrator.config.properties import decoded, parse_properties
from migrator.config.reading import number_of
from migrator.errors import OperatorError
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode, ModeSettings, file_mode, rewritten, stock_file
from migrator.rollout.target_release import parse_target

NODE = Node("broker-7", NodeKind.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
CONTROLLER = Node("controller-1", NodeKind.CONTROLLER, 1, "host", "/etc/kafka/controller.properties", "default", "", {})
ZOOKEEPER, MIGRATING, KRAFT = FileMode.BROKER_ZOOKEEPER, FileMode.BROKER_MIGRATING, FileMode.BROKER_KRAFT
SETTINGS = ModeSettings(
    {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "3001@c:9093",
        "listener.name.controller.ssl.truststore.location": "/etc/kafka/trust.jks",
    },
    "SSL",
    "zk:2181",
    "3.9",
)
OLD_COMMENTS = """#zookeeper.connect=of-the-test-cluster:2181
#zookeeper.set.acl=true
#inter.broker.protocol.version=2.8
# zookeeper.ssl.client.enable=true
!zookeeper.session.timeout.ms=1
#control.plane.listener.name=PLANE
"""
BARE = "broker.id=7\nzookeeper.connect=zk:2181\n"


def forward(text: str) -> tuple[str, str]:
    """The file in migration mode and in KRaft mode."""
    migrating = rewritten(NODE, text, MIGRATING, SETTINGS)
    return migrating, rewritten(NODE, migrating, KRAFT, SETTINGS)


def assert_all_ways_back_lead_to(text: str) -> None:
    migrating, in_kraft = forward(text)
    assert (
        file_mode(NodeKind.BROKER, parse_properties(migrating)),
        file_mode(NodeKind.BROKER, parse_properties(in_kraft)),
    ) == (
        MIGRATING,
        KRAFT,
    )
    assert rewritten(NODE, migrating, ZOOKEEPER, SETTINGS) == text
    assert rewritten(NODE, in_kraft, ZOOKEEPER, SETTINGS) == text
    back = rewritten(NODE, in_kraft, MIGRATING, SETTINGS)
    assert back == migrating
    assert rewritten(NODE, text, KRAFT, SETTINGS) == in_kraft, "also in one step"


KEYS = st.sampled_from(
    [
        "broker.id",
        "zookeeper.connect",
        "zookeeper.set.acl",
        "zookeeper.ssl.keystore.password",
        "inter.broker.protocol.version",
        "control.plane.listener.name",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listener.name.controller.ssl.truststore.location",
        "authorizer.class.name",
        "broker.id.generation.enable",
        "num.io.threads",
        "z\\u006fokeeper.set.acl",
        "zookeeper\\\n  .connect",
    ]
)
VALUES = st.sampled_from(
    [
        "true",
        SETTINGS.release_version,
        "PLAINTEXT:PLAINTEXT,SSL:SSL",
        "a\\\n    b",
        "a\\\n#b",
        "a\\\n\nc",
        "\\u00e4 b",
        "Å à",
        "",
        "kafka.security.authorizer.AclAuthorizer",
        "zk-1:2181,\\\n\tzk-2:2181/x  ",
        "c:\\\\",
    ]
)
SEPARATORS = st.sampled_from(["=", " = ", ":", " "])
INDENTS = st.sampled_from(["", "  ", "\t"])
ENTRIES = st.builds("{}{}{}{}".format, INDENTS, KEYS, SEPARATORS, VALUES)
COMMENTS = st.builds(
    "{}{}{}".format, INDENTS, st.sampled_from("#!"), st.builds("{}{}{}".format, INDENTS, ENTRIES, INDENTS)
)
NEEDED = ["broker.id=7", "  zookeeper.connect = zk-1:2181,\\\n     zk-2:2181/kafka"]


@given(
    lines=st.lists(st.one_of(ENTRIES, COMMENTS.map(lambda text: text.partition("\n")[0]), st.just(""))),
    last=st.permutations(NEEDED),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    end=st.sampled_from(["", "\n", "\n\n", "\n#", "\n# \\", "\nnum.io.threads=8\\", "\nzookeeper.set.acl=true\\\n"]),
)
@example(lines=OLD_COMMENTS.splitlines(), last=NEEDED, newline="\n", end="\n")
def test_what_only_a_rollout_has_changed_comes_back_byte_for_byte(
    lines: list[str], last: list[str], newline: str, end: str
) -> None:
    """Comments of every form, escapes, doubled keys, lines that go on, ISO 8859-1, all ends of lines and files."""
    assert_all_ways_back_lead_to(("\n".join([*lines, *last]) + end).replace("\n", newline))


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_bytes_that_no_rollout_knows_come_back(before: bytes, behind: bytes) -> None:
    text = decoded(before) + "\n\n" + BARE + decoded(behind)
    try:
        found = parse_properties(text)
    except ValueError:
        return
    is_read = found["broker.id"] == "7" and number_of(found, RESERVED) is not None
    if is_read and file_mode(NodeKind.BROKER, found) is ZOOKEEPER:
        assert_all_ways_back_lead_to(text)


@pytest.mark.parametrize("by_hand", ["zookeeper.connect=new:2181\n", "num.io.threads=16\n", "# soak until May\n"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_somebody_has_written_since_stays_and_all_else_comes_back(by_hand: str, *, is_first: bool) -> None:
    text = f"{OLD_COMMENTS}{BARE}  zookeeper.ssl.client.enable=true\n"
    both = by_hand + text if is_first else text + by_hand
    for since, expected in zip(
        forward(text),
        (parse_properties(both), parse_properties(text) | parse_properties(by_hand)),
        strict=True,
    ):
        changed = by_hand + since if is_first else since + by_hand
        back = rewritten(NODE, changed, ZOOKEEPER, SETTINGS)
        assert {key: value for key, value in parse_properties(back).items() if key in expected} == expected
        assert {"zookeeper.set.acl", "process.roles", "node.id", "controller.quorum.voters"}.isdisjoint(
            parse_properties(back)
        )
        assert "#migrator" not in back
        assert all(line in back.splitlines() for line in OLD_COMMENTS.splitlines())
        again = rewritten(NODE, rewritten(NODE, back, KRAFT, SETTINGS), ZOOKEEPER, SETTINGS)
        assert again == back


def test_another_inventory_since_makes_nobodys_comment_a_setting() -> None:
    """The voters were corrected during the migration: what is in the file is not what the inventory says now."""
    other = ModeSettings({**SETTINGS.for_brokers, "controller.quorum.voters": "3002@c:9093"}, "SSL", "", "")
    for since in forward(OLD_COMMENTS + BARE):
        assert parse_properties(rewritten(NODE, since, ZOOKEEPER, other)) == parse_properties(BARE)


def test_a_controller_gets_back_what_the_end_of_the_migration_took_and_nothing_else() -> None:
    text = "node.id=1\n#control.plane.listener.name=OLD\n zookeeper.metadata.migration.enable = TRUE\n"
    text += "zookeeper.connect=zk:2181,\\\n zk-2:2181\n# zookeeper.connect=elsewhere:2181\ninter.broker.listener.name=A"
    ended = rewritten(CONTROLLER, text, FileMode.CONTROLLER_ENDED, SETTINGS)
    assert parse_properties(ended) == {"node.id": "1"}
    assert rewritten(CONTROLLER, ended, FileMode.CONTROLLER_MIGRATING, SETTINGS) == text


@pytest.mark.parametrize(
    ("node", "text", "mode"),
    [
        (
            CONTROLLER,
            f"{OLD_COMMENTS}node.id=1\nzookeeper.connect=zk:2181\nzookeeper.metadata.migration.enable=True \n",
            FileMode.CONTROLLER_MIGRATING,
        ),
        (
            CONTROLLER,
            f"{OLD_COMMENTS}node.id=1\nzookeeper.metadata.migration.enable=false",
            FileMode.CONTROLLER_ENDED,
        ),
        (NODE, f"{OLD_COMMENTS}{BARE}controller.quorum.voters=3001@prepared:9093\r\n", ZOOKEEPER),
        (NODE, f"{OLD_COMMENTS}{BARE}zookeeper.metadata.migration.enable=false", ZOOKEEPER),
        (NODE, rewritten(NODE, OLD_COMMENTS + BARE, MIGRATING, SETTINGS), MIGRATING),
        (NODE, rewritten(NODE, OLD_COMMENTS + BARE, KRAFT, SETTINGS), KRAFT),
    ],
)
def test_a_file_that_is_in_the_mode_stays_as_it_is(node: Node, text: str, mode: FileMode) -> None:
    assert rewritten(node, text, mode, SETTINGS) == text


OF_AN_EARLIER_RELEASE = "#broker.id=7\n{}process.roles=broker\nnode.id=7\ncontroller.quorum.voters=3001@c:9093\n"


@pytest.mark.parametrize(
    ("comments", "named"),
    [
        ("#zookeeper.connect=zk:2181\n#zookeeper.set.acl=true\n", "line 3: zookeeper.set.acl"),
        ("#  zookeeper.ssl.client.enable=true\n", "line 2: zookeeper.ssl.client.enable"),
        (
            "#zookeeper.connect=a:2181\n#zookeeper.connect=zk:2181,\\\n#  b:2181\n",
            "line 2: zookeeper.connect, line 3: zookeeper.connect",
        ),
        ("#inter.broker.protocol.version=2.8\n", "line 2: inter.broker.protocol.version"),
    ],
)
@pytest.mark.parametrize("target", [MIGRATING, ZOOKEEPER])
def test_comments_without_a_mark_that_may_have_been_settings_are_asked_about(
    comments: str, named: str, target: FileMode
) -> None:
    """Of a release that set no marks; the backup is gone. Once the operator has answered, it goes on."""
    text = OF_AN_EARLIER_RELEASE.format(comments)
    with pytest.raises(OperatorError, match="nobody knows which of them were: ") as raised:
        rewritten(NODE, text, target, SETTINGS)
    assert named in raised.value.what
    assert "a:2181" not in str(raised.value), "a value may be a secret"
    answered = f"{text}zookeeper.connect=mine:2181\n"
    back = parse_properties(rewritten(NODE, answered, target, SETTINGS))
    assert back["zookeeper.connect"] == "mine:2181"
    assert {"zookeeper.set.acl", "zookeeper.ssl.client.enable"}.isdisjoint(back)


def test_what_is_known_anyway_and_sentences_need_no_answer() -> None:
    text = OF_AN_EARLIER_RELEASE.format(
        "#zookeeper.connect=zk:2181\n#inter.broker.protocol.version=3.9\n# zookeeper.set.acl=true says the wiki\n"
    )
    back = parse_properties(rewritten(NODE, text, ZOOKEEPER, SETTINGS))
    assert back["zookeeper.connect"] == "zk:2181"
    assert "zookeeper.set.acl" not in back


def test_a_backup_answers_for_a_file_of_an_earlier_release() -> None:
    text = OF_AN_EARLIER_RELEASE.format("#zookeeper.connect=a:2181\n#zookeeper.set.acl=true\n")
    earlier = "zookeeper.connect=a:2181\nbroker.id=7\n"
    assert parse_properties(rewritten(NODE, text, ZOOKEEPER, SETTINGS, earlier))["zookeeper.connect"] == "a:2181"


def test_lines_that_were_cut_are_no_settings() -> None:
    """Otherwise the next line of the file becomes a part of the value."""
    _, in_kraft = forward("broker.id=7\nzookeeper.connect=zk-1:2181,\\\n zk-2:2181\nlog.dirs=/data\n")
    cut = in_kraft.replace("#migrator set aside:  zk-2:2181\n", "")
    assert cut != in_kraft
    with pytest.raises(OperatorError, match="line 2: what was set aside goes on behind this line"):
        rewritten(NODE, cut, ZOOKEEPER, SETTINGS)


def test_kafkas_file_has_every_byte_of_ours_but_the_keys_of_ours() -> None:
    release = parse_target("3.9.1")
    text = "# \xe4\r\nnode.id=1\r\nmigrator.journal.max.bytes=1\\\r\n 0\r\nlog.dirs=/data\r\r\n! \\\r\nnum.io.threads=8"
    assert stock_file(text, release) == text.replace("migrator.journal.max.bytes=1\\\r\n 0\r\n", "")
