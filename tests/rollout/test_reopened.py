"""A migration that was reopened after its end: no command of a rollout ends it again unasked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.standing import standing_of
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, FileChangedError, Observation, QuorumAwayError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.model_pieces import DUAL_WRITE, FINISHED
from tests.rollout.support.runs import Operator
from tests.rollout.test_blind_looks import looking


class KilledError(Exception):
    """The command ends here."""


REOPENED = "2026-11-27 16:00:00 UTC: CHG-44"


def reopened(operator: Operator) -> None:
    """As docs/way-back.md says, by hand: each controller has its file of before the end, then `migrator reopen`."""
    cluster = operator.cluster
    for node in cluster.inventory.controllers.nodes:
        kept = next(path for name, path in cluster.files if name == node.name and ".before-finish." in path)
        cluster.files[node.name, node.properties] = cluster.files[node.name, kept]
        cluster.crash(node)
        cluster.start_as_configured(node)
    cluster.state, cluster.reopened, cluster.kraft_claims = DUAL_WRITE, REOPENED, True


def says_nothing_of_the_migration(seen: Observation) -> Observation:
    """A controller leads, and its log cannot be read yet."""
    return replace(seen, migration=None, metadata_version="")


def kills(operator: Operator, boundary: str) -> None:
    """The command for the way home dies there."""

    def dies(where: str) -> None:
        if where == boundary:
            raise KilledError

    operator.cluster.points.at = dies
    with pytest.raises(KilledError):
        operator.rollback()
    operator.cluster.points.at = nothing


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lines."""
    monkeypatch.setattr(os, "fsync", nothing)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory(handover=False)), tmp_path / "state")


def is_sent_home_or_forward(operator: Operator) -> bool:
    """Whether `migrator rollout status` says that a rollout does not go forward unasked."""
    seen = asyncio.run(operator.cluster.observe())
    return standing_of(operator.cluster.inventory, operator.entries, running=False, seen=seen).is_reopened


def is_complete(operator: Operator) -> None:
    assert operator.apply() is Ending.COMPLETE


def is_before_the_archive(operator: Operator) -> None:
    assert operator.apply(StopAt(Phase.FINISH)) is Ending.REACHED


@pytest.mark.parametrize(
    ("stands", "command"),
    [
        (is_complete, Operator.apply),
        (is_before_the_archive, Operator.apply),
        (is_before_the_archive, Operator.resume),
    ],
)
def test_a_rollout_ends_a_reopened_migration_only_when_it_is_told_to(
    operator: Operator, stands: Callable[[Operator], None], command: Callable[[Operator], Ending]
) -> None:
    stands(operator)
    assert operator.cluster.state == FINISHED
    reopened(operator)
    lines = len(operator.entries)
    with pytest.raises(OperatorError, match=r"was finished, and reopened.*CHG-44") as refused:
        command(operator)
    assert "'migrator rollout rollback'" in refused.value.remedy
    assert len(operator.entries) == lines
    assert operator.cluster.state == DUAL_WRITE
    assert is_sent_home_or_forward(operator)
    operator.ends_again = True
    assert operator.apply(StopAt(Phase.SOAK)) is Ending.REACHED
    assert not is_sent_home_or_forward(operator)
    assert operator.apply() is Ending.COMPLETE
    assert operator.cluster.state == FINISHED
    assert operator.cluster.violations == []


def test_a_rollout_that_runs_while_the_migration_is_reopened_stops(operator: Operator) -> None:
    is_before_the_archive(operator)

    def somebody_reopens(where: str) -> None:
        if "resumed" in where and not operator.cluster.reopened:
            reopened(operator)

    operator.cluster.points.at = somebody_reopens
    with pytest.raises(OperatorError, match="was finished, and reopened"):
        operator.resume()
    operator.cluster.points.at = nothing
    assert operator.cluster.state == DUAL_WRITE


def test_a_reopened_migration_goes_home(operator: Operator) -> None:
    is_complete(operator)
    reopened(operator)
    assert operator.rollback() is Ending.COMPLETE
    assert operator.cluster.violations == []
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert operator.cluster.controller_broker is not None


