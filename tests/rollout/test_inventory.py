"""The keys of an inventory, and the place that each error names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import OperatorError
from migrator.rollout.inventory import BYTES_MAX, ControllerKind, Roll, parse_inventory, schema_text
from migrator.rollout.nodes import NodeKind
from migrator.rollout.site import site_of

GOOD = """
cluster: payments
access: operator.properties
controllers:
  nodes:
    - {id: 3001, host: c1, properties: /etc/kafka/controller.properties}
    - {id: 3002, host: c2, properties: /etc/kafka/controller.properties}
brokers:
  settings:
    controller.listener.names: CONTROLLER
    controller.quorum.voters: 3001@c1:9093,3002@c2:9093
  nodes:
    - {id: 1, host: b1, properties: /etc/kafka/server.properties, rack: r1}
    - {id: 2, host: b2, properties: /etc/kafka/server.properties, rack: r2}
executors:
  default: {preset: ssh-systemd, variables: {unit: kafka}}
handover: {release: "3.9.1"}
"""
EXAMPLE = Path(__file__).parents[2] / "deploy" / "rollout" / "inventory.yaml"


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_good_one() -> None:
    inventory = parse_inventory(GOOD, "inventory.yaml")
    assert inventory.cluster == "payments"
    assert inventory.controllers.kind is ControllerKind.MIGRATOR
    assert inventory.brokers.roll is Roll.BROKER
    assert [node.name for node in inventory.nodes] == ["controller-3001", "controller-3002", "broker-1", "broker-2"]
    stock = inventory.controllers.stock[3001]
    assert (stock.role, stock.host) == (NodeKind.STOCK_CONTROLLER, "c1")
    assert stock.properties == "/etc/kafka/controller.stock.properties"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (changed("id: 2,", "id: 1,"), "brokers.nodes", "broker-1, broker-1 have one id, 1"),
        (changed("id: 2,", "id: 3001,"), "controllers.nodes", "controller-3001, broker-3001 have one id, 3001"),
        (changed("id: 2,", "name: broker-1, id: 2,"), "brokers.nodes, broker-1", "two nodes have this name"),
        (changed("id: 2,", "name: '1', id: 2,"), "brokers.nodes, 1", "the name of this node is the id of broker-1"),
        (changed("host: b2", "host: b1"), "brokers.nodes", "another node has /etc/kafka/server.properties on b1, too"),
        (changed("id: 2,", "executor: ansible, id: 2,"), "broker-2", "there is no executor 'ansible'"),
        (
            changed("rack: r2", "rck: r2"),
            "brokers.nodes[1]",
            "'rck' is not known here (did you mean 'rack'?); known are name",
        ),
        (
            changed("id: 2,", 'id: "2",'),
            "brokers.nodes[1].id",
            "'2' is not valid: it must be a whole number, without quotes",
        ),
        (
            changed("cluster: p", 'gates: {seconds: "6"}\ncluster: p'),
            "gates.seconds",
            "it must be a number, without quotes",
        ),
        (
            changed("/etc/kafka/server.properties, rack: r2", "etc/kafka, rack: r2"),
            "[1].properties",
            "it must be an absolute path",
        ),
        (changed("host: b2", "host: -oProxyCommand=x"), "brokers.nodes[1].host", "the name or the address of a host"),
        (changed("id: 2,", "id: 2, variables: {pod: --all},"), "variables.pod", "it must be small letters"),
        (changed("id: 2,", "id: 2, variables: {namespace: A b},"), "variables.namespace", "at most 63 small letters"),
        (changed("id: 2,", "id: 2, name: --all,"), "brokers.nodes[1].name", "it must be 1 to 100 letters"),
        (changed("cluster: payments", "cluster: payments\ncluster: orders"), "line 3", "'cluster' stands there twice"),
        (changed("cluster: payments\n", ""), "inventory.yaml", "'cluster' is missing here"),
        (changed("    controller.quorum.voters: 3001@c1:9093,3002@c2:9093\n", ""), "brokers.settings", "neither"),
        (
            changed(
                "    controller.listener.names: CONTROLLER", "    ssl.key.password: x\n    controller.listener.names: C"
            ),
            "brokers.settings.ssl.key.password",
            "a password does not belong into an inventory",
        ),
        (
            changed("    controller.listener.names: C", "    plugin.vault.token: x\n    controller.listener.names: C"),
            "brokers.settings.plugin.vault.token",
            "Kafka has no such key, and what may be a password does not belong into an inventory",
        ),
        (changed("brokers:\n", "brokers:\n  roll: rack\n").replace(", rack: r2", ""), "broker-2", "has no rack"),
        (changed('"3.9.1"', '"4.1.0"'), "handover.release", "cannot join a quorum of this program"),
        (changed('"3.9.1"', "3.9"), "handover.release", "3.9 is not valid"),
        (changed("  nodes:\n    - {id: 3001", "  kind: stock\n  nodes:\n    - {id: 3001"), "handover", "Kafka's own"),
        ("cluster: [", "line 1", "it is no YAML"),
        ("!!python/object/apply:os.system [ls]", "", "it is no YAML"),
        ("[" * 5000, "", "it is no YAML"),
        ("#" * (BYTES_MAX + 1), "", "it is larger than"),
        ("", "inventory.yaml", "the file is empty"),
        ("cluster: payments", "inventory.yaml", "'access', 'controllers', 'brokers', 'executors' are missing here"),
        (changed("access: operator.properties", "access:"), "access", "nothing stands here: it must be text"),
        (changed("rack: r2", "rack: 2"), "brokers.nodes[1].rack", "2 is not valid: it must be text; put it"),
        (changed("rack: r2", 'rack: "a\\nb"'), "rack", "it must be 1 to 1000 characters on one line"),
        (changed("variables: {unit", "variables: {Unit"), "variables", "'Unit' is not a name that may stand here"),
        (changed("variables: {unit", "variables: {1: a, unit"), "line 16", "the key 1 is not text"),
        (changed("preset: ssh-systemd", "commands: {sotp: a}, preset: x"), "commands", "'sotp' is not one of read"),
        (changed("cluster: payments", "cluster: payments\ngates: {seconds: 0}"), "gates.seconds", "more than 0"),
        *(
            (changed("cluster: p", f"gates: {{seconds: {n}}}\ncluster: p"), "line 2", "no number")
            for n in (".inf", ".nan")
        ),
        (changed("cluster: p", "gates: {seconds: 1.0e+300}\ncluster: p"), "gates.seconds", "31536000"),
        *(
            (
                changed("    controller.listener.names: C", f"    {key}: x\n    controller.listener.names: C"),
                f"brokers.settings.{key}",
                "the rollout itself sets and removes this key",
            )
            for key in ("process.roles", "zookeeper.connect", "zookeeper.metadata.migration.enable", "node.id")
        ),
        (changed("3002@c2:9093", "3009@c2:9093"), "controller.quorum.voters", "no controller with the id '3009'"),
        (changed("variables: {unit", "variables: {password: x, unit"), "executors.default", "password is a secret"),
        (changed("id: 2,", "id: 2, variables: {vault_token: x},"), "broker-2", "vault_token is a secret"),
    ],
)
def test_a_bad_one_says_where_and_what(text: str, where: str, what: str) -> None:
    with pytest.raises(OperatorError) as raised:
        parse_inventory(text, "inventory.yaml")
    assert where in raised.value.where
    assert what in raised.value.what
    assert raised.value.remedy


@pytest.mark.parametrize("path", ["~/payments", "'~'", "$HOME/payments", "'/srv/${USER}/payments'", '"a\\nb"'])
@pytest.mark.parametrize("key", ["access", "state"])
def test_a_path_is_written_out(key: str, path: str) -> None:
    """A shell would replace these; here they made directories of that name."""
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key}:")]
    with pytest.raises(OperatorError) as raised:
        parse_inventory("\n".join([f"{key}: {path}", *lines]), "inventory.yaml")
    assert raised.value.where == f"inventory.yaml: {key}"
    assert "it must be a path that is written out, on one line: no shell reads it" in raised.value.what


@pytest.mark.parametrize("path", ["/srv/a~b", "./~old", "../x y/operator.properties"])
def test_other_paths_are_taken(path: str) -> None:
    assert parse_inventory(f"state: {path}\n{GOOD}", "inventory.yaml").state == path


def test_an_inventory_that_is_too_large_is_not_read_in_part(tmp_path: Path) -> None:
    """Its size counts in bytes: of fewer characters, the last brokers would be missing without a word."""
    file = tmp_path / "inventory.yaml"
    file.write_text(GOOD + "#" + "ü" * (BYTES_MAX // 2 + 1), encoding="utf-8")
    with pytest.raises(OperatorError, match="it is larger than"):
        site_of(file)


@pytest.mark.parametrize("rack", ["Räck №1, süd=1", "/dc1/r1", "us east 1", "r" * 255])
def test_a_rack_that_kafka_takes_is_taken(rack: str) -> None:
    assert parse_inventory(changed("rack: r2", f'rack: "{rack}"'), "inventory.yaml").brokers.nodes[1].rack == rack


def test_a_variable_may_say_where_a_secret_is() -> None:
    parse_inventory(changed("variables: {unit", "variables: {password_file: /etc/p, unit"), "inventory.yaml")


def test_keys_may_be_merged() -> None:
    """Also into a node that is merged itself, and where both say a key."""
    text = changed("- {id: 1, host: b1,", "- &one {id: 1, host: b1,").replace(
        "- {id: 2, host: b2, properties: /etc/kafka/server.properties, rack: r2}",
        "- &two {<<: *one, id: 2, host: b2}\n    - {id: 3, <<: [*two, *one], host: b3}",
    )
    brokers = parse_inventory(text, "inventory.yaml").brokers.nodes
    assert [(node.name, node.host, node.rack) for node in brokers] == [
        ("broker-1", "b1", "r1"),
        ("broker-2", "b2", "r1"),
        ("broker-3", "b3", "r1"),
    ]


MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 99)}]}}\n" for n in range(1, 9))
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
MANY_NODES = (
    "x: &v {"
    + ", ".join(f"v{n}: a" for n in range(5000))
    + "}\n"
    + GOOD.replace("executors:", "    - {id: 3, properties: /f, variables: *v}\n" * 1000 + "executors:")
)
"""Each of a thousand nodes has the same variables."""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MERGES, "line 4"),
        (f"{BOMB}b: *a9\n", "line 7"),
        (f"{BOMB}? *a9\n: 1\n", "line 7"),
        (f"{BOMB}b: {{[*a9]: 1}}\n", "line 7"),
        ("a: &a [*a]", "line 1"),
        ("a: &a\n  b: *a", "line 1"),
        ("a: &a {<<: *a}", "line 1"),
        ("? &a [*a]\n: 1", "line 1"),
        (MANY_NODES, "line 14"),
    ],
    ids=["merges", "bomb", "bomb as a key", "bomb in a key", "in itself", "block in itself", "merge", "key", "nodes"],
)
def test_what_is_short_to_write_and_long_to_read_is_refused(text: str, line: str) -> None:
    with pytest.raises(OperatorError, match="more than 1000000 values stand here") as raised:
        parse_inventory(text, "inventory.yaml")
    assert raised.value.where == f"inventory.yaml: {line}"
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("key", ["[a, b]", "{a: b}", "!!set {a, b}", "&a [*b]"])
def test_a_key_that_is_no_text_is_named_without_what_it_holds(key: str) -> None:
    with pytest.raises(OperatorError, match="a list or a block stands in the place of a key") as raised:
        parse_inventory(f"x: &b {'s' * 1000}\n? {key}\n: 1\n", "inventory.yaml")
    assert (raised.value.where, "sss" in str(raised.value)) == ("inventory.yaml: line 2", False)


@pytest.mark.parametrize(
    "number",
    [
        *("0x1F", "0b11", "010", "1_000", "1:30", "+0x1", "1" * 21, "0x" + "f" * 5000, "1" * 5000),
        "1" + ":59" * 100_000,
        *("!!int a", "!!int ''", "!!int 1.0"),
    ],
    ids=lambda text: text[:8],
)
def test_a_whole_number_is_written_in_digits(number: str) -> None:
    """``0x1F`` may be meant; ``010`` is eight for YAML, and ``1:30`` is ninety. Some take minutes to read."""
    with pytest.raises(OperatorError, match="is not how a whole number is written here") as raised:
        parse_inventory(changed("id: 2,", f"id: {number},"), "inventory.yaml")
    assert raised.value.where == "inventory.yaml: line 14"
    assert len(raised.value.what) < 200


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *((text, "no number") for text in ("1" + ":59" * 100_000 + ".0", "1:30.5", "!!float x", "1.0e+999", "1_0.0")),
        ("0." + "1" * 100_000, "no number"),
        ("!!bool perhaps", "neither true nor false"),
        *((text, "read as a date") for text in ("2026-11-26", "2026-99-99", "!!timestamp x")),
        ("!!binary ü", "it is no YAML"),
        ("!!set {a, b}", "what stands here is not valid: it must be a number"),
        ("*" + "a" * 100_000, "it is no YAML: found undefined alias"),
    ],
    ids=lambda text: text[:12],
)
def test_a_value_that_nobody_means_is_told_in_a_sentence(value: str, said: str) -> None:
    with pytest.raises(OperatorError) as raised:
        parse_inventory(changed("cluster: p", f"gates: {{seconds: {value}}}\ncluster: p"), "inventory.yaml")
    assert said in raised.value.what
    assert len(raised.value.what) < 300


@pytest.mark.parametrize("number", ["2", "2.0", "+2", "0.2e+1"])
def test_a_node_id_is_a_whole_number_however_it_is_written(number: str) -> None:
    broker = parse_inventory(changed("id: 2,", f"id: {number},"), "inventory.yaml").brokers.nodes[1]
    assert (repr(broker.node_id), broker.name) == ("2", "broker-2")


def test_one_merge_in_one_block(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="'<<' stands there twice"):
        parse_inventory("a: &a {k: 1}\nb: {<<: *a, <<: *a}", "inventory.yaml")
    file = tmp_path / "inventory.yaml"
    file.write_bytes(b"cluster: a\naccess: \xe4\n")
    with pytest.raises(OperatorError, match=r"line 2: the inventory is not in UTF-8\. Save it as UTF-8"):
        site_of(file)


def test_the_commented_example_is_valid_and_shows_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    parse_inventory(text, str(EXAMPLE))
    assert keys_of(json.loads(schema_text())) <= set(text.replace(":", " ").replace("{", " ").replace("#", " ").split())


def keys_of(schema: dict[str, Any]) -> set[str]:
    """Names of all properties that the schema knows."""
    parts = [schema, *schema["definitions"].values()]
    found: set[str] = set()
    while parts:
        properties = parts.pop().get("properties", {})
        found |= set(properties)
        parts += properties.values()
    return found
