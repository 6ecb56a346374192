"""The metadata log of an earlier attempt on a broker does not meet the next quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.files.old_metadata_log import OldLogError
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError, FileChangedError, HostUnreachableError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
LOG = f"/data/{BROKER}/__cluster_metadata-0"
SEGMENT = (BROKER, f"{LOG}/00000000000000000000.log")
PARTITION = (BROKER, f"/data/{BROKER}/orders-0/00000000000000000000.log")
IDENTITY = (BROKER, f"/data/{BROKER}/meta.properties")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """A broker has the log of an earlier attempt."""
    (tmp_path / "state").mkdir()
    cluster = ModelCluster(model_inventory())
    cluster.files |= {SEGMENT: b"old", PARTITION: b"data", IDENTITY: b"version=0\nbroker.id=2\n"}
    return Operator(cluster, tmp_path / "state")


def test_it_is_gone_before_the_broker_is_stopped(operator: Operator) -> None:
    left: list[bool] = []

    def looks(where: str) -> None:
        if where == f"before stop {BROKER}":
            left.append(SEGMENT in operator.cluster.files)

    operator.cluster.points.at = looks
    operator.resume_until(Phase.MIGRATE)
    assert left == [False]
    assert {PARTITION, IDENTITY} <= operator.cluster.files.keys()
    assert any(LOG in line for line in operator.said)
    removed = [words[-1] for words in operator.cluster.commands if words[0] == "rm" and "preflight" not in words[-1]]
    assert removed == [LOG]


def test_it_is_taken_from_another_directory_where_the_file_names_one(operator: Operator) -> None:
    key = BROKER, "/etc/b2.properties"
    operator.cluster.files[key] += b"metadata.log.dir=/fast\n"
    fast = BROKER, "/fast/__cluster_metadata-0/00000000000000000000.log"
    operator.cluster.files[fast] = b"old"
    operator.resume_until(Phase.MIGRATE)
    assert fast not in operator.cluster.files


def test_what_belongs_to_another_node_stays(operator: Operator) -> None:
    operator.cluster.files[IDENTITY] = b"version=1\nnode.id=3001\n"
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files
    assert any("belongs to node 3001" in line for line in operator.said)


def test_a_broker_that_has_the_log_open_keeps_it(operator: Operator) -> None:
    """An operator has restarted it in migration mode: its log may be that of this quorum."""
    operator.apply(StopAt(Phase.START))
    key = BROKER, "/etc/b2.properties"
    operator.cluster.files[key] += b"zookeeper.metadata.migration.enable=true\n"
    operator.cluster.start_as_configured(operator.node(BROKER))
    assert operator.cluster.modes()[BROKER] is BrokerMode.MIGRATING
    with pytest.raises(FileChangedError):
        operator.resume()
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files


def test_where_it_stays_the_broker_is_not_stopped(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.cluster.exit_codes["rm"] = 1
    with pytest.raises(OldLogError, match="cannot be removed") as raised:
        operator.resume()
    assert LOG in raised.value.where
    assert operator.cluster.restarts[BROKER] == 1
    operator.cluster.exit_codes.clear()
    assert operator.resume() is Ending.COMPLETE


REFUSED = ExecutorError("the command to read it ended with exit code 1: permission denied", where=BROKER)


def cannot_be_seen(operator: Operator, release: str) -> None:
    """The rule of sudo has neither sh nor ls; or the host has none of them; or the pod may not be entered."""
    operator.cluster.release = release
    operator.cluster.unreadable[LOG] = REFUSED
    operator.cluster.exit_codes["ls"] = 1


@pytest.mark.parametrize("release", ["3.6", "3.7", ""])
def test_where_it_is_unknown_whether_it_is_there_the_broker_is_not_stopped(operator: Operator, release: str) -> None:
    cannot_be_seen(operator, release)
    with pytest.raises(OldLogError, match=r"it is unknown whether.*permission denied") as raised:
        operator.resume_until(Phase.MIGRATE)
    assert LOG in raised.value.where
    assert "docs/rollout-executors.md" in raised.value.remedy
    assert operator.entries[-1].event is Event.FAILED
    assert operator.cluster.restarts[BROKER] == 1
    operator.cluster.unreadable.clear()
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT not in operator.cluster.files


def test_a_release_that_deletes_it_itself_is_not_held_up(operator: Operator) -> None:
    cannot_be_seen(operator, "3.8.1")
    operator.resume_until(Phase.MIGRATE)
    assert any(f"{LOG} could not be looked at" in line and "3.8.1 deletes" in line for line in operator.said)


def test_a_broker_that_runs_in_migration_mode_is_not_held_up(operator: Operator) -> None:
    """Its log is that of this quorum."""
    operator.resume_until(Phase.START)
    cannot_be_seen(operator, "3.6")
    operator.cluster.files[BROKER, "/etc/b2.properties"] += b"zookeeper.metadata.migration.enable=true\n"
    operator.cluster.start_as_configured(operator.node(BROKER))
    with pytest.raises(FileChangedError):
        operator.resume()
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files


def test_what_sh_may_not_see_the_user_of_the_service_may(operator: Operator) -> None:
    operator.cluster.release = "3.6"
    operator.cluster.unreadable[LOG] = REFUSED
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT not in operator.cluster.files


def test_it_is_not_there_where_the_directory_above_can_be_looked_into(operator: Operator) -> None:
    cannot_be_seen(operator, "3.6")
    del operator.cluster.files[SEGMENT], operator.cluster.exit_codes["ls"]
    operator.resume_until(Phase.MIGRATE)
    assert operator.cluster.restarts[BROKER] == 2


@pytest.mark.parametrize("line", [b"log.dirs=${env:LOGS}\n", b"metadata.log.dir=${file:/etc/dirs:metadata}\n"])
def test_a_directory_that_only_the_broker_knows_is_not_one_without_a_log(operator: Operator, line: bytes) -> None:
    operator.cluster.release = "3.6"
    operator.cluster.files[BROKER, "/etc/b2.properties"] += line
    with pytest.raises(OldLogError, match=r"it is unknown whether.*no absolute path") as raised:
        operator.resume_until(Phase.MIGRATE)
    assert "write the path itself" in raised.value.remedy


@pytest.mark.parametrize("breaks", ["incarnation", "rm"])
def test_a_log_that_is_there_is_not_left_because_a_connection_breaks(operator: Operator, breaks: str) -> None:
    operator.resume_until(Phase.START)
    operator.cluster.crash(operator.node(BROKER))
    found: list[str] = []

    def fails(action: str, node: Node) -> None:
        if node.name == BROKER and action == breaks and found:
            raise HostUnreachableError("the connection broke", where=BROKER)

    read = operator.cluster.read

    async def looks(node: Node, path: str) -> bytes | None:
        if path == LOG:
            found.append(path)
        return await read(node, path)

    operator.cluster.fault = fails
    operator.cluster.read = looks  # type: ignore[method-assign]
    with pytest.raises(HostUnreachableError):
        operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files
    operator.cluster.fault = nothing
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT not in operator.cluster.files


def removed(operator: Operator) -> list[str]:
    return [words[-1] for words in operator.cluster.commands if words[0] == "rm" and "preflight" not in words[-1]]


def test_the_journal_names_it_before_it_is_deleted(operator: Operator) -> None:
    operator.resume_until(Phase.START)
    noted: list[bool] = []

    def looks(where: str) -> None:
        if where == f"before rm {BROKER}":
            noted.append(operator.entries[-1].event is Event.REMOVES)

    operator.cluster.points.at = looks
    operator.resume_until(Phase.MIGRATE)
    assert noted == [True]
    (entry,) = (entry for entry in operator.entries if entry.event is Event.REMOVES)
    assert (entry.step, entry.details) == (f"migrate/{BROKER}", {"node": BROKER, "path": LOG})


def test_where_nothing_was_done_it_is_there(operator: Operator) -> None:
    """An operator has changed the broker's file since the rollout looked at it."""
    operator.resume_until(Phase.START)
    operator.cluster.files[BROKER, "/etc/b2.properties"] += b"num.io.threads=16\n"
    with pytest.raises(FileChangedError, match="nothing was done"):
        operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files
    assert not removed(operator)


def test_a_broker_in_kraft_mode_that_is_down_keeps_its_log(operator: Operator, tmp_path: Path) -> None:
    """The journal is lost, and the rollout begins anew: this may be the last copy of the metadata."""
    operator.resume_until(Phase.KRAFT)
    operator.cluster.files[SEGMENT] = b"the metadata"
    operator.cluster.crash(operator.node(BROKER))
    anew = operator.copy(tmp_path / "anew")
    (anew.state / COMMAND_FILE).unlink()
    anew.lock.owner = None
    anew.resume_until(Phase.KRAFT)
    assert SEGMENT in anew.cluster.files
    assert not [path for path in removed(anew)[len(removed(operator)) :] if path == LOG]
