"""Mistakes of a person, and the rollout's messages: wrong files, a wrong address."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from migrator.cli.main import migrator
from migrator.cli.rollout_text import finish_question, status_lines
from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.parts.processes import free_port
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.engine.standing import standing_of
from migrator.rollout.files.examined import DIRECTORY, elsewhere, wanted
from migrator.rollout.gates.gatekeeper import GateShutError
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.summary import LastEqual, failure_of
from migrator.rollout.lock import places
from migrator.rollout.nodes import Node
from migrator.rollout.plan.jobs import tail
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError, FileChangedError, Output
from migrator.rollout.seeing import zookeeper as seeing
from migrator.zookeeper.clusters import NoClusterError
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import SECRET, model_inventory
from tests.rollout.support.runs import Operator

CONTROLLERS = [f"controller-{number}" for number in (3001, 3002, 3003)]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


def mend(operator: Operator, name: str) -> None:
    key = next(key for key in operator.cluster.files if key[0] == name and key[1].startswith("/etc/"))
    operator.cluster.files[key] += b"num.io.threads=16\n"


def test_a_file_that_was_mended_before_its_directory_was_formatted_is_the_new_base(operator: Operator) -> None:
    operator.cluster.exit_codes["format"] = 2
    with pytest.raises(JobFailedError):
        operator.apply()
    mend(operator, CONTROLLERS[0])
    operator.cluster.exit_codes.clear()
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.files[CONTROLLERS[0], "/etc/c3001.properties"].endswith(b"num.io.threads=16\n")


def test_a_mended_file_is_the_base_although_somebody_else_starts_the_controller(operator: Operator) -> None:
    operator.cluster.exit_codes["format"] = 2
    with pytest.raises(JobFailedError):
        operator.apply()
    mend(operator, CONTROLLERS[0])
    operator.cluster.exit_codes.clear()

    def starts(where: str) -> None:
        if where == "after done format/controller-3003 ":
            operator.cluster.start_as_configured(operator.cluster.inventory.controllers.nodes[0])

    operator.cluster.points.at = starts
    assert operator.resume() is Ending.COMPLETE
    begun = [(entry.step, entry.event) for entry in operator.entries if entry.act == "start"]
    assert (f"start/{CONTROLLERS[0]}", Event.FOUND) in begun


@pytest.mark.parametrize(("real", "typed"), [("stock", "migrator"), ("migrator", "stock")])
def test_controllers_of_another_kind_are_seen_before_anything_depends_on_it(
    tmp_path: Path, real: str, typed: str
) -> None:
    """A leader of Kafka's without the migration ends it: who is asked about the end must have been told so."""
    operator = Operator(ModelCluster(model_inventory(kind=real, handover=False)), tmp_path)
    other = model_inventory(kind=typed, handover=False)
    operator.inventory = other
    with pytest.raises(GateShutError, match=r"controller 3001: is .*controllers\.kind"):
        operator.apply()
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    operator.inventory = None
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    operator.inventory, files = other, dict(operator.cluster.files)
    with pytest.raises(GateShutError, match=r"finish/.*controllers\.kind"):
        operator.resume()
    assert operator.cluster.files == files
    operator.inventory = None
    assert operator.apply(StopAt(step="finish/controller-3002")) is Ending.PAUSED
    operator.inventory, files = other, dict(operator.cluster.files)
    with pytest.raises(GateShutError, match=r"migration-on/.*controllers\.kind"):
        operator.rollback()
    assert operator.cluster.files == files
    operator.inventory = None
    assert operator.resume() is Ending.COMPLETE


def test_a_file_that_was_mended_before_its_controller_was_started_is_the_new_base(operator: Operator) -> None:
    operator.apply(StopAt(Phase.FORMAT))
    mend(operator, CONTROLLERS[1])
    assert operator.resume() is Ending.COMPLETE


