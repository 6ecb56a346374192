"""`plan --out` and `apply --plan`: what was reviewed is what is done, and each difference is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.rollout.engine.reviewed import _SCRYPT, KIND, VERSION, _digest, _of_files, _slow
from migrator.rollout.journal.journal import Event, read_journal
from migrator.rollout.ports import LockHolder
from tests.rollout.support.model_files import SECRET
from tests.rollout.support.small_disk import small_files
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]

QUESTION = "Nobody has reviewed these differences. Go on, as it is now?"
NOTHING_DIFFERS = "nothing differs from it"


@pytest.fixture
def plan(desk: Desk, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert str(path) in desk.printed(f"plan --canary broker-2 --out {path}")
    return path


def test_each_guess_of_a_file_takes_16_mib() -> None:
    with pytest.raises(ValueError, match="memory limit exceeded"):
        hashlib.scrypt(b"guess", salt=b"salt", dklen=32, maxmem=16 << 20, **_SCRYPT)
    assert _slow("guess", "salt") == hashlib.scrypt(b"guess", salt=b"salt", dklen=32, **_SCRYPT).hex()


def test_files_that_are_not_there_now_are_named_in_the_order_of_the_plan() -> None:
    names = [f"broker-{number}" for number in range(10)]
    said = list(_of_files({name: {} for name in names}, {}, ()))
    assert [text.partition(":")[0] for text in said] == names


def edit_file(desk: Desk, plan: Path) -> None:
    """An operator has put another password into a broker's file."""
    node = desk.cluster.inventory.brokers.nodes[0]
    content = desk.cluster.files[node.name, node.properties]
    desk.cluster.files[node.name, node.properties] = content.replace(SECRET.encode(), b"another-secret")


def edit_inventory(desk: Desk, plan: Path) -> None:
    """The settings of the brokers have changed."""
    desk.inventory.write_text(desk.inventory.read_text().replace("3001@c:9093", "3001@elsewhere:9093"))


def migrate_by_hand(desk: Desk, plan: Path) -> None:
    """The controllers are formatted and run already."""
    for node in desk.cluster.inventory.controllers.nodes:
        desk.cluster.start_as_configured(node)


def test_what_was_reviewed_is_done_and_is_in_the_journal(desk: Desk, plan: Path) -> None:
    """Also when the command goes on later, with files that the rollout itself has changed."""
    again = plan.with_name("again.json")
    desk.printed(f"plan --canary broker-2 --out {again}")
    assert again.read_bytes() == plan.read_bytes(), "the same plan is the same document"
    assert SECRET not in plan.read_text()
    digest = json.loads(plan.read_text())["digest"]
    for until in ("MigrationIneligible", "migrate"):
        assert NOTHING_DIFFERS in desk.printed(f"apply --plan {plan} --until {until} --yes")
    for words in ("resume", "apply"):
        said = desk.printed(f"{words} --until DualWrite --yes")
        assert NOTHING_DIFFERS in said
        assert f"began with the reviewed plan {digest[:12]}" in said
    (desk.state / f"reviewed-{digest[:12]}.json").unlink()
    assert "so nothing is compared with it" in desk.printed("resume --until DualWrite --yes")
    assert NOTHING_DIFFERS in desk.printed(f"apply --plan {plan} --until DualWrite --yes")
    opened = next(entry for entry in read_journal(desk.state) if entry.event is Event.OPENED)
    assert (opened.details["plan"], opened.details["accepted"], opened.details["canary"]) == (digest, 0, "broker-2")
    assert json.loads(desk.type("status --json").stdout)["plan"] == digest
    assert f"reviewed plan: {digest[:12]}" in desk.type("status").output
    desk.printed("rollback --yes")
    assert json.loads(desk.type("status --json").stdout)["plan"] is None


def test_what_cannot_be_seen_for_a_while_is_no_difference(desk: Desk, plan: Path) -> None:
    """ZooKeeper, which says the id of the cluster, does not answer just now; it may be off after the end. And the disk
    has no room for what it has already."""
    desk.printed(f"apply --plan {plan} --until MigrationIneligible --yes")
    desk.cluster.cluster_id = ""
    kept = next(desk.state.glob("reviewed-*.json"))
    with small_files(kept.stat().st_size - 1):
        assert NOTHING_DIFFERS in desk.printed("resume --until MigrationIneligible --yes")
    assert NOTHING_DIFFERS in desk.printed("resume --yes --pause-after finish/controller-3001")


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (edit_file, "broker-1 on localhost: /etc/b1.properties: the file, or its place, was changed"),
        (edit_inventory, "the inventory says something else of the brokers, or their settings"),
        (migrate_by_hand, "step start/controller-3001: acts: reviewed start; now nothing"),
    ],
)
def test_a_difference_is_shown_and_asked_for(
    desk: Desk, plan: Path, happens: Callable[[Desk, Path], None], said: str
) -> None:
    happens(desk, plan)
    refused = desk.type(f"apply --plan {plan} --yes --until preflight")
    assert said in refused.output
    assert "--yes does not accept that" in str(refused.exception)
    assert desk.type(f"apply --plan {plan} --until preflight", answer="n\n").exit_code == 1
    assert not read_journal(desk.state), "nothing has begun"
    agreed = desk.printed(f"apply --plan {plan} --until preflight", answer="y\n")
    assert said in agreed
    assert QUESTION in agreed
    assert read_journal(desk.state)[0].details["accepted"]


