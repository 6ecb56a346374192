"""`migrator quorum unregister`, and that every page and message names a way that works."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import migrator
from migrator.cli.quorum import may_unregister
from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.seeing.quorum import QuorumLook
from tests.migration.support.builders import broker, cluster
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
TOOL = "kafka-cluster.sh unregister"


def look(image: MetadataImage | None, *unknown: str) -> QuorumLook:
    return QuorumLook(None, image, -1, unknown)


def seen(*, fenced: bool, migrating: bool) -> QuorumLook:
    registered = cluster([broker(1), replace(broker(4, migrating=migrating), fenced=fenced)], [])
    return look(replace(EMPTY_IMAGE, cluster=registered))


@pytest.mark.parametrize("migrating", [False, True])
def test_a_broker_that_is_gone_may_be_removed_and_one_that_serves_may_not(*, migrating: bool) -> None:
    assert may_unregister(seen(fenced=True, migrating=migrating), 4)
    with pytest.raises(OperatorError, match=r"broker 4 serves.* Stop the broker first"):
        may_unregister(seen(fenced=False, migrating=migrating), 4)


def test_nothing_is_removed_twice() -> None:
    assert not may_unregister(seen(fenced=True, migrating=False), 7)


@pytest.mark.parametrize("why", ["no controller leads the quorum", ""])
def test_what_nobody_can_say_is_no_yes(why: str) -> None:
    with pytest.raises(OperatorError, match=why or "nothing is committed yet"):
        may_unregister(look(None, *filter(None, [why])), 4)


def test_a_quorum_that_does_not_answer_ends_the_command(tmp_path: Path, free_port: int) -> None:
    """The file that ``access`` of an inventory names is enough."""
    file = tmp_path / "operator.properties"
    file.write_text(f"controller.listener.names=C\ncontroller.quorum.voters=1@127.0.0.1:{free_port}\n")
    program = "from migrator.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "quorum", "unregister", "-c", str(file), "--id", "4"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 2
    assert "no controller answers" in ended.stderr
    assert "Nothing was changed" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_message_names_kafkas_tool() -> None:
    """It takes no controller, and through a broker in migration mode it does nothing, with exit code 0: so says
    tests/interop/test_unregister_broker.py."""
    sources = [*Path(migrator.__file__).parent.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    assert [path.name for path in sources if TOOL in path.read_text()] == ["quorum.md"], "which says that"