@pytest.mark.parametrize(("times", "line"), [(1, b"metadata.log.dir=/data/broker-2/\n"), (2, b"")])
def test_the_log_of_each_broker_is_kept_outside_of_its_directories(operator: Operator, times: int, line: bytes) -> None:
    """Kafka deletes it at the restart into migration mode. Where a copy fails twice, the way home goes on, and no part
    of it stays on the disk. A broker does not start with a copy inside of its directory."""
    operator.cluster.files["broker-2", "/etc/b2.properties"] += line
    is_complete(operator)
    operator.reopens, directory = True, "/data/broker-2"
    operator.cluster.files["broker-2", f"{directory}/__cluster_metadata-0/0.log"] = b"records"
    fails, left, copied = times == 2, iter([1] * times), list[bool]()

    def looks(where: str) -> None:
        if where == "before cp broker-2":
            operator.cluster.exit_codes["cp"] = next(left, 0)
        if where == "before stop broker-2":
            copied.append(any(path.startswith(f"{directory}.cluster-metadata.") for _, path in operator.cluster.files))

    operator.cluster.points.at = looks
    assert operator.rollback() is Ending.COMPLETE
    assert copied[0] is not fails
    told = "was not copied" if fails else "broker-2: copied /data/broker-2/__cluster_metadata-0, which Kafka deletes"
    assert any(told in line for line in operator.said)
    assert not any(path.startswith(f"{directory}/.") for _, path in operator.cluster.files)
    gone = [words[-1] for words in operator.cluster.commands if words[:2] == ("rm", "-rf") and "metadata." in words[-1]]
    assert [path.startswith(f"{directory}.cluster-metadata.") for path in gone] == [True] * fails


@pytest.mark.parametrize("stands", [is_complete, is_before_the_archive])
def test_the_rollout_goes_home_from_the_end_when_it_is_told_to_reopen(
    operator: Operator, stands: Callable[[Operator], None]
) -> None:
    stands(operator)
    with pytest.raises(OperatorError, match="is finished: ZooKeeper gets no changes") as refused:
        operator.rollback()
    assert "'migrator rollout rollback --reopen' does all of it" in refused.value.remedy
    operator.reopens = True
    assert operator.rollback() is Ending.COMPLETE
    assert operator.cluster.violations == []
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert operator.cluster.controller_broker is not None
    assert len([words for words in operator.cluster.commands if "reopen" in words]) == 1
    assert operator.lock.left_quorum


def test_the_files_of_migration_mode_are_looked_at_before_the_migration_is_reopened(operator: Operator) -> None:
    files, line = operator.cluster.files, b"super.users=User:other\n"
    for node in operator.cluster.inventory.controllers.nodes:
        files[node.name, node.properties] += b"super.users=User:admin\n"
    for node in operator.cluster.inventory.brokers.nodes:
        authorizer = b"authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
        files[node.name, node.properties] += authorizer + b"super.users=User:admin\n"
    files["broker-2", "/etc/b2.properties"] += line
    is_complete(operator)
    operator.reopens = True
    with pytest.raises(OperatorError, match=r"not reopened.* broker-2 .*super.users differ .*User:admin, User:other"):
        operator.rollback()
    assert operator.cluster.state == FINISHED
    files["broker-2", "/etc/b2.properties"] = files["broker-2", "/etc/b2.properties"].replace(line, b"")
    with pytest.raises(FileChangedError):
        operator.resume()
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.violations == []


