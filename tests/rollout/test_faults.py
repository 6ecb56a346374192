"""A fault in a rollout is a named error, leaves nothing half-changed, and keeps both ways open."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.acts import UntrueRestartError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.files.archive import VERDICTS
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.journal.journal import LINE_MAX, Event, read_journal
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import (
    BrokerMode,
    ExecutorError,
    FileChangedError,
    HostUnreachableError,
    LockedError,
    LockHolder,
)
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
PATH = "/etc/b2.properties"
BROKEN = HostUnreachableError("the connection broke", where=BROKER, remedy="Look at ssh")
FAILED = ExecutorError("restart ended with exit code 1", where=BROKER, remedy="Look at the unit")
HANGS = ExecutorError("restart has not ended within 120 s", where=BROKER, remedy="Look at the unit")


def operator_at(tmp_path: Path, *, stops: bool = True) -> Operator:
    state = tmp_path / "state"
    state.mkdir()
    return Operator(ModelCluster(model_inventory(), stops=stops), state)


def healed(operator: Operator) -> None:
    operator.cluster.fault = nothing
    operator.cluster.lies.clear()
    operator.cluster.exit_codes.clear()
    operator.cluster.foreign_writes = ()
    for name in list(operator.cluster.old_settings):  # restarted by a person
        operator.cluster.start_as_configured(operator.node(name))


def both_ways_are_open(operator: Operator, tmp_path: Path, mend: Callable[[Operator], None] = healed) -> None:
    """Once what failed is mended, the rollout ends as any other, forward and back."""
    assert not operator.cluster.violations
    forth, back = operator.copy(tmp_path / "forth"), operator.copy(tmp_path / "back")
    for each in (forth, back):
        mend(each)
    assert forth.resume() is Ending.COMPLETE
    assert set(forth.cluster.modes().values()) == {BrokerMode.KRAFT}
    assert forth.cluster.state == "Finished"
    assert back.rollback() is Ending.COMPLETE
    assert set(back.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert not back.cluster.kraft_claims
    assert back.cluster.controller_broker is not None
    assert not forth.cluster.violations + back.cluster.violations


def failing(action: str, name: str, error: OperatorError) -> Callable[[str, Node], None]:
    """Before the effect."""

    def fault(found: str, node: Node) -> None:
        if (found, node.name) == (action, name):
            raise error

    return fault


@pytest.mark.parametrize("phase", [Phase.START, Phase.COPY], ids=["to migration", "to KRaft"])
@pytest.mark.parametrize(
    ("action", "stops", "error"),
    [
        ("restart", False, FAILED),
        ("restart", False, HANGS),
        ("stop", True, FAILED),
        ("start", True, FAILED),
        ("write", True, BROKEN),
        ("incarnation", True, BROKEN),
        ("read", True, BROKEN),
    ],
)
def test_an_action_fails(tmp_path: Path, phase: Phase, action: str, error: OperatorError, *, stops: bool) -> None:
    operator = operator_at(tmp_path, stops=stops)
    operator.apply(StopAt(phase))
    operator.cluster.fault = failing(action, BROKER, error)
    with pytest.raises(type(error)) as raised:
        operator.resume()
    assert raised.value is error
    assert operator.entries[-1].event is Event.FAILED
    both_ways_are_open(operator, tmp_path)


@pytest.mark.parametrize("boundary", ["after write broker-2", "after start broker-2"])
def test_the_connection_breaks_behind_an_effect(tmp_path: Path, boundary: str) -> None:
    """The next command looks at the begun act: no broker is restarted twice."""
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.START))
    before = operator.cluster.restarts.copy()
    operator.interrupted_at(boundary, BROKEN)
    both_ways_are_open(operator, tmp_path, nothing)
    assert operator.resume() is Ending.COMPLETE
    assert (operator.cluster.restarts - before)[BROKER] == 2


@pytest.mark.parametrize(
    ("stops", "command"), [(True, "stop"), (False, "restart")], ids=["stop and start", "one command"]
)
def test_a_restart_command_lies(tmp_path: Path, command: str, *, stops: bool) -> None:
    operator = operator_at(tmp_path, stops=stops)
    operator.cluster.lies.add(BROKER)
    with pytest.raises(UntrueRestartError, match=f"{BROKER}.*the {command} command succeeded, but the same process"):
        operator.apply()
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING}
    both_ways_are_open(operator, tmp_path)


@pytest.mark.parametrize("phase", [Phase.START, Phase.COPY], ids=["to migration", "to KRaft"])
def test_a_broker_comes_back_with_its_old_settings(tmp_path: Path, phase: Phase) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(phase))
    operator.cluster.old_settings.add(BROKER)
    with pytest.raises(
        GateTimeoutError, match=r"broker-2: (runs in .* mode, not in|is registered in ZooKeeper, and not)"
    ):
        operator.resume()
    both_ways_are_open(operator, tmp_path)


@pytest.mark.parametrize("path", [PATH, "/etc/c3001.properties"])
def test_a_property_file_is_edited_meanwhile(tmp_path: Path, path: str) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.COPY))
    key = next(key for key in operator.cluster.files if key[1] == path)
    operator.cluster.files[key] += b"num.io.threads=16\n"
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(FileChangedError, match=path):
        operator.resume()
    assert (operator.cluster.restarts - restarts)[key[0]] == 0
    both_ways_are_open(operator, tmp_path, nothing)
    assert operator.resume() is Ending.COMPLETE
    assert b"num.io.threads=16\n" in operator.cluster.files[key]


def test_a_file_is_edited_between_its_change_and_the_restart(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)

    def edits(where: str) -> None:
        if where == f"after done migrate/{BROKER} edit":
            operator.cluster.files[BROKER, PATH] += b"num.io.threads=16\n"

    operator.cluster.points.at = edits
    restarts = operator.cluster.restarts[BROKER]
    with pytest.raises(FileChangedError, match=PATH):
        operator.apply()
    assert operator.cluster.restarts[BROKER] == restarts
    operator.cluster.points.at = nothing
    both_ways_are_open(operator, tmp_path, nothing)


def test_what_a_killed_command_had_begun_ends_meanwhile(tmp_path: Path) -> None:
    """The command that writes the file outlives the rollout that was killed."""
    operator = operator_at(tmp_path)
    other = operator.copy(tmp_path / "other")
    other.apply(StopAt(step=f"migrate/{BROKER}"))

    def ends(where: str) -> None:
        if where == f"before write {BROKER}":
            operator.cluster.files[BROKER, PATH] = other.cluster.files[BROKER, PATH]

    operator.cluster.points.at = ends
    assert operator.apply(StopAt(step=f"migrate/{BROKER}")) is Ending.PAUSED
    assert operator.cluster.end_state() == other.cluster.end_state()


def test_the_lock_is_lost(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    other = LockHolder("another", "somebody", "ops-2", 5)

    def takes(where: str) -> None:
        if where == f"after done migrate/{BROKER} edit":
            operator.lock.owner = other

    operator.cluster.points.at = takes
    restarts = operator.cluster.restarts[BROKER]
    with pytest.raises(LockedError):
        operator.apply()
    assert operator.cluster.restarts[BROKER] == restarts
    operator.cluster.points.at = nothing
    with pytest.raises(LockedError):
        operator.resume()
    operator.lock.owner = None
    both_ways_are_open(operator, tmp_path)


def test_a_damaged_journal_is_refused_and_looking_replaces_it(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.KRAFT))
    journal = operator.state / COMMAND_FILE
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:9], lines[9].replace(b"1", b"2", 1), *lines[10:]]))
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match="line 10: the journal is damaged"):
        operator.resume()
    journal.unlink()
    operator.lock.owner = None
    assert operator.apply() is Ending.COMPLETE
    assert operator.cluster.state == "Finished"
    brokers = {node.name for node in operator.cluster.inventory.brokers.nodes}
    assert not brokers & set(operator.cluster.restarts - restarts)


def test_a_last_line_that_somebody_has_changed_is_damaged_and_not_torn(tmp_path: Path) -> None:
    """The changed line may be the one that turns the rollout back."""
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.MIGRATE))
    journal = operator.state / COMMAND_FILE
    kept = journal.read_bytes()
    journal.write_bytes(kept[:-20] + bytes([kept[-20] ^ 1]) + kept[-19:])
    with pytest.raises(OperatorError, match=r"line \d+: the journal is damaged"):
        operator.resume()
    for torn in (b'{"n":9', b'{"n":9\0\0\0\n', b"\0" * 4096):
        journal.write_bytes(kept + torn)
        assert len(read_journal(operator.state)) == kept.count(b"\n")
    journal.write_bytes(b"x" * (LINE_MAX + 1))
    with pytest.raises(OperatorError, match="line 1: the journal is damaged"):
        read_journal(operator.state)


def test_the_clock_jumps(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    calm = operator.copy(tmp_path / "calm")
    operator.clock.wall_jump_ms = -3_600_000
    assert operator.apply() is Ending.COMPLETE
    assert calm.apply() is Ending.COMPLETE
    assert operator.clock.now_ms == calm.clock.now_ms
    assert operator.cluster.end_state() == calm.cluster.end_state()


@pytest.mark.parametrize("line", range(14, 60, 5))
def test_the_disk_is_full_under_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    operator = operator_at(tmp_path)
    writes, pwrite = iter(range(1000)), os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        is_journal = os.path.samestat(os.fstat(descriptor), (operator.state / COMMAND_FILE).stat())
        if not is_journal or next(writes) < line:
            return pwrite(descriptor, data, position)
        pwrite(descriptor, data[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OperatorError, match="No space left on device") as raised:
            operator.apply()
    assert "resume" in raised.value.remedy
    assert len(operator.entries) == line
    both_ways_are_open(operator, tmp_path)


@pytest.mark.parametrize("phase", [Phase.START, Phase.COPY], ids=["to migration", "to KRaft"])
def test_a_gate_stays_shut(tmp_path: Path, phase: Phase) -> None:
    """Another broker is down: nobody is restarted, and whoever is down comes first when the rollout goes on."""
    operator = operator_at(tmp_path)
    operator.apply(StopAt(phase))
    restarts = operator.cluster.restarts.copy()
    operator.cluster.crash(operator.node("broker-3"))
    operator.cluster.fault = failing("start", "broker-3", FAILED)
    with pytest.raises(OperatorError, match=BROKER):
        operator.resume()
    assert not {"broker-1", BROKER} & set(operator.cluster.restarts - restarts)
    both_ways_are_open(operator, tmp_path)


def test_somebody_else_writes_to_zookeeper(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.COPY))
    operator.cluster.foreign_writes = ("/config/topics/orders",)
    with pytest.raises(GateTimeoutError, match="/config/topics/orders"):
        operator.resume()
    both_ways_are_open(operator, tmp_path)


@pytest.mark.parametrize(
    ("job", "code", "message"),
    [
        ("preflight", 1, "preflight has found blockers"),
        ("rehearse", 1, "the rehearsal has found blockers"),
        ("format", 2, "format ended with exit code 2"),
        ("verify", 1, "ZooKeeper and the metadata log differ"),
    ],
)
def test_a_command_says_no(tmp_path: Path, job: str, code: int, message: str) -> None:
    operator = operator_at(tmp_path)
    operator.cluster.exit_codes[job] = code
    with pytest.raises(JobFailedError, match=message):
        operator.apply()
    both_ways_are_open(operator, tmp_path)


def test_both_sides_are_compared_in_the_soak(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(verify_seconds=60)), tmp_path / "state")
    assert operator.apply(StopAt(Phase.SOAK)) is Ending.REACHED
    verdicts = [entry.details["differences"] for entry in operator.entries if entry.event is Event.VERIFIED]
    assert verdicts == [0, 0]
    assert len([words for words in operator.cluster.commands if "verify" in words]) == 3


def test_what_the_rehearsal_said_is_kept(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    assert operator.apply(StopAt(Phase.REHEARSE)) is Ending.REACHED
    kept = json.loads((operator.state / VERDICTS / "rehearse.json").read_text())
    assert kept["forecast"]["dual_write"]["seconds"] == 12.2


def test_after_the_end_nothing_is_rolled_back(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.FINISH))
    with pytest.raises(OperatorError, match="'migrator reopen' alone leads back"):
        operator.rollback()
    assert operator.resume() is Ending.COMPLETE


def test_nobody_confirms_the_end(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.confirms = False
    assert operator.apply() is Ending.NOT_CONFIRMED
    assert operator.cluster.state == "DualWrite"
    both_ways_are_open(operator, tmp_path, lambda each: setattr(each, "confirms", True))


def test_a_directory_that_cannot_be_set_aside_is_named(tmp_path: Path) -> None:
    """``mv -n`` succeeds, and does nothing, where something has the other name."""
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.COPY))
    taken = f"/data/controller-3001.rolled-back-{operator.entries[0].details['rollout']}/meta.properties"
    operator.cluster.files["controller-3001", taken] = b"of somebody else"
    with pytest.raises(JobFailedError, match="the directory is still there"):
        operator.rollback()
    assert operator.cluster.files["controller-3001", "/data/controller-3001/meta.properties"] == b"x"
    del operator.cluster.files["controller-3001", taken]
    assert operator.resume() is Ending.COMPLETE
    assert "controller-3001" not in operator.cluster.formatted