def test_a_file_that_was_mended_while_its_broker_did_not_come_back_is_the_new_base(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.cluster.old_settings.add("broker-2")
    with pytest.raises(OperatorError, match="broker-2: is registered in ZooKeeper, and not yet"):
        operator.resume()
    mend(operator, "broker-2")
    operator.cluster.start_as_configured(operator.node("broker-2"))
    assert operator.resume() is Ending.COMPLETE


def test_files_are_compared_before_the_question_and_not_after(operator: Operator) -> None:
    operator.apply(StopAt(Phase.VERIFY))
    mend(operator, CONTROLLERS[2])
    with pytest.raises(FileChangedError, match=CONTROLLERS[2]):
        operator.resume()
    assert not operator.asked
    assert operator.resume() is Ending.COMPLETE
    assert operator.asked == [(*CONTROLLERS[1:], CONTROLLERS[0])], "the leader is the last one"


def test_each_run_asks_again_until_the_last_controller_is_restarted(operator: Operator) -> None:
    operator.apply(StopAt(Phase.VERIFY))

    def breaks(where: str) -> None:
        if where == "before write controller-3003":
            raise OperatorError("the connection broke")

    operator.cluster.points.at = breaks
    with pytest.raises(OperatorError, match="the connection broke"):
        operator.resume()
    operator.cluster.points.at = nothing
    operator.confirms = False
    assert operator.resume() is Ending.NOT_CONFIRMED
    assert operator.cluster.state == "DualWrite"
    assert len(operator.asked) == 2
    assert "controller-3003" in operator.asked[1]
    operator.confirms = True
    assert operator.resume() is Ending.COMPLETE


def test_the_question_says_when_the_way_back_closes() -> None:
    ours = model_inventory()
    three, _ = finish_question(ours, CONTROLLERS, None, 0)
    assert "Until the last controller is restarted, 'migrator rollout rollback' returns" in three
    assert "Then Kafka's own controllers take over; with '--until Finished' the rollout stops before" in three
    last, asked = finish_question(ours, CONTROLLERS[-1:], LastEqual(1_000, 21_284), 41_000)
    assert asked == "ZooKeeper and the log were compared 40 s ago, and were equal: 21,284 rows. End the migration?"
    assert "Now controller-3003, the last controller," in last
    stock, _ = finish_question(model_inventory(kind="stock", handover=False), CONTROLLERS, None, 0)
    assert "as soon as one of Kafka's controllers leads" in stock


@pytest.mark.parametrize(
    ("rollout", "said"),
    [("", "do: 'migrator rollout resume' goes on"), ("another", "do: 'migrator rollout resume' is refused: another")],
)
def test_status_sends_nobody_to_a_resume_that_the_lock_refuses(operator: Operator, rollout: str, said: str) -> None:
    assert operator.apply(StopAt(Phase.FORMAT)) is Ending.REACHED
    holder = operator.lock.owner
    assert holder is not None
    holder = replace(holder, rollout=rollout or holder.rollout)
    standing = standing_of(operator.cluster.inventory, operator.entries, running=False, holder=holder)
    (line,) = [line for line in status_lines(standing) if line.startswith("do: ")]
    assert line.startswith(said)


def test_status_says_in_words_what_failed_and_where_the_output_is(operator: Operator) -> None:
    operator.cluster.exit_codes["format"] = 2
    with pytest.raises(JobFailedError) as raised:
        operator.apply()
    assert raised.value.remedy == "Do what it says, then 'migrator rollout resume'"
    failure = failure_of(operator.entries)
    assert failure is not None
    assert str(failure) == "format/controller-3001 (run): format ended with exit code 2, controller-3001 on localhost"
    assert failure.remedy == raised.value.remedy
    output = Path(failure.output)
    assert SECRET in output.read_text()
    assert output.stat().st_mode & 0o777 == 0o600
    assert SECRET not in (operator.state / COMMAND_FILE).read_text()


@pytest.mark.parametrize("action", ["stop", "start"])
def test_what_a_command_for_a_process_printed_is_in_a_file_and_nowhere_else(operator: Operator, action: str) -> None:
    def fault(found: str, node: Node) -> None:
        if (found, node.name) == (action, "broker-1"):
            error = ExecutorError(f"the command to {action} it ended with exit code 3", where="broker-1 on localhost")
            error.output = Output(3, "", f"{SECRET}\n")
            raise error

    operator.cluster.fault = fault
    with pytest.raises(ExecutorError, match="exit code 3"):
        operator.apply()
    failure = failure_of(operator.entries)
    assert failure is not None
    kept = Path(failure.output)
    assert (kept.name, kept.read_text()) == ("migrate-broker-1.txt", f"{SECRET}\n")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert any(str(kept) in line for line in operator.said)
    assert SECRET not in (operator.state / COMMAND_FILE).read_text() + "".join(operator.said)


def test_what_a_host_said_of_a_failure_is_not_kept(operator: Operator) -> None:
    def breaks(where: str) -> None:
        if where == "before write controller-3001":
            raise OperatorError(f"sh said {SECRET}")

    operator.cluster.points.at = breaks
    with pytest.raises(OperatorError):
        operator.apply()
    assert operator.entries[-1].event is Event.FAILED
    failure = failure_of(operator.entries)
    assert failure is not None
    assert str(failure) == "finish/controller-3001 (edit): the step failed"
    assert SECRET in Path(failure.output).read_text(), "this user reads there what it was"
    assert SECRET not in (operator.state / COMMAND_FILE).read_text()


def test_the_cause_that_a_command_gives_comes_last() -> None:
    errors = "WARN one\nmigrator: zk/kafak: no Kafka cluster is here. Did you mean /kafka?\nWARN two\nWARN three\n"
    assert tail(Output(2, "", errors))[-1].startswith("migrator: zk/kafak")


def test_preflight_gets_every_file_as_it_will_be_and_the_copies_are_gone_afterwards(operator: Operator) -> None:
    operator.cluster.exit_codes["rehearse"] = 1
    with pytest.raises(JobFailedError):
        operator.apply()
    (words,) = (words for words in operator.cluster.commands if "preflight" in words)
    assert [words[at + 1].rpartition("/")[2] for at, word in enumerate(words) if word == "-c"] == [
        f"controller-{number}.properties" for number in (3001, 3002, 3003)
    ]
    assert words.count("--brokers") == 3
    assert len(operator.cluster.examined) == 6
    broker = next(text for (_, path), text in operator.cluster.examined.items() if path.endswith("broker-2.properties"))
    assert b"zookeeper.metadata.migration.enable=true" in broker
    assert b"controller.quorum.voters=3001@c:9093" in broker
    assert any(words[:3] == ("mkdir", "-m", "700") for words in operator.cluster.commands)
    assert not [path for _, path in operator.cluster.files if path.startswith(DIRECTORY)]


def test_the_copies_are_removed_when_preflight_fails(operator: Operator) -> None:
    operator.cluster.exit_codes["preflight"] = 1
    with pytest.raises(JobFailedError, match="has found blockers"):
        operator.apply()
    assert not [path for _, path in operator.cluster.files if path.startswith(DIRECTORY)]


def test_directories_of_another_host_are_not_looked_for_on_this_one() -> None:
    text = elsewhere("node.id=3002\nlog.dirs=/data/a,/data/b\nmetadata.log.dir=/data/m\n", "/copies/3002")
    assert (
        text == "node.id=3002\nlog.dirs=/copies/3002/data/a,/copies/3002/data/b\nmetadata.log.dir=/copies/3002/data/m\n"
    )


def test_a_broker_in_kraft_mode_is_examined_as_it_is(operator: Operator) -> None:
    node = operator.cluster.inventory.brokers.nodes[0]
    text = "process.roles=broker\nnode.id=1\n"
    assert wanted(node, text, operator.parts().mode_settings("")) == text


class RealDesk:
    """An inventory of files and processes of this machine, of which none runs."""

    def __init__(self, directory: Path, connect: str) -> None:
        port = free_port()
        settings = (
            f"process.roles=controller\ncontroller.listener.names=C\ncontroller.quorum.voters=3001@localhost:{port}\n"
        )
        settings += f"listeners=C://localhost:{port}\nzookeeper.connect={connect}\n"
        (directory / "c.properties").write_text(
            f"node.id=3001\n{settings}log.dirs={directory}/data\nzookeeper.metadata.migration.enable=true\n"
        )
        (directory / "access.properties").write_text(f"node.id=3001\n{settings}")
        (directory / "b.properties").write_text("broker.id=1\nzookeeper.connect=zk\n")
        self.inventory = directory / "inventory.yaml"
        self.inventory.write_text(
            "cluster: c\naccess: access.properties\n"
            f"controllers:\n  nodes: [{{id: 3001, properties: {directory}/c.properties}}]\n"
            "brokers:\n  settings: {controller.listener.names: C, controller.quorum.voters: '3001@h:1'}\n"
            f"  nodes: [{{id: 1, properties: {directory}/b.properties}}]\n"
            "executors: {default: {preset: local, variables: {command: 'false'}}}\nhandover: {release: '3.9.1'}\n"
        )

    def type(self, name: str) -> Result:
        return CliRunner().invoke(migrator, ["rollout", name, "-i", str(self.inventory)])


def test_plan_report_and_apply_say_that_the_chroot_is_wrong_and_what_was_meant(
    tmp_path: Path, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id("abc"), makepath=True)
    desk = RealDesk(tmp_path, f"{zookeeper.hosts}x")
    for name in ("plan", "report", "apply"):
        error = desk.type(name).exception
        assert isinstance(error, NoClusterError), error
        assert f"Did you mean {zookeeper.chroot}?" in str(error) or zookeeper.chroot in error.chroots
    assert not (tmp_path / "inventory.rollout" / COMMAND_FILE).read_bytes()


def test_plan_says_that_zookeeper_could_not_be_looked_at_and_shows_new_files_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeing, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(places, "READ_SECONDS", 0.1)
    desk = RealDesk(tmp_path, f"localhost:{free_port()}")
    result = desk.type("plan")
    assert result.exit_code == 0, result.exception
    first, *_, last = result.stdout.splitlines()
    assert first == last, "the plan is longer than a screen"
    assert first.startswith("ZooKeeper could not be looked at, so the plan does not know what is done already")
    assert f"does: creates {tmp_path}/c.stock.properties, a new file\n        + process.roles=controller" in (
        result.output.replace("        + node.id=3001\n", "")
    )


def begins_anew(operator: Operator) -> None:
    """On another machine: only looking says what is done."""
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    operator.cluster.commands.clear()


def test_an_empty_directory_is_not_formatted_in_a_quorum_that_has_data(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    node = operator.node(CONTROLLERS[2])
    operator.cluster.crash(node)
    identity = operator.cluster.files.pop((node.name, f"/data/{node.name}/meta.properties"))
    begins_anew(operator)
    with pytest.raises(JobFailedError, match="could vote away what is committed"):
        operator.apply()
    assert not [words for words in operator.cluster.commands if "format" in words]
    operator.cluster.files[node.name, f"/data/{node.name}/meta.properties"] = identity
    assert operator.resume() is Ending.COMPLETE
    assert not [words for words in operator.cluster.commands if "format" in words]


def test_no_directory_is_formatted_while_zookeeper_says_that_the_quorum_has_the_cluster(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    for name in CONTROLLERS:
        operator.cluster.crash(operator.node(name))
    operator.cluster.files.pop((CONTROLLERS[0], f"/data/{CONTROLLERS[0]}/meta.properties"))
    begins_anew(operator)
    with pytest.raises(JobFailedError, match=CONTROLLERS[0]):
        operator.apply()
    assert not [words for words in operator.cluster.commands if "format" in words]