def test_no_leader_right_after_a_restart_is_waited_for(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is in the quorum, which has no leader until the gate behind the restart has opened."""
    is_complete(operator)
    operator.reopens = True
    away, check = list[str](), operator.lock.check

    def passes(where: str) -> None:
        if where.startswith("after done migration-on") and where.endswith("restart"):
            away.append(where)
        elif where.startswith("after passed migration-on") and where.endswith("check-after"):
            away.clear()

    async def asks(rollout: str) -> None:
        if away:
            raise QuorumAwayError("no controller leads", where="the quorum")
        await check(rollout)

    monkeypatch.setattr(operator.lock, "check", asks)
    operator.cluster.points.at = passes
    assert operator.rollback() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


@pytest.mark.lane("test-all")
def test_the_way_home_from_the_end_goes_on_wherever_it_was_killed(operator: Operator, tmp_path: Path) -> None:
    is_complete(operator)
    operator.reopens = True
    passed: list[str] = []
    clean = operator.copy(tmp_path / "clean")
    clean.reopens = True
    clean.cluster.points.at = passed.append
    assert clean.rollback() is Ending.COMPLETE
    whole = passed[: passed.index("after passed reopen check-after") + 1]
    first = [boundary for boundary in whole if boundary.startswith("after")]
    assert len(first) > 10
    for number, boundary in enumerate(first):
        other = operator.copy(tmp_path / str(number))
        other.reopens = True

        kills(other, boundary)
        assert other.rollback() is Ending.COMPLETE, boundary
        assert other.cluster.violations == [], boundary
        assert set(other.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}, boundary


@pytest.mark.parametrize("died", ["", "after begun reopen run"])
def test_the_reopening_is_not_left_out_while_nobody_says_how_far_the_migration_is(
    operator: Operator, died: str, tmp_path: Path
) -> None:
    """One look between the last controller's restart and the end of the step says nothing of the migration."""
    is_complete(operator)
    operator.reopens = True
    if died:
        kills(operator, died)
    clean = operator.copy(tmp_path / "clean")
    looks, at = looking(clean, says_nothing_of_the_migration, 0), dict[str, int]()

    def passes(where: str) -> None:
        at.setdefault(where, looks[0])

    clean.cluster.points.at = passes
    clean.reopens = True
    assert clean.rollback() is Ending.COMPLETE
    first = 0 if died else max(number for where, number in at.items() if "migration-on" in where)
    for number in range(first + 1, at["after passed reopen check-after"] + 1):
        other = operator.copy(tmp_path / str(number))
        other.reopens = True
        looking(other, says_nothing_of_the_migration, number)
        try:
            ending = other.rollback()
        except OperatorError:
            ending = other.rollback()
        assert ending is Ending.COMPLETE, number
        assert len([words for words in other.cluster.commands if "reopen" in words]) == 1, number
        assert other.cluster.end_state() == clean.cluster.end_state(), number


def test_a_way_back_during_which_the_migration_ends_reopens_it_when_it_is_told_to(
    operator: Operator, tmp_path: Path
) -> None:
    assert operator.apply(StopAt(step="finish/controller-3002")) is Ending.PAUSED
    ended = operator.copy(tmp_path / "ended")
    is_complete(ended)
    kills(operator, "after done migration-on/controller-3002 edit")
    operator.cluster = ended.cluster
    with pytest.raises(OperatorError, match="is finished: ZooKeeper gets no changes") as refused:
        operator.rollback()
    assert "'migrator rollout rollback --reopen' does all of it" in refused.value.remedy
    operator.reopens = True
    kills(operator, "after turned  ")
    for _ in operator.cluster.inventory.controllers.nodes:  # somebody else has changed their files
        with pytest.raises(FileChangedError):
            operator.resume()
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.violations == []
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert len([words for words in operator.cluster.commands if "reopen" in words]) == 1


@pytest.mark.parametrize("what", ["ZooKeeper does not answer", "Kafka's own have taken over"])
def test_what_cannot_be_reopened_is_refused_before_anything_is_written(operator: Operator, what: str) -> None:
    is_complete(operator)
    operator.reopens = True
    if what == "ZooKeeper does not answer":
        operator.cluster.zookeeper_answers = False
    else:
        operator.cluster.inventory = model_inventory(kind="stock", handover=False)
    lines = len(operator.entries)
    with pytest.raises(OperatorError, match=what):
        operator.rollback()
    assert len(operator.entries) == lines
