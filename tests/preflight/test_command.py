"""`migrator preflight` as an operator runs it: exit codes, JSON, what it must not do, and its page in the docs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from migrator.cli.main import migrator
from migrator.drill.cluster import ENCODER_SECRET, TOKEN_SECRET
from migrator.parts.processes import free_port
from tests.preflight.support import cases_of_files, cases_of_zookeeper
from tests.preflight.support.ready_cluster import ReadyCluster

ALWAYS = ["M322", "M322", *(["M508"] if os.geteuid() == 0 else [])]
"""Two doors of the cluster are open, and what root makes belongs to root."""


def run(cluster: ReadyCluster, *options: str) -> Result:
    """The command with the files of the cluster."""
    request = cluster.request()
    words = [word for path in request.controllers for word in ("-c", str(path))]
    brokers = [str(path) for path in request.brokers]
    return CliRunner().invoke(
        migrator, ["preflight", *words, "--brokers", *brokers, "--zookeeper", cluster.hosts, *options]
    )


def test_a_cluster_that_is_ready_passes(cluster: ReadyCluster) -> None:
    result = run(cluster)
    assert result.exit_code == 0, result.output
    assert f"0 blockers, {len(ALWAYS)} warnings, 0 could not be examined" in result.stdout
    assert "5 partitions" in result.stdout


def test_warnings_alone_pass(cluster: ReadyCluster) -> None:
    cases_of_zookeeper.deletion(cluster)
    result = run(cluster)
    assert result.exit_code == 0, result.output
    assert "WARNING M014" in result.stdout


def test_a_blocker_is_shown_with_its_place_and_its_remedy(cluster: ReadyCluster) -> None:
    cases_of_zookeeper.topic_without_id(cluster)
    result = run(cluster)
    assert result.exit_code == 1, result.output
    assert "BLOCKER M002" in result.stdout
    assert "/brokers/topics/UPPER.lower: 1 topics have no topic id" in result.stdout
    assert "inter.broker.protocol.version 2.8 or later" in result.stdout


def test_json(cluster: ReadyCluster) -> None:
    cases_of_zookeeper.topic_without_id(cluster)
    cases_of_zookeeper.deletion(cluster)
    result = run(cluster, "--json")
    assert result.exit_code == 1, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert set(report) == {
        *("exit_code", "checks", "blockers", "warnings", "findings", "unknown", "looked_at", "seconds"),
    }
    assert (report["exit_code"], report["blockers"], report["warnings"], report["unknown"]) == (
        1,
        1,
        1 + len(ALWAYS),
        [],
    )
    assert [finding["code"] for finding in report["findings"]] == ["M002", "M014", *ALWAYS]
    texts = ("code", "severity", "title", "concerns", "phase", "what", "remedy")
    for finding in report["findings"]:
        assert set(finding) == {*texts, "hosts", "where", "asks"}
        assert all(isinstance(finding[name], str) and finding[name] for name in texts)
        assert finding["where"]
    looked_at = report["looked_at"]
    assert (looked_at["partitions"], looked_at["controller_files"], looked_at["broker_files"]) == (3, 1, 3)


def test_what_many_have_in_common_is_one_finding(cluster: ReadyCluster) -> None:
    """Three brokers, two controllers, two defaults: two findings, not twelve."""
    cluster.second_controller()
    for broker in cluster.brokers:
        broker |= {"num.partitions": "3", "min.insync.replicas": "2"}
    found = [finding for finding in json.loads(run(cluster, "--json").stdout)["findings"] if finding["code"] == "M115"]
    assert [finding["what"] for finding in found] == [
        "num.partitions is 1 on controllers, 3 on brokers",
        "min.insync.replicas is 1 on controllers, 2 on brokers",
    ]
    for finding in found:
        assert finding["hosts"] == ["broker 1", "broker 2", "broker 3", "controller 3001", "controller 3002"]
        assert [Path(place).name.partition(".")[0] for place in finding["where"]] == ["controller-0", "controller-1"]
    shown = run(cluster).stdout
    assert shown.count("M115") == 1
    assert "    brokers 1-3, controllers 3001, 3002: num.partitions is 1 on controllers, 3 on brokers\n" in shown
    assert shown.count("Copy the brokers' value to the controllers") == 1


def test_what_several_files_lack_is_named_first(cluster: ReadyCluster) -> None:
    second = cluster.second_controller()
    for properties in (cluster.controllers[0], second):
        properties.pop("password.encoder.secret", None)
        properties.pop("delegation.token.secret.key", None)
    for broker in cluster.brokers[:2]:
        broker["inter.broker.protocol.version"] = "3.3"
    shown = run(cluster).stdout
    assert "    password.encoder.secret: controllers 3001, 3002: the key is not set, so any encoded" in shown
    assert "    delegation.token.secret.key: controllers 3001, 3002: the key is not set, so delegation" in shown
    assert "    inter.broker.protocol.version: brokers 1, 2: each has 3.3: a migration needs" in shown
    files = [line for line in shown.splitlines() if line.startswith("      in ")]
    assert any(line.endswith("controller-1.properties") for line in files), "the key is said once"


@pytest.mark.parametrize("chroot", ["", "/kafak", "/other/place"])
def test_a_wrong_chroot_is_said_alone_with_the_right_one(cluster: ReadyCluster, chroot: str) -> None:
    """Above all nobody is told to delete what lies there, which is another one's."""
    cluster.register(1, port=free_port())
    cluster.brokers[1]["num.partitions"] = "7"
    server, right = cluster.hosts.partition("/")[::2]
    cluster.hosts = f"{server}{chroot}"
    result = run(cluster)
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines() == [
        "BLOCKER M007 No Kafka cluster in this ZooKeeper",
        f"    {server}{chroot}: no Kafka cluster is here: /cluster/id is missing",
        f"    Did you mean /{right}? A Kafka cluster is there: write {server}/{right}",
        "nothing else was checked",
        "1 blockers, 0 warnings, 0 could not be examined",
    ]


