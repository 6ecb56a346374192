"""The way back: nothing that the quorum has committed is missing in ZooKeeper when the controllers stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.config.properties import parse_properties
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, FileChangedError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

CONTROLLERS = [f"controller-{number}" for number in (3001, 3002, 3003)]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    return operator


def has_come_back(operator: Operator) -> bool:
    modes = set(operator.cluster.modes().values())
    return modes == {BrokerMode.ZOOKEEPER} and not operator.cluster.kraft_claims and not operator.cluster.violations


@pytest.mark.parametrize("stopped", ["controller-3002", None], ids=["behind the first", "before the first"])
def test_zookeeper_has_everything_before_each_controller_is_stopped(operator: Operator, stopped: str | None) -> None:
    def falls_behind(where: str) -> None:
        if where == (f"after stop {stopped}" if stopped else "after done drain "):
            operator.cluster.lag = 5

    operator.cluster.points.at = falls_behind
    with pytest.raises(GateTimeoutError, match="ZooKeeper: is 5 records behind"):
        operator.rollback()
    running = [name for name in CONTROLLERS if name in operator.cluster.processes]
    assert len(running) == (2 if stopped else 3)
    assert "rollback" not in [word for words in operator.cluster.commands for word in words]
    operator.cluster.points.at = nothing
    operator.cluster.lag = 0
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


def test_a_refusal_to_give_back_begins_again_with_the_start_of_the_controllers(operator: Operator) -> None:
    operator.cluster.exit_codes["rollback"] = 2
    with pytest.raises(JobFailedError) as raised:
        operator.rollback()
    assert "it starts the controllers" in raised.value.remedy
    assert not set(CONTROLLERS) & set(operator.cluster.processes)
    operator.cluster.exit_codes.clear()
    begun = len(operator.entries)
    assert operator.resume() is Ending.COMPLETE
    done = [entry.step for entry in operator.entries[begun:] if entry.event is Event.DONE and not entry.act]
    starts = [step for step in done if step.startswith("start-quorum/")]
    assert len(starts) == 3
    assert done.index("drain") > max(map(done.index, starts))
    assert done.index("give-back") > done.index("drain")
    assert has_come_back(operator)


def test_controllers_that_do_not_run_are_started_for_what_zookeeper_lacks(operator: Operator) -> None:
    for name in CONTROLLERS:
        operator.cluster.crash(operator.node(name))
    operator.cluster.lag = 5
    with pytest.raises(GateTimeoutError, match=r"drain: .*ZooKeeper: is 5 records behind"):
        operator.rollback()
    assert set(CONTROLLERS) <= set(operator.cluster.processes)
    operator.cluster.lag = 0
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


def test_one_dead_controller_does_not_keep_the_drain_shut(operator: Operator) -> None:
    def dies(where: str) -> None:
        if where == "after done leave-kraft/broker-3 ":
            operator.cluster.crash(operator.node(CONTROLLERS[1]))

    operator.cluster.points.at = dies
    assert operator.rollback() is Ending.COMPLETE
    assert has_come_back(operator)
    assert "start-quorum" not in {entry.step.partition("/")[0] for entry in operator.entries if entry.act}


def test_controllers_that_never_had_the_cluster_are_not_started(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    operator.apply(StopAt(Phase.FORMAT))
    assert operator.rollback() is Ending.COMPLETE
    assert not any(operator.cluster.restarts[name] for name in CONTROLLERS)


class Killed(BaseException):
    """The process of the rollout ends, and notes nothing."""


def in_the_middle_of_the_end(state: Path, killed: str, *, stops: bool = True, kind: str = "migrator") -> Operator:
    """All brokers are in KRaft mode, and controller 3003 leads. The process of the rollout dies at this boundary."""
    state.mkdir()
    operator = Operator(ModelCluster(model_inventory(kind=kind, handover=False), stops=stops), state)
    operator.cluster.leader = 3003
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    operator.interrupted_at(killed, Killed())
    return operator


def turned_on(operator: Operator) -> list[str]:
    """The controllers that were restarted with the migration on, in their order."""
    steps = [entry.step.split("/") for entry in operator.entries if (entry.event, entry.act) == (Event.DONE, "restart")]
    return [name for phase, name in steps if phase == "migration-on"]


@pytest.mark.parametrize("boundary", ["after stop controller-3002", "before stop controller-3002"])
def test_a_controller_that_is_down_comes_before_one_that_serves(tmp_path: Path, boundary: str) -> None:
    """The rollout itself has stopped it, and was killed before it started it."""
    operator = in_the_middle_of_the_end(tmp_path / "state", boundary)
    if boundary.startswith("before"):  # its file is written already, and then it dies
        operator.cluster.crash(operator.node(CONTROLLERS[1]))
    assert operator.rollback() is Ending.COMPLETE
    assert turned_on(operator) == [CONTROLLERS[1], CONTROLLERS[0]]
    assert has_come_back(operator)


@pytest.mark.parametrize("stops", [True, False], ids=["stop and start", "restart in one command"])
def test_no_controller_stops_on_the_way_back_while_another_one_is_down(tmp_path: Path, *, stops: bool) -> None:
    """That controller needs no change, so no step starts it."""
    operator = in_the_middle_of_the_end(tmp_path / "state", "after done finish/controller-3001 ", stops=stops)
    operator.cluster.crash(operator.node(CONTROLLERS[1]))
    with pytest.raises(GateTimeoutError, match="controller 3002: does not answer") as raised:
        operator.rollback()
    assert "start it" in raised.value.remedy
    assert operator.cluster.restarts[CONTROLLERS[0]] == 2
    operator.cluster.start_as_configured(operator.node(CONTROLLERS[1]))
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


def test_one_that_dies_behind_the_gate_keeps_the_other_ones_up(tmp_path: Path) -> None:
    operator = in_the_middle_of_the_end(tmp_path / "state", "after done finish/controller-3001 ")

    def dies(where: str) -> None:
        if where == "after done migration-on/controller-3001 edit":
            operator.cluster.crash(operator.node(CONTROLLERS[1]))

    operator.cluster.points.at = dies
    with pytest.raises(GateTimeoutError, match="controller 3002: does not answer"):
        operator.rollback()
    assert operator.cluster.restarts[CONTROLLERS[0]] == 2


def test_the_leader_is_the_last_one_that_gets_the_migration_back(tmp_path: Path) -> None:
    operator = in_the_middle_of_the_end(tmp_path / "state", "after done finish/controller-3002 ")
    operator.cluster.leader = 3001
    assert operator.rollback() is Ending.COMPLETE
    assert turned_on(operator) == [CONTROLLERS[1], CONTROLLERS[0]]
    assert has_come_back(operator)


def test_controllers_that_are_all_down_are_started_on_the_way_back(tmp_path: Path) -> None:
    """One alone leads nothing: who waits for it waits for ever."""
    operator = in_the_middle_of_the_end(tmp_path / "state", "after done finish/controller-3001 ")
    for name in CONTROLLERS:
        operator.cluster.crash(operator.node(name))
    assert operator.rollback() is Ending.COMPLETE
    assert has_come_back(operator)


def without_comments(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))


def test_what_another_rollout_has_kept_brings_the_keys_of_zookeeper_back(operator: Operator) -> None:
    """The journal is lost, and the files hold no comments."""
    files = operator.cluster.files
    for node in operator.cluster.inventory.brokers.nodes:
        files[node.name, node.properties] = without_comments(files[node.name, node.properties])
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    assert operator.rollback() is Ending.COMPLETE
    for node in operator.cluster.inventory.brokers.nodes:
        assert b"\nzookeeper.ssl.keystore.password=" in files[node.name, node.properties]
    assert has_come_back(operator)


def test_without_backup_and_comment_it_is_said_that_keys_of_zookeeper_may_be_missing(operator: Operator) -> None:
    files = operator.cluster.files
    for key in [key for key in files if ".before-" in key[1]]:
        del files[key]
    for node in operator.cluster.inventory.brokers.nodes:
        files[node.name, node.properties] = without_comments(files[node.name, node.properties])
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    operator.zookeeper_connect = "zk:2181/kafka"
    operator.rollback()
    said = [line for line in operator.said if "no backup and no commented line" in line]
    assert len(said) == len(operator.cluster.inventory.brokers.nodes)


@pytest.mark.parametrize("is_up", [True, False], ids=["runs", "is gone for good"])
def test_no_controller_stops_while_a_broker_outside_the_inventory_is_in_kraft_mode(
    tmp_path: Path, *, is_up: bool
) -> None:
    """Kafka's quorum counts it also if it is fenced; `migrator rollback` would refuse, behind the last controller."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(brokers=4)), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    operator.inventory = model_inventory(brokers=3)
    if not is_up:
        operator.cluster.partitions = [frozenset((1, 2, 3))]
        operator.cluster.crash(operator.node("broker-4"))
    for command in (operator.rollback, operator.resume):
        with pytest.raises(GateTimeoutError, match="broker 4: is registered in KRaft mode, and is not in") as raised:
            command()
        assert "'migrator quorum unregister -c FILE --id 4'" in raised.value.remedy
        assert set(CONTROLLERS) <= set(operator.cluster.processes)
    if is_up:
        operator.inventory = None
    else:
        asyncio.run(operator.cluster.unregister(4))
    assert operator.resume() is Ending.COMPLETE
    modes = operator.cluster.modes()
    assert [mode for mode in modes.values() if mode] == [BrokerMode.ZOOKEEPER] * (4 if is_up else 3)
    assert not operator.cluster.violations


