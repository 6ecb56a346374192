"""`migrator format` and `rehearse` without -r: the metadata.version is the brokers' own, or they say why it is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.cli.format import command
from migrator.cli.rehearse import command as rehearse
from migrator.config.keys import IBP
from migrator.controller.activation import bootstrap_level
from migrator.errors import OperatorError
from migrator.log.bootstrap import read_bootstrap
from migrator.parts.processes import free_port
from migrator.preflight.protocol_versions import KINDS_MAX, Said, version_of_brokers
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.records.versions import LATEST_SUPPORTED, VERSIONS, MinLevel, parse_version, version_at
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import API_VERSIONS, DESCRIBE_CONFIGS, VersionRange, build, response_type
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.cli.test_format import patience
from tests.conftest import ZooKeeperSpace
from tests.preflight.support.listening import listening

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


class Broker:
    """Answers for its own settings, as a broker does: None for settings without the key, an error for a refusal."""

    def __init__(self, broker_id: int, says: str | ErrorCode | None) -> None:
        self.name = str(broker_id)
        self.says = says

    async def handle(self, context: RequestContext, body: Any) -> Any:
        (resource,) = body.resources
        assert (resource.resource_name, tuple(resource.configuration_keys)) == (self.name, (IBP,))
        refused = isinstance(self.says, ErrorCode)
        configs = () if refused or self.says is None else ({"name": IBP, "value": self.says},)
        result = {
            "error_code": self.says if refused else ErrorCode.none,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": configs,
        }
        return build(response_type(DESCRIBE_CONFIGS, context.api_version), results=(result,))


class Cluster:
    """Brokers that are registered below a chroot of ZooKeeper, and the directory of a controller to be."""

    def __init__(self, client: KazooClient, hosts: str, directory: Path, stack: ExitStack) -> None:
        self._client = client
        self._stack = stack
        self.hosts = hosts
        self.metadata, self.other, self.file = directory / "metadata", directory / "other", directory / "c.properties"
        client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER), makepath=True)

    def add(self, broker_id: int, says: str | ErrorCode | None) -> None:
        apis = {API_VERSIONS: VersionRange(0, 4), DESCRIBE_CONFIGS: VersionRange(0, 4)}
        self.register(broker_id, self._stack.enter_context(listening(Broker(broker_id, says), apis)))

    def register(self, broker_id: int, port: int, listener: str = "PLAINTEXT") -> None:
        at = (Endpoint(listener, "127.0.0.1", port, SecurityProtocol.PLAINTEXT),)
        self.put(broker_id, encode_broker(BrokerRegistrationZnode(5, at, "127.0.0.1", port, -1, 1)))

    def put(self, broker_id: int, data: bytes) -> None:
        self._client.create(paths.broker(broker_id), data, makepath=True)

    def format(self, *more: str, zookeeper: str | None = None, **changes: str) -> Result:
        lines = {
            "process.roles": "controller", "node.id": "3001", "controller.quorum.voters": "3001@localhost:9093",
            "controller.listener.names": "CONTROLLER", "listeners": "CONTROLLER://localhost:9093",
            "log.dirs": f"{self.metadata},{self.other}", "inter.broker.listener.name": "PLAINTEXT",
            "zookeeper.connect": zookeeper or self.hosts, "zookeeper.metadata.migration.enable": "true",
            "zookeeper.connection.timeout.ms": patience(zookeeper or self.hosts),
        } | {key.replace("_", "."): text for key, text in changes.items()}  # fmt: skip
        self.file.write_text("".join(f"{key}={text}\n" for key, text in lines.items() if text))
        return CliRunner().invoke(command, ["-c", str(self.file), *more], standalone_mode=False)

    def rehearse(self, *more: str) -> dict[str, Any]:
        """The report of a rehearsal with the file of the last format."""
        options = ("--json", "--no-spark", "--kafka", "none")
        done = CliRunner().invoke(rehearse, ["-c", str(self.file), *options, *more])
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def level(self) -> int | None:
        """That the metadata directory was formatted with."""
        found = read_bootstrap(self.metadata) if self.metadata.is_dir() else None
        return None if found is None else bootstrap_level(found)

    def refused(self, *more: str, **changes: str) -> str:
        done = self.format(*more, **changes)
        assert isinstance(done.exception, OperatorError), done.output
        assert not done.output
        assert self.level() is None
        assert not self.metadata.exists()
        assert "-r VERSION" in done.exception.remedy
        return str(done.exception)


@pytest.fixture
def cluster(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(zookeeper_client, zookeeper.hosts, tmp_path, stack)


@pytest.mark.parametrize(("says", "name"), [(("3.8-IV0", "3.8"), "3.8-IV0"), (("3.6-IV2",), "3.6-IV2")])
def test_the_version_is_the_brokers(cluster: Cluster, says: tuple[str, ...], name: str) -> None:
    for broker_id, text in enumerate(says, 1):
        cluster.add(broker_id, text)
    done = cluster.format()
    assert done.exit_code == 0, done.exception
    assert cluster.level() == parse_version(name).level
    brokers = "2 brokers" if len(says) == 2 else "1 broker"
    assert f"The metadata.version is {name}, the {IBP} of {brokers}\n" in done.output
    assert f"Formatted {cluster.metadata} for node 3001 with metadata.version {name}\n" in done.output


@pytest.mark.parametrize(
    "first", [("--standalone",), ("--initial-controllers", "3001@localhost:9093:JEXY6aqzQY-32P5TStzaFg")]
)
@pytest.mark.parametrize("typed", [(), ("-r", "3.8")])
def test_voters_in_the_log_need_brokers_of_3_9(
    cluster: Cluster, first: tuple[str, ...], typed: tuple[str, ...]
) -> None:
    """A later version alone would not help: these brokers could not register."""
    cluster.add(1, "3.8")
    dynamic = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "localhost:9093"}
    error = cluster.format(*first, *typed, **dynamic).exception
    assert isinstance(error, OperatorError)
    assert error.where == ("--release-version" if typed else f"the {IBP} of 1 broker")
    assert error.what == "voters in the log (kraft.version 1) need metadata.version 3.9-IV0, not 3.8-IV0"
    assert error.remedy == (
        f"Set {IBP}=3.9 on all brokers first, and restart them; or name the voters in controller.quorum.voters"
    )
    assert not cluster.metadata.exists()
    off = {"zookeeper_metadata_migration_enable": "false"}
    error = cluster.format(*first, "-r", "3.8", **dynamic, **off).exception
    assert isinstance(error, OperatorError)
    assert error.remedy == "Choose a later one; or name the voters in controller.quorum.voters"


def test_brokers_that_differ_are_told_apart(cluster: Cluster) -> None:
    for broker_id, says in enumerate(("3.8", "3.6-IV2", "3.8-IV0"), 1):
        cluster.add(broker_id, says)
    text = cluster.refused()
    assert text.startswith(f"{IBP}: the brokers differ: broker 1: 3.8; broker 2: 3.6-IV2; broker 3: 3.8-IV0")
    assert cluster.format("-r", "3.8").exit_code == 0
    assert cluster.level() == parse_version("3.8").level


def test_a_broker_that_does_not_say_it_is_named_with_its_reason(cluster: Cluster) -> None:
    cluster.add(1, "3.8")
    cluster.register(2, free_port())
    cluster.add(3, ErrorCode.cluster_authorization_failed)
    cluster.add(4, None)
    cluster.register(5, free_port(), listener="OTHER")
    cluster.put(6, b"{")
    text = cluster.refused()
    assert text.startswith(f"{IBP}: brokers 2-6 did not say it: broker 1: 3.8; broker 2: no connection to 127.0.0.1:")
    assert "broker 3: it answers DescribeConfigs with cluster_authorization_failed" in text
    assert f"broker 4: it does not say its {IBP}" in text
    assert "broker 5: it has no listener PLAINTEXT" in text
    assert f"broker 6: {paths.broker(6)}: " in text


@pytest.mark.parametrize("says", ["3.5", "3.3-IV3", "2.8-IV1", "4.0-IV3"])
def test_brokers_that_cannot_migrate_are_refused(cluster: Cluster, says: str) -> None:
    cluster.add(1, says)
    text = cluster.refused()
    assert f"broker 1: {says}" in text
    assert "3.6" in text


def test_no_broker_and_no_zookeeper_are_said(cluster: Cluster) -> None:
    assert f"{paths.BROKER_IDS}: no broker is registered" in cluster.refused()
    away = f"127.0.0.1:{free_port()}"
    assert f"the brokers cannot be asked for their {IBP}" in cluster.refused("-t", CLUSTER, zookeeper=away)


def test_who_knows_the_version_asks_nobody(cluster: Cluster) -> None:
    """No broker is registered, so asking would be refused."""
    dynamic = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "localhost:9093"}
    done = cluster.format("--no-initial-controllers", **dynamic)
    assert done.exit_code == 0, done.exception
    assert f"The metadata.version is {version_at(LATEST_SUPPORTED).name}, the newest" in done.output


def test_without_a_migration_it_is_the_newest(cluster: Cluster) -> None:
    done = cluster.format(zookeeper_metadata_migration_enable="false")
    assert done.exit_code == 0, done.exception
    assert cluster.level() == LATEST_SUPPORTED
    assert "The metadata.version is 3.9-IV0, the newest that this program has: zookeeper.metadata.mig" in done.output


@pytest.mark.parametrize("typed", [(), ("-t", CLUSTER)])
def test_a_formatted_directory_needs_no_zookeeper(cluster: Cluster, typed: tuple[str, ...]) -> None:
    assert cluster.format("-r", "3.7").exit_code == 0
    away = f"127.0.0.1:{free_port()}"
    done = cluster.format(*typed, "--ignore-formatted", zookeeper=away)
    assert done.exit_code == 0, done.exception
    assert "already formatted" in done.output
    assert "metadata.version" not in done.output
    assert f"cluster id {CLUSTER} is not compared with ZooKeeper: {away}" in done.stderr
    assert cluster.level() == parse_version("3.7").level
    (cluster.other / "meta.properties").unlink()
    done = cluster.format(*typed, "--ignore-formatted", zookeeper=away)
    assert f"Formatted {cluster.other} for node 3001\n" in done.output, "the version of another directory is not known"


def test_a_directory_that_is_formatted_is_refused_before_anybody_is_asked(cluster: Cluster) -> None:
    assert cluster.format("-r", "3.7").exit_code == 0
    assert "already formatted" in str(cluster.format().exception)


@pytest.mark.lane("test-all")
def test_a_rehearsal_takes_what_a_format_would_take(cluster: Cluster) -> None:
    """Also with a file that does not have the migration on yet: it is one that is rehearsed."""
    for broker_id in (1, 2):
        cluster.add(broker_id, "3.7")
    assert cluster.format("-r", "3.6").exit_code == 0
    found = cluster.rehearse()
    assert found["metadata_version"] == parse_version("3.6").name
    assert found["metadata_version_from"] == f"that of the formatted directory {cluster.metadata}"
    shutil.rmtree(cluster.metadata)
    cluster.file.write_text(cluster.file.read_text().replace("migration.enable=true", "migration.enable=false"))
    found = cluster.rehearse()
    assert (found["metadata_version"], found["metadata_version_from"]) == ("3.7-IV4", f"the {IBP} of 2 brokers")
    found = cluster.rehearse("-r", "3.8")
    assert (found["metadata_version"], found["metadata_version_from"]) == ("3.8-IV0", "--release-version")


def test_a_rehearsal_goes_on_where_a_format_would_be_refused(cluster: Cluster) -> None:
    cluster.add(1, "3.8")
    cluster.add(2, "3.7")
    cluster.refused()
    found = cluster.rehearse()
    assert found["metadata_version"] == version_at(LATEST_SUPPORTED).name
    assert found["metadata_version_from"] == (
        f"the newest that this program has, because the brokers give none: {IBP}: the brokers differ: "
        "broker 1: 3.8; broker 2: 3.7"
    )


ANSWERS: Callable[[], st.SearchStrategy[Said]] = lambda: st.one_of(  # noqa: E731
    st.sampled_from(VERSIONS).map(lambda it: Said(it.name)), st.builds(Said, fault=st.text("abc", min_size=1))
)


@given(said=st.dictionaries(st.integers(0, 5000), ANSWERS(), max_size=60))
def test_the_version_is_one_that_every_broker_said(said: dict[int, Said]) -> None:
    names = {it.text for it in said.values()}
    levels = [it.level for it in VERSIONS if names == {it.name}]
    if levels and MinLevel.TRANSACTIONS <= levels[0] <= LATEST_SUPPORTED:
        assert version_of_brokers(said).level == levels[0]
        return
    with pytest.raises(OperatorError, match="-r VERSION") as refused:
        version_of_brokers(said)
    assert len(refused.value.what.split("; ")) <= KINDS_MAX + 1


def test_an_answer_without_end_is_told_in_part() -> None:
    with pytest.raises(OperatorError, match=f"{IBP}: a migration cannot begin with it: broker 1: 9999") as refused:
        version_of_brokers({1: Said("9" * 1_000_000)})
    assert len(str(refused.value)) < 1000