def test_what_concerns_only_the_others_is_left_out(cluster: ReadyCluster) -> None:
    cases_of_zookeeper.migration_without_data(cluster)
    cases_of_files.java_key_store(cluster)
    ours, stocks = run(cluster), run(cluster, "--controllers", "stock")
    assert (ours.exit_code, stocks.exit_code) == (1, 1)
    assert "M313" in ours.stdout
    assert "M004" not in ours.stdout
    assert "M004" in stocks.stdout
    assert "(stock controllers only)" in stocks.stdout
    assert "M313" not in stocks.stdout


def test_no_znode_changes(cluster: ReadyCluster) -> None:
    before = stats_of(cluster.client)
    assert run(cluster).exit_code == 0
    assert stats_of(cluster.client) == before


def test_no_secret_is_shown(cluster: ReadyCluster) -> None:
    """The cluster has every fault about secrets."""
    secrets = ("secret-of-one", "secret-of-two", ENCODER_SECRET, TOKEN_SECRET)
    cluster.controllers[0] |= {"password.encoder.secret": secrets[0], "delegation.token.secret.key": secrets[1]}
    result = run(cluster, "--json")
    assert {finding["code"] for finding in json.loads(result.stdout)["findings"]} >= {"M310", "M311"}
    assert not [secret for secret in secrets if secret in result.output]


def test_zookeeper_is_away(cluster: ReadyCluster) -> None:
    cluster.hosts = f"127.0.0.1:{free_port()}"
    for properties in (*cluster.controllers, *cluster.brokers):
        properties |= {"zookeeper.connect": cluster.hosts, "zookeeper.connection.timeout.ms": "500"}
    result = run(cluster)
    assert result.exit_code == 2, result.output
    assert f"COULD NOT TELL  {cluster.hosts}: no ZooKeeper server answered" in result.stdout


def test_a_file_that_is_no_property_file(cluster: ReadyCluster) -> None:
    words = ["-c", str(cluster.request().controllers[0]), "--zookeeper", cluster.hosts, "--brokers"]
    broken = cluster.directory / "broken.properties"
    broken.write_bytes(b"broker.id=\\u12\n")
    result = CliRunner().invoke(migrator, ["preflight", *words, str(broken)])
    assert result.exit_code == 2, result.output
    assert f"COULD NOT TELL  {broken}: the file cannot be read" in result.stdout


def test_files_in_the_wrong_place_are_not_judged(cluster: ReadyCluster) -> None:
    """A shell makes such a line of ``-c controller*.properties``."""
    controller = str(cluster.request().controllers[0])
    result = CliRunner().invoke(migrator, ["preflight", "-c", controller, controller, "--zookeeper", cluster.hosts])
    assert result.exit_code == 2
    assert "with -c" in result.output
    result = run(cluster, controller)
    assert result.exit_code == 2, result.output
    assert f"COULD NOT TELL  {controller}: it is a controller's file" in result.stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("migrator.metrics.listener=127.0.0.1:0\nmigrator.metrics.tls.certificate.file=/nosuch", "M324"),
        ("node.id=nobody", "M202"),
        ("ssl.keystore.location=/nosuch.p12", "M313"),
        ("password.encoder.secret=${file:/nosuch:it}\nconfig.providers=file", "M314"),
    ],
)
def test_here_finds_what_only_this_host_can_show(tmp_path: Path, line: str, code: str) -> None:
    """It needs no ZooKeeper. A rollout runs it on the host of each controller, where alone these files can be read."""
    controller = tmp_path / "controller.properties"
    port = free_port()
    controller.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:{port}\n"
        f"controller.listener.names=C\nlisteners=C://localhost:{port}\nlog.dirs={tmp_path}/data\n"
        f"listener.security.protocol.map=C:SSL\n{line}\n"
    )
    result = CliRunner().invoke(migrator, ["preflight", "-c", str(controller), "--here", "--json"])
    assert result.exit_code == 1, result.output
    assert {each["code"] for each in json.loads(result.stdout)["findings"]} >= {code}


def test_a_damaged_directory_is_not_a_pass(cluster: ReadyCluster) -> None:
    (Path(cluster.controllers[0]["log.dirs"]) / "meta.properties").write_text("version=7\n")
    report = cluster.report()
    assert report.exit_code == 2
    assert "meta.properties" in report.unknown[0].where


def stats_of(client: KazooClient, path: str = "/") -> dict[str, ZnodeStat]:
    """The Stat of every znode below the root: any write to one would show."""
    return dict(_walk(client, path))


def _walk(client: KazooClient, path: str) -> Iterator[tuple[str, ZnodeStat]]:
    names, stat = client.get_children(path, include_data=True)
    yield path, stat
    for name in names:
        yield from _walk(client, f"{path.rstrip('/')}/{name}")
