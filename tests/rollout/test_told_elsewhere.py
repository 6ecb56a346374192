"""A rollout that waits, failed or changed nothing, seen by others: the gate, the lock, and orders from elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

import orjson
import pytest

from migrator.cli import rollout, rollout_watch
from migrator.cli.rollout_watch import REFUSED_FILE, give_order
from migrator.controller.rollout_lock import BYTES_MAX
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.journal.looks import EVERY_MS
from migrator.rollout.lock.places import LockEntry, encoded, holder_text, parsed
from migrator.rollout.plan.modes import odd_keys
from migrator.rollout.ports import BrokerMode, HostUnreachableError, LockedError, LockHolder
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]


class MeanwhileClock(ModelClock):
    """While the rollout waits for so long, somebody does something in another process, once."""

    def __init__(self, after_ms: int, does: Callable[[], None]) -> None:
        super().__init__()
        self._at_ms, self._does = self.now_ms + after_ms, does

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.now_ms >= self._at_ms:
            self._at_ms = 1 << 60
            await asyncio.to_thread(self._does)


@pytest.mark.parametrize("dies", [False, True])
def test_status_shows_the_shut_gate_of_another_process(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    monkeypatch.setattr(rollout, "is_in_use", lambda _: not dies)  # it asks about other processes
    desk.printed("apply --until MigrationIneligible")
    assert json.loads(desk.printed("status --json", exit_code=1))["gate"] is None
    desk.cluster.lagging.add("broker-2")
    said: list[str] = []
    found: list[dict[str, object]] = []

    def looks() -> None:
        if dies:
            raise KeyboardInterrupt
        said.append(desk.printed("status", exit_code=1))
        found.append(json.loads(desk.printed("status --json", exit_code=1))["gate"])

    desk.clock = MeanwhileClock(EVERY_MS + 20_000, looks)
    desk.type("resume")
    if dies:
        said.append(desk.printed("status", exit_code=1))
        found.append(json.loads(desk.printed("status --json", exit_code=1))["gate"])
    gate = found[0]
    waits = "the command waited as it ended" if dies else "waits"
    assert f"\n{waits}: migrate/broker-1: partitions: 3 under-replicated" in said[0]
    assert "; since 2023-11-14 22:" in said[0]
    assert ": MigrationIneligible; partitions: 0 offline, 3 under-replicated; ZooKeeper is 0 records behind" in said[0]
    assert (gate["step"], gate["under_replicated"]) == ("migrate/broker-1", 3)
    assert isinstance(gate["time_ms"], int)
    assert isinstance(gate["since_ms"], int)
    assert 0 < gate["time_ms"] - gate["since_ms"] <= 2 * EVERY_MS
    if not dies:  # it gave up, and says so
        monkeypatch.setattr(rollout, "is_in_use", lambda _: False)
        assert json.loads(desk.printed("status --json", exit_code=1))["gate"] is None


HOLDER = LockHolder("aaaa", "ann", "ops-1", 1_700_000_000_000, 4711, "/srv/model.rollout")


@pytest.mark.parametrize(
    ("directory", "said"),
    [(HOLDER.directory, "(rollout aaaa, process 4711, the journal in /srv/model.rollout)"),
     ("/" + "long/" * 300, "(rollout aaaa, process 4711)")],
)  # fmt: skip
def test_a_lock_names_the_process_and_the_journal(directory: str, said: str) -> None:
    kept = encoded(LockEntry(replace(HOLDER, directory=directory), "token"))
    assert len(kept) <= BYTES_MAX
    assert holder_text(parsed(kept, "the quorum")).endswith(said)


def test_a_lock_of_an_older_release_is_read() -> None:
    content = orjson.loads(encoded(LockEntry(HOLDER, "token")))
    older = orjson.dumps({name: each for name, each in content.items() if name not in ("process", "directory")})
    assert holder_text(parsed(older, "the quorum")).endswith("(rollout aaaa)")


def is_locked(desk: Desk) -> bool:
    return desk.lock.owner is not None


@pytest.mark.parametrize("step", ["preflight", "rehearse"])
def test_what_fails_before_anything_was_changed_keeps_no_lock(desk: Desk, step: str) -> None:
    desk.cluster.exit_codes[step] = 2
    desk.refused("apply")
    assert not is_locked(desk)
    desk.cluster.exit_codes.clear()
    desk.printed("resume --until MigrationIneligible")
    assert is_locked(desk)
    desk.cluster.exit_codes["verify"] = 1
    desk.refused("resume")
    assert is_locked(desk)


@pytest.mark.parametrize(
    ("name", "command", "outcome"), [(ABORT_FILE, "abort", ""), (REFUSED_FILE, "rollback", rollout_watch.REFUSED)]
)
def test_the_command_that_runs_says_what_was_typed_elsewhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, command: str, outcome: str
) -> None:
    """That a refused command leaves these words is in `test_exit_codes`."""
    told = asyncio.Event()
    said: list[str] = []

    def says(line: str) -> None:
        said.append(line)
        if line.startswith("was typed elsewhere"):
            told.set()

    async def types() -> None:
        if not told.is_set():
            give_order(desk.state, name, command, outcome)
            await told.wait()

    desk.printed("apply --until DualWrite")
    monkeypatch.setattr(rollout, "_say_with_time", says)
    monkeypatch.setattr(rollout_watch, "WATCH_SECONDS", 0.0)
    desk.cluster.stopped = types
    desk.printed("resume --until kraft")
    begin = f"was typed elsewhere: 'migrator rollout {command}', by "
    assert [line for line in said if line.startswith(begin) and line.endswith(outcome)]
    back = [mode for mode in desk.cluster.modes().values() if mode is BrokerMode.MIGRATING]
    assert bool(back) is (name == ABORT_FILE)


@pytest.mark.parametrize("name", [ABORT_FILE, REFUSED_FILE])
async def test_an_order_that_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    told: asyncio.Queue[str] = asyncio.Queue()
    async with rollout_watch.hears_orders(tmp_path, told.put_nowait):
        assert "was typed elsewhere: " in await told.get()


def test_on_a_full_disk_an_order_is_given_without_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    give_order(tmp_path, ABORT_FILE, "abort")
    assert (tmp_path / ABORT_FILE).exists()


@pytest.mark.parametrize("has_failed", [False, True])
def test_with_nothing_to_go_back_from_nobody_is_asked(desk: Desk, *, has_failed: bool) -> None:
    if has_failed:
        desk.cluster.exit_codes["preflight"] = 2
        desk.refused("apply")
    before = {key: bytes(content) for key, content in desk.cluster.files.items()}
    said = desk.printed("rollback")
    assert "Go back?" not in said
    assert ("nothing is to go back from: the rollout is closed" if has_failed else "nothing is to go back from") in said
    assert desk.lock.owner is None
    assert desk.cluster.files == before
    assert ("no rollout was begun" in desk.printed("status", exit_code=0 if has_failed else 1)) is not has_failed


def test_a_rollout_is_not_said_to_be_closed_while_another_one_has_the_lock(desk: Desk) -> None:
    desk.cluster.exit_codes["preflight"] = 2
    desk.refused("apply")
    desk.lock.owner = HOLDER
    tried = desk.type("rollback")
    assert isinstance(tried.exception, LockedError)
    assert "is closed" not in tried.output


def test_a_controllers_file_that_only_one_has_so_is_told_before_the_end(desk: Desk) -> None:
    key = next(key for key in desk.cluster.files if key[0] == "controller-3002")
    desk.cluster.files[key] += b"num.io.threads=16\n"
    said = desk.printed("apply", exit_code=1, answer="n\n")
    told = "num.io.threads in the property file of controller-3002 is not as in those of all other controllers"
    assert said.count(told) == 1
    assert said.index(told) < said.index("End the migration?")
    assert said.count("is not as in those of") == 1, "no key that a step changes, and none that all have for themselves"


@pytest.mark.parametrize(
    ("files", "odd"),
    [
        ({"a": {"k": "1"}, "b": {"k": "1"}, "c": {"k": "2"}}, [("c", "k")]),
        ({"a": {"k": "1"}, "b": {}, "c": {"k": "1"}}, [("b", "k")]),
        ({"a": {"k": "1"}, "b": {"k": "2"}, "c": {"k": "3"}}, []),
        ({"a": {"k": "1"}, "b": {"k": "2"}}, []),
        ({"a": {"broker.rack": "r1"}, "b": {"broker.rack": "r1"}, "c": {"broker.rack": "r2", "log.dirs": "/d"}}, []),
    ],
)
def test_odd_keys(files: dict[str, dict[str, str]], odd: list[tuple[str, str]]) -> None:
    assert list(odd_keys(files)) == odd


def test_a_host_that_is_away_says_what_to_do_about_the_reviewed_plan(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    desk.printed(f"plan --out {plan}")
    desk.printed(f"apply --plan {plan} --until MigrationIneligible --yes")
    read = desk.cluster.read

    async def away(node: object, path: str) -> bytes | None:
        if "b2.properties" in path:
            raise HostUnreachableError("ssh did not reach the host", where="broker-2", remedy="See that it is reached")
        return await read(node, path)  # type: ignore[arg-type]

    monkeypatch.setattr(desk.cluster, "read", away)
    said = desk.refused("resume")
    for piece in (
        json.loads(plan.read_text())["digest"][:12],
        "ssh did not reach the host",
        "--without-node NAME --reason TEXT",
        "See that it is reached, and type the command again",
    ):
        assert piece in said