def test_a_broker_that_registers_in_kraft_mode_behind_the_first_controller_stops_the_others(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED

    def registers(where: str) -> None:
        if where == "after stop controller-3002":
            operator.cluster.kraft_in_log.add(2)

    operator.cluster.points.at = registers
    with pytest.raises(GateTimeoutError, match="broker-2: is registered in KRaft mode"):
        operator.rollback()
    assert len(set(CONTROLLERS) & set(operator.cluster.processes)) == 2


def test_a_broker_that_is_down_and_registered_in_kraft_mode_is_taken_back(operator: Operator) -> None:
    """Its file was put back by hand."""
    node = operator.node("broker-2")
    kept = next(key for key in operator.cluster.files if key[0] == node.name and ".before-kraft" in key[1])
    operator.cluster.crash(node)
    operator.cluster.files[node.name, node.properties] = operator.cluster.files[kept]
    with suppress(FileChangedError):
        operator.rollback()
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


@pytest.mark.parametrize(
    "own", [b"", b"listener.security.protocol.map=INSIDE:SSL,PLAINTEXT:PLAINTEXT\n"], ids=["default", "own map"]
)
def test_after_a_lost_journal_nothing_of_the_migration_stays_in_a_file(tmp_path: Path, own: bytes) -> None:
    """The backups of the lost rollout lie beside the files. They were changed since, so no file comes back whole."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    brokers, files = operator.cluster.inventory.brokers.nodes, operator.cluster.files
    for node in brokers:
        files[node.name, node.properties] += own
    before = {node.name: parse_properties(files[node.name, node.properties].decode("iso-8859-1")) for node in brokers}
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    for node in brokers:
        files[node.name, node.properties] += b"num.io.threads=16\n"
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    assert operator.rollback() is Ending.COMPLETE
    assert has_come_back(operator)
    for node in brokers:
        found = parse_properties(files[node.name, node.properties].decode("iso-8859-1"))
        found.pop("num.io.threads")
        old = before[node.name]
        assert {key: found.get(key) for key in {*found, *old} if "migration.enable" not in key} == {
            key: old.get(key) for key in {*found, *old} if "migration.enable" not in key
        }


def test_a_listener_that_the_operator_has_added_in_kraft_mode_stays_on_the_way_back(operator: Operator) -> None:
    """A long soak; the broker was restarted with it."""
    node, files = operator.node("broker-2"), operator.cluster.files
    key = node.name, node.properties
    files[key] = files[key].replace(b"PLAINTEXT://:9092", b"PLAINTEXT://:9092,EXTERNAL://:9094")
    files[key] = files[key].replace(
        b"protocol.map=PLAINTEXT:PLAINTEXT", b"protocol.map=EXTERNAL:SSL,PLAINTEXT:PLAINTEXT"
    )
    operator.cluster.start_as_configured(node)
    with suppress(FileChangedError):
        operator.rollback()
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)
    assert b"\nlistener.security.protocol.map=EXTERNAL:SSL," in files[key]
    assert b"CONTROLLER" not in without_comments(files[key])


def test_a_key_of_the_inventory_that_the_operator_has_changed_is_named(operator: Operator) -> None:
    """The key belongs to the migration, and goes with it. The old file is kept."""
    node, files = operator.node("broker-2"), operator.cluster.files
    key = node.name, node.properties

    def changes(where: str) -> None:
        if where == "after done give-back ":
            files[key] = files[key].replace(b"3001@c:9093", b"3001@elsewhere:9093")

    operator.cluster.points.at = changes
    with pytest.raises(FileChangedError):
        operator.rollback()
    operator.cluster.points.at = nothing
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)
    assert [line for line in operator.said if line.startswith(f"leave-migration/{node.name}: {node.properties}: contr")]
    assert any(b"elsewhere" in text for path, text in files.items() if path[0] == node.name and path != key)