def test_every_later_command_is_held_to_the_plan_up_to_the_end(desk: Desk, plan: Path) -> None:
    """Accepted differences are not asked for again, and changes by the rollout itself are none."""
    desk.printed(f"apply --plan {plan} --until preflight --yes")
    edit_inventory(desk, plan)
    for words in ("resume", "apply"):
        refused = desk.type(f"{words} --until preflight --yes")
        assert "the inventory says something else of the brokers" in refused.output
        assert "--yes does not accept that" in str(refused.exception)
    assert desk.type("resume --until preflight", answer="n\n").exit_code == 1
    assert QUESTION in desk.printed("resume --until preflight", answer="y\n")
    for words in ("--pause-after finish/controller-3001", ""):
        assert "accepted differences from it" in desk.printed(f"resume {words} --yes")


def test_a_file_that_changes_behind_the_comparison_is_refused(
    desk: Desk, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def holder() -> LockHolder | None:
        if looks:  # the second time is behind the comparison
            edit_file(desk, plan)
        looks.append("holder")
        return None

    monkeypatch.setattr(desk.lock, "holder", holder)
    assert "since it was compared with the plan" in desk.refused(f"apply --plan {plan} --until preflight")
    assert not read_journal(desk.state)


def sealed(**content: object) -> dict[str, object]:
    """With its digest, which everybody can compute."""
    return content | {"digest": _digest(content)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no plan", "this is no plan"),
        ("[]", "this is no plan"),
        ("[" * 200_000, "this is no plan"),
        (json.dumps(sealed(kind=KIND, version=VERSION)), "this is no plan"),
        ({"version": 2}, "the plan has the format 2, and this release knows 1"),
        ({"canary": "broker-3"}, "the plan was changed after"),
    ],
)
def test_what_is_no_plan_is_refused(desk: Desk, plan: Path, content: str | dict[str, object], said: str) -> None:
    text = content if isinstance(content, str) else json.dumps(json.loads(plan.read_text()) | content)
    plan.write_text(text)
    assert said in desk.refused(f"apply --plan {plan}")


def test_a_plan_that_leads_back_is_refused_and_no_file_is_replaced(desk: Desk, tmp_path: Path) -> None:
    desk.printed("apply --until DualWrite --yes")
    back = tmp_path / "back.json"
    desk.printed(f"plan --back --out {back}")
    assert "this plan leads back" in desk.refused(f"apply --plan {back}")
    assert "File exists" in desk.refused(f"plan --out {back}")


def test_what_is_refused_anyway_is_refused_before_a_person_is_asked(desk: Desk, tmp_path: Path) -> None:
    """Another rollout holds the lock, or a rollback is under way."""
    plan = tmp_path / "plan.json"
    desk.printed(f"plan --out {plan}")
    edit_file(desk, plan)
    desk.lock.owner = LockHolder("another", "bob", "ops-2", 1)
    assert "another rollout holds the lock" in desk.refused(f"apply --plan {plan}")
    desk.lock.owner = None
    desk.printed("apply --yes --pause-after kraft/broker-1")
    desk.cluster.exit_codes["rollback"] = 2
    desk.refused("rollback --yes")
    assert "a rollback is under way" in desk.refused(f"apply --plan {plan}")


def test_a_plan_with_another_canary_than_the_rollout_says_what_to_do(desk: Desk, plan: Path) -> None:
    desk.printed("apply --yes --until start")
    said = desk.refused(f"apply --plan {plan}")
    assert said.startswith("--plan: the plan has the canary broker-2, and that does not fit: the rollout that is under")
    assert "--canary" not in said
    assert "anew: 'migrator rollout plan --out FILE'" in said


def test_a_plan_that_could_not_be_written_whole_is_not_there(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    with small_files(1_000):
        result = desk.type(f"plan --out {path}")
    assert "the plan cannot be written: File too large" in str(result.exception)
    assert not path.exists()
