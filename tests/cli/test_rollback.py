"""`migrator rollback`: what a log says against it comes before anybody stops a quorum."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli.rollback import command
from migrator.errors import OperatorError
from migrator.parts.processes import free_port
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.records.versions import LATEST_SUPPORTED, version_at
from migrator.rehearse.local_log import EPOCH, LocalLog

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def controller_file(directory: Path, port: int) -> Path:
    file = directory / "controller.properties"
    file.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
        f"log.dirs={directory / 'metadata'}\nzookeeper.connect=127.0.0.1:{free_port()}\n"
        "zookeeper.metadata.migration.enable=true\nzookeeper.connection.timeout.ms=200\n"
    )
    return file


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((ZkMigrationState.MIGRATION, ZkMigrationState.POST_MIGRATION), "the migration is finished"),
        ((ZkMigrationState.MIGRATION,), "controller 1 still runs"),
    ],
)
def test_finished_is_said_while_the_controllers_run(
    states: tuple[ZkMigrationState, ...], said: str, tmp_path: Path
) -> None:
    port = free_port()
    log = LocalLog.create(tmp_path / "metadata", CLUSTER, 1, version_at(LATEST_SUPPORTED))
    for state in states:
        asyncio.run(log.append(EPOCH, [ZkMigrationStateRecord(state)]))
    log.commit()
    log.close()
    with socket.create_server(("127.0.0.1", port)):
        arguments = ["-c", str(controller_file(tmp_path, port))]
        refused = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(refused.exception, OperatorError), refused.output
    assert said in refused.exception.what
    assert refused.output == "", "nothing is asked"
