"""docs/verify.md's worked example is run as it stands there: what is broken, and what verify says to it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pyspark
import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import MIGRATOR
from migrator.errors import ExitCode
from migrator.parts.java import find_java
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS
from tests.verify.support.stock_pair import AFTER, restore, stock_metadata, stock_property_file

PAGE = Path(__file__).parents[2] / "docs/verify.md"
_BREAKING = re.compile(r"^\$ zookeeper-shell\.sh \S+ <<'END'\n(.*?)^END\n", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (migrator verify .*)\n((?:(?!^\$|^```).*\n)*)", re.MULTILINE)
_FINDING = re.compile(
    r"^  (?:missing|extra|different): .*|^\S+(?: differences)?(?=: [\d,]+ rows compared)", re.MULTILINE
)


def zookeeper_shell(hosts: str, commands: str) -> str:
    """ZooKeeper's own shell, which is what Kafka's ``zookeeper-shell.sh`` starts."""
    jars = Path(pyspark.__file__).parent / "jars"
    command = [str(find_java()), "-cp", f"{jars}/*", "org.apache.zookeeper.ZooKeeperMain", "-server", hosts]
    done = subprocess.run(
        command, input=commands + "quit\n", capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    return done.stdout + done.stderr


def findings(text: str) -> list[str]:
    """The differences, and how many there are, as the command prints them."""
    found: list[str] = _FINDING.findall(text)
    return [re.sub("hmac:[0-9a-f]+", "hmac:...", finding) for finding in found]


@pytest.mark.lane("test-long")
def test_what_was_broken_is_found_as_the_page_says(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    restore(zookeeper_client, AFTER)
    segment = stock_metadata(tmp_path)
    properties = stock_property_file(tmp_path, zookeeper.hosts)
    properties.write_text(properties.read_text() + f"metadata.log.dir={segment.parents[1]}\n")
    text = PAGE.read_text("utf-8")
    breaking = _BREAKING.search(text)
    assert breaking is not None
    (before, expected_before), (after, expected_after) = _COMMAND.findall(text)[:2]
    assert len(breaking[1].splitlines()) == 10
    for command, expected, code in (
        (before, expected_before, ExitCode.OK),
        (after, expected_after, ExitCode.DIFFERENT),
    ):
        if code is ExitCode.DIFFERENT:
            said = zookeeper_shell(zookeeper.hosts, breaking[1])
            assert "does not exist" not in said, said
        options = command.removeprefix("migrator ").split()
        done = subprocess.run(
            [MIGRATOR, *options], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
            env={**os.environ, "COLUMNS": "250"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr + done.stdout
        assert findings(done.stdout) == findings(expected), done.stdout
