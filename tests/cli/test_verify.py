"""Options of `migrator verify` that do not go together: refused before Spark is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli.verify import command
from migrator.cli.verify_run import labels
from migrator.errors import ExitCode, OperatorError
from migrator.verify.named import Sources

SERVERS = "zk1:2181,zk2:2181/kafka"
FILES = ("--zookeeper-files", "data", "--metadata", "log")
LIVE = ("--zookeeper", "nowhere:1", "--metadata", "log")
CONTROLLER = ("--server", "nowhere:1")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ((*FILES, *CONTROLLER, "--report"), "--report"),
        ((*FILES, *CONTROLLER, "--repair"), "--repair"),
        (("--parquet", "kept", *CONTROLLER, "--report"), "--report"),
        ((*FILES, "--watch", "5"), "--watch"),
        ((*LIVE, "--watch", "5", "--parquet", "kept"), "--parquet"),
        ((*LIVE, *CONTROLLER, "--repair", "--parquet", "kept"), "--parquet"),
        (("--metadata", "log"), "--zookeeper"),
        (("--zookeeper-files", "data"), "--metadata"),
        ((*FILES, "--conf", "memory"), "--conf"),
    ],
)
def test_it_is_refused_with_the_option_at_fault(
    arguments: tuple[str, ...], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(result.exception, OperatorError), result.exception
    assert (result.exception.where, result.exception.exit_code) == (where, ExitCode.REFUSED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        (Sources(zookeeper="z:1/kafka", metadata="h:9093"), {"ZooKeeper": "z:1/kafka", "Metadata log": "h:9093"}),
        (Sources(metadata="/log", config="FILE"), {"ZooKeeper": SERVERS, "Metadata log": "/log"}),
        (
            Sources(zookeeper_files=("/a", "/b"), chroot="/kafka", metadata="/log", config="FILE"),
            {"ZooKeeper": "/a, /b (chroot /kafka)", "Metadata log": "/log"},
        ),
        (Sources(archive="/kept"), {"Archive": "/kept"}),
    ],
)
def test_the_page_names_hosts_and_never_a_property_file(
    sources: Sources, shown: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "c.properties"
    file.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@h:9093\nlisteners=CONTROLLER://h:9093\n"
        f"controller.listener.names=CONTROLLER\nzookeeper.connect={SERVERS}\n"
        f"zookeeper.metadata.migration.enable=true\nlog.dirs={tmp_path}\n"
    )
    given = replace(sources, config=sources.config and str(file))
    assert labels(given) == shown
