"""docs/troubleshooting.md has a row for each message, refusal, exit code, error and alert, and for nothing else."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from kio.schema.errors import ErrorCode

from migrator.cli.interrupted import INTERRUPTED
from migrator.errors import ExitCode
from migrator.migration.broker_rpcs.channels import Answered
from migrator.migration.machine.states import PROPERTIES, State
from migrator.migration.write_behind.messages import SetAside, Unanswered
from migrator.node.refused_brokers import REMEDIES
from migrator.preflight.table import CHECKS
from migrator.zookeeper.clusters import NoClusterError
from tests.people.support import messages
from tests.people.support.messages import HOLE, trees

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
STATUS = "What the status says"
REFUSED = "What a controller refuses"
OF_A_ZNODE = f"{HOLE}: {HOLE}"
"""What is refused because a znode does not decode: the words come from its codec."""
OF_BROKERS = ("self.trouble", "self._fault", "self._unreachable[broker_id]", "WITHOUT_TOPIC_IDS")
"""Where the sentences are kept that say why a broker is not told."""


@cache
def of_the_status() -> frozenset[str]:
    """What comes with a remedy, and what is put together while the program runs."""
    computed = {
        *(text for tree in trees("migration/broker_rpcs") for text in messages.assigned(tree, *OF_BROKERS)),
        str(Unanswered(3, 2_000_000, ("topic a",))),
        Answered(3, "LeaderAndIsr", ErrorCode.stale_controller_epoch, {}).refusal,
        *(text for tree in trees("node/migration") for text in messages.arguments(tree, "self._session.away")),
        str(SetAside("topic a", "/brokers/topics/a", 2_000_000, 1_048_575, 0)),
    }
    troubles = (messages.troubles(tree) for tree in trees("migration/machine", "node", "observe"))
    return frozenset(computed).union(*troubles)


@cache
def refusals() -> frozenset[str]:
    found = (messages.refusals(tree) for tree in trees("migration/machine/guards.py"))
    return frozenset({NoClusterError("zk:2181", ()).what}).union(*found)


def section(heading: str) -> str:
    assert f"\n## {heading}\n" in PAGE
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows_below(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    return [line.split(" | ")[0].strip("| `") for line in section(heading).splitlines() if line.startswith("| ")][1:]


def fitting(message: str, heading: str) -> list[str]:
    return [row for row in rows_below(heading) if row in message]


def test_each_message_of_the_status_has_one_row() -> None:
    rows = {message: fitting(message, STATUS) for message in of_the_status()}
    assert {message: found for message, found in rows.items() if len(found) != 1} == {}


def test_each_row_of_the_status_is_of_a_message() -> None:
    rooms = ("migration/machine", "migration/write_behind", "node", "observe")
    said = {text for tree in trees(*rooms) for text in messages.literals(tree)}
    assert [row for row in rows_below(STATUS) if not any(row in text for text in said | of_the_status())] == []


def test_each_refusal_has_one_row() -> None:
    rows = {refusal: fitting(refusal, REFUSED) for refusal in refusals() - {OF_A_ZNODE}}
    assert {refusal: found for refusal, found in rows.items() if len(found) != 1} == {}


def test_each_row_is_of_a_refusal() -> None:
    assert OF_A_ZNODE in refusals()
    rows = rows_below(REFUSED)
    assert [row for row in rows if not any(row in refusal for refusal in refusals())] == ["does not decode"]


def test_each_error_that_a_broker_gets_has_its_row() -> None:
    found = re.findall(r"^\| (\w+) \| (\d+) \|", section("Why a broker is refused"), re.MULTILINE)
    assert sorted(found) == sorted((error.name.upper(), str(error.value)) for error in REMEDIES)


def test_each_kind_of_journal_entry_has_its_row() -> None:
    kinds = {kind for tree in trees("node") for kind in messages.kinds(tree)}
    assert len(kinds) > 5
    assert sorted(rows_below("What the journal says")) == sorted(kinds)


def test_each_state_that_waits_for_a_person_has_its_row() -> None:
    waiting = {state.value for state, row in PROPERTIES.items() if row.waits_for_person}
    named = set(re.findall(r"\| State \*([^*]+)\*", section("What you see")))
    assert waiting <= named <= {state.value for state in State}


def test_each_exit_code_has_its_row() -> None:
    found = re.findall(r"^\| (\d+) \| (\w+) \|", section("Exit codes"), re.MULTILINE)
    codes = [(str(int(code)), code.name) for code in ExitCode]
    assert found == [*codes, (str(INTERRUPTED), "INTERRUPTED")]


def test_each_alert_has_its_row() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    assert rows_below("Alerts") == [rule["alert"] for group in rules["groups"] for rule in group["rules"]]


def test_each_check_is_explained_on_the_page_that_is_linked() -> None:
    assert "(checks.md)" in section("What preflight finds")
    explained = re.findall(r"^\| (M\d+) \|", (ROOT / "docs/checks.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(explained) == sorted(check.code for check in CHECKS)
